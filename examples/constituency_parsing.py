"""Train a Transformer to parse English, and score it by bracketing F1: section 6.3 of the paper, Table 4.

Without arguments it trains a small model for five minutes on nltk's sample of the Wall Street Journal
(3,227 trees; downloaded), and parses the 351 sentences of its test part: by a search that can only write
well-formed trees, and by one whose trees are repaired. Right-branching trees stand beside it, and with
`--pcfg` those of a grammar that is read off the training part. `--treebank craft` is the free treebank of
30,830 trees, and `--treebank penn --data-dir WSJ` the paper's own job: its corpus, its model, beam 21.

What to expect, written down before the first run: the paper's 91.3 takes 40,000 trees and a large model; five
minutes on 3,227 trees are to beat right-branching trees by 20 points, but not the grammar, which needs no
time to learn where words stand; an hour on CRAFT is to reach 72. The constrained search writes no malformed
tree, and finds at least the F1 of repaired trees.
"""

# First: the command line starts Keras when it needs it, without the notes that TensorFlow writes.
import keras_attention_light  # noqa: F401
from keras_attention.cli.parse import run

if __name__ == "__main__":
    run(__doc__)
