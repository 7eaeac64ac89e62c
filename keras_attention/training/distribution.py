"""Many devices and several processes; the one file that names `tf.distribute` and `keras.distribution`."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import keras

from keras_attention.ops.dispatch import backend_choice
from keras_attention.training import processes
from keras_attention.training.joining import check_workers, join_on_jax
from keras_attention.utils.arguments import Count, checked
from keras_attention.utils.backend import running_backend

Strategy = Literal["mirrored", "data_parallel"]
# The backends that have it.
STRATEGIES: dict[Strategy, tuple[str, ...]] = {
    "mirrored": ("tensorflow",),
    "data_parallel": ("jax", "torch"),
}


@dataclasses.dataclass(frozen=True)
class Devices:
    """What a run computes on."""

    # Replicas of the model over all processes; rows of a batch are a multiple of it.
    num_replicas: int = 1
    num_processes: int = 1  # processes that train together
    process_index: int = 0  # number of this process among them, from 0


@contextlib.contextmanager
@checked
def distribution_scope(
    strategy: Strategy | None = None, replicas: Count | None = None
) -> Iterator[Devices]:
    """Trains on many devices: build and train a model inside this scope.

    Args:
        strategy: `"mirrored"` on TensorFlow: `tf.distribute.MirroredStrategy` over all GPUs, or over all
            logical CPUs where there is no GPU. `"data_parallel"` on JAX:
            `keras.distribution.DataParallel` over all devices of all processes. On PyTorch it is the
            processes that `torchrun` started, one for each GPU. None: one device.
        replicas: Number of devices to use; all by default.

    Yields:
        `Devices`: how many replicas there are. Give `TokenBatches` that number, times the
        accumulation steps, as `num_replicas`.

    Raises:
        ValueError: If the strategy belongs to another backend, there are fewer devices, or TensorFlow is told
            by `TF_CONFIG` to train in several processes.

    Example:

    >>> with distribution_scope(None) as devices:
    ...     print(devices.num_replicas, is_chief())
    1 True
    """
    check_workers()
    join = backend_choice("Training", jax=join_on_jax, default=contextlib.nullcontext)
    with join() if strategy == "data_parallel" else contextlib.nullcontext():
        _check_strategy(strategy, replicas)
        if strategy is None:
            yield Devices()
            return
        scopes = {"tensorflow": _tensorflow_scope, "jax": _jax_scope, "torch": _torch_scope}
        with backend_choice("A strategy", **scopes)(replicas) as devices:
            yield devices


@contextlib.contextmanager
def _tensorflow_scope(replicas: int | None) -> Iterator[Devices]:
    import tensorflow as tf

    devices = _tensorflow_devices()
    # On logical CPUs TensorFlow mixes up its default collectives when a process builds a second model.
    on_cpus = ":CPU:" in devices[0]
    reduction = tf.distribute.ReductionToOneDevice() if on_cpus else None
    strategy = tf.distribute.MirroredStrategy(devices[:replicas], reduction)
    with strategy.scope():
        yield Devices(strategy.num_replicas_in_sync)


@contextlib.contextmanager
def _torch_scope(replicas: int | None) -> Iterator[Devices]:
    with contextlib.nullcontext() if processes.launched() is None else processes.joined():
        count = processes.process_count()
        yield Devices(count, count, processes.process_index())


@contextlib.contextmanager
def _jax_scope(replicas: int | None) -> Iterator[Devices]:
    names = keras.distribution.list_devices()[:replicas]
    # Each process reads its own rows (`TokenBatches.shard`): Keras must not share them out again.
    distribution = keras.distribution.DataParallel(devices=names, auto_shard_dataset=False)
    with distribution.scope():
        yield Devices(len(names), distribution.num_processes, process_index())


def available_devices(strategy: str) -> int:
    """Return the number of devices that a strategy would use."""
    if strategy == "mirrored":
        return len(_tensorflow_devices())
    return backend_choice(
        "A strategy",
        torch=lambda: (processes.launched() or (0, 1))[1],
        default=lambda: len(keras.distribution.list_devices()),
    )()


def device_kind() -> str:
    """Return what the backend computes on: "cpu", "gpu", "tpu" or another name of its own."""
    devices = backend_choice(
        "Training", torch=_torch_devices, default=keras.distribution.list_devices
    )()
    kinds = [device.partition(":")[0] for device in devices]
    return next((kind for kind in kinds if kind != "cpu"), "cpu")


def has_accelerator() -> bool:
    """Whether the backend computes on anything but the CPU."""
    return device_kind() != "cpu"


def accelerator_peak_bytes() -> int | None:
    """Most bytes that were in use on the first accelerator, as the backend counts them; None if unknown."""
    return backend_choice(
        "Training", tensorflow=_tensorflow_peak, jax=_jax_peak, torch=_torch_peak
    )()


def jax_process_count() -> int:
    """Return the number of processes that train together on JAX."""
    return backend_choice("Training", jax=lambda: _jax().process_count(), default=lambda: 1)()


def process_index() -> int:
    """Return the number of this process among those that train together; 0 where there is one."""
    return backend_choice(
        "Training", jax=lambda: _jax().process_index(), default=processes.process_index
    )()


@contextlib.contextmanager
def computing_alone(model: keras.Model | None = None) -> Iterator[None]:
    """Within, what this process computes is its own, and the others need not compute along.

    On JAX, variables that are made while several processes train span the devices of all of them, and
    an operation on them is one of all. The weights of a given model are this process's copy within. The other
    backends' are each process's own.
    """
    if jax_process_count() == 1:
        yield
        return
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    weights = [(v, v.value) for v in (() if model is None else model.variables)]
    own = [(v, x.addressable_data(0)) for v, x in weights if not x.is_fully_addressable]
    try:
        with keras.StatelessScope(state_mapping=own) if own else contextlib.nullcontext():
            yield
    finally:
        keras.distribution.set_distribution(distribution)


def is_chief() -> bool:
    """Whether this process is the one that writes files and prints."""
    return process_index() == 0


def sum_over_replicas(value: Any) -> Any:
    """Sum tensors over the replicas of the `tf.distribute` strategy that runs the step, if any.

    On PyTorch, within a training step, over the processes. On JAX, arrays that are sharded over devices
    are summed as a whole already. Outside of a strategy there is one replica.
    """
    summed = backend_choice(
        "Training", tensorflow=_tensorflow_sum, torch=_torch_sum, default=lambda whole: whole
    )
    return summed(value)


def update_where(
    condition: Any,
    update: Callable[[Any, Any, Any], None],
    gradients: Sequence[Any],
    variables: Sequence[Any],
    learning_rate: Any,
) -> None:
    """Update Keras variables on every replica of TensorFlow's strategy, if a condition holds.

    The condition, a boolean scalar, and the gradients are equal on all replicas. `update` is called with a
    gradient, a `tf.Variable` and the learning rate.
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


