"""One decoder layer of the paper (section 3.1)."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import keras
from keras import ops

from keras_attention.layers.arguments import options_in, takes
from keras_attention.layers.door import KEYS_AND_VALUES, call_part
from keras_attention.layers.encoder_block import TransformerBlock, first_given
from keras_attention.layers.multi_head_attention import State
from keras_attention.layers.seeds import part_initializer
from keras_attention.layers.ssru import SSRU, state_dtype
from keras_attention.spec.options import DecoderBlockOptions
from keras_attention.spec.parts import BlockSpec
from keras_attention.utils.arguments import Named


@keras.saving.register_keras_serializable("keras_attention")
class TransformerDecoderBlock(TransformerBlock):
    """Masked self-attention, cross-attention and a feed-forward network (section 3.1).

    Each of the three is inside a residual connection.

    Args:
        kernel_initializer: Initializer of all kernels. Defaults to `"glorot_uniform"`.
        **kwargs: The fields of `keras_attention.spec.DecoderBlockOptions`, which says what they are; the
            first ones also by position. And the keyword arguments of `keras.layers.Layer`.

    Call arguments:
        decoder_sequence: Tensor of shape `(B, T, D)`.
        encoder_sequence: Tensor of shape `(B, S, D)`; not needed where `memory` is given.
        decoder_padding_mask: Boolean `(B, T)`, True = a real token. Defaults to the implicit Keras
            mask of `decoder_sequence`. The causal mask is always on.
        encoder_padding_mask: Boolean `(B, S)`. Defaults to the implicit Keras mask of
            `encoder_sequence`.
        decoder_attention_mask: Boolean `(B, T, T)`, merged with the other masks.
        encoder_attention_mask: Boolean `(B, T, S)`, merged with the other masks.
        training: Whether dropout is on.
        return_attention_scores: Whether to return the weights of both attentions as well.
        memory: Keys and values of the encoder sequence, from `project_memory`. It may have fewer rows
            than `decoder_sequence`: consecutive rows, such as the beams of a sentence, then share one.
        cache: Keys and values of earlier positions, `{"key": (B, L, N, K), "value": (B, L, N, U)}`.
            An SSRU has its state instead, `{"state": (B, D)}` in float32.
        start_index: Position of the first element of `decoder_sequence` in the cache.
        self_head_mask: `(B, N)`, 0 for self-attention heads that are switched off; see
            `MultiHeadAttention`.
        cross_head_mask: The same for the cross-attention.
        return_cross_attention_scores: Whether to return the weights of the cross-attention alone as well. The
            self-attention can then be fused.

    Returns:
        Tensor of shape `(B, T, D)`; then, if asked for, the self-attention weights `(B, N, T, T)`, or None
        of an SSRU, and the cross-attention weights `(B, N, T, S)`; then, with `cache`, the updated cache.

    Raises:
        ValueError: If an argument is out of range, `num_heads` does not divide D and there is no
            `key_dim`, neither `encoder_sequence` nor `memory` is given, or an SSRU gets what only
            attention can use: a window, `decoder_attention_mask` or `self_head_mask`.

    Example:

    >>> import numpy as np
    >>> block = TransformerDecoderBlock(num_heads=2, intermediate_dim=16)
    >>> tuple(block(np.ones((2, 3, 8)), np.ones((2, 5, 8))).shape)
    (2, 3, 8)
    """

    call_axes = {
        "decoder_sequence": "BTD",
        "encoder_sequence": "BSE",
        "decoder_padding_mask": "BT",
        "encoder_padding_mask": "BS",
        "decoder_attention_mask": "BNTT",
        "encoder_attention_mask": "BNTS",
        "decoder_sequence_mask": "BT",
        "encoder_sequence_mask": "BS",
        "self_head_mask": "BN",
        "cross_head_mask": "BN",
    }
    _memory_width: int | None = None

    @takes(DecoderBlockOptions)
    def __init__(
        self,
        num_heads: int,
        intermediate_dim: int,
        *,
        kernel_initializer: Named = "glorot_uniform",
        **kwargs: Any,
    ):
        options, others = options_in(DecoderBlockOptions, locals())
        if options.decoder_cell == "ssru":
            if options.attention_window is not None:
                raise ValueError(
                    "An SSRU has no window: leave `attention_window` out, or pass decoder_cell='attention'. "
                    f"Received: attention_window={options.attention_window}"
                )
            # With autocast, Keras would round the state in the cache to the compute dtype.
            others = {"autocast": False, **others}
        super().__init__(options, kernel_initializer, **others)

    def build(self, decoder_sequence_shape: Any, encoder_sequence_shape: Any = None) -> None:
        memory_shape = encoder_sequence_shape or decoder_sequence_shape
        self._width, self._memory_width = decoder_sequence_shape[-1], memory_shape[-1]
        hidden_dim = decoder_sequence_shape[-1]
        self.self_attention: Any
        if self.decoder_cell == "ssru":
            initializer = part_initializer(self.kernel_initializer, "ssru")
            self.self_attention = SSRU(
                kernel_initializer=initializer, dtype=self.dtype_policy, name="ssru"
            )
            self.self_attention.build(decoder_sequence_shape)
        else:
            self.self_attention = self._attention("self_attention", hidden_dim)
            self.self_attention.build(decoder_sequence_shape, decoder_sequence_shape)
        self.self_attention_residual = self._residual("self_attention_residual")
        self.self_attention_residual.build(decoder_sequence_shape)
        self.cross_attention = self._attention("cross_attention", hidden_dim)
        self.cross_attention.build(decoder_sequence_shape, memory_shape)
        self.cross_attention_residual = self._residual("cross_attention_residual")
        self.cross_attention_residual.build(decoder_sequence_shape)
        self._build_feed_forward(decoder_sequence_shape)
        self.built = True

    def known_sizes(self) -> dict[str, int | None]:
        return {**super().known_sizes(), "E": self._memory_width}

    def axes_of(self, given: Mapping[str, Any]) -> Mapping[str, str]:
        for name in ("decoder_attention_mask", "self_head_mask"):
            if self.decoder_cell == "ssru" and given.get(name) is not None:
                raise ValueError(
                    f"{self.name} has an SSRU in place of self-attention, which has no attention mask "
                    f"and no heads: leave `{name}` out. `decoder_padding_mask` is used."
                )
        return self.call_axes

    def state_axes(self, name: str) -> Mapping[str, str]:
        is_cell = name == "cache" and self.decoder_cell == "ssru"
        return {"state": "BD"} if is_cell else KEYS_AND_VALUES

    def project_memory(self, encoder_sequence: Any) -> State:
        """Return the keys and values of the encoder sequence `(B, S, D)`, for all decoding steps."""
        return self.cross_attention.project_key_value(encoder_sequence)

    def call(
        self,
        decoder_sequence: Any,
        encoder_sequence: Any = None,
        decoder_padding_mask: Any = None,
        encoder_padding_mask: Any = None,
        decoder_attention_mask: Any = None,
        encoder_attention_mask: Any = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        memory: State | None = None,
        cache: State | None = None,
        start_index: Any = 0,
        decoder_sequence_mask: Any = None,
        encoder_sequence_mask: Any = None,
        self_head_mask: Any = None,
        cross_head_mask: Any = None,
        return_cross_attention_scores: bool = False,
    ) -> Any:
        if encoder_sequence is None and memory is None:
            raise ValueError(
                f"{self.name} needs `encoder_sequence` or `memory`. Received: None for both"
            )
        if not self.autocast:  # where the cell is an SSRU
            given = decoder_sequence, encoder_sequence
            decoder_sequence, encoder_sequence = (
                None if x is None else ops.cast(x, self.compute_dtype) for x in given
            )
        results = self._self_attend(
            decoder_sequence,
            first_given(decoder_padding_mask, decoder_sequence_mask),
            return_attention_scores,
            cache,
            attention_mask=decoder_attention_mask,
            training=training,
            start_index=start_index,
            head_mask=self_head_mask,
        )
        x = call_part(
            self, self.self_attention_residual, decoder_sequence, results.pop(0), training=training
        )

        update = call_part(
            self,
            self.cross_attention,
            self.cross_attention_residual.normalize_input(x),
            None if memory is not None else encoder_sequence,
            value_mask=first_given(encoder_padding_mask, encoder_sequence_mask),
            attention_mask=encoder_attention_mask,
            return_attention_scores=return_attention_scores or return_cross_attention_scores,
            training=training,
            cache=memory,
            head_mask=cross_head_mask,
        )
        if return_attention_scores or return_cross_attention_scores:
            update, cross_scores = update
            results.insert(1 if return_attention_scores else 0, cross_scores)
        x = call_part(self, self.cross_attention_residual, x, update, training=training)

        x = self._apply_feed_forward(x, training)
        return (x, *results) if results else x

    def spec(self) -> BlockSpec:
        """Describe what this block computes in inference."""
        return self._block_spec("self_attention", "cross_attention")

    def _self_attend(
        self,
        inputs: Any,
        padding_mask: Any,
        return_attention_scores: bool,
        cache: State | None,
        **of_attention: Any,
    ) -> list[Any]:
        """Return a list: the output of self-attention or cell, scores if asked for, the new cache if any.

        Self-attention is called with `of_attention` as well, which a cell has no use for.
        """
        x = self.self_attention_residual.normalize_input(inputs)
        if self.decoder_cell == "ssru":
            scores = [None] if return_attention_scores else []
            attend = partial(call_part, self, self.self_attention, x, mask=padding_mask)
            if cache is None:
                return [attend(), *scores]
            update, state = attend(state=cache["state"])
            return [update, *scores, {"state": state}]
        results = call_part(
            self,
            self.self_attention,
            x,
            x,
            value_mask=padding_mask,
            return_attention_scores=return_attention_scores,
            use_causal_mask=True,
            cache=cache,
            **of_attention,
        )
        return list(results) if isinstance(results, tuple) else [results]

    def compute_output_shape(
        self, decoder_sequence_shape: Any, encoder_sequence_shape: Any = None
    ) -> Any:
        return decoder_sequence_shape

    def compute_output_spec(
        self,
        decoder_sequence: Any,
        encoder_sequence: Any = None,
        return_attention_scores: bool = False,
        memory: State | None = None,
        cache: State | None = None,
        return_cross_attention_scores: bool = False,
        **_: Any,
    ) -> Any:
        batch, length, _ = decoder_sequence.shape
        results: list[Any] = [keras.KerasTensor(decoder_sequence.shape, dtype=self.compute_dtype)]
        if return_attention_scores or return_cross_attention_scores:
            source = (memory["key"] if memory is not None else encoder_sequence).shape[1]
            if self.decoder_cell == "ssru" and return_attention_scores:
                raise ValueError(
                    "An SSRU has no attention scores, and a functional model of Keras takes no None in their "
                    f"place: leave `return_attention_scores` of {self.name} out, or call it with tensors."
                )
            attended = [source]
            if return_attention_scores:
                attended.insert(0, length if cache is None else cache["key"].shape[1])
            for size in attended:
                shape = (batch, self.num_heads, length, size)
                results.append(keras.KerasTensor(shape, dtype=self.compute_dtype))
        if cache is not None and self.decoder_cell == "ssru":
            shape, dtype = cache["state"].shape, state_dtype(self.compute_dtype)
            results.append({"state": keras.KerasTensor(shape, dtype)})
        elif cache is not None:
            results.append({k: keras.KerasTensor(v.shape, v.dtype) for k, v in cache.items()})
        return tuple(results) if len(results) > 1 else results[0]
