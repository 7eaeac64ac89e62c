"""Which strategies and processes are refused, and what one device says."""

import json
import socket

import keras
import pytest

from keras_attention.training import distribution_scope, initialize_processes, is_chief, processes
from keras_attention.training.agreement import failing_together
from keras_attention.training.distribution import STRATEGIES, Devices, available_devices
from keras_attention.training.joining import check_launch, check_workers
from keras_attention.utils.agreed import is_agreed, is_told_here

BACKEND = keras.backend.backend()
OWN = next(name for name, backends in STRATEGIES.items() if BACKEND in backends)
FOREIGN = next(name for name, backends in STRATEGIES.items() if BACKEND not in backends)


def refused(message, strategy, replicas=None):
    """Before the scope is entered."""
    entered = []
    with pytest.raises(ValueError, match=message), distribution_scope(strategy, replicas):
        entered.append(strategy)
    assert entered == [] and keras.distribution.distribution() is None


def test_strategies_that_do_not_fit_are_refused():
    refused("'tpu'", "tpu")
    refused(
        f"{FOREIGN!r} is {' and '.join(STRATEGIES[FOREIGN])}'s, and the backend is {BACKEND!r}",
        FOREIGN,
    )
    refused("8 replicas need a strategy", None, 8)


@pytest.mark.backends("tensorflow", "jax")
def test_a_wrong_number_of_replicas_is_refused():
    available = available_devices(OWN)
    refused(rf"{available} device\(s\).*replicas={available + 1}", OWN, available + 1)
    refused("replicas=0", OWN, 0)
    with distribution_scope(OWN, 1) as devices:
        assert devices == Devices(num_replicas=1, num_processes=1, process_index=0)
    assert keras.distribution.distribution() is None


@pytest.mark.backends("torch")
def test_torch_has_a_device_for_each_process(monkeypatch):
    refused("torchrun --nproc-per-node 2 SCRIPT", OWN, 2)
    with distribution_scope(OWN, 1) as devices:
        assert devices == Devices(num_replicas=1, num_processes=1, process_index=0)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert available_devices(OWN) == 3
    refused("3 process.*replicas=2", OWN, 2)


@pytest.mark.parametrize(
    "cluster, named",
    [
        ({"worker": ["a:1", "b:2"], "ps": ["c:3"]}, "2 workers (a:1, b:2)"),
        ({"chief": ["a:1"], "worker": ["b:2", "d:4"]}, "3 workers (a:1, b:2, d:4)"),
    ],
)
@pytest.mark.parametrize("strategy", [None, "mirrored"])
def test_several_workers_of_tensorflow_are_refused_by_name(monkeypatch, cluster, named, strategy):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker"}}))
    if BACKEND != "tensorflow":
        check_workers()  # Theirs to ignore.
        return
    with (
        pytest.raises(ValueError, match="KERAS_BACKEND=jax") as error,
        distribution_scope(strategy),
    ):
        pass
    assert named in str(error.value)


@pytest.mark.parametrize("text", ["", " ", "{}", '{"cluster": {"worker": ["a:1"]}}'])
def test_a_cluster_of_one_worker_is_one_process(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with distribution_scope() as devices:
        assert devices == Devices(num_replicas=1, num_processes=1, process_index=0) and is_chief()


@pytest.mark.backends("tensorflow")
@pytest.mark.parametrize("text", ["{", "3", '{"cluster": 3}'])
def test_a_cluster_that_cannot_be_read_is_refused(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match="TF_CONFIG must be a JSON object"):
        check_workers()


@pytest.mark.backends("tensorflow", "torch")
def test_processes_are_refused_elsewhere():
    with pytest.raises(ValueError, match="KERAS_BACKEND=jax"):
        initialize_processes("127.0.0.1:1234", 2, 0)


@pytest.mark.backends("jax")
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


@pytest.mark.backends("jax")
def test_a_port_that_is_taken_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(
            ValueError, match=f"Process 0 cannot listen at '127.0.0.1:{port}'.*free"
        ):
            initialize_processes(f"127.0.0.1:{port}", 2, 0)


def test_processes_that_would_train_alone_are_refused(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "1")
    check_launch(None)
    monkeypatch.setenv("WORLD_SIZE", "2")
    if BACKEND == "torch":
        check_launch("data_parallel")
    with pytest.raises(ValueError, match="torchrun started 2 processes"):
        check_launch(None)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("minutes", ["soon", "0", "-1", "nan", "inf"])
def test_a_time_out_is_minutes(monkeypatch, minutes):
    monkeypatch.setenv(processes.TIMEOUT, "0.5")
    assert processes.timeout_minutes() == 0.5
    monkeypatch.setenv(processes.TIMEOUT, minutes)
    with pytest.raises(ValueError, match=f"must be minutes above 0. Received: '{minutes}'"):
        processes.timeout_minutes()


@pytest.mark.backends("torch")
def test_what_fails_here_is_raised_here_and_marked():
    with pytest.raises(ValueError, match="own") as raised, failing_together():
        raise ValueError("own")
    assert is_agreed(raised.value) and is_told_here(raised.value)
    with failing_together():
        pass
