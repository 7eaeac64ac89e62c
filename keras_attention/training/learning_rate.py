"""The learning-rate schedule of the paper (section 5.3), and others for a time budget and for branches."""

import math
from typing import Any

import keras
from keras import ops

from keras_attention.utils.arguments import Count, Depths, FromZero, Positive, checked
from keras_attention.utils.checks import depths_of


def _number_of(step: Any) -> Any:
    """Return the number of the update after so many, in float32."""
    if not isinstance(step, int | float) and not hasattr(step, "dtype"):
        raise ValueError(f"`step` must be a number of updates. Received: step={step!r}")
    return ops.add(ops.cast(step, "float32"), 1.0)


def _rise_and_fall(step: Any, warmup_steps: float) -> Any:
    return ops.minimum(ops.rsqrt(step), ops.multiply(step, warmup_steps**-1.5))


@keras.saving.register_keras_serializable("keras_attention")
class LearningRateSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """`factor * hidden_dim^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)` (equation 3 of the paper).

    The rate grows linearly for `warmup_steps` updates, then falls with the inverse square root of the
    step. The formula counts steps from 1. Keras passes a counter that starts at 0, so this schedule adds
    1: the rate of the first update is not 0.

    Args:
        hidden_dim: Width D of the model, d_model.
        warmup_steps: Number of updates until the peak. Defaults to 4000, as in the paper.
        factor: Factor of the whole formula. Defaults to 1, as in the paper.
        name: Name of the schedule. Defaults to `"learning_rate_schedule"`.

    Call arguments:
        step: Number of updates done so far.

    Returns:
        The rate of the next update.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> schedule = LearningRateSchedule(hidden_dim=512)
    >>> round(float(schedule(0)) * 1e7, 4), round(float(schedule(3999)) * 1e4, 4)
    (1.7469, 6.9877)
    """

    @checked
    def __init__(
        self,
        hidden_dim: Count,
        warmup_steps: Positive = 4000,
        factor: Positive = 1.0,
        name: str = "learning_rate_schedule",
    ):
        super().__init__()
        self.hidden_dim = hidden_dim
        self.warmup_steps = warmup_steps
        self.factor = factor
        self.name = name

    def __call__(self, step: Any) -> Any:
        rate = _rise_and_fall(_number_of(step), self.warmup_steps)
        return ops.multiply(rate, self.factor * self.hidden_dim**-0.5)

    def get_config(self) -> dict[str, Any]:
        return {n: getattr(self, n) for n in ("hidden_dim", "warmup_steps", "factor", "name")}


class BudgetSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """A linear warm-up to a peak, times a factor that falls as the `Budget` callback says.

    Attributes:
        used: A variable from 0 to 1, which `Budget` sets and the optimizer tracks.
    """

    @checked
    def __init__(self, peak: Positive, warmup_steps: Positive, name: str):
        super().__init__()
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.name = name
        self.used = keras.Variable(
            0.0,
            dtype="float32",
            trainable=False,
            aggregation="only_first_replica",
            name="budget_used",
        )

    def factor(self, used: Any) -> Any:
        """Return the factor, from 1 to 0."""
        raise NotImplementedError

    def __call__(self, step: Any) -> Any:
        rise = ops.minimum(_number_of(step) / self.warmup_steps, 1.0)
        return self.peak * rise * self.factor(ops.convert_to_tensor(self.used))

    def get_config(self) -> dict[str, Any]:
        return {"peak": self.peak, "warmup_steps": self.warmup_steps, "name": self.name}


@keras.saving.register_keras_serializable("keras_attention")
class CooldownToBudget(BudgetSchedule):
    """A linear warm-up, a constant rate, and a linear fall to 0 in the last share of the budget.

    The rate does not depend on the budget until the cool-down begins. So a run that has kept its state from
    there can be continued with any larger budget, or ended early by a cool-down at any time. Haegele et
    al. 2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations".

    The `Budget` callback begins the cool-down and tells this schedule which share of it is over.

    Args:
        peak: The constant rate.
        warmup_steps: Number of updates of the warm-up; the first has the rate `peak / warmup_steps`.
        name: Name of the schedule. Defaults to `"cooldown_to_budget"`.

    Attributes:
        used: A variable, the share of the cool-down that is over, from 0 to 1.

    Call arguments:
        step: Number of updates done so far.

    Returns:
        The rate of the next update.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> schedule = CooldownToBudget(peak=0.004, warmup_steps=10)
    >>> [round(float(schedule(updates)), 6) for updates in (0, 4, 9, 1000)]
    [0.0004, 0.002, 0.004, 0.004]
    >>> _ = schedule.used.assign(0.75)  # what `Budget` does
    >>> round(float(schedule(1000)), 6)
    0.001
    """

    def __init__(self, peak: Positive, warmup_steps: Positive, name: str = "cooldown_to_budget"):
        super().__init__(peak, warmup_steps, name)

    def factor(self, used: Any) -> Any:
        return 1.0 - used


