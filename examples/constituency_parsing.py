"""Train a Transformer to parse English, and score it by bracketing F1: section 6.3 of the paper, Table 4.

Without arguments, this trains a small model for five minutes on nltk's sample of the Wall Street Journal
(3,227 trees; downloaded). Then it parses the sample's 351 test sentences in two ways: with a search that
can only write well-formed trees, and with a free search whose trees are repaired. The results are compared
with right-branching trees and, with `--pcfg`, with a grammar that is read off the training set. `--treebank
craft` uses the free treebank of 30,830 trees. `--treebank penn --data-dir WSJ` is the paper's own job: its
corpus, its model, beam 21.

What to expect, written before the first run: the paper's 91.3 needs 40,000 trees and a large model. Five
minutes on 3,227 trees should beat right-branching trees by 20 points, but not the grammar, which need not
learn word order first. An hour on CRAFT should reach 72. The constrained search writes no malformed tree,
and its F1 is at least that of repaired trees.
"""

# First: Keras then starts only when it is needed, without TensorFlow's log messages.
import keras_attention_light  # noqa: F401
from keras_attention.cli.parse import run

if __name__ == "__main__":
    run(__doc__)
