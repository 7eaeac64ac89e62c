"""What `fit` reads its batches through on TensorFlow."""

import random
from collections.abc import Iterator
from typing import Any

import keras

PREFETCHED = 2


def steady_batches(batches: Any, shuffle: bool = False) -> Any:
    """Batches in a form in which TensorFlow does not stall between epochs.

    Keras reads a `PyDataset` through tf.data, which tunes its pipelines in a thread. At the end of an
    epoch that thread is waited for, and it may sleep until its next round. The rounds are 10, 20, 40,
    ... milliseconds apart: an epoch of 21 seconds could end after 41. Batches that are gathered from
    memory have nothing to tune, so here that thread is never started.

    Args:
        batches: A `keras.utils.PyDataset` whose `signature` is `(inputs, labels)` as
            `keras.KerasTensor`s, such as `TokenBatches`; or anything else that `fit` takes.
        shuffle: Whether an epoch has the batches in random order, as `fit` has it by default.

    Returns:
        On TensorFlow, for such a `PyDataset`, a `tf.data.Dataset`: every iteration over it is an
        epoch. Everything else unchanged.
    """
    if keras.backend.backend() != "tensorflow" or not isinstance(batches, keras.utils.PyDataset):
        return batches
    signature = getattr(batches, "signature", None)
    if signature is None:
        return batches
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = tf.data.Dataset.from_generator(
        lambda: _epoch(batches, shuffle),
        output_signature=keras.tree.map_structure(
            lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), signature
        ),
    )
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(len(batches)))
    return dataset.prefetch(PREFETCHED).with_options(options)


def _epoch(batches: Any, shuffle: bool) -> Iterator[Any]:
    """The batches of an epoch, with the calls that Keras makes at its begin and its end."""
    order = list(range(len(batches)))
    if shuffle:
        random.shuffle(order)
    batches.on_epoch_begin()
    for index in order[:-1]:
        yield batches[index]
    last = batches[order[-1]]
    # Not after the last batch was handed on: by then the next epoch may have begun.
    batches.on_epoch_end()
    yield last
