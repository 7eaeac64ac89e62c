"""The Weighted Transformer (Ahmed et al. 2017, "Weighted Transformer Network"): blocks, model, presets."""

from typing import Any, Literal

import keras

from keras_attention.layers.arguments import takes
from keras_attention.layers.decoder_block import TransformerDecoderBlock
from keras_attention.layers.encoder_block import TransformerEncoderBlock
from keras_attention.models.branched_attention import BranchedAttention, BranchFeedForward
from keras_attention.models.transformer import Transformer
from keras_attention.spec.options import TransformerOptions
from keras_attention.spec.parts import SpecError
from keras_attention.spec.presets import BASE, PRESETS
from keras_attention.utils.arguments import check

# The attention of a decoder's block that has the branches.
BranchedDecoder = Literal["cross", "self"]
NO_SPEC = "A spec has no branches, so no engine and no export takes them. Leave `engine` out."
# Attention and residual dropout 0.1, and one branch per head.
_WEIGHTED: dict[str, Any] = {**BASE, "attention_dropout": 0.1}
# The rows of the paper's Table 2, with dropout 0.3 where there are many weights.
WEIGHTED_PRESETS: dict[str, dict[str, Any]] = {
    "weighted_layers_2": {**_WEIGHTED, "num_layers": 2},
    "weighted_layers_4": {**_WEIGHTED, "num_layers": 4},
    "weighted_layers_6": _WEIGHTED,
    "weighted_layers_8": {**_WEIGHTED, "num_layers": 8, "dropout": 0.3},
    "weighted_large": {**PRESETS["big"], "attention_dropout": 0.1},
}


class _Branched:
    """Mixin of a block: one of its attentions is a `BranchedAttention`, which contains the network."""

    branched_attention = "self_attention"
    branched_layer: Any = None  # a subclass of `BranchedAttention` in its place
    gated_feed_forward: bool

    def __init__(
        self, *arguments: Any, branch_feed_forward: BranchFeedForward = "shared", **kwargs: Any
    ):
        super().__init__(*arguments, **kwargs)
        self.branch_feed_forward = check(
            "branch_feed_forward", branch_feed_forward, BranchFeedForward
        )
        if self.gated_feed_forward:
            raise ValueError(
                "The networks of branches have no gates: leave `gated_feed_forward` out. Received: True"
            )

    def _attention(self: Any, name: str, hidden_dim: int, *kind: Any, **more: Any) -> Any:
        if name == self.branched_attention:
            kind = (self.branched_layer or BranchedAttention,)
            more = {
                "intermediate_dim": self.intermediate_dim,
                "branch_feed_forward": self.branch_feed_forward,
                "activation": self.activation,
                "activation_dropout": self.activation_dropout,
            }
        return super()._attention(name, hidden_dim, *kind, **more)  # type: ignore[misc]

    def _build_feed_forward(self, input_shape: Any) -> None:
        """Build nothing: the attention has the network."""

    def _apply_feed_forward(self, x: Any, training: bool | None) -> Any:
        return x

    def get_config(self) -> dict[str, Any]:
        own = {"branch_feed_forward": self.branch_feed_forward}
        return {**super().get_config(), **own}  # type: ignore[misc]


@keras.saving.register_keras_serializable("keras_attention")
class WeightedEncoderBlock(_Branched, TransformerEncoderBlock):
    """`TransformerEncoderBlock` whose one sub-layer, a `BranchedAttention`, replaces both of it."""


@keras.saving.register_keras_serializable("keras_attention")
class WeightedDecoderBlock(_Branched, TransformerDecoderBlock):
    """`TransformerDecoderBlock` in which a `BranchedAttention` replaces one attention and the network."""

    def __init__(self, *arguments: Any, branched_decoder: BranchedDecoder = "cross", **kwargs: Any):
        super().__init__(*arguments, **kwargs)
        self.branched_decoder = check("branched_decoder", branched_decoder, BranchedDecoder)
        self.branched_attention = f"{branched_decoder}_attention"
        if self.decoder_cell == "ssru" and branched_decoder == "self":
            raise ValueError(
                "An SSRU takes the place of self-attention, so branched_decoder='self' has no heads: pass "
                "branched_decoder='cross', or decoder_cell='attention'."
            )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "branched_decoder": self.branched_decoder}


@keras.saving.register_keras_serializable("keras_attention")
class WeightedTransformer(Transformer):
    """A `Transformer` whose heads are branches with learned weights; see `BranchedAttention`.

    No spec describes it: the plain search translates with it, and engines and exports refuse it. Train it
    by `Adam` with a `SimplexLearningRate`.

    Args:
        branch_feed_forward: One network for all branches, `"shared"`, or one of width F / M for each,
            `"split"`. Defaults to `"shared"`.
        branched_decoder: Which attention of its decoder has the branches: `"cross"`, as equation 7 joins
            an attention to the network that follows it, or `"self"`, as its text says "masked in the
            decoder layers". Defaults to `"cross"`.
        **kwargs: The arguments of `Transformer`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> model = WeightedTransformer.from_preset("tiny", vocabulary_size=11, num_layers=1)
    >>> tuple(model.encoder_blocks[0].self_attention.kappa.shape)
    (4,)
    """

    @takes(TransformerOptions)
    def __init__(
        self,
        vocabulary_size: int,
        num_layers: Any = TransformerOptions.num_layers,
        *,
        branch_feed_forward: BranchFeedForward = "shared",
        branched_decoder: BranchedDecoder = "cross",
        **kwargs: Any,
    ):
        self._own_options: dict[str, Any] = {
            "branch_feed_forward": branch_feed_forward,
            "branched_decoder": branched_decoder,
        }
        super().__init__(vocabulary_size, num_layers, **kwargs)

    def make_block(self, kind: str, **arguments: Any) -> Any:
        if kind == "decoder":
            return WeightedDecoderBlock(**arguments, **self._own_options)
        network = self._own_options["branch_feed_forward"]
        return WeightedEncoderBlock(**arguments, branch_feed_forward=network)

    @classmethod
    def from_preset(cls, preset: Any, vocabulary_size: int | None = None, **kwargs: Any) -> Any:
        """Build an untrained model of one of `WEIGHTED_PRESETS`, or of one of `PRESETS` with branches."""
        if vocabulary_size is not None and preset in [*WEIGHTED_PRESETS]:
            return cls(vocabulary_size, **{**WEIGHTED_PRESETS[preset], **kwargs})
        return super().from_preset(preset, vocabulary_size, **kwargs)

    @classmethod
    def from_spec(cls, spec: Any, **kwargs: Any) -> Any:
        """Refuse: a `TransformerSpec` has no branches."""
        raise SpecError(NO_SPEC)

    def spec(self) -> Any:
        """Refuse: a `TransformerSpec` has no branches."""
        raise SpecError(NO_SPEC)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self._own_options}