@keras.saving.register_keras_serializable("keras_attention")
class CosineToBudget(BudgetSchedule):
    """A linear warm-up, times half a cosine that reaches 0 when the budget is used up.

    `keras.optimizers.schedules.CosineDecay` needs the number of updates in advance. This schedule is for
    a budget of minutes on a machine of unknown speed: the `Budget` callback tells it which share of the
    budget is used. So the rate depends on the speed, and two runs do not give the same bits.

    The share is a variable, which `keras_attention.Adam` tracks with its own variables. So checkpoints
    hold it, and compiled updates see it change.

    Args:
        peak: Largest rate of the warm-up. The cosine lowers it as the budget is used.
        warmup_steps: Number of updates of the warm-up; the first has the rate `peak / warmup_steps`.
        name: Name of the schedule. Defaults to `"cosine_to_budget"`.

    Attributes:
        used: A variable, the share of the budget that is used, from 0 to 1.

    Call arguments:
        step: Number of updates done so far.

    Returns:
        The rate of the next update.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> schedule = CosineToBudget(peak=0.004, warmup_steps=10)
    >>> [round(float(schedule(updates)), 6) for updates in (0, 4, 9, 1000)]
    [0.0004, 0.002, 0.004, 0.004]
    >>> _ = schedule.used.assign(0.5)  # what `Budget` does
    >>> round(float(schedule(1000)), 6)
    0.002
    """

    def __init__(self, peak: Positive, warmup_steps: Positive, name: str = "cosine_to_budget"):
        super().__init__(peak, warmup_steps, name)

    def factor(self, used: Any) -> Any:
        return 0.5 * (1.0 + ops.cos(math.pi * used))


@keras.saving.register_keras_serializable("keras_attention")
class SimplexLearningRate(keras.optimizers.schedules.LearningRateSchedule):
    """`(hidden_dim / num_layers)^-0.5 * min(step^-0.5, step * 400^-1.5)`, for kappa and alpha.

    Ahmed et al. 2017, "Weighted Transformer Network", section 3: the weights of the branches, kappa and
    alpha, learn faster than all others and are frozen at the end of training. Steps are counted from 1,
    as in `LearningRateSchedule`.

    Args:
        hidden_dim: Width D of the model.
        num_layers: Number of layers, the paper's N. Of a pair, for encoder and decoder, the mean counts.
        warmup_steps: Number of updates until the peak. Defaults to 400, as in the paper.
        last_step: Last update with a rate above 0, after which kappa and alpha are frozen; None for no
            end. The paper freezes them for the last 10,000 of 60,000 updates. Defaults to None.
        name: Name of the schedule. Defaults to `"simplex_learning_rate"`.

    Call arguments:
        step: Number of updates done so far.

    Returns:
        The rate of the next update.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> schedule = SimplexLearningRate(hidden_dim=512, num_layers=6, last_step=50000)
    >>> [round(float(schedule(updates)) * 1e3, 4) for updates in (0, 399, 3999, 50000)]
    [0.0135, 5.4127, 1.7116, 0.0]
    """

    @checked
    def __init__(
        self,
        hidden_dim: Count,
        num_layers: Depths,
        warmup_steps: Count = 400,
        last_step: FromZero | None = None,
        name: str = "simplex_learning_rate",
    ):
        super().__init__()
        self.hidden_dim = hidden_dim
        self.num_layers = num_layers
        self.warmup_steps = warmup_steps
        self.last_step = last_step
        self.name = name

    def __call__(self, step: Any) -> Any:
        step = _number_of(step)
        layers = sum(depths_of(self.num_layers)) / 2
        rate = _rise_and_fall(step, self.warmup_steps) * (self.hidden_dim / layers) ** -0.5
        if self.last_step is None:
            return rate
        return ops.where(ops.greater(step, self.last_step), ops.zeros_like(rate), rate)

    def get_config(self) -> dict[str, Any]:
        names = ("hidden_dim", "num_layers", "warmup_steps", "last_step", "name")
        return {name: getattr(self, name) for name in names}
