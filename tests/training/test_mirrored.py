"""Replicas of MirroredStrategy that hold unequal numbers of tokens: gradients are in test_parallelism.py."""

import json
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.backends("tensorflow")

# A process of its own: logical devices can be made only before TensorFlow starts.
PROGRAM = '''
import tests.conftest  # how tests set TensorFlow up
import json, sys
import keras, numpy as np, tensorflow as tf
from keras_attention import Adam, LabelSmoothedCrossentropy, Transformer, WeightedTransformer

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
source = np.array([[5, 6, 1, 0], [7, 1, 0, 0], [8, 9, 10, 1], [3, 4, 5, 1]])
labels = np.array([[4, 1, 0, 0, 0], [6, 1, 0, 0, 0], [5, 6, 7, 8, 1], [9, 8, 3, 7, 1]])
inputs = {"encoder_token_ids": source, "decoder_token_ids": np.pad(labels, ((0, 0), (1, 0)))[:, :-1]}

def kept_after_infinity():
    """Adam on two replicas in two slices each; then one row weighs infinitely much."""
    reduction = tf.distribute.ReductionToOneDevice()
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], reduction).scope():
        model = Transformer(
            vocabulary_size=11, num_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2,
            dropout=0.1, seed=3,
        )
        model.compile(Adam(0.01), LabelSmoothedCrossentropy(), accumulation_steps=2)
        half = keras.optimizers.LossScaleOptimizer(Adam(0.01))
        try:
            model.from_config(model.get_config()).compile(half, LabelSmoothedCrossentropy())
            refused = ""
        except ValueError as error:
            refused = str(error)
    weights = np.ones(4)
    states = []
    for last in (1.0, np.inf, 1.0):
        weights[3] = last
        model.fit(inputs, labels, sample_weight=weights, batch_size=4, shuffle=False, verbose=0)
        states.append((model.get_weights(), model.optimizer.first_nonfinite))
    kept = all((a == b).all() for other in states[1:] for a, b in zip(states[0][0], other[0]))
    return [number for _, number in states], kept, refused

def branches(strategy):
    """kappa and alpha of a Weighted Transformer after three updates."""
    with strategy.scope():
        model = WeightedTransformer(
            vocabulary_size=11, num_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2,
            dropout=0.0, seed=3,
        )
        model.compile(Adam(0.01, simplex_learning_rate=0.1), LabelSmoothedCrossentropy())
    model.fit(inputs, labels, batch_size=4, epochs=3, shuffle=False, verbose=0)
    weights = [w for w in model.trainable_weights if w.path.endswith(("/kappa", "/alpha"))]
    return [keras.ops.convert_to_numpy(weight).tolist() for weight in weights]

# Not the default: TensorFlow mixes up the collectives of a second model on logical CPUs.
reduction = tf.distribute.ReductionToOneDevice()
mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], reduction)
both = [branches(tf.distribute.get_strategy()), branches(mirrored)]
print(json.dumps([kept_after_infinity(), both]))
'''


@pytest.fixture(scope="module")
def found():
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.strip().splitlines()[-1])


def test_an_infinite_gradient_of_one_replica_changes_none(found):
    numbers, kept, refused = found[0]
    assert numbers == [0, 2, 2]
    assert kept
    assert "mixed_bfloat16" in refused  # Loss scaling would look at the first replica only.


def test_branches_stay_on_the_simplex_and_learn_as_on_one_device(found):
    one, two = (np.array(weights) for weights in found[1])
    assert one.shape == (4, 2)
    np.testing.assert_allclose(two.sum(-1), 1, atol=1e-6)
    assert two.min() >= 0
    np.testing.assert_allclose(two, one, atol=1e-3)
