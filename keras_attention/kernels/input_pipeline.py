"""What `fit` reads its batches through on TensorFlow."""

import functools
from typing import Any

import keras


def steady_batches(
    batches: Any, shuffle: bool = False, class_weight: dict[int, float] | None = None
) -> Any:
    """A `keras.utils.PyDataset` in the form in which TensorFlow does not stall between epochs.

    Keras reads a `PyDataset` through tf.data, which tunes its pipelines in a thread. At the end of an
    epoch that thread is waited for, and it may sleep until its next round. The rounds are 10, 20, 40,
    ... milliseconds apart: an epoch of 21 seconds could end after 41. Batches that are gathered from
    memory have nothing to tune, so here that thread is never started.

    Args:
        batches: What `fit`, `evaluate` or `predict` was given as `x`.
        shuffle: The argument of `fit`.
        class_weight: The argument of `fit`.

    Returns:
        On TensorFlow, for a `PyDataset`, what Keras makes of it, to be handed to Keras in its place;
        everything else unchanged.
    """
    if keras.backend.backend() != "tensorflow" or not isinstance(batches, keras.utils.PyDataset):
        return batches
    adapter = _steady_adapter()
    return batches if adapter is None else adapter(batches, class_weight, shuffle)


@functools.cache
def _steady_adapter() -> Any:
    """Keras' own adapter without tuning, or None in a Keras that has it no more: then it may stall."""
    import tensorflow as tf

    try:
        # `fit` takes adapters, but no public name leads to their classes.
        from keras.src.trainers.data_adapters.py_dataset_adapter import (  # noqa: TID251
            PyDatasetAdapter,
        )
    except ImportError:
        return None

    class SteadyAdapter(PyDatasetAdapter):
        def get_tf_dataset(self):
            options = tf.data.Options()
            options.autotune.enabled = False
            return super().get_tf_dataset().with_options(options)

    return SteadyAdapter
