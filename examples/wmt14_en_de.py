"""Train a Transformer to translate English to German, and score it.

Without arguments, this trains a small model on the built-in demo corpus (synthetic), a few minutes on a CPU.
`--corpus wmt14` is the paper's own job, for GPUs; it downloads the corpus unless `--data-dir` names a folder
with its files. `--plan` shows what a run will read and need, without training. `--corpus multi30k` trains on
real image captions, `--source-file` and `--target-file` on your own text.
"""

# First: Keras then starts only when it is needed, without TensorFlow's log messages.
import keras_attention_light  # noqa: F401
from keras_attention.cli.train import run

if __name__ == "__main__":
    run(__doc__, default_corpus="demo")
