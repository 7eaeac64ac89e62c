"""An optimizer that learns more from each update than Adam does; for corpora that few updates must do for."""

from typing import Any

import keras
from keras import ops

from keras_attention.training.optimizer import Adam

# The polynomial of Jordan et al. 2024: after five steps, singular values lie between about 0.7 and 1.2.
QUINTIC = (3.4445, -4.7750, 2.0315)
# Liu et al. 2025 scale a step to the root mean square that Adam's steps have.
STEP_RMS = 0.2


@keras.saving.register_keras_serializable("keras_attention")
class Muon(Adam):
    """Moves matrices along their orthogonalised momentum, and everything else by `Adam`.

    A matrix' momentum is replaced by the nearest matrix with orthonormal rows or columns, found by a few
    Newton-Schulz steps: every direction of the gradient moves the weights equally far, not only the few
    strong ones. Matrices are the kernels of projections and feed-forward networks; each head of an
    attention's kernel is a matrix of its own. Embeddings, biases and gains are Adam's.

    This is not the paper's optimizer. `keras.optimizers.Muon` cannot take its place here: it leaves
    kernels with an axis of heads to Adam.

    Args:
        learning_rate: Adam's rate or schedule, for what is no matrix.
        matrix_rate: The rate of matrices, as a multiple of `learning_rate`.
        matrix_momentum: Decay of the momentum of matrices.
        matrix_decay: Weight decay of matrices: each update shrinks them by their rate times this.
        newton_schulz_steps: Steps of the orthogonalisation.
        name: Name of the optimizer.
        **kwargs: Every other argument of `Adam`.

    Raises:
        ValueError: `matrix_momentum` out of [0, 1), or another of these numbers negative.

    References: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"; Liu et al.
    2025, "Muon is scalable for LLM training", whose scale of the step and weight decay these are.

    Example:

    >>> import numpy as np
    >>> kernel = keras.Variable(np.zeros((2, 3)), name="kernel")
    >>> gradient = np.array([[100.0, 0.0, 0.0], [0.0, 2.0, 0.0]], "float32")
    >>> Muon(learning_rate=1.0, matrix_rate=1.0).apply([gradient], [kernel])
    >>> step = -ops.convert_to_numpy(kernel)
    >>> bool(0.7 < step[0, 0] / step[1, 1] < 1.5)  # of 50 that the gradient has
    True
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        matrix_rate: float = 2.0,
        matrix_momentum: float = 0.95,
        matrix_decay: float = 0.05,
        newton_schulz_steps: int = 5,
        name: str = "muon",
        **kwargs: Any,
    ):
        if not 0 <= matrix_momentum < 1:
            raise ValueError(
                f"`matrix_momentum` must be in [0, 1). Received: matrix_momentum={matrix_momentum!r}"
            )
        numbers = {
            "matrix_rate": matrix_rate,
            "matrix_decay": matrix_decay,
            "newton_schulz_steps": newton_schulz_steps,
        }
        for key, value in numbers.items():
            if value < 0:
                raise ValueError(f"`{key}` must not be negative. Received: {key}={value!r}")
        super().__init__(learning_rate, name=name, **kwargs)
        self.matrix_rate = matrix_rate
        self.matrix_momentum = matrix_momentum
        self.matrix_decay = matrix_decay
        self.newton_schulz_steps = newton_schulz_steps

    def build(self, variables: Any) -> None:
        if self.built:
            return
        super().build(variables)
        self._matrices = {
            self._get_variable_index(variable): _head_axis(variable)
            for variable in variables
            if _is_kernel(variable)
        }

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        index = self._get_variable_index(variable)
        if index not in self._matrices:
            super().update_step(gradient, variable, learning_rate)
            return
        momentum = self._momentums[index]
        gradient = ops.cast(gradient, momentum.dtype)
        rate = ops.cast(ops.multiply(learning_rate, self.matrix_rate), momentum.dtype)
        new = self._mixed(gradient, momentum)
        self.assign(momentum, new)
        # Nesterov's look ahead.
        step = self._orthogonal_step(self._mixed(gradient, new), self._matrices[index])
        step = ops.add(step, ops.multiply(variable, self.matrix_decay))
        self.assign_sub(variable, ops.multiply(rate, step))

    def _mixed(self, gradient: Any, momentum: Any) -> Any:
        return ops.add(
            ops.multiply(momentum, self.matrix_momentum),
            ops.multiply(gradient, 1.0 - self.matrix_momentum),
        )

    def _orthogonal_step(self, direction: Any, head_axis: int | None) -> Any:
        if head_axis is not None:
            direction = ops.moveaxis(direction, head_axis, 0)
        step = orthogonalized(direction, self.newton_schulz_steps)
        step = ops.multiply(step, STEP_RMS * max(step.shape[-2:]) ** 0.5)
        return step if head_axis is None else ops.moveaxis(step, 0, head_axis)

    def _update_at_once(
        self, is_good: Any, gradients: Any, variables: Any, learning_rate: Any
    ) -> None:
        others = []
        for gradient, variable in zip(gradients, variables, strict=True):
            if self._get_variable_index(variable) not in self._matrices:
                others.append((gradient, variable))
            elif bool(is_good):
                self.update_step(gradient, variable, learning_rate)
        if others:
            super()._update_at_once(is_good, *zip(*others, strict=True), learning_rate)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "matrix_rate": self.matrix_rate,
            "matrix_momentum": self.matrix_momentum,
            "matrix_decay": self.matrix_decay,
            "newton_schulz_steps": self.newton_schulz_steps,
        }


def orthogonalized(matrices: Any, steps: int = 5) -> Any:
    """About the nearest matrices with orthonormal rows, or columns if those are fewer.

    Args:
        matrices: Float tensor (..., M, N).
        steps: Newton-Schulz steps.

    Returns:
        Tensor (..., M, N): U S' V^T for the singular value decomposition U S V^T of each, with S' between
        about 0.7 and 1.2 where S is not tiny. Zero for a zero matrix.

    Example:

    >>> import numpy as np
    >>> values = np.linalg.svd(orthogonalized(np.diag([5.0, 1.0, 0.5]).astype("float32")))[1]
    >>> bool((values > 0.6).all() and (values < 1.3).all())
    True
    """
    a, b, c = QUINTIC
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = ops.swapaxes(matrices, -1, -2) if is_tall else ops.convert_to_tensor(matrices)
    squares = ops.sum(ops.square(x), axis=(-2, -1), keepdims=True)
    x = ops.divide(x, ops.add(ops.sqrt(squares), 1e-7))
    for _ in range(steps):
        product = ops.matmul(x, ops.swapaxes(x, -1, -2))
        polynomial = ops.add(
            ops.multiply(product, b), ops.multiply(ops.matmul(product, product), c)
        )
        x = ops.add(ops.multiply(x, a), ops.matmul(polynomial, x))
    return ops.swapaxes(x, -1, -2) if is_tall else x


def _is_kernel(variable: Any) -> bool:
    return variable.path.rpartition("/")[2] == "kernel" and len(variable.shape) in (2, 3)


def _head_axis(kernel: Any) -> int | None:
    """Where a kernel of an attention has its heads: (D, N, K) of a projection, (N, K, D) at its end."""
    if len(kernel.shape) == 2:
        return None
    return 0 if "attention_output" in kernel.path else 1
