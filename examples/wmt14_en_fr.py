"""Train a Transformer on WMT14 English-French, as in section 5 of the paper, and score it.

Downloads the corpus (gigabytes) unless `--data-dir` names a folder with its files. `--plan` shows what the
run will read and need, without training. `--preset big_en_fr` selects the model of the paper's best result.
"""

# First: Keras then starts only when it is needed, without TensorFlow's log messages.
import keras_attention_light  # noqa: F401
from keras_attention.cli.train import run

if __name__ == "__main__":
    run(__doc__, default_corpus="wmt14", default_target_language="fr")
