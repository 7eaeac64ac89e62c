"""The decoder alone, over any encoder that returns vectors (section 7 of the paper)."""

from typing import Any

import keras
from keras import ops

from keras_attention.layers.arguments import Named, activation_config, checked, without_branches
from keras_attention.layers.door import check_switch
from keras_attention.layers.masks import check_mask
from keras_attention.models.parts import Parts, check_blocks
from keras_attention.models.stacks import DecoderStack, Memory
from keras_attention.models.token_ids import check_sequences, check_token_ids
from keras_attention.spec.parts import DecoderCell, Layout
from keras_attention.utils.arguments import Count, FromZero, Positive, Rate
from keras_attention.utils.checks import check_integer, check_numbers, static_shape


@keras.saving.register_keras_serializable("keras_attention")
class TransformerDecoder(DecoderStack, keras.layers.Layer):
    """The decoder of a `Transformer`, from token ids to logits, over the output of any encoder.

    It embeds the tokens, adds positions, runs decoder blocks and predicts the next token with the same table
    (sections 3.1 and 3.4). The encoder is yours: a `TransformerEncoder` over sound, a convolutional network
    over an image. Decoding works as with a `Transformer`: `memory` once, then `decode_step` for each token,
    which is what `beam_search` calls.

    Args:
        vocabulary_size: Number of tokens V.
        num_layers: Number of blocks, the paper's N. Defaults to 6.
        hidden_dim: Width D of decoder and encoder, d_model. Defaults to 512.
        intermediate_dim: Width F of the feed-forward networks, d_ff. Defaults to 2048.
        num_heads: Number of heads N, the paper's h. Defaults to 8.
        key_dim: Width K of a head's queries and keys, d_k. Defaults to `hidden_dim // num_heads`.
        value_dim: Width U of a head's values, d_v. Defaults to `key_dim`.
        dropout: Dropout rate P_drop on each sub-layer's output, and on the sums of embeddings and
            positions. Defaults to 0.1.
        attention_dropout: Dropout rate on the attention weights. Defaults to 0.
        activation_dropout: Dropout rate inside the feed-forward networks. Defaults to 0.
        activation: Activation of the feed-forward networks. Defaults to `"relu"`.
        normalize_first: True for pre-norm. Defaults to False, the paper's post-norm.
        final_normalization: Whether the stack ends with a layer normalisation. Defaults to
            `normalize_first`.
        use_attention_bias: Whether attention projections have biases. Defaults to False.
        layer_norm_epsilon: Added to the variance in each layer normalisation. Defaults to 1e-6.
        decoder_cell: `"attention"`, or `"ssru"` for an `SSRU` in place of masked self-attention.
        position_layout: `"interleaved"`, `"halves"` or `"learned"`; see `PositionalEncoding`.
        max_length: Number of learned positions. Sinusoids have no limit and ignore it.
        attention_window: In self-attention, positions less than this far apart see each other. Defaults to
            None, no limit.
        tie_weights: Whether the softmax uses the embedding table (section 3.4). Defaults to True.
        use_logits_bias: Whether a trained bias is added to the logits. Defaults to False.
        pad_token_id: Id of padding, whose embedding is zero. Defaults to 0.
        recompute: Whether training keeps only the blocks' inputs and computes the rest again in the
            backward pass. Defaults to False.
        seed: Integer seed of the initial weights and the dropout, or None. Defaults to None.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

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

    def __init__(
        self,
        vocabulary_size: Count,
        num_layers: Count = 6,
        hidden_dim: Count = 512,
        intermediate_dim: Count = 2048,
        num_heads: Count = 8,
        key_dim: Count | None = None,
        value_dim: Count | None = None,
        dropout: Rate = 0.1,
        attention_dropout: Rate = 0.0,
        activation_dropout: Rate = 0.0,
        activation: Named = "relu",
        normalize_first: bool = False,
        final_normalization: bool | None = None,
        use_attention_bias: bool = False,
        layer_norm_epsilon: Positive = 1e-6,
        decoder_cell: DecoderCell = "attention",
        position_layout: Layout = "interleaved",
        max_length: Count = 256,
        attention_window: Count | None = None,
        tie_weights: bool = True,
        use_logits_bias: bool = False,
        pad_token_id: FromZero = 0,
        recompute: bool = False,
        seed: FromZero | None = None,
        **kwargs: Any,
    ):
        config = checked(locals())
        config["activation"] = activation_config(activation)
        check_integer("pad_token_id", pad_token_id, least=0, most=vocabulary_size - 1)
        check_blocks(config)
        # With autocast, ids of a float dtype would be rounded to bfloat16, and so to other ids.
        super().__init__(**{"autocast": False, **kwargs})
        self._config: dict[str, Any] = config
        self.num_layers, self.num_heads, self.hidden_dim = num_layers, num_heads, hidden_dim
        self.target_vocabulary_size, self.pad_token_id = vocabulary_size, pad_token_id
        self.final_normalization = normalize_first or bool(final_normalization)
        self.dropout, self.recompute = dropout, recompute
        self.max_length = max_length if position_layout == "learned" else None
        self.suppressed_token_ids = ()
        parts = Parts({**config, "target_vocabulary_size": None}, self.dtype_policy)
        self.output_embedding, _ = parts.token_embeddings()
        self.decoder_positions, self.decoder_dropout = parts.positions("decoder")
        self.decoder_blocks = parts.stack("decoder")
        if self.final_normalization:
            self.decoder_normalization = parts.final_normalization("decoder")
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

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self._config}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return super().from_config(without_branches(config))
