"""The Transformer (section 3 of the paper)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import keras
from keras import ops

from keras_attention.layers.arguments import config_of_before, options_in, takes
from keras_attention.layers.door import call_part, check_switch
from keras_attention.layers.masks import padding_mask
from keras_attention.models import token_ids
from keras_attention.models.attention_details import AttentionDetails, norms_by_kind
from keras_attention.models.lora import LowRankAdapted
from keras_attention.models.parts import BLOCKS, Parts
from keras_attention.models.pretrained import Pretrained, declared_transformer
from keras_attention.models.quantized import Quantizable
from keras_attention.models.stacks import DecoderStack, EncoderStack, Memory, self_attention_of
from keras_attention.models.token_ids import INPUT_NAMES
from keras_attention.models.trainable import TrainableModel
from keras_attention.ops.reference import at_least_float32
from keras_attention.spec import TransformerSpec
from keras_attention.spec.options import TransformerOptions
from keras_attention.utils.checks import check_integer, depths_of
from keras_attention.utils.forks import check_process


@keras.saving.register_keras_serializable("keras_attention")
class Transformer(
    Pretrained, LowRankAdapted, Quantizable, EncoderStack, DecoderStack, TrainableModel
):
    """The encoder-decoder of "Attention Is All You Need" (Vaswani et al. 2017, section 3).

    Defaults are the paper's base model: post-norm, sinusoidal positions, no biases in the attention, one
    table for source, target and softmax. Source ids end with the end token. Decoder ids are the target
    shifted right by one: they begin with the start token. As in the authors' code, the start token is
    the padding token, whose embedding is the zero vector. What published models have beside the paper's
    are options: a decoder of another depth or cell, a vocabulary of the target, a bias on the logits.

    Args:
        **kwargs: The fields of `keras_attention.spec.TransformerOptions`, which says what they are; the first
            ones also by position. And `name` and `dtype`: a `"float64"` model computes all in float64; on JAX
            its 64-bit numbers must be switched on.

    Call arguments:
        inputs: Dict of `encoder_token_ids` `(B, S)` and `decoder_token_ids` `(B, T)`, integers; for training
            with guided alignment also `alignments` `(B, T, S)`, see `compile`.
        training: Whether dropout is on.
        head_masks: Dict with any of the keys of `attention_layers`. A value has for each layer None, or
            `(B, N)` with 0 for heads that are switched off; see `MultiHeadAttention`.

    Returns:
        Logits of shape `(B, T, V)`; position t predicts target token t.

    Raises:
        ValueError: If an argument is out of range, the inputs are not the dict above, or a NumPy array of
            ids holds one outside the vocabulary.

    Example:

    >>> import numpy as np
    >>> model = Transformer(vocabulary_size=11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2)
    >>> source, target = np.array([[5, 6, 1]]), np.array([[0, 7]])
    >>> tuple(model({"encoder_token_ids": source, "decoder_token_ids": target}).shape)
    (1, 2, 11)
    """

    @takes(TransformerOptions)
    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int | Sequence[int] = TransformerOptions.num_layers,
        hidden_dim: int = TransformerOptions.hidden_dim,
        intermediate_dim: int = TransformerOptions.intermediate_dim,
        num_heads: int = TransformerOptions.num_heads,
        **kwargs: Any,
    ):
        check_process()
        options, others = options_in(TransformerOptions, locals())
        # With autocast, ids of a float dtype would be rounded to bfloat16, and so to other ids.
        super().__init__(**{"autocast": False, **others})
        self._take(options)
        if options.start_token_id is None:
            self.start_token_id = options.pad_token_id
        parts, target = (
            Parts(options, hidden_dim, self.dtype_policy),
            options.target_vocabulary_size,
        )
        self.target_vocabulary_size = target or vocabulary_size
        self.target_embedding = None
        if target is None:
            self.token_embedding = parts.output_table("token_embedding", vocabulary_size)
        else:
            self.token_embedding = parts.table("token_embedding", vocabulary_size)
            self.target_embedding = parts.output_table("target_embedding", target)
        self.encoder_positions, self.encoder_dropout = parts.positions("encoder")
        self.decoder_positions, self.decoder_dropout = parts.positions("decoder")
        self.encoder_blocks = parts.stack("encoder", partial(self.make_block, "encoder"))
        self.decoder_blocks = parts.stack("decoder", partial(self.make_block, "decoder"))
        self._add_normalizations(parts, "encoder", "decoder")
        self.input_spec = [keras.InputSpec(ndim=2, name=name) for name in INPUT_NAMES]
        self.built = True

    def make_block(self, kind: str, **arguments: Any) -> keras.layers.Layer:
        """Make a block; a model with blocks of its own overrides this.

        Args:
            kind: `"encoder"` or `"decoder"`.
            **arguments: Of a `TransformerEncoderBlock` or a `TransformerDecoderBlock`.
        """
        return BLOCKS[kind](**arguments)

    @property
    def attention_layers(self) -> dict[str, int]:
        """Number of layers of each kind of attention: `"encoder"`, `"decoder"` and `"cross"`.

        A decoder with SSRUs has no `"decoder"`.
        """
        encoder, decoder = depths_of(self.num_layers)
        own = {"decoder": decoder} if self.decoder_cell == "attention" else {}
        return {"encoder": encoder, **own, "cross": decoder}

    @property
    def output_embedding(self) -> Any:
        """The table for target and softmax."""
        return self.token_embedding if self.target_embedding is None else self.target_embedding

    @property
    def _sizes(self) -> dict[str, int]:
        """The number of tokens that each of the inputs may have."""
        sizes = (self.vocabulary_size, self.target_vocabulary_size)
        return dict(zip(INPUT_NAMES, sizes, strict=True))

    def input_signature(self) -> dict[str, keras.InputSpec]:
        """Return input specs for any number of sentences of any length."""
        return {name: keras.InputSpec(shape=(None, None), dtype="int32") for name in INPUT_NAMES}

    def check_data(self, data: Any) -> None:
        """Refuse NumPy arrays and `TokenBatches` with unknown ids, or longer than the learned positions."""
        token_ids.check_token_ids(data, self._sizes, self.max_length)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        token_ids.check_inputs(inputs, self._sizes, self.max_length)
        if not isinstance(kwargs.get("training"), bool | None):  # Keras takes any text for True.
            check_switch("training", kwargs["training"])
        if kwargs.get("head_masks") is not None:
            token_ids.check_head_masks(kwargs["head_masks"], self.attention_layers)
        return super().__call__(inputs, *args, **kwargs)

    def call(
        self,
        inputs: dict[str, Any],
        training: bool | None = None,
        head_masks: dict[str, list[Any]] | None = None,
    ) -> Any:
        source, target = (inputs[name] for name in INPUT_NAMES)
        source_mask = padding_mask(source, self.pad_token_id)
        own_heads = (head_masks or {}).get("encoder")
        encoded = self._encode(source, source_mask, training, head_masks=own_heads)
        x = self._embed(target, training)
        guided = self.guided_layer(inputs, training)
        watched = () if guided is None else (guided,)
        x, weights = self._run_decoder(x, encoded, source_mask, training, head_masks, watched)
        if guided is not None:
            self.keep_weights(weights[guided])
        return self._project(x)

    def encode(self, encoder_token_ids: Any) -> Memory:
        """Encode the source once, for all calls of `decode_step`.

        Args:
            encoder_token_ids: Integers `(B, S)`.

        Returns:
            The memory, a dict: the cross-attention keys and values of each decoder block, and the padding
            mask of the source. It does not change during decoding.
        """
        ids = token_ids.check_sequences("encoder_token_ids", encoder_token_ids, "BS")
        self.check_data({"encoder_token_ids": ids})
        source = ops.convert_to_tensor(ids)
        mask = padding_mask(source, self.pad_token_id)
        encoded = self._encode(source, mask, training=False)
        return self._project_memory(encoded, mask)

    def spec(self) -> TransformerSpec:
        """Describe this model and its weights, for engines, exports and `from_spec`.

        The spec holds the model's own variables, so whoever reads it later sees their current values.

        Returns:
            A `TransformerSpec`.

        Raises:
            SpecError: If a spec cannot describe a layer, which the message names: a subclass without its
                own `spec`, a replaced sub-layer, quantized weights, an unknown activation.
        """
        return declared_transformer(self, Transformer)

    def attention_scores(
        self, encoder_token_ids: Any, decoder_token_ids: Any
    ) -> dict[str, list[Any]]:
        """Return the attention weights of all layers and heads, as in the paper's Figures 3 to 5.

        Args:
            encoder_token_ids: Source ids `(B, S)`.
            decoder_token_ids: Target ids shifted right, `(B, T)`.

        Returns:
            A dict of lists with one tensor for each layer: `"encoder"` `(B, N, S, S)`, `"decoder"`
            `(B, N, T, T)` and `"cross"` `(B, N, T, S)`. Each row, along the last axis, sums to 1. A decoder
            with SSRUs has no `"decoder"`: a cell attends to nothing.
        """
        return self._attend(encoder_token_ids, decoder_token_ids)[0]

    def attention_details(
        self, encoder_token_ids: Any, decoder_token_ids: Any, rows: int | None = None
    ) -> AttentionDetails:
        """Return the attention weights, the norms of the transformed values, and the logits, in one pass.

        Args:
            encoder_token_ids: Source ids `(B, S)`.
            decoder_token_ids: Target ids shifted right, `(B, T)`.
            rows: Number of sentences, from the first on, whose norms and logits are wanted. Defaults to all.

        Returns:
            An `AttentionDetails`. A weight times the norm of the position that it reads is what that position
            contributes: see `keras_attention.models.attention_details.value_norms`.
        """
        if rows is not None:
            check_integer("rows", rows, 0)
        scores, read, x = self._attend(encoder_token_ids, decoder_token_ids)
        logits = self._suppress(at_least_float32(self._project(x[:rows])))
        return AttentionDetails(scores, norms_by_kind(read, rows), logits)

    def _attend(
        self, encoder_token_ids: Any, decoder_token_ids: Any
    ) -> tuple[dict[str, list[Any]], dict[str, list[tuple[Any, Any]]], Any]:
        """Return the weights, each attention layer with what it reads, and the last block's output."""
        pair = token_ids.check_pair(encoder_token_ids, decoder_token_ids)
        self.check_data(dict(zip(INPUT_NAMES, pair, strict=True)))
        source, target = map(ops.convert_to_tensor, pair)
        mask = padding_mask(source, self.pad_token_id)
        scores: dict[str, list[Any]] = {kind: [] for kind in self.attention_layers}
        read: dict[str, list[tuple[Any, Any]]] = {kind: [] for kind in scores}
        encoded = self._encode(
            source, mask, training=False, scores=scores["encoder"], read=read["encoder"]
        )
        x = self._embed(target, False)
        for block in self.decoder_blocks:
            if "decoder" in scores:
                read["decoder"].append(self_attention_of(block, x))
            read["cross"].append((getattr(block, "cross_attention", None), encoded))
            x, own, cross = call_part(
                self,
                block,
                x,
                encoded,
                encoder_padding_mask=mask,
                training=False,
                return_attention_scores=True,
            )
            scores["cross"].append(cross)
            if "decoder" in scores:
                scores["decoder"].append(own)
        return scores, read, x

    def build(self, input_shape: Any = None) -> None:
        """Do nothing: the constructor knows all shapes and builds the layers."""

    def compute_output_shape(self, input_shape: dict[str, Any]) -> tuple[int | None, ...]:
        return (*input_shape["decoder_token_ids"], self.target_vocabulary_size)

    def get_config(self) -> dict[str, Any]:
        return {
            **self._kept(),
            **({} if self.quantized is None else {"quantized": self.quantized}),
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "Transformer":
        config = config_of_before(config)
        quantized = config.pop("quantized", None)
        model = cls(**config)
        if quantized is not None:
            model.quantize(config=keras.saving.deserialize_keras_object(quantized))
        return model
