"""A whole run on two devices, each of which accumulates over two slices, gives the results of one device."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.backends("tensorflow")

# A process of its own: logical devices can be made only before TensorFlow starts.
PROGRAM = """
import tests.conftest  # how tests set TensorFlow up
import dataclasses, json, sys
from pathlib import Path
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

from keras_attention.recipes import train_translation
from tests.recipes.small_runs import SMALL, small_corpus, training_alone

# No dropout: each replica, and each part, would draw other masks.
sizes = {"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 12, "num_heads": 2, "dropout": 0.0}
config = dataclasses.replace(
    SMALL, model_arguments=sizes, steps=9, beam_size=1, attention_log=False, bleu_every=100
)
folder = Path(sys.argv[1])
corpus = small_corpus(folder)
histories = []
for name, changed in (
    ("one", {}), ("shared", {"strategy": "mirrored", "replicas": 2, "accumulation_steps": 2})
):
    with training_alone():
        told = train_translation(corpus, dataclasses.replace(config, **changed), folder / name)
    histories.append(told["training"]["history"])
print(json.dumps(histories))
"""


def test_losses_are_those_of_one_device(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(f"Device: {count} CPU." in done.stderr for count in (1, 2))
    one, shared = json.loads(done.stdout.splitlines()[-1])
    assert one[-1]["updates"] == 9 and len(one) > 1
    assert one[-1]["loss"] < one[0]["loss"]
    assert [epoch["updates"] for epoch in shared] == [epoch["updates"] for epoch in one]
    for name in ("loss", "val_perplexity"):
        expected = pytest.approx([epoch[name] for epoch in one], rel=1e-5)
        assert [epoch[name] for epoch in shared] == expected
