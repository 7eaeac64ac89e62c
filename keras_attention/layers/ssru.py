"""The SSRU: a recurrent cell in place of a decoder's masked self-attention."""

from typing import Any

import keras
from keras import ops

from keras_attention.layers.arguments import Configured, checked
from keras_attention.layers.declared import check_declares_itself, dense_spec
from keras_attention.layers.door import Door
from keras_attention.layers.feed_forward import make_dense
from keras_attention.layers.masks import nan_if_additive
from keras_attention.layers.multi_head_attention import project
from keras_attention.ops.recurrence import linear_recurrence
from keras_attention.ops.reference import at_least_float32
from keras_attention.spec.parts import SSRUSpec
from keras_attention.utils.arguments import Named


@keras.saving.register_keras_serializable("keras_attention")
class SSRU(Configured, Door, keras.layers.Layer):
    """The simpler simple recurrent unit (Kim et al. 2019), the decoder cell of small, fast translators.

    With the input x_t: `f_t = sigmoid(x_t W_f + b_f)`, `c_t = f_t c_(t-1) + (1 - f_t) (x_t W)`, and the
    output is `relu(c_t)`. Its products do not depend on the state, so all positions are computed at once,
    the states by an associative scan. Decoding needs one vector of each sequence, however long it is, where
    attention needs all keys and values. The states are float32 (float64 in float64) in every precision.

    Args:
        use_bias: Whether `x_t W` has a bias, too. Defaults to False, as in the paper.
        kernel_initializer: Initializer of both kernels. Defaults to `"glorot_uniform"`.
        bias_initializer: Initializer of the biases. Defaults to `"zeros"`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor of shape `(B, T, D)`.
        state: The state c `(B, D)` before the first position; None for zeros.
        mask: Boolean `(B, T)`, True = a real token. The state passes over the others unchanged. Defaults to
            the implicit Keras mask.

    Returns:
        Tensor of shape `(B, T, D)`; with `state`, a tuple of it and the state `(B, D)` after the last
        position, in float32.

    Raises:
        ValueError: If an argument has another shape.

    Example:

    >>> import numpy as np
    >>> layer = SSRU()
    >>> x = np.ones((2, 3, 8), "float32")
    >>> outputs, state = layer(x, state=np.zeros((2, 8), "float32"))
    >>> tuple(outputs.shape), tuple(state.shape)
    ((2, 3, 8), (2, 8))

    Reference: Kim et al. 2019, [From Research to Production and Back: Ludicrously Fast Neural Machine
    Translation](https://aclanthology.org/D19-5632/)
    """

    call_axes = {"inputs": "BTD", "state": "BD", "mask": "BT", "inputs_mask": "BT"}

    def __init__(
        self,
        use_bias: bool = False,
        kernel_initializer: Named = "glorot_uniform",
        bias_initializer: Named = "zeros",
        **kwargs: Any,
    ):
        arguments = checked(locals())
        # With autocast, Keras would round the state to the compute dtype at every position.
        super().__init__(**{"autocast": False, **kwargs})
        self._keep(arguments)
        self.supports_masking = True

    def build(self, inputs_shape: Any, state_shape: Any = None) -> None:
        self._width = width = inputs_shape[-1]
        self.inner = make_dense(self, "inner", width, width, use_bias=self.use_bias)
        self.forget = make_dense(self, "forget", width, width)
        self.built = True

    def call(
        self, inputs: Any, state: Any = None, mask: Any = None, inputs_mask: Any = None
    ) -> Any:
        x = ops.cast(inputs, self.compute_dtype)
        gate = at_least_float32(project(self.forget, x))
        # 1 - f = sigmoid(-gate) keeps the digits of a gate that is almost open.
        keeps = ops.sigmoid(gate)
        adds = ops.sigmoid(-gate) * at_least_float32(project(self.inner, x))
        mask = inputs_mask if mask is None else mask
        if mask is not None:
            is_real = ops.cast(mask, "bool")[:, :, None]
            keeps = ops.where(is_real, keeps, ops.ones_like(keeps))
            adds = ops.where(is_real, adds, ops.zeros_like(adds))
        if state is not None:
            first = adds[:, :1] + keeps[:, :1] * ops.cast(state, adds.dtype)[:, None]
            adds = ops.concatenate([first, adds[:, 1:]], axis=1)
        states = linear_recurrence(keeps, adds)
        outputs = nan_if_additive(ops.cast(ops.relu(states), self.compute_dtype), mask)
        return outputs if state is None else (outputs, states[:, -1])

    def spec(self) -> SSRUSpec:
        """Describe what this layer computes."""
        check_declares_itself(self)
        return SSRUSpec(dense_spec(self.inner), dense_spec(self.forget))

    def compute_output_shape(self, inputs_shape: Any, state_shape: Any = None) -> Any:
        return inputs_shape if state_shape is None else (inputs_shape, state_shape)

    def compute_output_spec(self, inputs: Any, state: Any = None, **_: Any) -> Any:
        outputs = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if state is None:
            return outputs
        return outputs, keras.KerasTensor(state.shape, dtype=state_dtype(self.compute_dtype))


def state_dtype(compute_dtype: str) -> str:
    """Return the dtype of a cell's state: float32, or float64 where that is computed in."""
    return "float64" if compute_dtype == "float64" else "float32"
