"""Batches as a dataset that TensorFlow reads without stalls."""

from collections.abc import Iterator
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
    return backend_choice("A dataset", tensorflow=_tensorflow, default=lambda same: same)(batches)


def _tensorflow(batches: Any) -> Any:
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = tf.data.Dataset.from_generator(
        lambda: _epoch(batches),
        output_signature=keras.tree.map_structure(
            lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), batches.signature
        ),
    )
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(len(batches)))
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
