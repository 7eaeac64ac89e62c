"""Train a Weighted Transformer beside a plain one: does it learn faster, and why? (Ahmed et al. 2017)

Without arguments it trains three models with three seeds each on the demo corpus (synthetic; some ten minutes
on two CPU cores): a Transformer, one whose feed-forward networks start as small as branches do, and a
Weighted Transformer. All have as many updates; the loss is compared after equal minutes, too. The published
setting is `--corpus wmt14 --preset base --updates 60000` (against 100,000 of the Transformer).

What to expect, written down before the first run: parameters equal up to 2 for each branch, less a
normalisation; an update at most 1.25 times as long. The paper's +0.7 to +1.1 BLEU with 40 % fewer updates is
below what some hundred updates of a small model resolve: differences in BLEU are noise. If the loss falls
faster, the model that starts as small should show much of it, too. Kappa and alpha leave their random start
slowly, and stay on the simplex.
"""

# The command line starts Keras when it needs it, without the notes that TensorFlow writes: `--help` is quick.
import keras_attention_light  # noqa: F401
from keras_attention.cli.experiment import run

if __name__ == "__main__":
    run("weighted_transformer", __doc__)
