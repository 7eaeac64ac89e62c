"""Dropout, residual sum and layer normalisation around a sub-layer (sections 3.1 and 5.4)."""

from typing import Any

import keras
from keras import ops

from keras_attention.layers.arguments import Configured, checked
from keras_attention.layers.declared import check_declares_itself
from keras_attention.layers.door import Door, call_part
from keras_attention.layers.dropout import Dropout
from keras_attention.ops.operations import dropout_add_norm
from keras_attention.ops.reference import is_float64, layer_norm
from keras_attention.spec.parts import Normalization, NormSpec, SpecError
from keras_attention.utils.arguments import FromZero, Positive, Rate


@keras.saving.register_keras_serializable("keras_attention")
class LayerNormalization(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` over the last axis, whose float64 is float64 on every backend."""

    is_called_directly = True

    def call(self, inputs: Any) -> Any:
        if not is_float64(inputs):
            return super().call(inputs)
        outputs = layer_norm(inputs, self.gamma, self.beta, self.epsilon)
        return ops.cast(outputs, self.compute_dtype)


@keras.saving.register_keras_serializable("keras_attention")
class RMSNormalization(keras.layers.RMSNormalization):
    """`keras.layers.RMSNormalization` over the last axis, whose float64 is float64 on every backend."""

    is_called_directly = True

    def call(self, x: Any) -> Any:
        if not is_float64(x):
            return super().call(x)
        squares = ops.sum(x * x, axis=-1, keepdims=True) / x.shape[-1]
        return x / ops.sqrt(squares + self.epsilon) * ops.convert_to_tensor(self.scale)


def make_norm(normalization: str, **arguments: Any) -> Any:
    """Return the layer of a `Normalization`."""
    return {"layer": LayerNormalization, "rms": RMSNormalization}[normalization](**arguments)


@keras.saving.register_keras_serializable("keras_attention")
class ResidualConnection(Configured, Door, keras.layers.Layer):
    """The residual connection around a sub-layer: `LayerNorm(x + Dropout(Sublayer(x)))`.

    Post-norm, as in the paper: `connection(x, sublayer(x))` is the formula above. Pre-norm
    (`normalize_first=True`, later tensor2tensor): `x + Dropout(Sublayer(LayerNorm(x)))`. One line
    serves both: `x = connection(x, sublayer(connection.normalize_input(x)))`.

    Args:
        dropout: Rate of the dropout on the sub-layer's output, the paper's P_drop. Defaults to 0.1.
        normalize_first: Whether to normalise the sub-layer's input instead of the sum. Defaults to
            False.
        epsilon: Added to the variance in the layer normalisation. Defaults to 1e-6, the authors'
            value (Keras' own default is 1e-3).
        seed: Integer seed of the dropout, or None. Defaults to None.
        normalization: `"layer"`, or `"rms"` for RMSNorm. Defaults to `"layer"`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor x of shape `(B, T, D)`.
        update: The sub-layer's output, `(B, T, D)`.
        training: Whether dropout is on.

    Returns:
        Tensor of shape `(B, T, D)`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> import numpy as np
    >>> from keras import ops
    >>> connection = ResidualConnection()
    >>> x = np.array([[[1.0, 3.0]]])
    >>> ops.convert_to_numpy(connection(x, x)).round(3).tolist()
    [[[-1.0, 1.0]]]
    """

    call_axes = {"inputs": "BTD", "update": "BTD"}

    def __init__(
        self,
        dropout: Rate = 0.1,
        normalize_first: bool = False,
        epsilon: Positive = 1e-6,
        seed: FromZero | None = None,
        normalization: Normalization = "layer",
        **kwargs: Any,
    ):
        arguments = checked(locals())
        super().__init__(**kwargs)
        self._keep(arguments)
        self.supports_masking = True
        self.normalization = make_norm(
            normalization, epsilon=epsilon, dtype=self.dtype_policy, name="normalization"
        )
        self.dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy, name="dropout")

    def build(self, inputs_shape: Any, update_shape: Any = None) -> None:
        self._width = inputs_shape[-1]
        self.normalization.build(inputs_shape)
        self.built = True

    def normalize_input(self, inputs: Any) -> Any:
        """Return the sub-layer's input: normalised with pre-norm, as it is with post-norm."""
        return call_part(self, self.normalization, inputs) if self.normalize_first else inputs

    def call(self, inputs: Any, update: Any, training: bool | None = None) -> Any:
        drops = bool(training) and self.dropout > 0.0
        is_rms = isinstance(self.normalization, RMSNormalization)
        if drops and not (self.normalize_first or is_rms):
            return dropout_add_norm(
                inputs,
                update,
                self.normalization.gamma,
                self.normalization.beta,
                self.epsilon,
                self.dropout,
                self.dropout_layer.seed_generator,
            )
        if drops:
            update = call_part(self, self.dropout_layer, update, training=True)
        outputs = ops.add(inputs, update)
        return outputs if self.normalize_first else call_part(self, self.normalization, outputs)

    def spec(self) -> NormSpec:
        """Describe the layer normalisation of this connection."""
        check_declares_itself(self)
        return norm_spec(self.normalization)

    def compute_output_shape(self, inputs_shape: Any, update_shape: Any = None) -> Any:
        return inputs_shape


def norm_spec(layer: Any) -> NormSpec:
    """Return the spec of Keras' `LayerNormalization` over the last axis, or of our `RMSNormalization`."""
    if type(layer) is RMSNormalization:
        return NormSpec(layer.scale, None, layer.epsilon)
    if type(layer) not in (keras.layers.LayerNormalization, LayerNormalization):
        raise SpecError(f"{layer.name!r} is a {type(layer).__name__}, not a LayerNormalization.")
    if not (layer.scale and layer.center) or layer.rms_scaling or layer.gamma.ndim != 1:
        raise SpecError(
            f"{layer.name!r} lacks gains or offsets, or normalises over more than the last axis."
        )
    return NormSpec(layer.gamma, layer.beta, layer.epsilon)
