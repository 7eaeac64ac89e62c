"""Two processes on PyTorch learn as one does, also by the losses of layers and of Keras, and compiled."""

import json
import shutil
import sys

import keras
import numpy as np
import pytest

from keras_attention import LabelSmoothedCrossentropy, TokenAccuracy, Transformer
from keras_attention.training.distribution import distribution_scope
from tests.recipes.process_jobs import started

pytestmark = pytest.mark.backends("torch")
V, B, S, T = 13, 4, 5, 6
rng = np.random.default_rng(8)
INPUTS = {
    "encoder_token_ids": rng.integers(2, V, (B, S)),
    "decoder_token_ids": rng.integers(2, V, (B, T)),
}
LABELS = rng.integers(2, V, (B, T))
# The two processes have other numbers of tokens, so that the means of both are not the mean of all.
PADDED = LABELS.copy()
PADDED[:2, 2:] = 0
PROGRAM = """
import json, os, sys
from tests.models.test_torch_processes import fitted
index = int(os.environ["RANK"])
found = fitted("data_parallel", slice(2 * index, 2 * index + 2))
with open(f"{sys.argv[1]}/{index}.json", "w") as file:
    json.dump(found, file)
"""


def fitted(strategy=None, rows=slice(None)):
    """The histories of our loss, whole, in slices and compiled, and of Keras' loss."""
    ways = {
        "whole": {},
        "slices": {"accumulation_steps": 2},
        "stock": {"loss": stock_loss()},
        "weighted": {"loss_weights": 0.25},
        "within another": {
            "loss": lambda labels, logits: LabelSmoothedCrossentropy()(labels, logits)
        },
    }
    if shutil.which("g++"):
        ways["compiled"] = {"jit_compile": True, "accumulation_steps": 2}
    return {name: history(strategy, rows, **way) for name, way in ways.items()}


def stock_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def history(strategy, rows, loss=None, **options):
    with distribution_scope(strategy):
        model = Transformer(V, 1, 8, 12, 2, dropout=0.0, seed=3)
        model.decoder_blocks[0].feed_forward.outer.kernel.regularizer = keras.regularizers.L2(0.5)
        # Not Adam, for which a gradient of twice the size is the same.
        optimizer = keras.optimizers.SGD(0.1)
        labels = LABELS if isinstance(loss, keras.losses.Loss) else PADDED
        loss = loss or LabelSmoothedCrossentropy(0.1)
        model.compile(optimizer, loss, metrics=[TokenAccuracy()], **options)
        inputs = {name: ids[rows] for name, ids in INPUTS.items()}
        fit = {"batch_size": B, "epochs": 3, "shuffle": False, "verbose": 0}
        return model.fit(inputs, labels[rows], **fit).history


def test_two_processes_are_as_one(tmp_path):
    program = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    outputs = started(lambda index: program, 2)
    assert [code for code, _ in outputs] == [0, 0], outputs
    one = fitted()
    for index in range(2):
        two = json.loads((tmp_path / f"{index}.json").read_text())
        assert two.keys() == one.keys()
        for way, wanted in one.items():
            assert wanted["loss"][0] > wanted["loss"][2] + 0.1
            for name, values in wanted.items():
                np.testing.assert_allclose(two[way][name], values, rtol=1e-5, err_msg=way)
