"""Dropout with a fast random generator."""

from typing import Any

import keras

from keras_attention.ops.operations import dropout
from keras_attention.utils.checks import check_number


@keras.saving.register_keras_serializable("keras_attention")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` with the backend's fastest generator that the layer's seed can set."""

    is_called_directly = True

    def __init__(self, rate: float, **kwargs: Any):
        super().__init__(check_number("rate", rate, least=0, most=1), **kwargs)

    def call(self, inputs: Any, training: bool | None = False) -> Any:
        if not training or not 0.0 < self.rate < 1.0:
            return super().call(inputs, training=training)
        return dropout(inputs, self.rate, self.noise_shape, self.seed_generator)
