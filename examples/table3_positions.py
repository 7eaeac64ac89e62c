"""Row (E) of the paper's Table 3: learned positions against sinusoids, also beyond the training length.

Without arguments, this trains both models for 600 updates on the demo corpus' sentences of at most 12
tokens (synthetic). It shows the perplexity of held-out sentences by their length, as a table and a picture.
A stopped experiment continues.

What to expect, written before the first run: up to the training length both are equal within 2 %, as in the
paper. Beyond it both get worse, learned positions more, because their rows there were never trained.
"""

# First: Keras then starts only when it is needed, without TensorFlow's log messages, and `--help` is quick.
import keras_attention_light  # noqa: F401
from keras_attention.cli.experiment import run

if __name__ == "__main__":
    run("table3_positions", __doc__)
