"""The branches of the Weighted Transformer, summed where they are cheapest (Ahmed et al. 2017)."""

from typing import Any

from keras_attention.ops.dispatch import operation


@operation
def sum_of_branches(
    inputs: Any, kernels: Any, biases: Any, weights: Any, activation: Any = None
) -> Any:
    """Return `sum_i weights_i activation(inputs_i kernels_i + biases_i)`.

    It is what M branches have in common behind their hidden layers: the next layer is linear, so it is
    needed once, for the sum. One branch's hidden layer is in memory at a time, also in the backward
    pass, which computes it again: never the tensor (R, M, F).

    Args:
        inputs: Tensor of shape `(R, M, V)`: a row for each position, the outputs of its M heads.
        kernels: Tensor of shape `(M, V, F)`, of the same dtype.
        biases: Tensor of shape `(M, F)`.
        weights: Tensor of shape `(M,)`, in float32 (float64 if the others are), of numbers of at least 0:
            `weights_i relu(z) = relu(weights_i z)` may be used. The paper's alpha.
        activation: A function of `keras.activations`; ReLU by default, which alone has fast forms.

    Returns:
        Tensor of shape `(R, F)`, of the dtype of `inputs`; the sum is formed in that of `weights`.
    """
