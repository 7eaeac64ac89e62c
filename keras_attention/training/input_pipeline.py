"""Batches as a dataset that TensorFlow reads without stalls."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_attention.ops.dispatch import backend_choice

PREFETCHED = 2


def as_tf_dataset(batches: Any) -> Any:
    """Return `batches` as a `tf.data.Dataset` on TensorFlow, and unchanged on other backends.

    Pass the result to `fit`, `evaluate` or `predict` if an epoch takes only seconds. Keras reads a
    `PyDataset` through a pipeline that tf.data tunes in a thread, and waits for that thread at the end of
    each epoch. The thread sleeps between its rounds, for 10, 20, 40, ... milliseconds, so an epoch of 21
    seconds could end after 41. Batches that are gathered from memory need no tuning: here that thread is
    never started.

    The order is that of `batches`: `fit` cannot shuffle a dataset. `TokenBatches` shuffle themselves.

    Args:
        batches: A `keras.utils.PyDataset` whose `signature` is `(inputs, labels)` as
            `keras.KerasTensor`s, such as `TokenBatches`.

    Returns:
        A dataset. Each iteration over it is an epoch, with Keras' calls of `on_epoch_begin` and
        `on_epoch_end`.

    Raises:
        ValueError: If `batches` is not a `PyDataset` with a signature.
    """
    if getattr(batches, "signature", None) is None or not isinstance(
        batches, keras.utils.PyDataset
    ):
        raise ValueError(
            "`batches` must be a `keras.utils.PyDataset` with a `signature`, such as "
            f"`TokenBatches`. Received: {type(batches).__name__}. Pass other data to `fit` unchanged."
        )
    return backend_choice("A dataset", tensorflow=_epochs, default=lambda same: same)(batches)


def endless_batches(batches: Any, epoch: int, start: int) -> Any:
    """Return `TokenBatches` without an end, from batch `start` of an epoch on, as `fit` reads them."""

    def read() -> Iterator[Any]:
        for place in itertools.count(epoch * len(batches) + start):
            yield batches.batch(*divmod(place, len(batches)))

    endless = backend_choice("Batches", tensorflow=_dataset, default=lambda read, _: read())
    return endless(read, batches.signature)


def _epochs(batches: Any) -> Any:
    import tensorflow as tf

    count = tf.data.experimental.assert_cardinality(len(batches))
    return _dataset(lambda: _epoch(batches), batches.signature).apply(count)


def _dataset(read: Callable[[], Iterator[Any]], signature: Any) -> Any:
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    tensors = keras.tree.map_structure(
        lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), signature
    )
    dataset = tf.data.Dataset.from_generator(read, output_signature=tensors)
    return dataset.prefetch(PREFETCHED).with_options(options)


def _epoch(batches: Any) -> Iterator[Any]:
    """Yield the batches of an epoch, with the calls that Keras makes at its beginning and end."""
    batches.on_epoch_begin()
    for index in range(len(batches) - 1):
        yield batches[index]
    last = batches[len(batches) - 1]
    # Before the last batch is passed on: afterwards the next epoch may have begun already.
    batches.on_epoch_end()
    yield last