def _check_strategy(strategy: Strategy | None, replicas: int | None) -> None:
    backend = running_backend()
    if strategy is None:
        if replicas not in (None, 1):
            raise ValueError(
                f"{replicas} replicas need a strategy. Received: strategy=None. On TensorFlow give "
                "'mirrored', on JAX 'data_parallel'."
            )
        return
    if backend not in STRATEGIES[strategy]:
        fitting = [name for name, backends in STRATEGIES.items() if backend in backends]
        owners = " and ".join(STRATEGIES[strategy])
        raise ValueError(
            f"The strategy {strategy!r} is {owners}'s, and the backend is {backend!r}. On {backend}, "
            f"give {fitting[0]!r}, or set KERAS_BACKEND={STRATEGIES[strategy][0]}."
        )
    if backend == "torch":
        _check_torch(replicas)
        return
    available = available_devices(strategy)
    if replicas not in (None, available) and jax_process_count() > 1:
        raise ValueError(
            f"Several processes train on all of their devices, which are {available}. Received: "
            f"replicas={replicas}. Leave it out, or start fewer processes."
        )
    if replicas is not None and replicas > available:
        raise ValueError(
            f"There are {available} device(s) for the strategy {strategy!r}. "
            f"Received: replicas={replicas}. Ask for 1 to {available}."
        )


def _check_torch(replicas: int | None) -> None:
    """Each process trains on one device: `torchrun` says how many there are."""
    import torch

    count = available_devices("data_parallel")
    found = torch.cuda.device_count()
    if replicas not in (None, count) or (processes.launched() is None and found > 1):
        raise ValueError(
            f"On PyTorch each process trains on one device, and there are {count} process(es), "
            f"{found} GPU(s) and replicas={replicas}. Start one process for each device: "
            f"torchrun --nproc-per-node {replicas or max(found, 1)} SCRIPT."
        )


def _tensorflow_devices() -> list[str]:
    import tensorflow as tf

    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [device.name for device in devices]


def _tensorflow_sum(value: Any) -> Any:
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def _torch_sum(value: Any) -> Any:
    is_list = isinstance(value, list | tuple)
    summed = processes.sum_over_processes(value if is_list else [value])
    return summed if is_list else summed[0]


def _tensorflow_peak() -> int | None:
    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")["peak"]


def _jax() -> Any:
    import jax

    return jax


def _torch_devices() -> list[str]:  # PyTorch has no `keras.distribution`.
    import torch

    return ["gpu"] if torch.cuda.is_available() else ["cpu"]


def _jax_peak() -> int | None:
    return (_jax().devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def _torch_peak() -> int | None:
    import torch

    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
