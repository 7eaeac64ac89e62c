"""Attention as lines between words, as in the paper's Figures 3 to 5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_attention.utils.checks import check_text
from keras_attention.visualization.figures import (
    FONT_POINTS,
    GAP,
    Canvas,
    checked_indices,
    checked_weights,
    label,
    text_width,
    title_width,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Inches.
LINE_HEIGHT = 0.24
SPAN = 2.4
BOX = 0.11
LEGEND = 1.0


def attention_lines_figure(
    scores: Any,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str] | None = None,
    *,
    query: int | Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    title: str = "",
    note: str = "",
) -> Figure:
    """Draws attention as lines from words to the words that they attend to.

    Queries are on the left, attended words on the right. Each head has a colour; the opacity of a line is
    its weight. If only some words are drawn as queries (`query`), each attended word also has a box per
    head, with the mean weight over these queries.

    Args:
        scores: Attention weights of one sentence in one layer, shape `(N, T, S)`.
        source_tokens: The S tokens that are attended to.
        target_tokens: The T tokens that attend. Defaults to `source_tokens` (self-attention).
        query: Index or indices, from 0, of the target tokens to draw. Defaults to all.
        heads: Indices of the heads to draw, from 0. Defaults to all. The legend counts from 1.
        title: Title of the picture, such as the name of the layer.
        note: Small print under the picture, such as `"synthetic data"`.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If shapes, token counts, indices or weights do not fit.

    Example:

    >>> import numpy as np
    >>> scores = np.eye(3)[None]  # one head; each word attends to itself
    >>> figure = attention_lines_figure(scores, ["the", "law", "</s>"], query=1)
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['the', 'law', '</s>', 'the', 'law', '</s>']

    Reference: Figures 3 (one query word), 4 and 5 of
    [Attention Is All You Need](https://arxiv.org/abs/1706.03762).
    """
    target_tokens = source_tokens if target_tokens is None else target_tokens
    weights = checked_weights(scores, source_tokens, target_tokens).clip(0, 1)
    check_text("title", title)
    check_text("note", note)
    chosen = checked_indices("heads", heads, len(weights))
    queries = checked_indices("query", query, len(target_tokens))
    colors = head_colors(len(weights))
    source_labels = [label(token) for token in source_tokens]
    target_labels = [label(token) for token in target_tokens]

    boxes = 0.0 if query is None else BOX * len(chosen)
    left = max(map(text_width, target_labels)) + 2 * GAP
    right = boxes + max(map(text_width, source_labels)) + 2 * GAP
    lines = max(len(source_labels), len(target_labels), len(chosen))
    height = LINE_HEIGHT * lines
    top, bottom = (0.45 if title else 0.15), (0.4 if note else 0.15)
    canvas = Canvas(max(left + SPAN + right + LEGEND, title_width(title)), top + height + bottom)
    axes = canvas.axes(left, top, SPAN, height)
    axes.set(xlim=(0, SPAN), ylim=(height, 0))  # inches; the first word on top
    axes.axis("off")

    for order, head in enumerate(chosen):
        _draw_lines(axes, weights[head], queries, colors[head])
        if query is not None:
            mean = weights[head, queries].mean(axis=0)
            _draw_boxes(axes, SPAN + order * BOX, mean, colors[head])
    style = {"va": "center", "fontsize": FONT_POINTS + 1, "parse_math": False}
    for t, text in enumerate(target_labels):
        color = "black" if t in queries else "silver"
        axes.text(-0.07, _middle(t), text, ha="right", color=color, **style)
    for s, text in enumerate(source_labels):
        axes.text(SPAN + boxes + 0.07, _middle(s), text, ha="left", **style)
    _draw_legend(axes, (SPAN + right) / SPAN, {head: colors[head] for head in chosen})
    canvas.write(title, note)
    return canvas.figure


def _middle(position: int) -> float:
    return (position + 0.5) * LINE_HEIGHT


def head_colors(count: int) -> list[tuple[float, ...]]:
    """Return a colour for each head; up to ten heads have those of the paper's figures."""
    from matplotlib import colormaps

    palette = colormaps["tab10" if count <= 10 else "tab20"]
    return [palette(head % palette.N) for head in range(count)]


def _shades(color: tuple[float, ...], strengths: np.ndarray) -> list[tuple[float, ...]]:
    return [(*color[:3], float(strength)) for strength in strengths]


def _draw_lines(axes: Any, weights: np.ndarray, queries: list[int], color: Any) -> None:
    """One line from each query word to each attended word; weights (T, S)."""
    from matplotlib.collections import LineCollection

    attended = range(weights.shape[1])
    segments = [[(0, _middle(t)), (SPAN, _middle(s))] for t in queries for s in attended]
    shades = _shades(color, weights[queries].ravel())
    axes.add_collection(LineCollection(segments, colors=shades, linewidths=1.5), autolim=False)


def _draw_boxes(axes: Any, left: float, weights: np.ndarray, color: Any) -> None:
    """A column of boxes before the attended words; weights (S,)."""
    from matplotlib.patches import Rectangle

    for s, shade in enumerate(_shades(color, weights)):
        corner = (left, s * LINE_HEIGHT + 0.02)
        height = LINE_HEIGHT - 0.04
        axes.add_patch(Rectangle(corner, BOX, height, facecolor=shade, lw=0, clip_on=False))


def _draw_legend(axes: Any, left: float, colors: dict[int, tuple[float, ...]]) -> None:
    from matplotlib.lines import Line2D

    axes.legend(
        [Line2D([], [], color=color, lw=3) for color in colors.values()],
        [f"head {head + 1}" for head in colors],
        fontsize=FONT_POINTS,
        frameon=False,
        loc="upper left",
        bbox_to_anchor=(left, 1.0),
        borderaxespad=0,
        handlelength=1,
    )
