"""The parts of a `TransformerSpec`.

A part is a frozen dataclass. Its fields are other parts, plain settings, and weights. A weight is anything
with a `shape`: a tensor, a NumPy array, or what has a `value`, such as a Keras variable, of which each reader
gets the current one. What changes together with it are its `sources`, if it is no variable itself.
Weights keep the shapes of Keras' layers: nothing is joined, scaled or transposed here.

Shape letters: D hidden_dim, N heads, K key_dim, U value_dim, F intermediate_dim, V vocabulary, L positions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from keras_attention.utils.arguments import Count, checked

if TYPE_CHECKING:
    import numpy as np  # Imported where it computes: the help of a command does without.

# Keras' names of the activations that a spec can have.
ACTIVATIONS = (
    *("relu", "gelu", "silu", "tanh", "sigmoid", "linear", "elu", "selu", "relu6", "leaky_relu"),
    *("softplus", "softsign", "mish", "hard_sigmoid", "hard_silu"),
)
Layout = Literal["interleaved", "halves", "learned"]
Normalization = Literal["layer", "rms"]
# What a decoder's block has between a position and the earlier ones.
DecoderCell = Literal["attention", "ssru"]

Part = TypeVar("Part")
Weight = Any


class SpecError(ValueError):
    """A spec is invalid, or a layer computes something that a spec cannot describe; the message names it."""


class WeightField(NamedTuple):
    """A weight's place in a spec."""

    path: str  # such as "decoder.blocks.0.self_attention.query.kernel"
    value: Weight  # or None
    shape: tuple[str, ...]  # letters
    is_optional: bool  # whether it may be None


def _weight(shape: str, optional: bool = False) -> Any:
    """Return a field that holds a weight of this shape."""
    metadata = {"shape": tuple(shape.split()), "optional": optional}
    return dataclasses.field(default=None, metadata=metadata)


