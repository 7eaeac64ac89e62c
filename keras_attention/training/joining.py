"""Joins the processes that train together, and refuses set-ups in which each would train alone."""

import contextlib
import glob
import importlib.util
import json
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from keras_attention.training import processes
from keras_attention.utils.agreed import is_agreed
from keras_attention.utils.arguments import Count, FromZero, checked
from keras_attention.utils.backend import running_backend
from keras_attention.utils.checks import check_texts

ADDRESSES = "KERAS_DISTRIBUTION_JOB_ADDRESSES"
# The environment variable with the number of processes, for each cluster; JAX reads the others.
CLUSTERS = {"Slurm": "SLURM_NTASKS", "Open MPI": "OMPI_COMM_WORLD_SIZE"}
# Without these variables, the job has one process, or something else started the processes.
LAUNCHED = {"Slurm": "SLURM_STEP_NODELIST", "Open MPI": "OMPI_MCA_orte_hnp_uri"}


def check_workers() -> None:
    """Refuse TensorFlow in a cluster of several workers, each of which would train on its own.

    Keras 3's `fit` does not work under `tf.distribute.MultiWorkerMirroredStrategy` (keras-team/keras,
    issue 20585).
    """
    text = os.environ.get("TF_CONFIG", "")
    if running_backend() != "tensorflow" or not text.strip():
        return
    try:
        cluster = json.loads(text).get("cluster") or {}
        tasks = {job: list(cluster[job]) for job in ("chief", "master", "worker") if job in cluster}
    except (ValueError, AttributeError, TypeError):
        raise ValueError(
            "The environment variable TF_CONFIG must be a JSON object whose 'cluster' lists the "
            f"addresses of each job. Unset it to train in this process alone. Received: {text!r}"
        ) from None
    workers = [address for addresses in tasks.values() for address in addresses]
    if len(workers) > 1:
        raise ValueError(
            f"TF_CONFIG names {len(workers)} workers ({', '.join(map(str, workers))}), but training in "
            "several processes does not work with Keras 3 on TensorFlow: each would train on its own. "
            "Set KERAS_BACKEND=jax or torch, where processes train together with 'data_parallel'. To "
            "train on the devices of this machine alone, unset TF_CONFIG and give 'mirrored'."
        )


def check_launch(strategy: str | None) -> None:
    """Refuse processes that `torchrun` started, if each would train on its own."""
    started = processes.launched()
    if started is None or started[1] == 1:
        return
    backend = running_backend()
    if backend == "torch" and strategy is None:
        raise ValueError(
            f"torchrun started {started[1]} processes, but without a strategy each would train on its "
            "own. Pass the strategy 'data_parallel', or start without torchrun."
        )
    if backend != "torch" and not os.environ.get(ADDRESSES):
        raise ValueError(
            f"torchrun started {started[1]} processes, but the backend {backend!r} does not join them: "
            f"each would train on its own. Set KERAS_BACKEND=torch, or on JAX {ADDRESSES} and the other "
            "variables in docs/scale.md."
        )


@checked
def initialize_processes(
    addresses: str | Sequence[str] | None = None,
    num_processes: Count | None = None,
    process_index: FromZero | None = None,
) -> None:
    """Join the processes of a training over several machines, on JAX.

    Call it before anything is computed. Afterwards, train inside `distribution_scope("data_parallel")`,
    each process on its own rows of each batch (`TokenBatches.shard`), and let only the chief write files
    (`is_chief`).

    Args:
        addresses: `"host:port"` of process 0, or a list with that of each process. Defaults to
            `$KERAS_DISTRIBUTION_JOB_ADDRESSES`.
        num_processes: Number of processes. Defaults to `$KERAS_DISTRIBUTION_NUM_PROCESSES`.
        process_index: Number of this process, from 0. Defaults to `$KERAS_DISTRIBUTION_PROCESS_ID`.

    Raises:
        ValueError: If the backend is not JAX, or an argument is missing or does not fit.
        RuntimeError: If the process cannot join the others.
    """
    if addresses is not None:
        listed = [addresses] if isinstance(addresses, str) else addresses
        addresses = ",".join(check_texts("addresses", listed))
    if running_backend() != "jax":
        raise ValueError(
            "Processes join by their addresses only on JAX: set KERAS_BACKEND=jax. On PyTorch, `torchrun` "
            f"starts and joins them. Received: the backend {running_backend()!r}"
        )
    hosts = _setting("JOB_ADDRESSES", addresses, str)
    count = _setting("NUM_PROCESSES", num_processes, int)
    index = _setting("PROCESS_ID", process_index, int)
    if not 0 <= index < count or len(hosts.split(",")) not in (1, count):
        raise ValueError(
            "`addresses` must be that of process 0 or one for each process, and `process_index` must be "
            f"from 0 to {count - 1}. Received: addresses {hosts!r}, {count} processes, index {index}"
        )
    if index == 0:
        _check_port(hosts.split(",")[0])
    _initialize(hosts, count, index)


