"""Batches in the form in which TensorFlow reads them without stalls."""

from collections.abc import Iterator
from typing import Any

import keras

from keras_attention.ops.dispatch import backend_choice

PREFETCHED = 2


def as_tf_dataset(batches: Any) -> Any:
    """`batches` as a `tf.data.Dataset` on TensorFlow; on the other backends `batches` themselves.

    Pass it to `fit`, `evaluate` or `predict` if an epoch takes only seconds. Keras reads a `PyDataset`
    through a pipeline that tf.data tunes in a thread. Each epoch ends by waiting for that thread,
    which may sleep until its next round; the rounds are 10, 20, 40, ... milliseconds apart, and an
    epoch of 21 seconds could end after 41. Batches that are gathered from memory have nothing to tune:
    here that thread is never started.

    The order is that of `batches`: `fit` cannot shuffle a dataset. `TokenBatches` shuffle themselves.

    Args:
        batches: A `keras.utils.PyDataset` whose `signature` is `(inputs, labels)` as
            `keras.KerasTensor`s, such as `TokenBatches`.

    Returns:
        A dataset of which every iteration is an epoch, with the calls of `on_epoch_begin` and
        `on_epoch_end` that Keras makes.

    Raises:
        ValueError: `batches` is no `PyDataset` with a signature.
    """
    if getattr(batches, "signature", None) is None or not isinstance(
        batches, keras.utils.PyDataset
    ):
        raise ValueError(
            "`batches` must be a `keras.utils.PyDataset` with a `signature`, such as "
            "`TokenBatches`; pass other data to `fit` as they are. "
            f"Received: {type(batches).__name__}"
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
    """The batches of an epoch, with the calls that Keras makes at its begin and its end."""
    batches.on_epoch_begin()
    for index in range(len(batches) - 1):
        yield batches[index]
    last = batches[len(batches) - 1]
    # Not after the last batch was handed on: by then the next epoch may have begun.
    batches.on_epoch_end()
    yield last
