"""Train a Transformer to translate English to German, and score it.

Without arguments it trains a small model on the embedded demo corpus (synthetic) in a few minutes on a
CPU. `--corpus wmt14` is the paper's own job, for GPUs: it downloads the corpus unless `--data-dir` names a
folder with its files. `--plan` says first what a run will read and cost. `--corpus multi30k` trains on real
captions; `--source-file` and `--target-file` on your own text.
"""

import os

# Before TensorFlow is imported: its notes on processors and drivers are not what a run is read for.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# TensorFlow leaves oneDNN off where a processor lacks VNNI; there, too, it did no harm (docs/log.md).
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

from keras_attention.cli.train import run

if __name__ == "__main__":
    run(__doc__, default_corpus="demo")
