"""Dropout with a fast random generator."""

from typing import Any

import keras

from keras_attention.ops.operations import dropout
from keras_attention.utils.checks import check_number


@keras.saving.register_keras_serializable("keras_attention")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` with the backend's fastest generator that the layer's seed can set.

    Args:
        rate: Share of the inputs that are set to zero in training, from 0 to 1.
        **kwargs: All other arguments of `keras.layers.Dropout`.

    Call arguments:
        inputs: Tensor of any shape.
        training: Whether to drop anything. Defaults to False.

    Returns:
        Tensor of the shape of `inputs`. In training, the inputs that are kept are divided by `1 - rate`.

    Raises:
        ValueError: If `rate` is out of range.

    Example:

    >>> import numpy as np
    >>> x = np.ones((2, 3))
    >>> float(np.abs(Dropout(0.5)(x, training=False) - x).max())
    0.0
    """

    def __init__(self, rate: float, **kwargs: Any):
        super().__init__(check_number("rate", rate, least=0, most=1), **kwargs)

    def call(self, inputs: Any, training: bool | None = False) -> Any:
        if not training or not 0.0 < self.rate < 1.0 or self.noise_shape is not None:
            return super().call(inputs, training=training)
        return dropout(inputs, self.rate, self.seed_generator)
