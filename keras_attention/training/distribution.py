"""Many devices and several processes; the one file that names `tf.distribute` and `keras.distribution`."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

# Strategy -> the backend that has it.
STRATEGIES = {"mirrored": "tensorflow", "data_parallel": "jax"}


@dataclasses.dataclass(frozen=True)
class Devices:
    """What a run computes on.

    Attributes:
        num_replicas: Replicas of the model over all processes; rows of a batch are a multiple of it.
        num_processes: Processes that train together.
        process_index: Number of this process among them, from 0.
    """

    num_replicas: int = 1
    num_processes: int = 1
    process_index: int = 0


@contextlib.contextmanager
def distribution_scope(
    strategy: str | None = None, replicas: int | None = None
) -> Iterator[Devices]:
    """Trains on many devices: build and train a model inside this scope.

    Args:
        strategy: `"mirrored"` on TensorFlow: `tf.distribute.MirroredStrategy` over all GPUs, or over all
            logical CPUs where there is no GPU. `"data_parallel"` on JAX:
            `keras.distribution.DataParallel` over all devices of all processes. None: one device.
        replicas: Number of devices to use; all by default.

    Yields:
        `Devices`: how many replicas there are. Give `TokenBatches` that number, times the
        accumulation steps, as `num_replicas`.

    Raises:
        ValueError: If the strategy is unknown or belongs to another backend, or there are fewer devices.

    Example:

    >>> with distribution_scope(None) as devices:
    ...     print(devices.num_replicas, is_chief())
    1 True
    """
    _check_strategy(strategy, replicas)
    if strategy is None:
        yield Devices()
    elif strategy == "mirrored":
        with _mirrored_strategy(replicas) as mirrored:
            yield Devices(mirrored.num_replicas_in_sync)
    else:
        names = _first(keras.distribution.list_devices(), replicas)
        # Each process reads its own rows (`TokenBatches.shard`): Keras must not share them out again.
        distribution = keras.distribution.DataParallel(devices=names, auto_shard_dataset=False)
        with distribution.scope():
            yield Devices(len(names), distribution.num_processes, process_index())


def available_devices(strategy: str | None) -> int:
    """Number of devices that a strategy would use."""
    if strategy == "mirrored":
        return len(_tensorflow_devices())
    return 1 if strategy is None else len(keras.distribution.list_devices())


def initialize_processes(
    addresses: str | Sequence[str] | None = None,
    num_processes: int | None = None,
    process_index: int | None = None,
) -> None:
    """Join the processes of a training over several machines, on JAX, before anything is computed.

    What is not given is read from Keras' environment variables: `KERAS_DISTRIBUTION_JOB_ADDRESSES`,
    `KERAS_DISTRIBUTION_NUM_PROCESSES` and `KERAS_DISTRIBUTION_PROCESS_ID`. Afterwards train inside
    of `distribution_scope("data_parallel")`, each process on its own rows of every batch
    (`TokenBatches.shard`), and let only the chief write files (`is_chief`).

    Args:
        addresses: `"host:port"` of process 0, or of all processes.
        num_processes: Number of processes.
        process_index: Number of this process, from 0.

    Raises:
        ValueError: Another backend, or numbers that are missing or do not fit.
    """
    if keras.backend.backend() != "jax":
        raise ValueError(
            "Several processes train together on JAX only: set KERAS_BACKEND=jax. "
            f"The backend is {keras.backend.backend()!r}."
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
    keras.distribution.initialize(hosts, count, index)


def process_index() -> int:
    """Number of this process among those that train together; 0 where there is one."""
    if keras.backend.backend() != "jax":
        return 0
    import jax

    return jax.process_index()


def is_chief() -> bool:
    """Whether this process is the one that writes files and prints."""
    return process_index() == 0


def chief_says(value: float) -> float:
    """The chief's value, in every process: decisions about training must be the same in all of them.

    All processes must call it at the same point. For clocks and signals, which differ between them.
    """
    if keras.backend.backend() != "jax":
        return value
    import jax

    if jax.process_count() == 1:
        return value
    import numpy as np
    from jax.experimental import multihost_utils

    return float(multihost_utils.broadcast_one_to_all(np.float32(value)))


def sum_over_replicas(value: Any) -> Any:
    """Sum tensors over the replicas of the `tf.distribute` strategy that runs the step, if any.

    On JAX, arrays that are sharded over devices are summed as a whole already; on PyTorch and outside
    of a strategy there is one replica.

    Args:
        value: A tensor or a list of tensors.
    """
    if keras.backend.backend() != "tensorflow":
        return value
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def update_where(
    condition: Any,
    update: Callable[[Any, Any, Any], None],
    gradients: Sequence[Any],
    variables: Sequence[Any],
    learning_rate: Any,
) -> None:
    """Update variables on every replica of TensorFlow's strategy, if a condition holds.

    Args:
        condition: Boolean scalar tensor, equal on all replicas.
        update: Called with a gradient, a `tf.Variable` and the learning rate.
        gradients: One for each variable, equal on all replicas.
        variables: Keras variables.
        learning_rate: Scalar.
    """
    import tensorflow as tf

    def in_all_replicas(strategy, condition, gradients, variables, learning_rate):
        # The branch is out here because one inside of a replica could not speak to the others.
        def update_all():
            for gradient, variable in zip(gradients, variables, strict=True):
                strategy.extended.update(
                    variable,
                    lambda variable, gradient, rate: update(gradient, variable, rate),
                    args=(gradient, learning_rate),
                    group=False,
                )
            return tf.constant(True)

        one = strategy.experimental_local_results(condition)[0]
        tf.cond(one, update_all, lambda: tf.constant(False))

    tf.distribute.get_replica_context().merge_call(
        in_all_replicas,
        args=(condition, list(gradients), [v.value for v in variables], learning_rate),
    )


def _check_strategy(strategy: str | None, replicas: int | None) -> None:
    backend = keras.backend.backend()
    if strategy is None:
        if replicas not in (None, 1):
            raise ValueError(
                f"{replicas} replicas need a strategy. Received: strategy=None. On TensorFlow give "
                "'mirrored', on JAX 'data_parallel'."
            )
        return
    if strategy not in STRATEGIES:
        raise ValueError(f"`strategy` must be one of {[None, *STRATEGIES]}. Received: {strategy!r}")
    if STRATEGIES[strategy] != backend:
        fitting = [name for name, other in STRATEGIES.items() if other == backend]
        advice = (
            f"On {backend}, give {fitting[0]!r}"
            if fitting
            else f"On {backend}, training runs on one device: give None"
        )
        raise ValueError(
            f"The strategy {strategy!r} is {STRATEGIES[strategy]}'s, and the backend is {backend!r}. "
            f"{advice}, or set KERAS_BACKEND={STRATEGIES[strategy]}."
        )
    available = available_devices(strategy)
    if replicas is not None and not 1 <= replicas <= available:
        raise ValueError(
            f"There are {available} device(s) for the strategy {strategy!r}. "
            f"Received: replicas={replicas}. Ask for 1 to {available}."
        )


def _mirrored_strategy(replicas: int | None) -> contextlib.AbstractContextManager:
    import tensorflow as tf

    devices = _tensorflow_devices()
    # On logical CPUs TensorFlow mixes up its default collectives when a process builds a second model.
    on_cpus = ":CPU:" in devices[0]
    reduction = tf.distribute.ReductionToOneDevice() if on_cpus else None
    strategy = tf.distribute.MirroredStrategy(_first(devices, replicas), reduction)

    @contextlib.contextmanager
    def scope():
        with strategy.scope():
            yield strategy

    return scope()


def _tensorflow_devices() -> list[str]:
    import tensorflow as tf

    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [device.name for device in devices]


def _first(devices: list[str], count: int | None) -> list[str]:
    return devices if count is None else devices[:count]


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
