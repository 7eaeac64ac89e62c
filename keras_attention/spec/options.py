"""The options of blocks, stacks and models: of each its range, its default and its meaning, said once.

The constructors of the layers and of `Transformer` take them as keyword arguments; see `takes`.
"""

import dataclasses
from collections.abc import Sequence

from keras_attention.spec.parts import DecoderCell, Layout, Normalization
from keras_attention.utils.arguments import (
    Count,
    Depths,
    FromZero,
    Named,
    Positive,
    Rate,
    check_fields,
)
from keras_attention.utils.checks import check_integer, check_iterable

# Options of training, which the weights of a model do not tell.
DROPOUTS = ("dropout", "attention_dropout", "activation_dropout")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockOptions:
    """The options of an encoder's block, and so of everything that is made of blocks.

    Attributes:
        num_heads: Number of heads N, the paper's h.
        intermediate_dim: Width F of the feed-forward networks, the paper's d_ff.
        key_dim: Width K of a head's queries and keys, d_k. Defaults to `D // num_heads`.
        value_dim: Width U of a head's values, d_v. Defaults to `key_dim`.
        dropout: Dropout rate P_drop on each sub-layer's output before the residual sum (section 5.4), and on
            the sums of embeddings and positions.
        attention_dropout: Dropout rate on the attention weights.
        activation_dropout: Dropout rate after the activation of the feed-forward networks.
        activation: Activation of the feed-forward networks: a name in `keras.activations`, or a function.
        gated_feed_forward: Whether the feed-forward networks have gates, `(activation(x W_1) * x W_3) W_2`
            (Shazeer 2020), a third product of their width. With the activation `"silu"` this is SwiGLU.
        normalize_first: True for pre-norm, with a layer normalisation at the end of each stack; False for the
            paper's post-norm.
        use_attention_bias: Whether the attention projections have biases. Those of the paper have none.
        normalization: `"layer"`, or `"rms"` for RMSNorm (Zhang and Sennrich 2019) in place of each layer
            normalisation: it subtracts no mean and has no offsets.
        layer_norm_epsilon: Added to the variance in each normalisation.
        attention_window: In self-attention, positions less than this far apart see each other: the paper's
            restricted self-attention (Table 1) with r = 2 attention_window - 1. None is no limit.
        seed: Integer seed of the dropout, and of the initial weights of stacks and models; or None.
    """

    num_heads: Count = 8
    intermediate_dim: Count = 2048
    key_dim: Count | None = None
    value_dim: Count | None = None
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.0
    activation_dropout: Rate = 0.0
    activation: Named = "relu"
    gated_feed_forward: bool = False
    normalize_first: bool = False
    use_attention_bias: bool = False
    normalization: Normalization = "layer"
    layer_norm_epsilon: Positive = 1e-6
    attention_window: Count | None = None
    seed: FromZero | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def key_dim_in(self, hidden_dim: int) -> int:
        """Return the width of a head's queries and keys where the inputs have this width."""
        if self.key_dim is None and hidden_dim % self.num_heads:
            raise ValueError(
                f"`num_heads` must divide the width, `hidden_dim`, when `key_dim` is not given. Received: "
                f"num_heads={self.num_heads}, hidden_dim={hidden_dim}. Pass `key_dim`, or a number of heads "
                "that divides the width."
            )
        return self.key_dim or hidden_dim // self.num_heads


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderBlockOptions(BlockOptions):
    """The options of a decoder's block: `BlockOptions`, and one of its own.

    Attributes:
        decoder_cell: What a decoder has between its positions: `"attention"`, or `"ssru"` for an `SSRU` in
            place of masked self-attention. It is fast to decode, and has no heads and no window: of a
            `Transformer` with both, the encoder alone is restricted.
    """

    decoder_cell: DecoderCell = "attention"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StackOptions(BlockOptions):
    """The options of a stack of blocks: `BlockOptions`, and its own.

    Attributes:
        num_layers: Number of blocks, the paper's N.
        final_normalization: Whether a stack ends with a layer normalisation. None is as `normalize_first`;
            True gives post-norm stacks one, too, as `torch.nn.Transformer` has.
        embedding_normalization: Whether the sum of embeddings and positions is normalised, as in mBART.
        position_layout: How positions are encoded: `"interleaved"` or `"halves"` (sines), or `"learned"`; see
            `PositionalEncoding`.
        max_length: Number of learned positions. Sinusoids have no limit and ignore it.
        recompute: Whether training keeps only the blocks' inputs and computes the rest again in the
            backward pass: less memory, a third more work, the same results.
    """

    num_layers: Count = 6
    final_normalization: bool | None = None
    embedding_normalization: bool = False
    position_layout: Layout = "interleaved"
    max_length: Count = 256
    recompute: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normalize_first and self.final_normalization is False:
            raise ValueError(
                "With `normalize_first`, nothing else normalises what a stack returns: leave out "
                "`final_normalization`, or pass True. Received: normalize_first=True, "
                "final_normalization=False"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderOptions(StackOptions, DecoderBlockOptions):
    """The options of a decoder of tokens: `StackOptions`, `DecoderBlockOptions`, and its own.

    Attributes:
        vocabulary_size: Number of tokens V.
        hidden_dim: Width D of the model, d_model.
        tie_weights: Whether the softmax uses the embedding table of the target (section 3.4). False adds V D
            parameters.
        use_logits_bias: Whether a trained bias, at first zero, is added to the logits.
        pad_token_id: Id of padding, whose embedding is zero.
    """

    vocabulary_size: Count
    hidden_dim: Count = 512
    tie_weights: bool = True
    use_logits_bias: bool = False
    pad_token_id: FromZero = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.key_dim_in(self.hidden_dim)
        check_integer("pad_token_id", self.pad_token_id, least=0, most=self.vocabulary_size - 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerOptions(DecoderOptions):
    """The options of a `Transformer`: `DecoderOptions`, and its own. Defaults are the paper's base model.

    Attributes:
        vocabulary_size: Number of tokens V of the shared vocabulary, or of the source's.
        num_layers: Number of blocks in the encoder and in the decoder: the paper's N; or two numbers, the
            encoder's and the decoder's, such as 6 2.
        target_vocabulary_size: Number of tokens of the target, if it has a vocabulary and a table of its
            own; V of the logits is then this. None is the shared vocabulary.
        end_token_id: Id of the end of a sentence, on both sides.
        start_token_id: Id that the decoder reads first. None is the padding token, whose embedding is zero;
            another one has an embedding of its own.
        suppressed_token_ids: Tokens that decoding never produces. `decode_step` alone knows them: training
            and scoring see the model's own probabilities.
    """

    num_layers: Depths = 6  # type: ignore[assignment]
    target_vocabulary_size: Count | None = None
    end_token_id: FromZero = 1
    start_token_id: FromZero | None = None
    suppressed_token_ids: Sequence[int] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        most = (self.target_vocabulary_size or self.vocabulary_size) - 1
        for name in ("pad_token_id", "end_token_id"):  # which the source has, too
            check_integer(
                name, getattr(self, name), least=0, most=min(self.vocabulary_size - 1, most)
            )
        if self.start_token_id is not None:
            check_integer("start_token_id", self.start_token_id, least=0, most=most)
        suppressed = check_iterable("suppressed_token_ids", self.suppressed_token_ids)
        suppressed = tuple(
            check_integer("suppressed_token_ids", token, least=0, most=most) for token in suppressed
        )
        object.__setattr__(self, "suppressed_token_ids", suppressed)
        if self.end_token_id in suppressed:
            raise ValueError(
                "`suppressed_token_ids` must not hold the end token, without which no translation ends. "
                f"Received: {suppressed}, with end_token_id={self.end_token_id}"
            )
        if self.pad_token_id == self.end_token_id:
            raise ValueError(
                "`pad_token_id` and `end_token_id` must differ: the loss skips padding, and the end token "
                f"must be learned. Received: pad_token_id=end_token_id={self.pad_token_id}"
            )
