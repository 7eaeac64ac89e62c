"""Attention drawn as in the paper's Figures 3 to 5: queries on top, attended words below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_attention.utils.arguments import checked
from keras_attention.visualization import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Points, as measured in the paper's own pictures.
PITCH = 11.27  # from word to word
GAP = 75.1  # between the two rows of words
BOX = 60.08  # the height of the box behind a word
FONT = 7.5
LINE = 1.5
MARGIN = 6.0
QUERY_COLOR = "#D3D3D3"
FAINTEST = 4 / 255  # Fainter lines are left out, fainter boxes are not.
MOST_TOKENS = 400


@checked
def paper_attention_figure(
    scores: Any,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str] | None = None,
    *,
    query: int | Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> Figure:
    """Draw attention in the style of the paper's Figures 3 to 5.

    Queries are on top, attended words below; text reads upwards. Each head has a colour. The opacity of a
    line is its weight, divided by the number of drawn heads if all words are queries. If only some words
    are (`query`), they have grey boxes, and each attended word has a box per head, whose opacity is the
    mean weight over these queries.

    Args:
        scores: Attention weights of one sentence in one layer, shape `(N, T, S)`.
        source_tokens: The S tokens that are attended to.
        target_tokens: The T tokens that attend. Defaults to `source_tokens` (self-attention).
        query: Index or indices, from 0, of the target tokens to draw as queries. Defaults to all.
        heads: Indices of the heads to draw, from 0. Defaults to all.

    Returns:
        A `matplotlib.figure.Figure`. Like the paper's, it has no legend: heads 1 to 8 are blue,
        orange, green, red, purple, brown, pink and grey.

    Raises:
        ValueError: If shapes, token counts, indices or weights do not fit, or there are more than 400
            tokens on a side.

    Example:

    >>> import numpy as np
    >>> figure = paper_attention_figure(np.eye(3)[None], ["the", "law", "</s>"], query=1)
    >>> len(figure.axes[0].collections[0].get_segments())  # "law" attends to itself alone
    1

    Reference: Figures 3 to 5 of [Attention Is All You Need](https://arxiv.org/abs/1706.03762).
    """
    from matplotlib import colormaps

    target_tokens = source_tokens if target_tokens is None else target_tokens
    weights = figures.checked_weights(scores, source_tokens, target_tokens).clip(0, 1)
    if (count := max(len(source_tokens), len(target_tokens))) > MOST_TOKENS:
        raise ValueError(
            f"A picture has room for {MOST_TOKENS} tokens on a side. Received: {count} tokens. Cut both "
            f"tokens and weights, `tokens[:{MOST_TOKENS}]` and `scores[:, :{MOST_TOKENS}, :{MOST_TOKENS}]`, "
            "or choose a shorter sentence."
        )
    chosen = figures.checked_indices("heads", heads, len(weights))
    queries = figures.checked_indices("query", query, len(target_tokens))
    # Up to ten heads have the colours of the paper's figures.
    palette = colormaps["tab10" if len(weights) <= 10 else "tab20"]
    colors = [palette(head % palette.N) for head in range(len(weights))]
    labels = [
        [figures.label(token) for token in tokens] for tokens in (source_tokens, target_tokens)
    ]

    longest = max(72 * figures.text_width(text, FONT) for side in labels for text in side)
    room = max(BOX, longest) + MARGIN
    width = PITCH * max(map(len, labels)) + 2 * MARGIN
    height = GAP + 2 * room
    canvas = figures.Canvas(width / 72, height / 72)
    axes = canvas.axes(0, 0, width / 72, height / 72)
    axes.set(xlim=(-MARGIN, width - MARGIN), ylim=(-room, GAP + room))
    axes.axis("off")

    if query is not None:
        for t in queries:
            _box(axes, t, GAP, BOX, QUERY_COLOR)
        for order, head in enumerate(chosen):
            share = BOX / len(chosen)
            for s, weight in enumerate(weights[head, queries].mean(axis=0)):
                shade = (*colors[head][:3], quantised(weight))
                _box(axes, s, order * share - BOX, share, shade)
    dividing = len(chosen) if query is None else 1
    for head in chosen:
        _draw_lines(axes, weights[head] / dividing, queries, colors[head])
    style: dict[str, Any] = {
        "rotation": 90,
        "ha": "center",
        "fontsize": FONT,
        "parse_math": False,
        "zorder": 5,
    }
    for side, (texts, at, align) in enumerate(
        zip(labels, (-2.0, GAP + 2.0), ("top", "bottom"), strict=True)
    ):
        for index, text in enumerate(texts):
            axes.text(_middle(index), at, text, va=align, gid=f"row {side}", **style)
    return canvas.figure


def quantised(weight: float) -> float:
    """Round an opacity to a multiple of 1/255, as in the paper's pictures."""
    return round(float(weight) * 255) / 255


def _middle(position: int) -> float:
    return (position + 0.5) * PITCH


def _box(axes: Any, position: int, bottom: float, height: float, color: Any) -> None:
    from matplotlib.patches import Rectangle

    corner = (position * PITCH, bottom)
    axes.add_patch(Rectangle(corner, PITCH, height, facecolor=color, lw=0, zorder=1))


def _draw_lines(axes: Any, weights: np.ndarray, queries: list[int], color: Any) -> None:
    """Draw lines from queries (T) to attended words (S); later heads paint over earlier ones."""
    from matplotlib.collections import LineCollection

    segments, shades = [], []
    for t in queries:
        for s, weight in enumerate(weights[t]):
            opacity = quantised(weight)
            if opacity >= FAINTEST:
                segments.append([(_middle(t), GAP), (_middle(s), 0.0)])
                shades.append((*color[:3], opacity))
    lines = LineCollection(segments, colors=shades, linewidths=LINE, zorder=2, capstyle="butt")
    axes.add_collection(lines, autolim=False)
