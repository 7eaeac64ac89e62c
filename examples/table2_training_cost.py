"""Reproduce the cost column of the paper's Table 2 and count the FLOPs of each part, also for your own run.

Takes seconds. `--run RUN` adds a finished run of this package: its counted FLOPs, and the paper's formula
with the speed of the machine that trained it.

What to expect, written before the first run: hours, GPUs and 9.5 TFLOP/s give 3.3e18 and 2.3e19. The models
need fewer FLOPs than that: about 30 % for base.
"""

# First: Keras then starts only when it is needed, without TensorFlow's log messages, and `--help` is quick.
import keras_attention_light  # noqa: F401
from keras_attention.cli.experiment import run

if __name__ == "__main__":
    run("table2_training_cost", __doc__)
