"""The probability simplex, on which the branches' weights of the Weighted Transformer stay."""

from typing import Any

import keras
from keras import ops

from keras_attention.ops.reference import at_least_float32

# How far a sum in float32 may be from 1.
TOLERANCE = 1e-6


def simplex_projection(vector: Any) -> Any:
    """Return the point of the simplex that is nearest to a vector (M,) (Duchi et al. 2008, figure 1).

    A vector that is on the simplex stays as it is, bit by bit.
    """
    vector = ops.convert_to_tensor(vector)
    numbers = at_least_float32(vector)
    is_there = ops.logical_and(
        ops.all(ops.greater_equal(numbers, 0.0)),
        ops.less_equal(ops.abs(ops.subtract(ops.sum(numbers), 1.0)), TOLERANCE / 4),
    )
    sorted_ = ops.flip(ops.sort(numbers))
    ranks = ops.arange(1, numbers.shape[0] + 1, dtype=numbers.dtype)
    offsets = ops.divide(ops.subtract(ops.cumsum(sorted_), 1.0), ranks)
    # The largest numbers stay above 0 if all lose as much as brings their sum to 1.
    stay = ops.sum(ops.cast(ops.greater(sorted_, offsets), "int32"))
    projected = ops.relu(ops.subtract(numbers, ops.take(offsets, ops.maximum(stay, 1) - 1)))
    # Large numbers lose digits in the difference: what is left of that goes over all.
    projected = ops.divide(projected, ops.sum(projected))
    return ops.cast(ops.where(is_there, numbers, projected), vector.dtype)


@keras.saving.register_keras_serializable("keras_attention")
class Simplex(keras.constraints.Constraint):
    """Keeps a vector (M,) on the probability simplex: after every update, its nearest point there."""

    has_own_learning_rate = True  # which `keras_attention.Adam` asks for

    def __call__(self, vector: Any) -> Any:
        return simplex_projection(vector)


@keras.saving.register_keras_serializable("keras_attention")
class RandomSimplex(keras.initializers.Initializer):
    """Uniform random numbers, divided by their sum: how others' code starts kappa and alpha."""

    def __init__(self, seed: int | None = None):
        self.seed = seed

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        numbers = keras.random.uniform(
            shape, minval=0.0, maxval=1.0, dtype="float32", seed=self.seed
        )
        numbers = ops.cast(numbers, "float64" if dtype == "float64" else "float32")
        numbers = ops.add(numbers, keras.config.epsilon())  # they are not all 0
        return ops.cast(ops.divide(numbers, ops.sum(numbers)), dtype or "float32")

    def get_config(self) -> dict[str, Any]:
        return {"seed": self.seed}
