"""Attention as heat maps: one picture per layer, one panel per head.

The functions take arrays and token strings, and need no model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keras_attention.utils.arguments import Count, checked
from keras_attention.visualization.figures import (
    FONT_POINTS,
    GAP,
    Canvas,
    checked_indices,
    checked_weights,
    fonts_for_all_letters,
    label,
    text_width,
    title_width,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Inches. A cell is as wide as a line of text is high, so that neighbouring rotated labels do not touch.
CELL = 0.17
SMALLEST_PANEL = 1.1
TITLE = 0.25
AXIS_NAME = 0.28  # and the gap between it and the tick labels
COLOR_BAR = 0.9


@fonts_for_all_letters()
@checked
def attention_figure(
    scores: Any,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str] | None = None,
    *,
    title: str = "",
    note: str = "",
    heads: Sequence[int] | None = None,
    columns: Count = 4,
    row_label: str = "from",
) -> Figure:
    """Draws the attention weights of one layer, one panel per head.

    Row t of a panel is a query (a target token) and shows its attention to each source token. The colour
    scale is always 0 to 1, so panels and pictures can be compared.

    Args:
        scores: Attention weights of one sentence in one layer, shape `(N, T, S)`, each between 0
            and 1. An array, or a tensor of any backend.
        source_tokens: The S tokens that are attended to (columns).
        target_tokens: The T tokens that attend (rows). Defaults to `source_tokens` (self-attention).
        title: Title of the picture, such as the name of the layer.
        note: Small print under the panels, such as `"synthetic data"`.
        heads: Indices of the heads to draw, from 0. Defaults to all. Panels are labelled from 1, as in
            the paper.
        columns: Number of panels side by side. Defaults to 4.
        row_label: Label of the vertical axis. Defaults to `"from"`.

    Returns:
        A `matplotlib.figure.Figure`, as large as its labels need.

    Raises:
        ValueError: If shapes, token counts, heads or weights do not fit.

    Example:

    >>> import numpy as np
    >>> scores = np.full((2, 3, 4), 0.25)  # 2 heads, 3 target tokens, 4 source tokens
    >>> figure = attention_figure(scores, ["a", "small", "dog", "</s>"], ["ein", "Hund", "</s>"])
    >>> [axes.get_title() for axes in figure.axes]
    ['head 1', 'head 2', 'weight']
    """
    target_tokens = source_tokens if target_tokens is None else target_tokens
    weights = checked_weights(scores, source_tokens, target_tokens)
    chosen = checked_indices("heads", heads, len(weights))
    columns = min(columns, len(chosen))
    source_labels = [label(token) for token in source_tokens]
    target_labels = [label(token) for token in target_tokens]

    left = max(map(text_width, target_labels)) + AXIS_NAME
    below = max(map(text_width, source_labels)) + AXIS_NAME
    panel_width = max(CELL * len(source_labels), SMALLEST_PANEL)
    panel_height = max(CELL * len(target_labels), SMALLEST_PANEL)
    step_x, step_y = left + panel_width + GAP, TITLE + panel_height + below + GAP
    top, bottom = (0.4 if title else 0.1), (0.3 if note else 0.05)
    canvas = Canvas(
        max(columns * step_x + COLOR_BAR, title_width(title)),
        top + math.ceil(len(chosen) / columns) * step_y - GAP + bottom,
    )
    for panel, head in enumerate(chosen):
        row, column = divmod(panel, columns)
        axes = canvas.axes(
            column * step_x + left, top + row * step_y + TITLE, panel_width, panel_height
        )
        image = axes.imshow(
            weights[head], vmin=0, vmax=1, cmap="Blues", aspect="auto", interpolation="nearest"
        )
        axes.set_title(f"head {head + 1}", fontsize=FONT_POINTS + 1)
        _name_ticks(axes.xaxis, source_labels, "attends to", rotation=90)
        _name_ticks(axes.yaxis, target_labels, row_label)
    bar = canvas.axes(columns * step_x + 0.1, top + TITLE, 0.13, min(panel_height, 2.5))
    canvas.figure.colorbar(image, cax=bar, ticks=[0, 0.5, 1])
    bar.set_title("weight", fontsize=FONT_POINTS)
    bar.tick_params(labelsize=FONT_POINTS)
    canvas.write(title, note)
    return canvas.figure


@checked
def attention_figures(
    scores: Mapping[str, Sequence[Any]],
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    *,
    note: str = "",
) -> dict[str, Figure]:
    """Draw all layers of a model's attention on one sentence pair.

    In the decoder's self-attention, rows and columns are the decoder's input: the start token, then
    all but the last target token. In the cross-attention, a row is labelled with the token that is
    predicted from it, so the picture reads as an alignment.

    Args:
        scores: What `Transformer.attention_scores` returns for a batch of one: `{"encoder": [...],
            "decoder": [...], "cross": [...]}`, for each layer a tensor of shape `(1, N, S, S)`,
            `(1, N, T, T)`, `(1, N, T, S)`.
        source_tokens: The S source tokens, end token included.
        target_tokens: The T target tokens, end token included.
        note: Small print under each picture.

    Returns:
        Figures by name: `"encoder/layer_1"`, `"decoder/layer_1"`, `"cross/layer_1"`, ...

    Raises:
        ValueError: If `scores` has other keys, or shapes and tokens do not fit.

    Example:

    >>> import numpy as np
    >>> scores = {"cross": [np.full((1, 2, 3, 4), 0.25), np.full((1, 2, 3, 4), 0.25)]}
    >>> list(attention_figures(scores, ["a", "small", "dog", "</s>"], ["ein", "Hund", "</s>"]))
    ['cross/layer_1', 'cross/layer_2']
    """
    inputs = ["<start>", *target_tokens[:-1]]
    kinds: dict[str, tuple[str, Sequence[str], Sequence[str], str]] = {
        "encoder": ("Encoder self-attention", source_tokens, source_tokens, "from"),
        "decoder": ("Decoder self-attention", inputs, inputs, "from"),
        "cross": ("Cross-attention", source_tokens, target_tokens, "predicting"),
    }
    if not set(scores) <= set(kinds):
        raise ValueError(f"`scores` must have keys of {sorted(kinds)}. Received: {sorted(scores)}")
    figures = {}
    for kind, layers in scores.items():
        name, attended, attending, row_label = kinds[kind]
        for number, layer_scores in enumerate(layers, start=1):
            if len(layer_scores.shape) != 4 or layer_scores.shape[0] != 1:
                raise ValueError(
                    "`scores` must be those of one sentence, of shape (1, N, T, S). Received: "
                    f"shape {tuple(layer_scores.shape)} in layer {number} of {kind!r}"
                )
            figures[f"{kind}/layer_{number}"] = attention_figure(
                layer_scores[0],
                attended,
                attending,
                title=f"{name}, layer {number} of {len(layers)}",
                note=note,
                row_label=row_label,
            )
    return figures


def _name_ticks(axis: Any, labels: Sequence[str], name: str, **style: Any) -> None:
    # A token such as "$" must not be read as a formula.
    axis.set_ticks(range(len(labels)), labels, fontsize=FONT_POINTS, parse_math=False, **style)
    axis.set_tick_params(length=0, pad=2)
    axis.set_label_text(name, fontsize=FONT_POINTS, color="dimgray", parse_math=False)
