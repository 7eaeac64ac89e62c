"""Measure the layers of the paper's Table 1: time, memory, sequential operations, path length.

The layers are self-attention (its core, and the whole layer), restricted self-attention, and Keras' LSTM
and convolutions (plain, dilated, separable), over n, d, k and r. This takes some minutes on a CPU. An
otherwise idle machine gives narrow intervals. A stopped measurement continues.

What to expect, written before the first run: in n, the exponent of the full core is 2, that of the
restricted core 1, and that of LSTM and convolutions 1. In d, LSTM and convolutions have 2; in k and r the
exponent is 1. A whole attention layer is below 2 in n, because its projections grow only linearly (1.91 by
arithmetic for d = 256). Maximum path lengths are exact: they are read from Jacobians and equal the
formulae. At 16,384 positions the restricted core takes less than a tenth of the memory of explicit scores.
"""

# First: Keras then starts only when it is needed, without TensorFlow's log messages, and `--help` is quick.
import keras_attention_light  # noqa: F401
from keras_attention.cli.experiment import run

if __name__ == "__main__":
    run("table1_layer_complexity", __doc__)
