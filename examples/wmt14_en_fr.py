"""Train a Transformer on WMT14 English-French, as in section 5 of the paper, and score it.

Downloads the corpus (gigabytes) unless `--data-dir` names a folder with its files. `--plan` says first what
the run will read and cost; `--preset big_en_fr` is the model of the paper's best result.
"""

import os

# Before TensorFlow is imported: its notes on processors and drivers are not what a run is read for.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# TensorFlow leaves oneDNN off where a processor lacks VNNI; there, too, it did no harm (docs/log.md).
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

from keras_attention.cli.train import run

if __name__ == "__main__":
    run(__doc__, default_corpus="wmt14", default_target_language="fr")
