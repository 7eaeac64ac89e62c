"""The optimizer of the paper (section 5.3), fused on the backends that have such an operation."""

import functools
import numbers
from collections.abc import Callable
from typing import Annotated, Any

import keras
from annotated_types import Gt, Lt
from keras import ops
from keras.optimizers import schedules

from keras_attention.ops.dispatch import backend_choice
from keras_attention.ops.operations import global_norm
from keras_attention.training.distribution import sum_over_replicas, update_where
from keras_attention.training.learning_rate import BudgetSchedule
from keras_attention.utils.arguments import NotNegative, Rate, checked
from keras_attention.utils.checks import check_number


@functools.cache
def _late_steps(number: int, device: Any) -> list[Any]:
    """Return the numbers of a step so large that PyTorch's bias corrections are 1, also one later."""
    import torch

    return list(torch.full((number,), 1e30, device=device).unbind())


@keras.saving.register_keras_serializable("keras_attention")
class Adam(keras.optimizers.Adam):
    """`keras.optimizers.Adam` with the paper's constants, a fused update and a watch on the gradient.

    Section 5.3: beta_1 0.9, beta_2 0.98, epsilon 1e-9; no clipping, no weight decay. The update is
    Keras' formula; on TensorFlow and PyTorch it runs as one operation instead of a dozen.

    Every update records the norm of its gradient, summed over all replicas and after clipping if that
    is on. Once the norm is not finite, neither that update nor any later one changes weights or
    moments: the last good values stay, and `first_nonfinite` names the update. This does not
    apply under `keras.optimizers.LossScaleOptimizer` (float16), which skips such updates by itself.

    Args:
        learning_rate: A rate or a schedule, such as `LearningRateSchedule`.
        beta_1: Decay of the first moment.
        beta_2: Decay of the second moment.
        epsilon: Added to the root of the second moment.
        simplex_learning_rate: A rate or a schedule, such as `SimplexLearningRate`, of the variables with
            a constraint that has `has_own_learning_rate`, such as a Weighted Transformer's branches; None for
            `learning_rate`.
        moving_average: Decay of a moving average of the weights, such as 0.999, which `moving_averages` has;
            training itself does not change. After t updates it is
            `average += (1 - min(decay, (t - 1) / (t + 9))) * (weight - average)`: it begins as the
            weights, and then forgets more slowly, so that short trainings are averaged, too. None for none.
        name: Name of the optimizer.
        **kwargs: Every other argument of `keras.optimizers.Adam`.

    Example:

    >>> import numpy as np
    >>> optimizer = Adam(learning_rate=0.1)
    >>> optimizer.beta_2, optimizer.epsilon
    (0.98, 1e-09)
    >>> weight = keras.Variable([1.0, 2.0])
    >>> optimizer.apply([ops.convert_to_tensor([3.0, 4.0])], [weight])
    >>> optimizer.gradient_norm, optimizer.first_nonfinite
    (5.0, 0)
    >>> before = ops.convert_to_numpy(weight)
    >>> optimizer.apply([ops.convert_to_tensor([np.nan, 4.0])])
    >>> optimizer.first_nonfinite, bool((ops.convert_to_numpy(weight) == before).all())
    (2, True)
    """

    @checked
    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: Rate = 0.9,
        beta_2: Rate = 0.98,
        epsilon: NotNegative = 1e-9,
        simplex_learning_rate: Any = None,
        moving_average: Annotated[float, Gt(0), Lt(1)] | None = None,
        name: str = "adam",
        **kwargs: Any,
    ):
        if isinstance(learning_rate, numbers.Number) or learning_rate is None:
            check_number("learning_rate", learning_rate, least=0)
        super().__init__(learning_rate, beta_1, beta_2, epsilon, name=name, **kwargs)
        if isinstance(simplex_learning_rate, dict):
            simplex_learning_rate = schedules.deserialize(simplex_learning_rate)
        if not (simplex_learning_rate is None or callable(simplex_learning_rate)):
            check_number("simplex_learning_rate", simplex_learning_rate, least=0)
        self.simplex_learning_rate = simplex_learning_rate
        self.moving_average = moving_average
        self._averages: list[Any] = []
        self._averaged: Callable[[], tuple[Any, ...]] = tuple

    def build(self, variables: Any) -> None:
        if self.built:
            return
        super().build(variables)
        once = {"shape": (), "aggregation": "only_first_replica"}
        self._gradient_norm = self.add_variable(dtype="float32", name="gradient_norm", **once)
        self._first_nonfinite = self.add_variable(dtype="int", name="first_nonfinite", **once)
        if isinstance(self._learning_rate, BudgetSchedule):
            self._track_variable(self._learning_rate.used)
        if self.moving_average is not None:
            # A function of the weights: Keras counts variables in lists among the optimizer's own.
            self._averaged = functools.partial(tuple, variables)
            self._averages = [
                self.add_variable(
                    variable.shape,
                    dtype=variable.dtype,
                    name=f"moving_average_{index}",
                    aggregation="only_first_replica",
                )
                for index, variable in enumerate(variables)
            ]

    @property
    def gradient_norm(self) -> float:
        """The norm of the last update's gradient; 0 before the first.

        In a callback, read it from `self.model.optimizer`: on JAX, Keras brings that up to date.
        """
        return float(ops.convert_to_numpy(self._gradient_norm)) if self.built else 0.0

    @property
    def first_nonfinite(self) -> int:
        """The first update, counted from 1, whose gradient was not finite; 0 if there was none.

        In a callback, read it from `self.model.optimizer`: on JAX, Keras brings that up to date.
        """
        return int(ops.convert_to_numpy(self._first_nonfinite)) if self.built else 0

    @property
    def moving_averages(self) -> list[tuple[Any, Any]]:
        """The weights with their moving averages; empty without `moving_average`."""
        return list(zip(self._averaged(), self._averages, strict=True))

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        super().apply(grads, trainable_variables)
        if not self._averages:
            return
        # After the constraints. An update that was not finite, and all after it, change nothing.
        before = ops.subtract(ops.cast(self.iterations, "float32"), 1.0)
        decay = ops.minimum(self.moving_average, ops.divide(before, ops.add(before, 10.0)))
        is_good = ops.equal(ops.convert_to_tensor(self._first_nonfinite), 0)
        if self.gradient_accumulation_steps:  # of Keras: most steps are part of an update
            steps = ops.convert_to_tensor(self._iterations)
            is_whole = ops.equal(ops.mod(steps, self.gradient_accumulation_steps), 0)
            is_good = ops.logical_and(is_good, is_whole)
        share = ops.where(is_good, 1.0 - decay, 0.0)
        for variable, average in self.moving_averages:
            old, new = (ops.convert_to_tensor(v) for v in (average, variable))
            average.assign(
                ops.add(old, ops.multiply(ops.cast(share, old.dtype), ops.subtract(new, old)))
            )

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        update = backend_choice("Adam", tensorflow=self._fused_on_tensorflow, default=None)
        if update is None or self.amsgrad or not update(gradient, variable, learning_rate):
            super().update_step(gradient, variable, learning_rate)

    def _fused_on_tensorflow(self, gradient: Any, variable: Any, learning_rate: Any) -> bool:
        """Update a TensorFlow variable and its moments in one pass over memory.

        The formula is Keras' own, `m * lr * sqrt(1 - beta_2^t) / (1 - beta_1^t) / (sqrt(v) + epsilon)`.
        Returns False if there is no fused operation for the variable, and then changes nothing.
        """
        import tensorflow as tf

        is_plain = isinstance(variable, tf.Variable) and not isinstance(gradient, tf.IndexedSlices)
        if not is_plain or hasattr(variable, "values"):  # A mirrored variable has no single handle.
            return False
        index, dtype = self._get_variable_index(variable), variable.dtype
        number = tf.cast(ops.add(self.iterations, 1), dtype)
        beta_1, beta_2 = tf.constant(self.beta_1, dtype), tf.constant(self.beta_2, dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=tf.pow(beta_1, number),
            beta2_power=tf.pow(beta_2, number),
            lr=tf.cast(learning_rate, dtype),
            beta1=beta_1,
            beta2=beta_2,
            epsilon=tf.constant(self.epsilon, dtype),
            grad=tf.cast(gradient, dtype),
            use_locking=True,
        )
        return True

    def _clip_gradients(self, grads: Any) -> Any:
        """Override Keras' hook: what is clipped is the sum over the replicas."""
        return super()._clip_gradients(sum_over_replicas(list(grads)))

    def _apply_weight_decay(self, variables: Any) -> None:
        """Override Keras' hook: weights decay in an update, once it is known that its gradient is finite."""

    def _decay(self, variables: Any) -> None:
        super()._apply_weight_decay(variables)

    # Keras' hook for the update of all variables, which each backend overrides in its own way.
    def _backend_update_step(
        self, grads: Any, trainable_variables: Any, learning_rate: Any
    ) -> None:
        is_good = self._watch(grads)
        update = backend_choice(
            "Adam",
            tensorflow=self._update_one_by_one,
            torch=self._update_at_once,
            default=self._update_and_select,
        )
        for pairs, rate in self._groups(grads, trainable_variables, learning_rate):
            update(is_good, *map(list, zip(*pairs, strict=True)), rate)

    def _groups(self, gradients: Any, variables: Any, learning_rate: Any) -> list[tuple[Any, Any]]:
        """Gradients with their variables, and the rate of them."""
        pairs = list(zip(gradients, variables, strict=True))
        rate = self.simplex_learning_rate
        if rate is None:
            return [(pairs, learning_rate)]
        groups: tuple[list[Any], list[Any]] = ([], [])
        for pair in pairs:
            groups[getattr(pair[1].constraint, "has_own_learning_rate", False)].append(pair)
        simplex_rate = rate(self.iterations) if callable(rate) else rate
        rates = (learning_rate, ops.cast(simplex_rate, "float32"))
        return [found for found in zip(groups, rates, strict=True) if found[0]]

    def _watch(self, gradients: list[Any]) -> Any:
        """Record the norm; return whether this gradient and all before it are finite."""
        norm = global_norm(gradients)
        self._gradient_norm.assign(norm)
        first = ops.convert_to_tensor(self._first_nonfinite)
        this = ops.cast(ops.add(self.iterations, 1), first.dtype)
        is_new = ops.logical_and(ops.equal(first, 0), ops.logical_not(ops.isfinite(norm)))
        first = ops.where(is_new, this, first)
        self._first_nonfinite.assign(first)
        return ops.equal(first, 0)

    def _update_one_by_one(
        self, is_good: Any, gradients: Any, variables: Any, learning_rate: Any
    ) -> None:
        update_where(is_good, self._decaying_step, gradients, variables, learning_rate)

    def _decaying_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        # Keras' own decay asks all replicas to come together, which a branch cannot.
        if self.weight_decay is not None and self._use_weight_decay(variable):
            share = ops.cast(self.learning_rate * self.weight_decay, variable.dtype)
            variable.assign_sub(variable * share)
        self.update_step(gradient, variable, learning_rate)

    def _update_at_once(
        self, is_good: Any, gradients: Any, variables: Any, learning_rate: Any
    ) -> None:
        if self.weight_decay is not None:
            if not bool(is_good):
                return
            self._decay(variables)
        given = is_good, gradients, variables, learning_rate
        is_done = not self.amsgrad and self._fused_on_torch(*given)
        if not is_done and bool(is_good):
            super()._backend_update_step(gradients, variables, learning_rate)

    def _fused_on_torch(
        self, is_good: Any, gradients: Any, variables: Any, learning_rate: Any
    ) -> bool:
        """Update variables and their moments in one call, without waiting for the device.

        Where the boolean scalar `is_good` is False, nothing changes. Returns False if there is no fused
        operation.
        """
        import torch
        from torch.optim.adam import adam

        from keras_attention.ops.backends.torch_known import tensor_of

        values = [tensor_of(variable) for variable in variables]
        if any(v.device.type not in ("cpu", "cuda") or v.dtype != torch.float32 for v in values):
            return False
        device = values[0].device
        if device.type == "cpu" and not is_good:
            return True
        # Keras adds epsilon to the uncorrected root of v, PyTorch to the corrected one. So Keras' bias
        # corrections go into the rate, and PyTorch gets a step so large that its own corrections are 1.
        number = ops.convert_to_tensor(ops.add(self.iterations, 1)).double()
        rate = ops.convert_to_tensor(learning_rate).double()
        rate = rate * torch.sqrt(1.0 - self.beta_2**number) / (1.0 - self.beta_1**number)
        indices = [self._get_variable_index(variable) for variable in variables]
        adam(
            values,
            [gradient.to(torch.float32) for gradient in gradients],
            [tensor_of(self._momentums[index]) for index in indices],
            [tensor_of(self._velocities[index]) for index in indices],
            [],
            _late_steps(len(values), device),
            fused=True,
            found_inf=None if device.type == "cpu" else torch.logical_not(is_good).float(),
            amsgrad=False,
            beta1=self.beta_1,
            beta2=self.beta_2,
            lr=rate.float() if device.type != "cpu" else float(rate),
            weight_decay=0.0,
            eps=self.epsilon,
            maximize=False,
        )
        return True

    def _update_and_select(
        self, is_good: Any, gradients: Any, variables: Any, learning_rate: Any
    ) -> None:
        # A branch would copy the state; XLA fuses a selection into the update.
        state = [*variables, *self._momentums, *self._velocities]
        state += self._velocity_hats if self.amsgrad else []
        before = [variable.value for variable in state]
        self._decay(variables)
        super()._backend_update_step(gradients, variables, learning_rate)
        for variable, value in zip(state, before, strict=True):
            variable.assign(ops.where(is_good, variable.value, value))

    def get_config(self) -> dict[str, Any]:
        rate = self.simplex_learning_rate
        rate = schedules.serialize(rate) if callable(rate) else rate
        own = {"simplex_learning_rate": rate, "moving_average": self.moving_average}
        return {**super().get_config(), **own}
