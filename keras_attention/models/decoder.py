"""The decoder alone, over any encoder that returns vectors (section 7 of the paper)."""

from typing import Any

import keras
from keras import ops

from keras_attention.layers.arguments import options_in, takes
from keras_attention.layers.door import check_switch
from keras_attention.layers.masks import check_mask
from keras_attention.models.parts import Parts
from keras_attention.models.stacks import DecoderStack, Memory
from keras_attention.models.token_ids import check_sequences, check_token_ids
from keras_attention.spec.options import DecoderOptions
from keras_attention.utils.checks import check_numbers, static_shape


@keras.saving.register_keras_serializable("keras_attention")
class TransformerDecoder(DecoderStack, keras.layers.Layer):
    """The decoder of a `Transformer`, from token ids to logits, over the output of any encoder.

    It embeds the tokens, adds positions, runs decoder blocks and predicts the next token with the same table
    (sections 3.1 and 3.4). The encoder is yours: a `TransformerEncoder` over sound, a convolutional network
    over an image. Decoding works as with a `Transformer`: `memory` once, then `decode_step` for each token,
    which is what `beam_search` calls.

    Args:
        **kwargs: The fields of `keras_attention.spec.DecoderOptions`, which says what they are; the first
            ones also by position. And the keyword arguments of `keras.layers.Layer`.

    Call arguments:
        decoder_token_ids: Integers `(B, T)`, the target shifted right by one.
        encoder_sequence: Tensor of shape `(B, S, D)`.
        encoder_padding_mask: Boolean `(B, S)`, True = real. Defaults to all.
        training: Whether dropout is on.
        return_cross_attention_scores: Whether to return the weights of the cross-attention as well.

    Returns:
        Logits of shape `(B, T, V)`; position t predicts target token t. With
        `return_cross_attention_scores`, a tuple of them and a list of weights `(B, N, T, S)`.

    Raises:
        ValueError: If an argument is out of range, or a NumPy array of ids holds one outside the vocabulary.

    Example:

    >>> import numpy as np
    >>> decoder = TransformerDecoder(vocabulary_size=11, num_layers=1, hidden_dim=8, num_heads=2)
    >>> tuple(decoder(np.array([[0, 7]]), np.ones((1, 5, 8))).shape)
    (1, 2, 11)
    """

    @takes(DecoderOptions)
    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int = DecoderOptions.num_layers,
        hidden_dim: int = DecoderOptions.hidden_dim,
        intermediate_dim: int = DecoderOptions.intermediate_dim,
        num_heads: int = DecoderOptions.num_heads,
        **kwargs: Any,
    ):
        options, others = options_in(DecoderOptions, locals())
        # With autocast, ids of a float dtype would be rounded to bfloat16, and so to other ids.
        super().__init__(**{"autocast": False, **others})
        self._take(options)
        self.target_vocabulary_size, self.suppressed_token_ids = vocabulary_size, ()
        parts = Parts(options, hidden_dim, self.dtype_policy)
        self.output_embedding = parts.output_table("token_embedding", vocabulary_size)
        self.decoder_positions, self.decoder_dropout = parts.positions("decoder")
        self.decoder_blocks = parts.stack("decoder")
        self._add_normalizations(parts, "decoder")
        self.built = True

    def build(self, *shapes: Any) -> None:
        """Do nothing: the constructor knows all shapes and builds the layers."""

    def __call__(
        self,
        decoder_token_ids: Any,
        encoder_sequence: Any,
        encoder_padding_mask: Any = None,
        **kwargs: Any,
    ) -> Any:
        ids = check_sequences("decoder_token_ids", decoder_token_ids, "BT")
        known = {"decoder_token_ids": ids}
        check_token_ids(known, self.target_vocabulary_size, self.max_length)
        for name in ("training", "return_cross_attention_scores"):
            check_switch(name, kwargs.get(name))
        rows = (static_shape(ids) or (None,))[0]
        encoded, mask = self._checked(encoder_sequence, encoder_padding_mask, rows)
        return super().__call__(ids, encoded, mask, **kwargs)

    def call(
        self,
        decoder_token_ids: Any,
        encoder_sequence: Any,
        encoder_padding_mask: Any = None,
        training: bool | None = None,
        return_cross_attention_scores: bool = False,
    ) -> Any:
        encoded = ops.cast(encoder_sequence, self.compute_dtype)
        watched = range(self.num_layers) if return_cross_attention_scores else ()
        x = self._embed(decoder_token_ids, training)
        x, weights = self._run_decoder(x, encoded, encoder_padding_mask, training, watched=watched)
        logits = self._project(x)
        return (logits, [*weights.values()]) if return_cross_attention_scores else logits

    def memory(self, encoder_sequence: Any, encoder_padding_mask: Any = None) -> Memory:
        """Prepare what the encoder returned, once for all calls of `decode_step`.

        Args:
            encoder_sequence: Tensor of shape `(B, S, D)`.
            encoder_padding_mask: Boolean `(B, S)`, True = real. Defaults to all.

        Returns:
            A dict: the cross-attention keys and values of each block, and the padding mask.

        Raises:
            ValueError: If a tensor has another shape.
        """
        encoded, mask = self._checked(encoder_sequence, encoder_padding_mask)
        encoded = ops.cast(encoded, self.compute_dtype)
        if mask is None:
            mask = ops.ones(ops.shape(encoded)[:2], "bool")
        return self._project_memory(encoded, ops.convert_to_tensor(mask))

    def _checked(self, encoded: Any, mask: Any, rows: int | None = None) -> tuple[Any, Any]:
        sizes: dict[str, Any] = {"D": self.hidden_dim, **({"B": rows} if rows else {})}
        encoded = check_numbers("encoder_sequence", encoded, "BSD", **sizes)
        if mask is None:
            return encoded, None
        shape = static_shape(encoded) or (None, None)
        sizes = dict(zip("BS", shape, strict=False))
        return encoded, check_mask("encoder_padding_mask", mask, "BS", sizes)

    def compute_output_spec(
        self,
        decoder_token_ids: Any,
        encoder_sequence: Any,
        encoder_padding_mask: Any = None,
        return_cross_attention_scores: bool = False,
        **_: Any,
    ) -> Any:
        batch, length = decoder_token_ids.shape
        vocabulary, source = self.target_vocabulary_size, encoder_sequence.shape[1]
        logits = keras.KerasTensor((batch, length, vocabulary), dtype=self.compute_dtype)
        if not return_cross_attention_scores:
            return logits
        shape = (batch, self.num_heads, length, source)
        weights = [keras.KerasTensor(shape, dtype=self.compute_dtype)] * self.num_layers
        return logits, weights
