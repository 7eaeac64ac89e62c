"""Several devices of one process, and two processes that train as one, by the documented commands."""

import argparse
import json

import keras
import numpy as np
import pytest

from keras_attention import Transformer
from tests.helpers import python
from tools import verify_processes
from tools.verify_parallelism import check_parallelism

BACKEND = keras.backend.backend()
on_many_devices = pytest.mark.backends("tensorflow", "jax")


@pytest.fixture(scope="module")
def two_devices(tmp_path_factory):
    """The folder in which on_two_devices.py has written, and what it said."""
    folder = tmp_path_factory.mktemp("devices")
    return folder, python("-m", "tests.training.on_two_devices", folder).stderr


@pytest.fixture(scope="module")
def certificate(two_devices):
    """Of 1 and 2 logical devices and 4 slices."""
    return json.loads((two_devices[0] / "certificate.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def found(two_devices):
    return json.loads((two_devices[0] / "found.json").read_text("utf-8"))


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


@pytest.mark.backends("tensorflow")
def test_an_infinite_gradient_of_one_replica_changes_none(found):
    numbers, kept, refused = found["infinity"]
    assert numbers == [0, 2, 2]
    assert kept
    assert "mixed_bfloat16" in refused  # Loss scaling would look at the first replica only.


@pytest.mark.backends("tensorflow")
def test_branches_stay_on_the_simplex_and_learn_as_on_one_device(found):
    one, two = (np.array(weights) for weights in found["branches"])
    assert one.shape == (4, 2)
    np.testing.assert_allclose(two.sum(-1), 1, atol=1e-6)
    assert two.min() >= 0
    np.testing.assert_allclose(two, one, atol=1e-3)


@pytest.mark.backends("tensorflow")
def test_the_sum_of_all_replicas_is_clipped(found):
    one, two = found["clipped"]
    assert two == pytest.approx(one, rel=1e-5)
    assert one[-1] == pytest.approx(0.1, rel=1e-4) and one[0] > one[2] + 0.01


@pytest.mark.backends("tensorflow")
def test_losses_of_a_whole_run_are_those_of_one_device(found, two_devices):
    assert all(f"Device: {count} CPU." in two_devices[1] for count in (1, 2))
    one, shared = found["histories"]
    assert one[-1]["updates"] == 9 and len(one) > 1
    assert one[-1]["loss"] < one[0]["loss"]
    assert [epoch["updates"] for epoch in shared] == [epoch["updates"] for epoch in one]
    for name in ("loss", "val_perplexity"):
        expected = pytest.approx([epoch[name] for epoch in one], rel=1e-5)
        assert [epoch[name] for epoch in shared] == expected
