"""One encoder layer of the paper (section 3.1)."""

from typing import Any

import keras

from keras_attention.layers.arguments import Configured, config_of_before, options_in, takes
from keras_attention.layers.declared import check_declares_itself, declared
from keras_attention.layers.door import Door, call_part
from keras_attention.layers.feed_forward import FeedForward
from keras_attention.layers.multi_head_attention import MultiHeadAttention
from keras_attention.layers.residual import ResidualConnection
from keras_attention.layers.seeds import part_initializer, part_seed
from keras_attention.spec.options import BlockOptions
from keras_attention.spec.parts import BlockSpec, SpecError
from keras_attention.utils.arguments import Named, check


class TransformerBlock(Configured, Door, keras.layers.Layer):
    """Base class of encoder and decoder blocks: their common arguments and sub-layers."""

    def __init__(self, options: BlockOptions, kernel_initializer: Any, **kwargs: Any):
        super().__init__(**kwargs)
        self.options = options
        initializer = check("kernel_initializer", kernel_initializer, Named)
        self._keep({**vars(options), "kernel_initializer": initializer})
        self.supports_masking = True

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return super().from_config(config_of_before(config))

    def _attention(
        self, name: str, hidden_dim: int, kind: Any = MultiHeadAttention, **more: Any
    ) -> MultiHeadAttention:
        """Make an attention. A block of another kind overrides this, and the two for the network."""
        return kind(
            num_heads=self.num_heads,
            key_dim=self.options.key_dim_in(hidden_dim),
            value_dim=self.value_dim,
            dropout=self.attention_dropout,
            sliding_window=self.attention_window if name == "self_attention" else None,
            use_bias=self.use_attention_bias,
            kernel_initializer=part_initializer(self.kernel_initializer, name),
            seed=part_seed(self.seed, name),
            dtype=self.dtype_policy,
            name=name,
            **more,
        )

    def _build_feed_forward(self, input_shape: Any) -> None:
        """Build the network and its residual connection."""
        self.feed_forward = FeedForward(
            self.intermediate_dim,
            activation=self.activation,
            dropout=self.activation_dropout,
            gated=self.gated_feed_forward,
            kernel_initializer=part_initializer(self.kernel_initializer, "feed_forward"),
            seed=part_seed(self.seed, "feed_forward"),
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self.feed_forward.build(input_shape)
        self.feed_forward_residual = self._residual("feed_forward_residual")
        self.feed_forward_residual.build(input_shape)

    def _apply_feed_forward(self, x: Any, training: bool | None) -> Any:
        residual = self.feed_forward_residual
        update = call_part(self, self.feed_forward, residual.normalize_input(x), training=training)
        return call_part(self, residual, x, update, training=training)

    def _residual(self, name: str) -> ResidualConnection:
        return ResidualConnection(
            dropout=self.dropout,
            normalize_first=self.normalize_first,
            epsilon=self.layer_norm_epsilon,
            normalization=self.normalization,
            seed=part_seed(self.seed, name),
            dtype=self.dtype_policy,
            name=name,
        )

    def _block_spec(self, *sublayers: str) -> BlockSpec:
        """Return the block's spec, from the sub-layers of these names and their connections."""
        check_declares_itself(self)
        parts = {}
        for name in (*sublayers, "feed_forward"):
            residual = getattr(self, f"{name}_residual")
            parts[name] = declared(self, getattr(self, name))
            parts[f"{name}_norm"] = declared(self, residual)
            if residual.normalize_first != self.normalize_first:
                raise SpecError(
                    f"{self.name!r} has normalize_first={self.normalize_first}, but its "
                    f"{residual.name!r} has not: in a spec, a block has the same for all sub-layers."
                )
        return BlockSpec(**parts, normalize_first=self.normalize_first)


class OverVectors(Door):
    """Mixin of what an encoder's block and a stack of them have in common: their arguments and results."""

    call_axes = {
        "inputs": "BSD",
        "padding_mask": "BS",
        "attention_mask": "BNSS",
        "mask": "BS",
        "inputs_mask": "BS",
    }
    num_heads: int
    compute_dtype: Any

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def compute_output_spec(
        self, inputs: Any, return_attention_scores: bool = False, **_: Any
    ) -> Any:
        outputs = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return outputs
        batch, length, _ = inputs.shape
        shape = (batch, self.num_heads, length, length)
        return outputs, keras.KerasTensor(shape, dtype=self.compute_dtype)


@keras.saving.register_keras_serializable("keras_attention")
class TransformerEncoderBlock(OverVectors, TransformerBlock):
    """Self-attention and feed-forward network, each inside a residual connection (section 3.1).

    Args:
        kernel_initializer: Initializer of all kernels. Defaults to `"glorot_uniform"`.
        **kwargs: The fields of `keras_attention.spec.BlockOptions`, which says what they are; the first
            ones also by position. And the keyword arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor of shape `(B, S, D)`.
        padding_mask: Boolean `(B, S)`, True = a real token. Defaults to the implicit Keras mask.
        attention_mask: Boolean `(B, S, S)`, True = may attend; merged with the padding mask.
        training: Whether dropout is on.
        return_attention_scores: Whether to return the attention weights `(B, N, S, S)` as well.
        head_mask: `(B, N)`, 0 for heads that are switched off; see `MultiHeadAttention`.

    Returns:
        Tensor of shape `(B, S, D)`; with `return_attention_scores`, a tuple of it and the weights.

    Raises:
        ValueError: If an argument is out of range, or `num_heads` does not divide D and there is no
            `key_dim`.

    Example:

    >>> import numpy as np
    >>> block = TransformerEncoderBlock(num_heads=2, intermediate_dim=16)
    >>> tuple(block(np.ones((2, 3, 8)), padding_mask=np.ones((2, 3), bool)).shape)
    (2, 3, 8)
    """

    call_axes = {**OverVectors.call_axes, "head_mask": "BN"}

    @takes(BlockOptions)
    def __init__(
        self,
        num_heads: int,
        intermediate_dim: int,
        *,
        kernel_initializer: Named = "glorot_uniform",
        **kwargs: Any,
    ):
        options, others = options_in(BlockOptions, locals())
        super().__init__(options, kernel_initializer, **others)

    def build(self, input_shape: Any) -> None:
        self._width = input_shape[-1]
        self.self_attention = self._attention("self_attention", input_shape[-1])
        self.self_attention.build(input_shape, input_shape)
        self.self_attention_residual = self._residual("self_attention_residual")
        self.self_attention_residual.build(input_shape)
        self._build_feed_forward(input_shape)
        self.built = True

    def call(
        self,
        inputs: Any,
        padding_mask: Any = None,
        attention_mask: Any = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        mask: Any = None,
        inputs_mask: Any = None,
        head_mask: Any = None,
    ) -> Any:
        # Keras passes the implicit mask as `inputs_mask` if another mask is given as well.
        padding_mask = first_given(padding_mask, mask, inputs_mask)
        x = self.self_attention_residual.normalize_input(inputs)
        update = call_part(
            self,
            self.self_attention,
            x,
            x,
            value_mask=padding_mask,
            attention_mask=attention_mask,
            return_attention_scores=return_attention_scores,
            training=training,
            head_mask=head_mask,
        )
        update, scores = update if return_attention_scores else (update, None)
        x = call_part(self, self.self_attention_residual, inputs, update, training=training)
        x = self._apply_feed_forward(x, training)
        return (x, scores) if return_attention_scores else x

    def spec(self) -> BlockSpec:
        """Describe what this block computes in inference."""
        return self._block_spec("self_attention")


def first_given(*masks: Any) -> Any:
    """Return the first mask that is not None, or None."""
    return next((mask for mask in masks if mask is not None), None)
