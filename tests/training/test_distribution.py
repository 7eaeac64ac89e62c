"""Which strategies and processes are refused, and what one device says."""

import keras
import pytest

from keras_attention.training.distribution import (
    STRATEGIES,
    available_devices,
    chief_says,
    distribution_scope,
    initialize_processes,
    is_chief,
)

BACKEND = keras.backend.backend()
OWN = next((name for name, backend in STRATEGIES.items() if backend == BACKEND), None)
FOREIGN = next(name for name, backend in STRATEGIES.items() if backend != BACKEND)


def refused(message, strategy, replicas=None):
    with pytest.raises(ValueError, match=message), distribution_scope(strategy, replicas):
        pass


def test_strategies_that_do_not_fit_are_refused():
    refused("'tpu'", "tpu")
    refused(f"{FOREIGN!r} is {STRATEGIES[FOREIGN]}'s, and the backend is {BACKEND!r}", FOREIGN)
    refused("8 replicas need a strategy", None, 8)


@pytest.mark.skipif(OWN is None, reason="PyTorch trains on one device")
def test_a_wrong_number_of_replicas_is_refused():
    available = available_devices(OWN)
    refused(rf"{available} device\(s\).*replicas={available + 1}", OWN, available + 1)
    refused("replicas=0", OWN, 0)
    with distribution_scope(OWN, 1) as devices:
        assert (devices.num_replicas, devices.num_processes, devices.process_index) == (1, 1, 0)
    assert keras.distribution.distribution() is None


def test_one_process_is_its_own_chief():
    assert is_chief()
    assert chief_says(2.5) == 2.5
    with distribution_scope() as devices:
        assert devices.num_replicas == 1


@pytest.mark.skipif(BACKEND == "jax", reason="JAX has processes")
def test_processes_are_refused_elsewhere():
    with pytest.raises(ValueError, match="KERAS_BACKEND=jax"):
        initialize_processes("127.0.0.1:1234", 2, 0)


@pytest.mark.skipif(BACKEND != "jax", reason="several processes train together on JAX only")
def test_processes_that_do_not_fit_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="KERAS_DISTRIBUTION_JOB_ADDRESSES"):
        initialize_processes()
    with pytest.raises(ValueError, match="from 0 to 1.*index 2"):
        initialize_processes("127.0.0.1:1234", 2, 2)
    with pytest.raises(ValueError, match="3 processes"):
        initialize_processes(["127.0.0.1:1234", "127.0.0.1:1235"], 3, 0)
    monkeypatch.setenv("KERAS_DISTRIBUTION_NUM_PROCESSES", "two")
    with pytest.raises(ValueError, match="NUM_PROCESSES must be an integer.*'two'"):
        initialize_processes("127.0.0.1:1234", process_index=0)
