"""The position-wise feed-forward network (section 3.3 of the paper)."""

from typing import Any

import keras

from keras_attention.layers.arguments import Configured, checked
from keras_attention.layers.declared import activation_name, check_declares_itself, dense_spec
from keras_attention.layers.door import Door, call_part
from keras_attention.layers.dropout import Dropout
from keras_attention.layers.seeds import part_initializer
from keras_attention.ops.operations import fold_leading_axes, linear, unfold_leading_axes
from keras_attention.spec.parts import FeedForwardSpec
from keras_attention.utils.arguments import Count, FromZero, Named, Rate


@keras.saving.register_keras_serializable("keras_attention")
class FeedForward(Configured, Door, keras.layers.Layer):
    """`max(0, x W_1 + b_1) W_2 + b_2`, the same at every position (equation 2 of the paper).

    Args:
        intermediate_dim: Width F of the inner layer, the paper's d_ff.
        activation: Activation of the inner layer. Defaults to `"relu"`.
        dropout: Rate of the dropout after the activation (the "relu dropout" of later tensor2tensor
            settings). Defaults to 0, as in the paper.
        kernel_initializer: Initializer of both kernels. Defaults to `"glorot_uniform"`.
        bias_initializer: Initializer of both biases. Defaults to `"zeros"`.
        seed: Integer seed of the dropout, or None. Defaults to None.
        gated: Whether the inner layer is multiplied by a gate, `x W_3 + b_3` (Shazeer 2020). Defaults to
            False.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor of shape `(B, T, D)`.
        training: Whether dropout is on.

    Returns:
        Tensor of shape `(B, T, D)`.

    Example:

    >>> import numpy as np
    >>> tuple(FeedForward(intermediate_dim=16)(np.ones((2, 3, 8))).shape)
    (2, 3, 8)
    """

    call_axes = {"inputs": "...D"}

    def __init__(
        self,
        intermediate_dim: Count,
        activation: Named = "relu",
        dropout: Rate = 0.0,
        kernel_initializer: Named = "glorot_uniform",
        bias_initializer: Named = "zeros",
        seed: FromZero | None = None,
        gated: bool = False,
        **kwargs: Any,
    ):
        arguments = checked(locals())
        super().__init__(**kwargs)
        self._keep(arguments)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        self._width = hidden_dim = input_shape[-1]
        inner_dim = self.intermediate_dim
        self.inner = make_dense(self, "inner", hidden_dim, inner_dim, activation=self.activation)
        self.outer = make_dense(self, "outer", inner_dim, hidden_dim)
        self.gate = make_dense(self, "gate", hidden_dim, inner_dim) if self.gated else None
        self.dropout_layer = Dropout(
            self.dropout, seed=self.seed, dtype=self.dtype_policy, name="dropout"
        )
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        rows = fold_leading_axes(inputs)
        x = _apply_dense(self.inner, rows)
        if self.gate is not None:
            x = keras.ops.multiply(x, _apply_dense(self.gate, rows))
        if self.dropout > 0.0:
            x = call_part(self, self.dropout_layer, x, training=training)
        return unfold_leading_axes(_apply_dense(self.outer, x), inputs)

    def spec(self) -> FeedForwardSpec:
        """Describe what this layer computes in inference."""
        check_declares_itself(self)
        return FeedForwardSpec(
            dense_spec(self.inner, any_activation=True),
            dense_spec(self.outer),
            activation_name(self.inner),
            None if self.gate is None else dense_spec(self.gate),
        )

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return input_shape


def make_dense(owner: Any, name: str, width: int, units: int, **more: Any) -> keras.layers.Dense:
    """Return a `Dense` layer for inputs of a width, with copies of its owner's initializers."""
    layer = keras.layers.Dense(
        units,
        kernel_initializer=part_initializer(owner.kernel_initializer, name),
        bias_initializer=part_initializer(owner.bias_initializer, f"{name}_bias"),
        dtype=owner.dtype_policy,
        name=name,
        **more,
    )
    layer.build((None, width))
    return layer


def _apply_dense(layer: keras.layers.Dense, inputs: Any) -> Any:
    """Return `layer(inputs)`, with the backend's fastest product where the layer is a plain product."""
    if layer.quantization_mode is not None or layer.activity_regularizer is not None:
        return layer(inputs)
    is_relu = layer.activation is keras.activations.relu
    outputs = linear(inputs, layer.kernel, layer.bias, relu=is_relu)
    # A Dense layer without an activation has the linear one.
    return outputs if is_relu else layer.activation(outputs)
