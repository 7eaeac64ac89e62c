"""The diagrams of Figures 1 and 2, drawn from what a model is made of."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from keras_attention.spec import AttentionSpec, BlockSpec, NormSpec, StackSpec, TransformerSpec
from keras_attention.utils.arguments import checked
from keras_attention.utils.checks import check_has

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The paper's colours, by the beginning of what is computed.
COLORS = {
    "Multi": "#ffe2bb",
    "Masked": "#ffe2bb",
    "Feed": "#c2e8f7",
    "Add": "#f2f4c1",
    "Layer": "#f2f4c1",
    "RMS": "#f2f4c1",
    "Embedding": "#fce0e1",
    "Linear": "#dcdfed",
    "MatMul": "#dcdfed",
    "Softmax": "#cbe7cf",
}
WIDTH, HEIGHT, GAP = 2.6, 0.52, 0.26  # of a box, and between two
COLUMN = WIDTH + 1.6
INPUTS = ("inputs", "outputs, shifted right")


class Box(NamedTuple):
    """A step: what is computed, and with which sizes. `reads` a stack's output, or has no such arrow."""

    name: str
    sizes: str = ""
    reads: bool = False


class Group(NamedTuple):
    """Steps that are done several times, and how often."""

    boxes: tuple[Box, ...]
    times: int
    of: str = ""


@checked
def diagram(model: Any, part: Literal["model", "attention"] = "model") -> Figure:
    """Draw what a model is made of, as Figure 1 of the paper, or one of its attentions, as Figure 2.

    Blocks that are alike are drawn once. The sizes beside the names are those of this model.

    Args:
        model: A `Transformer`, or its spec.
        part: `"model"`, or `"attention"` for the inside of a multi-head attention. Defaults to the model.

    Returns:
        A `matplotlib` figure; `figure.savefig("model.svg")` writes it.

    Raises:
        SpecError: If the model computes something that a spec cannot describe; the message names it.

    Example:

    >>> from keras_attention.models.transformer import Transformer
    >>> model = Transformer(11, num_layers=3, hidden_dim=8, intermediate_dim=16, num_heads=2)
    >>> "3 ×" in {text.get_text() for text in diagram(model).axes[0].texts}
    True
    """
    spec = model
    if not isinstance(model, TransformerSpec):
        spec = check_has("model", model, "a Transformer, or its spec", "spec").spec()
    if part == "attention":
        return _drawn([attention_steps(spec)])
    return _drawn(model_steps(spec))


def model_steps(spec: TransformerSpec) -> list[list[Box | Group]]:
    """Return the steps of the encoder and of the decoder, from the bottom."""
    positions = {"learned": "learned", "halves": "sinusoids", "interleaved": "sinusoids"}

    def stack_steps(stack: StackSpec, size: int) -> Iterator[Box | Group]:
        yield Box("Embedding", f"{size:,} × {spec.hidden_dim}")
        yield Box("Add positions", positions[stack.positions.layout])
        if stack.embedding_norm is not None:
            yield Box(_norm_name(stack.embedding_norm))
        for boxes, blocks in itertools.groupby(map(block_steps, stack.blocks)):
            yield Group(boxes, len([*blocks]))
        if stack.norm is not None:
            yield Box(_norm_name(stack.norm))

    table = spec.output_embedding
    tied = "the embedding's table" if table.reverse_embeddings is None else "a matrix of its own"
    decoder = [*stack_steps(spec.decoder, spec.target_vocabulary_size)]
    return [
        [*stack_steps(spec.encoder, spec.vocabulary_size)],
        [*decoder, Box("Linear", tied), Box("Softmax", f"{spec.target_vocabulary_size:,}")],
    ]


def block_steps(block: BlockSpec) -> tuple[Box, ...]:
    """Return the steps of a block: sub-layers, and what is around each."""
    own, cross, network = block.self_attention, block.cross_attention, block.feed_forward
    masked = "Masked self-attention" if cross is not None else "Multi-head attention"
    first = (
        Box(masked, _heads(own))
        if isinstance(own, AttentionSpec)
        else Box("Recurrent cell", "SSRU")
    )
    width = f"{network.inner.kernel.shape[1]:,}, {network.activation}"
    layers = [(first, block.self_attention_norm)]
    if cross is not None and block.cross_attention_norm is not None:
        box = Box("Multi-head attention", _heads(cross), reads=True)
        layers.append((box, block.cross_attention_norm))
    gate = ", gated" if network.gate is not None else ""
    layers.append((Box("Feed-forward", width + gate), block.feed_forward_norm))
    steps: list[Box] = []
    for box, norm in layers:
        name = _norm_name(norm)
        steps += (
            [Box(name), box, Box("Add")] if block.normalize_first else [box, Box(f"Add & {name}")]
        )
    return tuple(steps)


