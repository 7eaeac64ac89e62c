"""Train a Transformer to translate English to German, and score it.

Without arguments it trains a small model on the embedded demo corpus (synthetic) in a few minutes on a
CPU. `--corpus wmt14` is the paper's own job, for GPUs: it downloads the corpus unless `--data-dir` names a
folder with its files. `--plan` says first what a run will read and cost. `--corpus multi30k` trains on real
captions; `--source-file` and `--target-file` on your own text.
"""

# First: the command line starts Keras when it needs it, without the notes that TensorFlow writes.
import keras_attention_light  # noqa: F401
from keras_attention.cli.train import run

if __name__ == "__main__":
    run(__doc__, default_corpus="demo")
