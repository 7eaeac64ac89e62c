"""Row (E) of the paper's Table 3: learned positions against sinusoids, also beyond the training length.

Without arguments: 600 updates of each on the demo corpus' sentences of at most 12 tokens (synthetic); the
perplexity of held-out sentences by their length, as a table and a picture. A stopped experiment goes on.

What to expect, written down before the first run: within the trained lengths both are equal within 2 %, as in
the paper. Beyond them both get worse, learned positions more: their rows there were never trained.
"""

# The command line starts Keras when it needs it, without the notes that TensorFlow writes: `--help` is quick.
import keras_attention_light  # noqa: F401
from keras_attention.cli.experiment import run

if __name__ == "__main__":
    run("table3_positions", __doc__)