def attention_steps(spec: TransformerSpec) -> list[Box | Group]:
    """Return the steps of one of a spec's attentions (section 3.2)."""
    heads, inner, outer = spec.num_heads, spec.key_dim, spec.value_dim
    return [
        Box("Linear", f"Q, K: {spec.hidden_dim} to {inner}, V: to {outer}, each head"),
        Group(
            (
                Box("MatMul", "Q Kᵀ"),
                Box("Scale", f"1 / √{inner}"),
                Box("Mask", "padding; in a decoder later positions"),
                Box("Softmax", "over the keys"),
                Box("MatMul", "times V"),
            ),
            heads,
            "heads",
        ),
        Box("Concat", f"{heads} × {outer}"),
        Box("Linear", f"{heads * outer} to {spec.hidden_dim}"),
    ]


def _heads(attention: AttentionSpec) -> str:
    _, heads, key_dim = attention.query.kernel.shape
    return f"{heads} heads of {key_dim}"


def _norm_name(norm: NormSpec) -> str:
    return "LayerNorm" if norm.beta is not None else "RMSNorm"


def _drawn(columns: Sequence[Sequence[Box | Group]]) -> Figure:
    """Draw columns of steps beside each other; what the first ends with is read by the others."""
    from matplotlib.figure import Figure

    heights = [sum(_height(part) for part in column) for column in columns]
    width = len(columns) * COLUMN
    figure = Figure(figsize=(width, max(heights) + 1.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlim=(-0.8, width - 0.8), ylim=(-0.8, max(heights) + 0.4))
    axes.set_aspect("equal")
    axes.axis("off")
    for number, (column, name) in enumerate(zip(columns, INPUTS, strict=False)):
        middle = number * COLUMN + WIDTH / 2
        _write(axes, middle, -0.55, name)
        _draw_line(axes, [(middle, -0.4), (middle, 0)])
        _draw_column(axes, column, number * COLUMN, memory=(WIDTH / 2, heights[0] - GAP))
    return figure


def _height(part: Box | Group) -> float:
    boxes = len(part.boxes) if isinstance(part, Group) else 1
    return boxes * (HEIGHT + GAP) + GAP * isinstance(part, Group)


def _draw_column(
    axes: Any, column: Sequence[Box | Group], left: float, memory: tuple[float, float]
) -> None:
    middle, y = left + WIDTH / 2, 0.0
    for part in column:
        boxes = part.boxes if isinstance(part, Group) else (part,)
        if isinstance(part, Group):
            _draw_patch(
                axes, (left - 0.15, y), (WIDTH + 0.45, _height(part) - GAP), "#f5f5f5", "#999999"
            )
            times = f"{part.times} {part.of}" if part.of else f"{part.times} ×"
            _write(axes, left - 0.3, y + _height(part) / 2, times, ha="right", fontsize=11)
            y += GAP / 2
        entered = y - GAP / 2
        for box in boxes:
            side = y + HEIGHT / 2
            color = next((c for name, c in COLORS.items() if box.name.startswith(name)), "#eeeeee")
            _draw_patch(axes, (left, y), (WIDTH, HEIGHT), color, "black")
            _write(axes, middle, side + 0.1 * bool(box.sizes), box.name)
            _write(axes, middle, side - 0.13, box.sizes, fontsize=7)
            if box.reads:
                x, top = memory
                bend = left - 0.75
                _draw_line(
                    axes, [(x, top), (x, top + 0.2), (bend, top + 0.2), (bend, side), (left, side)]
                )
            y += HEIGHT + GAP
            if box.name.startswith("Add") and isinstance(part, Group):  # the residual connection
                right, bend = left + WIDTH, left + WIDTH + 0.15
                _draw_line(axes, [(middle, entered), (bend, entered), (bend, side), (right, side)])
                entered = y - GAP / 2
            if box is not column[-1]:
                _draw_line(axes, [(middle, y - GAP), (middle, y)])
        if isinstance(part, Group):
            y += GAP / 2


def _draw_patch(
    axes: Any, corner: tuple[float, float], size: tuple[float, float], fill: str, edge: str
) -> None:
    from matplotlib.patches import FancyBboxPatch

    axes.add_patch(FancyBboxPatch(corner, *size, boxstyle="round,pad=0.02", fc=fill, ec=edge))


def _write(axes: Any, x: float, y: float, text: str, ha: str = "center", fontsize: int = 9) -> None:
    axes.text(x, y, text, ha=ha, va="center", fontsize=fontsize)


def _draw_line(axes: Any, path: Sequence[tuple[float, float]]) -> None:
    """Draw a line along a path, with an arrow at its end."""
    axes.plot(*zip(*path, strict=True), color="black", lw=1)
    style = {"arrowstyle": "-|>", "lw": 1, "color": "black"}
    axes.annotate("", xy=path[-1], xytext=path[-2], arrowprops=style)
