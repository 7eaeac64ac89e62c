"""Measure the layers of the paper's Table 1: time, memory, sequential operations, path length.

Self-attention (its core, and the whole layer), restricted self-attention, Keras' LSTM and convolutions
(plain, dilated, separable) over n, d, k and r: some minutes on a CPU. A machine with nothing else to do gives
narrow intervals; a stopped measurement goes on where it was.

What to expect, written down before the first run: the exponent of the full core in n is 2, of the restricted
one 1; of LSTM and convolutions in n 1, in d 2; in k and r 1. A whole attention layer lies below 2, since its
projections grow with n alone (1.91 by arithmetic for d = 256). Maximum path lengths are exact: they are read
from Jacobians and equal the formulae. At 16,384 positions the restricted core takes less than a tenth
of the memory of explicit scores.
"""

# The command line starts Keras when it needs it, without the notes that TensorFlow writes: `--help` is quick.
import keras_attention_light  # noqa: F401
from keras_attention.cli.experiment import run

if __name__ == "__main__":
    run("table1_layer_complexity", __doc__)