@contextlib.contextmanager
def join_on_jax() -> Iterator[None]:
    """Join the processes that the cluster or Keras' environment variables name, until the block ends.

    Without such processes, or after `initialize_processes`, it does nothing.
    """
    import jax

    joins = not jax.distributed.is_initialized() and _is_one_of_many()
    if joins and os.environ.get(ADDRESSES):
        initialize_processes()
    elif joins:
        _initialize(None, None, None)
    try:
        with _named_errors():
            yield
    except BaseException as error:
        # If all processes stop for the same reason, they shut down together. One that fails alone
        # cannot wait for the others.
        if joins and (isinstance(error, KeyboardInterrupt) or is_agreed(error)):
            jax.distributed.shutdown()
        raise
    if joins:
        jax.distributed.shutdown()


def _is_one_of_many() -> bool:
    """Whether this process was started as one of several, by the signs that JAX looks for."""
    if os.environ.get(ADDRESSES):
        return True
    for cluster, variable in CLUSTERS.items():
        if LAUNCHED[cluster] in os.environ and int(os.environ.get(variable, 1)) > 1:
            return True
    # On a machine with TPUs, JAX asks the cloud whether there are more machines.
    devices = glob.glob("/dev/accel*") + glob.glob("/dev/vfio/[0-9]*")
    return bool(devices) and importlib.util.find_spec("libtpu") is not None


def _initialize(addresses: str | None, count: int | None, index: int | None) -> None:
    try:
        keras.distribution.initialize(addresses, count, index)
    except RuntimeError as error:
        raise RuntimeError(
            "This process cannot join the others on JAX. It must join once, before anything is computed, "
            f"and reach process 0 at the given address: {str(error).splitlines()[0]}"
        ) from error


def _check_port(address: str) -> None:
    port = address.rpartition(":")[2]
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as place:
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            place.bind(("", int(port)))
    except (OSError, ValueError, OverflowError) as error:
        raise ValueError(
            f"Process 0 cannot listen at {address!r} ({error}), where the others look for it. Pass the "
            "address of this machine with a free port, such as '10.0.0.1:29500'."
        ) from None


@contextlib.contextmanager
def _named_errors() -> Iterator[None]:
    """Explain errors of JAX' communication: another process was lost."""
    import jax

    try:
        yield
    except (RuntimeError, ValueError) as error:
        text = str(error)
        if jax.process_count() == 1 or not any(
            name in text for name in ("Gloo", "NCCL", "UNAVAILABLE")
        ):
            raise
        told = processes.lost_text(jax.process_index(), jax.process_count(), error)
        raise processes.LostProcess(f"{told} JAX itself says soon which one it was.") from error


def _setting(name: str, given: Any, kind: type) -> Any:
    variable = f"KERAS_DISTRIBUTION_{name}"
    value = os.environ.get(variable) if given is None else given
    if value is None:
        raise ValueError(
            f"`initialize_processes` needs its arguments, or the environment variable {variable}. "
            "Received: neither"
        )
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"{name} must be an integer. Received: {name}={value!r}") from None
