"""Compare a Weighted Transformer with a plain one: does it learn faster, and why? (Ahmed et al. 2017)

Without arguments, this trains three models on the demo corpus, with three seeds each (synthetic; about five
minutes on two CPU cores): a Transformer, one whose feed-forward networks start with outputs as small as
those of branches, and a Weighted Transformer. All get the same number of updates; the loss is also compared
after equal minutes. The published setting is `--corpus wmt14 --preset base --updates 60000` (the paper's
plain Transformer has 100,000).

What to expect, written before the first run: the models have equally many parameters, except for 2 more per
branch and one normalisation less. An update takes at most 1.25 times as long. A few hundred updates of a
small model cannot resolve the paper's +0.7 to +1.1 BLEU with 40 % fewer updates: differences in BLEU are
noise. If the loss falls faster, the model with the small start should show much of this, too. Kappa and
alpha change slowly from their random start and stay on the simplex.
"""

# First: Keras then starts only when it is needed, without TensorFlow's log messages, and `--help` is quick.
import keras_attention_light  # noqa: F401
from keras_attention.cli.experiment import run

if __name__ == "__main__":
    run("weighted_transformer", __doc__)
