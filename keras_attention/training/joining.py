"""How processes that train together find each other and part, and what stands in their way."""

import contextlib
import glob
import importlib.util
import json
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from keras_attention.ops import processes
from keras_attention.utils.checks import check_integer, check_texts

ADDRESSES = "KERAS_DISTRIBUTION_JOB_ADDRESSES"
# How many processes a cluster started, by its environment variables, of which JAX knows the rest.
CLUSTERS = {"Slurm": "SLURM_NTASKS", "Open MPI": "OMPI_COMM_WORLD_SIZE"}
# Without these, a job of Slurm or of Open MPI has one process, or they were started by something else.
LAUNCHED = {"Slurm": "SLURM_STEP_NODELIST", "Open MPI": "OMPI_MCA_orte_hnp_uri"}


def check_workers() -> None:
    """Refuse TensorFlow in a cluster of several workers, each of which would train on its own.

    `fit` of Keras 3 does not work under `tf.distribute.MultiWorkerMirroredStrategy` (keras-team/keras,
    issue 20585).

    Raises:
        ValueError: Names the workers of `TF_CONFIG`, and what to use instead.
    """
    text = os.environ.get("TF_CONFIG", "")
    if keras.backend.backend() != "tensorflow" or not text.strip():
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
    """Refuse processes that `torchrun` started to train together, and that would each train alone.

    Raises:
        ValueError: With what to give instead.
    """
    started = processes.launched()
    if started is None or started[1] == 1:
        return
    backend = keras.backend.backend()
    if backend == "torch" and strategy is None:
        raise ValueError(
            f"torchrun started {started[1]} processes, each of which would train on its own: no strategy "
            "is given. Give the strategy 'data_parallel', or start without torchrun."
        )
    if backend != "torch" and not os.environ.get(ADDRESSES):
        raise ValueError(
            f"torchrun started {started[1]} processes, but the backend is {backend!r}, which cannot join "
            f"them so: each would train on its own. Set KERAS_BACKEND=torch, or on JAX {ADDRESSES} and "
            "what goes with it, as docs/scale.md says."
        )


def initialize_processes(
    addresses: str | Sequence[str] | None = None,
    num_processes: int | None = None,
    process_index: int | None = None,
) -> None:
    """Join the processes of a training over several machines, on JAX, before anything is computed.

    Arguments that are not given are read from Keras' environment variables:
    `KERAS_DISTRIBUTION_JOB_ADDRESSES`, `KERAS_DISTRIBUTION_NUM_PROCESSES` and
    `KERAS_DISTRIBUTION_PROCESS_ID`. Afterwards train inside of `distribution_scope("data_parallel")`,
    each process on its own rows of every batch (`TokenBatches.shard`), and let only the chief write
    files (`is_chief`).

    Args:
        addresses: `"host:port"` of process 0, or of all processes.
        num_processes: Number of processes.
        process_index: Number of this process, from 0.

    Raises:
        ValueError: Another backend, or numbers that are missing or do not fit.
    """
    if addresses is not None:
        check_texts("addresses", [addresses] if isinstance(addresses, str) else addresses)
    if num_processes is not None:
        check_integer("num_processes", num_processes, 1)
    if process_index is not None:
        check_integer("process_index", process_index, 0)
    if keras.backend.backend() != "jax":
        raise ValueError(
            "Processes join by their addresses on JAX: set KERAS_BACKEND=jax. On PyTorch, `torchrun` "
            f"starts them and they join by themselves. The backend is {keras.backend.backend()!r}."
        )
    if addresses is not None and not isinstance(addresses, str):
        addresses = ",".join(addresses)
    hosts = str(_setting("JOB_ADDRESSES", addresses))
    count = _integer_setting("NUM_PROCESSES", num_processes)
    index = _integer_setting("PROCESS_ID", process_index)
    if not 0 <= index < count or len(hosts.split(",")) not in (1, count):
        raise ValueError(
            "The addresses must be that of process 0 or one for each process, and the process index "
            f"from 0 to {count - 1}. Received: addresses {hosts!r}, {count} processes, index {index}"
        )
    if index == 0:
        _check_port(hosts.split(",")[0])
    _initialize(hosts, count, index)


@contextlib.contextmanager
def join_on_jax() -> Iterator[None]:
    """Be one of the processes that the cluster or Keras' variables name, until the block ends.

    Without such, or where `initialize_processes` was called before, this does nothing.

    Raises:
        RuntimeError: If another process is lost within.
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
        # Those who stop for one reason part in order. Who fails alone cannot wait for the others.
        if joins and (isinstance(error, KeyboardInterrupt) or is_agreed(error)):
            jax.distributed.shutdown()
        raise
    if joins:
        jax.distributed.shutdown()


def _is_one_of_many() -> bool:
    """Whether this process was started as one of several, as JAX would find out."""
    if os.environ.get(ADDRESSES):
        return True
    for cluster, variable in CLUSTERS.items():
        if LAUNCHED[cluster] in os.environ and int(os.environ.get(variable, 1)) > 1:
            return True
    # A TPU's machine asks the cloud whether there are more of them.
    devices = glob.glob("/dev/accel*") + glob.glob("/dev/vfio/[0-9]*")
    return bool(devices) and importlib.util.find_spec("libtpu") is not None


def _initialize(addresses: str | None, count: int | None, index: int | None) -> None:
    try:
        keras.distribution.initialize(addresses, count, index)
    except RuntimeError as error:
        raise RuntimeError(
            "This process cannot join the others on JAX. It must do so before anything is computed, once, "
            f"and reach process 0 at the address given: {str(error).splitlines()[0]}"
        ) from error


def _check_port(address: str) -> None:
    """Raise unless process 0 can listen at its address."""
    port = address.rpartition(":")[2]
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as place:
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            place.bind(("", int(port)))
    except (OSError, ValueError, OverflowError) as error:
        raise ValueError(
            f"Process 0 cannot listen at {address!r} ({error}), where the others look for it. Give the "
            "address of this machine and a port that is free, such as '10.0.0.1:29500'."
        ) from None


@contextlib.contextmanager
def _named_errors() -> Iterator[None]:
    """Say of an error of JAX' communication what it means."""
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


def agreed(error: Exception, is_told_here: bool) -> Exception:
    """Mark an error that is raised in every process at the same point, and is told by one of them."""
    error.is_told_here = is_told_here  # type: ignore[attr-defined]
    return error


def is_agreed(error: BaseException) -> bool:
    """Whether every process raises this error at this point."""
    return hasattr(error, "is_told_here")


def _setting(name: str, given: Any) -> Any:
    variable = f"KERAS_DISTRIBUTION_{name}"
    value = os.environ.get(variable) if given is None else given
    if value is None:
        raise ValueError(f"Which processes train together? Set {variable}, or give the argument.")
    return value


def _integer_setting(name: str, given: int | None) -> int:
    value = _setting(name, given)
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{name} must be an integer. Received: {value!r}") from None
