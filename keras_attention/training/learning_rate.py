"""The learning rate of the paper (section 5.3)."""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_attention")
class LearningRateSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """`factor * hidden_dim^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)` (equation 3 of the paper).

    The rate grows linearly for `warmup_steps` updates and then falls with the inverse square root of
    the step. Steps are counted from 1; Keras hands schedules a counter that starts at 0, and this one
    adds the 1, so that the first update does not have rate 0.

    Args:
        hidden_dim: Width of the model, d_model.
        warmup_steps: Number of updates until the peak. 4000 in the paper.
        factor: Factor of the whole. 1 in the paper.
        name: Name of the schedule.

    Returns:
        Called with the number of updates done so far, the rate of the next one.

    Example:

    >>> schedule = LearningRateSchedule(hidden_dim=512)
    >>> round(float(schedule(0)) * 1e7, 4), round(float(schedule(3999)) * 1e4, 4)
    (1.7469, 6.9877)
    """

    def __init__(
        self,
        hidden_dim: int,
        warmup_steps: int = 4000,
        factor: float = 1.0,
        name: str = "learning_rate_schedule",
    ):
        super().__init__()
        for key, value in {
            "hidden_dim": hidden_dim,
            "warmup_steps": warmup_steps,
            "factor": factor,
        }.items():
            if not value > 0:
                raise ValueError(f"`{key}` must be positive. Received: {key}={value!r}")
        self.hidden_dim = hidden_dim
        self.warmup_steps = warmup_steps
        self.factor = factor
        self.name = name

    def __call__(self, step: Any) -> Any:
        step = ops.add(ops.cast(step, "float32"), 1.0)
        shape = ops.minimum(ops.rsqrt(step), ops.multiply(step, self.warmup_steps**-1.5))
        return ops.multiply(shape, self.factor * self.hidden_dim**-0.5)

    def get_config(self) -> dict[str, Any]:
        return {
            "hidden_dim": self.hidden_dim,
            "warmup_steps": self.warmup_steps,
            "factor": self.factor,
            "name": self.name,
        }
