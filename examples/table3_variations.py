"""Train rows of the paper's Table 3 with several seeds, and compare each with base.

Without arguments: the rows (D), dropout and label smoothing, three seeds, 600 updates each of a model of a
quarter of the paper's width and half its depth, on the demo corpus (synthetic). `--rows A B C D E big`,
or names of rows, choose others; `--width 1 --depth 1 --corpus wmt14 --steps 100000` is the paper's setting.
A stopped experiment goes on. `--pairs 500` trains on the first 500 pairs alone.

What to expect, written down before the first run: without smoothing the perplexity is lower, with more
smoothing higher, as in the paper. Without dropout it is *lower* here, against the paper: 600 updates over
10,000 sentences of a grammar do not over-fit. Sizes (A to C) come out flat or reversed on so little text.
Perplexity resolves about 1 %, BLEU about 1 point. Of 500 pairs each comes some 16 times in 500 updates:
without dropout that over-fits, and the perplexity is higher, as in the paper. Smoothing then keeps a model
from being too sure, so that without it little is gained or nothing.
"""

# The command line starts Keras when it needs it, without the notes that TensorFlow writes: `--help` is quick.
import keras_attention_light  # noqa: F401
from keras_attention.cli.experiment import run

if __name__ == "__main__":
    run("table3_variations", __doc__)
