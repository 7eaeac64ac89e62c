"""`check_parallelism` on several devices, and two processes that train as one: the documented commands."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attention import Transformer
from tools import verify_processes
from tools.verify_parallelism import check_parallelism

ROOT = Path(__file__).resolve().parent.parent.parent
BACKEND = keras.backend.backend()
on_many_devices = pytest.mark.backends("tensorflow", "jax")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Of 1 and 2 logical devices and 4 slices, in a process of its own: devices come first."""
    path = tmp_path_factory.mktemp("certificate") / "certificate.json"
    # How tests set the backend up, and the tool.
    program = "import tests.conftest; from tools.verify_parallelism import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", program, "--json", path]
        + "--replicas 1 2 --accumulation-steps 4".split(),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    return json.loads(path.read_text("utf-8"))


@on_many_devices
def test_gradients_are_those_of_one_device(certificate):
    ways = {(way["replicas"], way["accumulation_steps"]): way for way in certificate["ways"]}
    assert set(ways) == {(1, 1), (2, 1), (1, 4), (2, 4)}
    for way in ways.values():
        assert way["difference"] < 1e-5, way
    # Zero everywhere would mean that nothing was computed in another way.
    assert ways[2, 4]["difference"] > 0
    for shares in ways:
        fewest, most = ways[shares]["tokens"]
        assert fewest < most or shares == (1, 1)


@on_many_devices
def test_keras_stock_loss_fails(certificate):
    stock = {
        (way["replicas"], way["accumulation_steps"]): way["stock_difference"]
        for way in certificate["ways"]
    }
    assert stock[1, 4] > 0.01
    if BACKEND == "tensorflow":
        assert stock[2, 1] > 0.01
    else:  # A step of JAX computes on one array of all rows.
        assert stock[2, 1] < 1e-5


def small_batch(rows):
    ids = np.random.default_rng(3).integers(2, 11, (rows, 5))
    return {"encoder_token_ids": ids, "decoder_token_ids": np.roll(ids, 1, 1)}, ids


def small_model():
    return Transformer(11, num_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2, seed=3)


def test_rows_that_cannot_be_shared_are_refused():
    with pytest.raises(ValueError, match=r"6 rows.*TokenBatches\(num_replicas=4\)"):
        check_parallelism(small_model(), small_batch(6), [1], accumulation_steps=4)


def test_more_replicas_than_devices_are_refused():
    with pytest.raises(ValueError, match="replicas=64"):
        check_parallelism(small_model(), small_batch(64), [64], accumulation_steps=1)


@pytest.mark.backends("jax")
def test_two_processes_train_as_one(tmp_path):
    options = argparse.Namespace(processes=2, updates=3, accumulation_steps=2)
    options.store = verify_processes.make_store(tmp_path)
    alone = verify_processes.train(options, None)
    together = verify_processes.train_together(options)
    assert len(alone["losses"]) == len(set(alone["losses"])) == 3 and len(together) == 2
    for found in together:
        assert found["losses"] == pytest.approx(alone["losses"], rel=1e-5)
        assert verify_processes.difference(found, alone, "weights") < 1e-5
