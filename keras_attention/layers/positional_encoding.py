"""Positions, added to the embeddings (section 3.5 of the paper)."""

from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_attention.layers.arguments import Configured, checked
from keras_attention.layers.declared import check_declares_itself
from keras_attention.layers.door import Door
from keras_attention.ops.dispatch import backend_choice
from keras_attention.spec.parts import Layout, PositionsSpec, sinusoid
from keras_attention.utils.arguments import Count, Named


@keras.saving.register_keras_serializable("keras_attention")
class PositionalEncoding(Configured, Door, keras.layers.Layer):
    """Adds the encoding of each position to the inputs (section 3.5 of the paper).

    Args:
        layout: `"interleaved"` (the paper's sinusoid), `"halves"` (the sinusoid as the authors' code
            lays it out) or `"learned"` (a trained vector for each position, row E of Table 3).
            Defaults to `"interleaved"`.
        max_length: Number of positions. Learned positions cannot go beyond it. A sinusoid is stored
            for that many positions and computed on the fly for longer inputs. Defaults to 256, the
            authors' limit.
        positions_initializer: Initializer of learned positions. Defaults to `"glorot_uniform"`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor of shape `(B, T, D)`.
        start_index: Position of the first input, an integer or a scalar tensor. Used in decoding.
            Defaults to 0.

    Returns:
        `inputs` plus the encodings, `(B, T, D)`.

    Raises:
        ValueError: If an argument is out of range, or the inputs go beyond the learned positions.

    Example:

    >>> import numpy as np
    >>> layer = PositionalEncoding()
    >>> layer(np.zeros((2, 3, 8))).shape[1:] == (3, 8)
    True
    """

    call_axes = {"inputs": "BTD"}

    def __init__(
        self,
        layout: Layout = "interleaved",
        max_length: Count = 256,
        positions_initializer: Named = "glorot_uniform",
        **kwargs: Any,
    ):
        arguments = checked(locals())
        super().__init__(**kwargs)
        self._keep(arguments)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        hidden_dim: int = input_shape[-1]
        self._width = hidden_dim
        # Keras' own is float32 for float64 on JAX.
        self._sine = backend_choice("A sine", jax=_jax_sine, default=ops.sin)
        if self.layout == "learned":
            self.positions = self.add_weight(
                name="positions",
                shape=(self.max_length, hidden_dim),
                initializer=self.positions_initializer,
            )
        else:
            self._table = self._sinusoid(self.max_length)
        self.built = True

    def call(self, inputs: Any, start_index: Any = 0) -> Any:
        length = ops.shape(inputs)[1]
        if self.layout == "learned":
            self._check_length(length, start_index)
            table = ops.convert_to_tensor(self.positions)
        elif isinstance(length, int) and isinstance(start_index, int):
            end = start_index + length
            table = self._table if end <= len(self._table) else self._sinusoid(end)
            return ops.add(inputs, ops.cast(table[start_index:end], inputs.dtype))
        else:
            return ops.add(inputs, self._computed(length, start_index, inputs))
        indices = ops.add(ops.arange(length, dtype="int32"), ops.cast(start_index, "int32"))
        return ops.add(inputs, ops.cast(ops.take(table, indices, axis=0), inputs.dtype))

    def spec(self) -> PositionsSpec:
        """Describe what this layer adds."""
        check_declares_itself(self)
        return PositionsSpec(self.layout, self.positions if self.layout == "learned" else None)

    def _sinusoid(self, length: int) -> np.ndarray:
        assert self._width is not None  # It is built.
        return sinusoid(np.arange(length), self._width, self.layout, self._float())

    def _float(self) -> Literal["float32", "float64"]:
        """Return the dtype in which encodings are computed."""
        return "float64" if self.compute_dtype == "float64" else "float32"

    def _computed(self, length: Any, start_index: Any, inputs: Any) -> Any:
        """Return the sinusoid of positions that are known only when the graph runs."""
        assert self._width is not None
        hidden_dim = self._width  # While PyTorch traces, `inputs.shape` holds tensors.
        positions = ops.add(ops.arange(length, dtype="int32"), ops.cast(start_index, "int32"))
        positions = ops.cast(positions, self._float())[:, None]
        columns = np.arange(hidden_dim)
        if self.layout == "interleaved":
            rates = 10000.0 ** (-2 * (columns // 2) / hidden_dim)
            is_sine = columns % 2 == 0
            is_pad = np.zeros(hidden_dim, dtype=bool)
        else:
            half = hidden_dim // 2
            rates = 10000.0 ** (-(columns % max(half, 1)) / max(half - 1, 1))
            is_sine = columns < half
            is_pad = columns >= 2 * half
        # cos(x) = sin(x + pi/2): one pass of sines gives both halves.
        phase = np.where(is_sine, 0.0, np.pi / 2).astype(self._float())
        encoding = self._sine(ops.add(ops.multiply(positions, rates.astype(self._float())), phase))
        if is_pad.any():
            encoding = ops.where(is_pad, ops.zeros_like(encoding), encoding)
        return ops.cast(encoding, inputs.dtype)

    def _check_length(self, length: Any, start_index: Any) -> None:
        end = start_index + length if isinstance(start_index, int) else length
        if isinstance(end, int) and end > self.max_length:
            raise ValueError(
                f"{self.name} has learned positions for {self.max_length} tokens. Received: a "
                f"sequence of {end} tokens. Shorten it, or build the layer with "
                f"`max_length={end}`."
            )

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return input_shape


def _jax_sine(angles: Any) -> Any:
    import jax.numpy as jnp

    return jnp.sin(angles)
