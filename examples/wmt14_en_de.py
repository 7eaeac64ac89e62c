"""Train a Transformer to translate English to German, and score it.

Without arguments it trains a small model on the embedded demo corpus (synthetic) in a few minutes on a
CPU. `--corpus wmt14` is the paper's own job, for GPUs: it downloads the corpus unless `--data-dir` names a
folder with its files. `--plan` says first what a run will read and cost. `--corpus multi30k` trains on real
captions; `--source-file` and `--target-file` on your own text.
"""

import os

# The command line starts Keras when it needs it, without the notes that TensorFlow writes: `--help` is quick.
os.environ["KERAS_ATTENTION_LAZY"] = "1"

from keras_attention.cli.train import run

if __name__ == "__main__":
    run(__doc__, default_corpus="demo")
