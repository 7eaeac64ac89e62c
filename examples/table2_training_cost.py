"""Reproduce the cost column of the paper's Table 2, count the FLOPs by part, and both for a run of yours.

Takes seconds. `--run RUN` adds a finished run of this package: its counted FLOPs, and the paper's formula
with the speed of the machine that trained it.

What to expect, written down before the first run: 3.3e18 and 2.3e19 come out of hours, GPUs and 9.5 TFLOP/s.
The FLOPs that the models need are less: about 30 % of that for base.
"""

# The command line starts Keras when it needs it, without the notes that TensorFlow writes: `--help` is quick.
import keras_attention_light  # noqa: F401
from keras_attention.cli.experiment import run

if __name__ == "__main__":
    run("table2_training_cost", __doc__)
