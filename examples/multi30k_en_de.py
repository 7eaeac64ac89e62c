"""Multi30K image captions, English to German, on a CPU in an hour: a recipe for small real corpora.

`--data-dir` names a folder with the corpus' files; without it they are downloaded.
"""

import os

# Before TensorFlow is imported: its notes on processors and drivers are not what a run is read for.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# TensorFlow leaves oneDNN off where a processor lacks VNNI; there, too, it did no harm (docs/log.md).
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

from keras_attention.cli.train import run

if __name__ == "__main__":
    run(__doc__, default_corpus="multi30k")
