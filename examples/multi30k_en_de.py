"""Multi30K image captions, English to German, on a CPU in an hour: a recipe for small real corpora.

`--data-dir` names a folder with the corpus' files; without it they are downloaded.
"""

import os

# The command line starts Keras when it needs it, without the notes that TensorFlow writes: `--help` is quick.
os.environ["KERAS_ATTENTION_LAZY"] = "1"

from keras_attention.cli.train import run

if __name__ == "__main__":
    run(__doc__, default_corpus="multi30k")