def _dense(kernel: str, bias: str, optional_bias: bool = True, optional: bool = False) -> Any:
    """Return a field that holds a `DenseSpec` with weights of these shapes; an optional one may be None."""
    shapes = {"kernel": tuple(kernel.split()), "bias": tuple(bias.split())}
    metadata = {"dense": shapes, "optional_bias": optional_bias}
    if optional:
        return dataclasses.field(default=None, metadata=metadata)
    return dataclasses.field(default_factory=DenseSpec, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class DenseSpec:
    """An affine map, `x kernel + bias`.

    Attributes:
        kernel: Axes of the input, then axes of the output.
        bias: Axes of the output, or None.
    """

    kernel: Weight = None
    bias: Weight = None


@dataclasses.dataclass(frozen=True)
class NormSpec:
    """Layer normalisation over the last axis, or RMSNorm.

    Attributes:
        gamma: Gains (D,).
        beta: Offsets (D,); None of an RMSNorm, which subtracts no mean, either.
        epsilon: Added to the variance.
    """

    gamma: Weight = _weight("D")
    beta: Weight = _weight("D", optional=True)
    epsilon: float = 1e-6


@dataclasses.dataclass(frozen=True)
class AttentionSpec:
    """Multi-head attention (section 3.2.2): scores are products of queries and keys times K^-1/2.

    Attributes:
        query: Kernel (D, N, K), bias (N, K).
        key: Kernel (D, N, K), bias (N, K).
        value: Kernel (D, N, U), bias (N, U).
        output: Kernel (N, U, D), bias (D,).
    """

    query: DenseSpec = _dense("D N K", "N K")
    key: DenseSpec = _dense("D N K", "N K")
    value: DenseSpec = _dense("D N U", "N U")
    output: DenseSpec = _dense("N U D", "D")


@dataclasses.dataclass(frozen=True)
class FeedForwardSpec:
    """The position-wise network (section 3.3), `activation(x W_1 + b_1) W_2 + b_2`.

    With a gate it is `(activation(x W_1 + b_1) * (x W_3 + b_3)) W_2 + b_2` (Shazeer 2020).

    Attributes:
        inner: Kernel (D, F), bias (F,).
        outer: Kernel (F, D), bias (D,).
        activation: One of `ACTIVATIONS`.
        gate: Kernel (D, F), bias (F,); or None.
    """

    inner: DenseSpec = _dense("D F", "F", optional_bias=False)
    outer: DenseSpec = _dense("F D", "D", optional_bias=False)
    activation: str = "relu"
    gate: DenseSpec | None = _dense("D F", "F", optional_bias=False, optional=True)


@dataclasses.dataclass(frozen=True)
class SSRUSpec:
    """The simpler simple recurrent unit (Kim et al. 2019), in place of a decoder's masked self-attention.

    With the input x_t: `f_t = sigmoid(x_t W_f + b_f)`, `c_t = f_t c_(t-1) + (1 - f_t) (x_t W)`, and the
    output is `relu(c_t)`. The state before the first position is zero.

    Attributes:
        inner: Kernel W (D, D), bias (D,).
        forget: Kernel W_f (D, D), bias b_f (D,).
    """

    inner: DenseSpec = _dense("D D", "D")
    forget: DenseSpec = _dense("D D", "D", optional_bias=False)


@dataclasses.dataclass(frozen=True)
class BlockSpec:
    """A layer of the encoder or the decoder (section 3.1): sub-layers inside residual connections.

    The type of a sub-layer's field says what it computes: a new kind of sub-layer needs a new part.

    Attributes:
        self_attention: Attention to the block's own sequence; in a decoder, only to earlier positions. A
            decoder may have an `SSRUSpec` in its place.
        self_attention_norm: Its layer normalisation.
        cross_attention: Attention to the encoder's output; None in an encoder.
        cross_attention_norm: Its layer normalisation; None in an encoder.
        feed_forward: The position-wise network.
        feed_forward_norm: Its layer normalisation.
        normalize_first: False for the paper's `norm(x + sublayer(x))`, True for
            `x + sublayer(norm(x))`.
    """

    self_attention: AttentionSpec | SSRUSpec
    self_attention_norm: NormSpec
    feed_forward: FeedForwardSpec
    feed_forward_norm: NormSpec
    cross_attention: AttentionSpec | None = None
    cross_attention_norm: NormSpec | None = None
    normalize_first: bool = False

    @property
    def attentions(self) -> tuple[AttentionSpec, ...]:
        """The self-attention and the cross-attention, those that there are."""
        both = (self.self_attention, self.cross_attention)
        return tuple(part for part in both if isinstance(part, AttentionSpec))


@dataclasses.dataclass(frozen=True)
class EmbeddingSpec:
    """The token embedding and the softmax projection (section 3.4).

    A token's embedding is its row times `sqrt(D)`; that of the padding token is zero. The logits of a
    hidden state are its products with all rows, plus a bias if there is one.

    Attributes:
        embeddings: The table (V, D).
        reverse_embeddings: A separate softmax matrix (D, V), or None if the table is used.
        logits_bias: Added to the logits (V,), or None.
        pad_token_id: Id of the padding token.
    """

    embeddings: Weight = _weight("V D")
    reverse_embeddings: Weight = _weight("D V", optional=True)
    logits_bias: Weight = _weight("V", optional=True)
    pad_token_id: int = 0


@dataclasses.dataclass(frozen=True)
class PositionsSpec:
    """The positional encodings, added to the embeddings (section 3.5).

    Attributes:
        layout: `"interleaved"`, `"halves"` (see `sinusoid`) or `"learned"`.
        table: Learned encodings (L, D); None for sinusoids.
    """

    layout: str = "interleaved"
    table: Weight = _weight("L D", optional=True)


@dataclasses.dataclass(frozen=True)
class StackSpec:
    """The encoder or the decoder.

    Attributes:
        positions: The positional encodings that are added to its embeddings.
        blocks: Its blocks.
        norm: The layer normalisation after the last block: always of a pre-norm model, rarely of a post-norm
            one (`torch.nn.Transformer` has it), else None.
        embedding_norm: The layer normalisation of the sum of embeddings and positions (mBART), or None.
    """

    positions: PositionsSpec
    blocks: tuple[BlockSpec, ...]
    norm: NormSpec | None = None
    embedding_norm: NormSpec | None = None


def weight_fields(part: Any, path: str = "") -> Iterator[WeightField]:
    """Yield all weights of a part and of its parts, in the order of declaration."""
    for field in dataclasses.fields(part):
        value, name = getattr(part, field.name), f"{path}{field.name}"
        if "shape" in field.metadata:
            yield WeightField(name, value, field.metadata["shape"], field.metadata["optional"])
        elif "dense" in field.metadata and not (value is None is field.default):
            for end, shape in field.metadata["dense"].items():
                optional = end == "bias" and field.metadata["optional_bias"]
                yield WeightField(f"{name}.{end}", getattr(value, end), shape, optional)
        elif isinstance(value, tuple):
            for index, each in enumerate(filter(dataclasses.is_dataclass, value)):
                yield from weight_fields(each, f"{name}.{index}.")
        elif dataclasses.is_dataclass(value):
            yield from weight_fields(value, f"{name}.")


def map_weights(part: Part, function: Callable[[Weight], Weight]) -> Part:
    """Return the same part with `function(weight)` in place of each weight that is not None."""

    def mapped(value: Any, is_weight: bool) -> Any:
        if is_weight:
            return None if value is None else function(value)
        if isinstance(value, tuple):
            return tuple(mapped(each, False) for each in value)
        return map_weights(value, function) if dataclasses.is_dataclass(value) else value

    is_dense = isinstance(part, DenseSpec)
    changes = {
        field.name: mapped(getattr(part, field.name), is_dense or "shape" in field.metadata)
        for field in dataclasses.fields(part)  # type: ignore[arg-type]
    }
    return dataclasses.replace(part, **changes)  # type: ignore[type-var]


def present_value(weight: Weight) -> Any:
    """Return the tensor or the array that a weight is, or has at present."""
    value = getattr(weight, "value", weight)
    return weight if callable(value) else value  # TensorFlow's tensors have a method of that name.


def as_array(weight: Weight) -> np.ndarray:
    """Return what a weight has at present as float32 in NumPy."""
    import numpy as np

    value: Any = present_value(weight)
    # NumPy reads PyTorch's tensors only from a CPU, and not in bfloat16.
    if hasattr(value, "detach"):
        value = value.detach().cpu().float()
    return np.asarray(value).astype("float32", copy=False)


class NonFiniteModel(ValueError, FloatingPointError):
    """A model's weights or logits are infinite or NaN, so no token can be chosen."""


def check_finite(weights: Mapping[str, Weight]) -> None:
    """Raise a NonFiniteModel with the path of the first weight that is not finite: the model has diverged."""
    import numpy as np

    for path, weight in weights.items():
        values = as_array(weight)
        with np.errstate(all="ignore"):
            is_sure = np.isfinite(values.sum())  # Fast; but large numbers may overflow.
        wrong = 0 if is_sure else values.size - np.isfinite(values).sum()
        if wrong:
            raise NonFiniteModel(
                f"The model's weight {path!r} is infinite or NaN at {wrong:,} of {values.size:,} places. Its "
                "training has probably diverged: use an earlier checkpoint, or train again with a lower "
                "learning rate."
            )


@checked
def sinusoid(
    positions: Any,
    hidden_dim: Count,
    layout: Literal["interleaved", "halves"] = "interleaved",
    dtype: Literal["float16", "float32", "float64"] = "float32",
) -> np.ndarray:
    """Return the sinusoidal encoding of `positions` (T,) as an array (T, D).

    Args:
        positions: Integer positions, counted from 0.
        hidden_dim: Width D.
        layout: `"interleaved"` is the paper's formula: columns 2i and 2i+1 hold the sine and cosine
            of `position / 10000^(2i / D)`. `"halves"` is the authors' code (tensor2tensor): all sines
            first, then all cosines, of `position / 10000^(k / (D/2 - 1))`; an odd D ends in a zero column.
        dtype: Of the array; it is computed in float64. Defaults to float32.

    Example:

    >>> import numpy as np
    >>> sinusoid(np.array([1]), 4).round(4).tolist()
    [[0.8414999842643738, 0.5403000116348267, 0.009999999776482582, 1.0]]
    """
    import numpy as np

    # float64 keeps far positions exact; the table is built once.
    numbers = np.asarray(positions)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf":
        raise ValueError(f"`positions` must be an array (T,) of integers. Received: {positions!r}")
    positions = numbers.astype("float64")[:, None]
    if layout == "interleaved":
        columns = np.arange(hidden_dim)
        angles = positions / 10000.0 ** (2 * (columns // 2) / hidden_dim)
        return np.where(columns % 2 == 0, np.sin(angles), np.cos(angles)).astype(dtype)
    timescales = hidden_dim // 2
    angles = positions / 10000.0 ** (np.arange(timescales) / max(timescales - 1, 1))
    parts = [np.sin(angles), np.cos(angles), np.zeros((len(positions), hidden_dim % 2))]
    return np.concatenate(parts, axis=1).astype(dtype)
