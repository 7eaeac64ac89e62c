"""Dropout with random bits that cost little."""

from typing import Any

import keras

from keras_attention.ops.residual import dropout
from keras_attention.utils.checks import check_number


@keras.saving.register_keras_serializable("keras_attention")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout`, drawn by the backend's cheapest generator that the layer's seed can set.

    Args:
        rate: Share of the inputs that are set to zero in training, at least 0 and at most 1.
        **kwargs: Every other argument of `keras.layers.Dropout`.

    Call arguments:
        inputs: Tensor of any shape.
        training: Whether anything is dropped.

    Returns:
        Tensor of the shape of `inputs`; what is kept is divided by `1 - rate`.

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
