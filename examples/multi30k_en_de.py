"""Multi30K image captions, English to German, on a CPU in some two hours: a recipe for small real corpora.

`--data-dir` names a folder with the corpus' files. Without it, they are downloaded. On a processor that has
bfloat16 products, `--dtype mixed_bfloat16` may be faster.
"""

# First: Keras then starts only when it is needed, without TensorFlow's log messages.
import keras_attention_light  # noqa: F401
from keras_attention.cli.train import run

if __name__ == "__main__":
    run(__doc__, default_corpus="multi30k")
