"""The optimizer of the paper (section 5.3)."""

from typing import Any

import keras
from keras import ops

from keras_attention.kernels.adam import fused_adam_update


@keras.saving.register_keras_serializable("keras_attention")
class Adam(keras.optimizers.Adam):
    """`keras.optimizers.Adam` with the paper's constants and a fused update.

    Section 5.3: beta_1 0.9, beta_2 0.98, epsilon 1e-9; no clipping, no weight decay. The update is
    Keras' formula; on TensorFlow it runs as one operation a variable instead of a dozen.

    Args:
        learning_rate: A rate or a schedule, such as `LearningRateSchedule`.
        beta_1: Decay of the first moment.
        beta_2: Decay of the second moment.
        epsilon: Added to the root of the second moment.
        name: Name of the optimizer.
        **kwargs: Every other argument of `keras.optimizers.Adam`.

    Example:

    >>> optimizer = Adam(learning_rate=0.1)
    >>> optimizer.beta_2, optimizer.epsilon
    (0.98, 1e-09)
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.98,
        epsilon: float = 1e-9,
        name: str = "adam",
        **kwargs: Any,
    ):
        super().__init__(learning_rate, beta_1, beta_2, epsilon, name=name, **kwargs)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        if not self.amsgrad and fused_adam_update(
            variable,
            self._momentums[self._get_variable_index(variable)],
            self._velocities[self._get_variable_index(variable)],
            gradient,
            learning_rate,
            ops.add(self.iterations, 1),
            self.beta_1,
            self.beta_2,
            self.epsilon,
        ):
            return
        super().update_step(gradient, variable, learning_rate)
