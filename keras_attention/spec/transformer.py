"""`TransformerSpec`: the description of a whole encoder-decoder."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, get_args

from keras_attention.spec.parts import (
    ACTIVATIONS,
    EmbeddingSpec,
    Layout,
    NormSpec,
    SpecError,
    SSRUSpec,
    StackSpec,
    Weight,
    as_array,
    map_weights,
    sinusoid,
    weight_fields,
)

if TYPE_CHECKING:
    import numpy as np

# The logit of a token that is never produced: finite, and so low that a search takes no hypothesis with it
# for one, even where nothing else is left to fill a beam.
SUPPRESSED = -1e30
# Compute dtypes of a model.
DTYPES = ("float32", "float64", "bfloat16", "float16")


@dataclasses.dataclass(frozen=True, repr=False)
class TransformerSpec:
    """The structure and the weights of a Transformer (section 3 of the paper), without its code.

    `Transformer.spec()` returns one, and `Transformer.from_spec` builds a model from one. Engines run it,
    exports write it, imports fill it. All blocks have the same sizes.

    Attributes:
        embedding: The table for source, target and softmax.
        encoder: Positions, blocks and final normalisation of the encoder.
        decoder: The same for the decoder.
        start_token_id: Id that the decoder is fed first. If it is not the padding token, it has an
            embedding of its own.
        end_token_id: Id that ends a sentence.
        dtype: The model's compute dtype.
        target_embedding: The table for target and softmax if source and target have vocabularies of their
            own, with the same ids of padding and end; None for one table. That of the source then has
            neither softmax matrix nor bias.
        suppressed_token_ids: Tokens that are never produced: decoding gives them no probability.

    Example:

    >>> from keras_attention.models.transformer import Transformer
    >>> model = Transformer(11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2)
    >>> spec = model.spec()
    >>> spec.validate()
    >>> tuple(spec.weights()["encoder.blocks.0.feed_forward.inner.kernel"].shape)
    (8, 16)
    """

    embedding: EmbeddingSpec
    encoder: StackSpec
    decoder: StackSpec
    start_token_id: int = 0
    end_token_id: int = 1
    dtype: str = "float32"
    target_embedding: EmbeddingSpec | None = None
    suppressed_token_ids: tuple[int, ...] = ()

    # Engines ask for sizes in every step.
    @functools.cached_property
    def vocabulary_size(self) -> int:
        """Number of tokens V of the source, and of the target if it has no vocabulary of its own."""
        return self.embedding.embeddings.shape[0]

    @functools.cached_property
    def target_vocabulary_size(self) -> int:
        """Number of tokens of the target, which is that of the logits."""
        return self.output_embedding.embeddings.shape[0]

    @property
    def output_embedding(self) -> EmbeddingSpec:
        """The table for target and softmax."""
        return self.embedding if self.target_embedding is None else self.target_embedding

    @functools.cached_property
    def hidden_dim(self) -> int:
        """Width D of the model."""
        return self.embedding.embeddings.shape[1]

    @functools.cached_property
    def num_heads(self) -> int:
        """Number of heads N."""
        return self.encoder.blocks[0].attentions[0].query.kernel.shape[1]

    @functools.cached_property
    def key_dim(self) -> int:
        """Width K of a head's queries and keys."""
        return self.encoder.blocks[0].attentions[0].query.kernel.shape[2]

    @functools.cached_property
    def value_dim(self) -> int:
        """Width U of a head's values."""
        return self.encoder.blocks[0].attentions[0].value.kernel.shape[2]

    @functools.cached_property
    def pad_token_id(self) -> int:
        """Id of the padding token."""
        return self.embedding.pad_token_id

    @property
    def max_length(self) -> int | None:
        """The number of learned positions; None for sinusoids, which have no limit."""
        tables = [stack.positions.table for stack in (self.encoder, self.decoder)]
        lengths = [table.shape[0] for table in tables if table is not None]
        return min(lengths, default=None)

    def __repr__(self) -> str:
        """Return what it is, without the weights."""
        layers = len(self.encoder.blocks), len(self.decoder.blocks)
        return (
            f"TransformerSpec(vocabulary_size={self.vocabulary_size}, num_layers={layers}, "
            f"hidden_dim={self.hidden_dim}, num_heads={self.num_heads}, dtype={self.dtype!r})"
        )

    def weights(self) -> dict[str, Weight]:
        """Return all weights by path, such as `"decoder.norm.gamma"`."""
        return {field.path: field.value for field in weight_fields(self) if field.value is not None}

    def map_weights(self, function: Callable[[Weight], Weight]) -> TransformerSpec:
        """Return a copy of the spec with `function(weight)` in place of each weight."""
        return map_weights(self, function)

    def positions(self, stack: StackSpec, length: int) -> np.ndarray:
        """Return the encodings (length, D) of the first positions of a stack, in float32.

        Args:
            stack: The spec's `encoder` or `decoder`.
            length: Number of positions.

        Raises:
            ValueError: If more positions are asked for than were learned.
        """
        import numpy as np

        if stack.positions.table is None:
            layout: Any = stack.positions.layout
            return sinusoid(np.arange(length), self.hidden_dim, layout)
        table = as_array(stack.positions.table)
        if length > len(table):
            raise ValueError(
                f"`length` must be at most {len(table)}, the learned positions. Received: {length}"
            )
        return table[:length]

    def decoding_bias(self) -> np.ndarray | None:
        """Return what decoding adds to the logits (V,), in float32: the bias, and `SUPPRESSED`; or None."""
        import numpy as np

        bias = self.output_embedding.logits_bias
        if bias is None and not self.suppressed_token_ids:
            return None
        size = self.target_vocabulary_size
        added = np.zeros(size, "float32") if bias is None else as_array(bias).copy()
        added[list(self.suppressed_token_ids)] = SUPPRESSED
        return added

    def options(self) -> dict[str, Any]:
        """Return the arguments of `Transformer` that build a model of this structure.

        Raises:
            SpecError: If no `Transformer` has this structure, for example blocks with different activations.
        """
        own = [block.self_attention for block in self.decoder.blocks]
        if any(isinstance(cell, SSRUSpec) and cell.inner.bias is not None for cell in own):
            raise SpecError(
                "The spec has an SSRU whose inner product has a bias; that of a `Transformer` has none."
            )
        stacks = [self.encoder, self.decoder]
        blocks = [block for stack in stacks for block in stack.blocks]
        norms = [
            norm
            for part in (*blocks, *stacks)
            for norm in vars(part).values()
            if isinstance(norm, NormSpec)
        ]
        attentions = [attention for block in blocks for attention in block.attentions]
        cells = [isinstance(cell, SSRUSpec) for cell in own]
        depths = (len(self.encoder.blocks), len(self.decoder.blocks))
        max_length = {} if self.max_length is None else {"max_length": self.max_length}
        return {
            "vocabulary_size": self.vocabulary_size,
            "num_layers": depths[0] if depths[0] == depths[1] else depths,
            "hidden_dim": self.hidden_dim,
            "intermediate_dim": blocks[0].feed_forward.inner.kernel.shape[1],
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "activation": _same("activation", [block.feed_forward.activation for block in blocks]),
            "gated_feed_forward": _same(
                "kind of feed-forward", [block.feed_forward.gate is not None for block in blocks]
            ),
            "normalize_first": _same("normalize_first", [b.normalize_first for b in blocks]),
            "final_normalization": _same("final norm", [s.norm is not None for s in stacks]),
            "embedding_normalization": _same(
                "embedding norm", [s.embedding_norm is not None for s in stacks]
            ),
            "decoder_cell": "ssru" if _same("kind of decoder cell", cells) else "attention",
            "use_attention_bias": _same(
                "bias of an attention", [a.query.bias is not None for a in attentions]
            ),
            "normalization": _same(
                "normalization", ["rms" if norm.beta is None else "layer" for norm in norms]
            ),
            "layer_norm_epsilon": _same("epsilon", [norm.epsilon for norm in norms]),
            "position_layout": _same("layout", [stack.positions.layout for stack in stacks]),
            "target_vocabulary_size": None
            if self.target_embedding is None
            else self.target_vocabulary_size,
            "tie_weights": self.output_embedding.reverse_embeddings is None,
            "use_logits_bias": self.output_embedding.logits_bias is not None,
            "pad_token_id": self.pad_token_id,
            "end_token_id": self.end_token_id,
            "start_token_id": self.start_token_id,
            "suppressed_token_ids": self.suppressed_token_ids,
            **max_length,
        }

    def validate(self) -> None:
        """Check that no weight is missing, that shapes fit together and that settings are valid.

        Raises:
            SpecError: If something is wrong. The message lists all problems.
        """
        problems = [*self._problems_of_weights(), *self._problems_of_settings()]
        if problems:
            raise SpecError("The spec is not a valid Transformer: " + "; ".join(problems) + ".")

    def _problems_of_weights(self) -> Iterator[str]:
        sizes: dict[str, tuple[int, str]] = {}  # letter -> its size, and who had it first
        for path, value, letters, is_optional in weight_fields(self):
            if value is None:
                if not is_optional:
                    yield f"{path} ({', '.join(letters)}) is missing"
                continue
            shape = tuple(value.shape)
            if len(shape) != len(letters):
                yield f"{path} must have the axes ({', '.join(letters)}), but its shape is {shape}"
                continue
            if path.startswith("target_embedding."):
                letters = tuple("V of the target" if each == "V" else each for each in letters)
            for letter, size in zip(letters, shape, strict=True):
                expected, first = sizes.setdefault(letter, (size, path))
                if size != expected:
                    yield f"{path} has {letter} = {size}, but {first} has {expected}"

    def _problems_of_settings(self) -> Iterator[str]:
        if self.dtype not in DTYPES:
            yield f"dtype must be one of {DTYPES}, not {self.dtype!r}"
        for kind in ("encoder", "decoder"):
            stack: StackSpec = getattr(self, kind)
            layout = stack.positions.layout
            if layout not in get_args(Layout):
                yield f"{kind}.positions.layout must be one of {get_args(Layout)}, not {layout!r}"
            elif (layout == "learned") != (stack.positions.table is not None):
                yield f"{kind}.positions needs a table if its layout is 'learned', and only then"
            if not stack.blocks:
                yield f"{kind}.blocks is empty"
            for norm in (part for each in (stack, *stack.blocks) for part in vars(each).values()):
                if isinstance(norm, NormSpec) and not 0 < norm.epsilon < math.inf:
                    yield f"{kind}: an epsilon must be positive and finite, not {norm.epsilon}"
            for index, block in enumerate(stack.blocks):
                path = f"{kind}.blocks.{index}"
                parts = (block.cross_attention, block.cross_attention_norm)
                if any((part is None) != (kind == "encoder") for part in parts):
                    yield f"{path}: a decoder has cross-attention and its norm, an encoder neither"
                if isinstance(block.self_attention, SSRUSpec) and kind == "encoder":
                    yield f"{path}.self_attention: only a decoder may have an SSRU"
                name = block.feed_forward.activation
                if name not in ACTIVATIONS:
                    yield f"{path}: an activation must be one of {ACTIVATIONS}, not {name!r}"
                if block.normalize_first and stack.norm is None:
                    yield f"{path}: {kind}.norm must exist, as the block is pre-norm"
        yield from self._problems_of_tables()

    def _problems_of_tables(self) -> Iterator[str]:
        source, target = self.embedding, self.output_embedding
        if source is not target:
            if source.reverse_embeddings is not None or source.logits_bias is not None:
                yield "embedding has a softmax matrix or a bias, which belong to target_embedding"
            if source.pad_token_id != target.pad_token_id:
                yield "embedding and target_embedding must have the same pad_token_id"
        if source.embeddings is None or target.embeddings is None:
            return  # It is already among the missing weights.
        ids = {
            "start_token_id": [self.start_token_id],
            "end_token_id": [self.end_token_id],
            "pad_token_id": [self.pad_token_id],
            "suppressed_token_ids": self.suppressed_token_ids,
        }
        for name, tokens in ids.items():
            size = self.target_vocabulary_size
            if name in ("end_token_id", "pad_token_id"):  # which the source has, too
                size = min(size, self.vocabulary_size)
            for token in tokens:
                if not 0 <= token < size:
                    yield f"{name} must be from 0 to {size - 1}, not {token}"


def _same(name: str, values: list[Any]) -> Any:
    """Return the value that all parts have; raise a `SpecError` if they differ."""
    if any(value != values[0] for value in values):
        raise SpecError(
            f"All parts of a `Transformer` have one {name}; the spec has "
            f"{sorted(set(values), key=str)}."
        )
    return values[0]
