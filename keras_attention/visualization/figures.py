"""What the figures share: places in inches, labels, checks of attention weights.

Figures are made without `pyplot`: no global state, no backend switched, no window opened, so they
can be drawn in a training callback. Save one with `figure.savefig("attention.png")`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONT_POINTS = 8
GAP = 0.22  # inches
LONGEST_LABEL = 16  # characters
MOST_PIXELS = 10_000  # a side
WEIGHT_TOLERANCE = 0.02  # bfloat16 weights that sum to 1 may exceed it a little


def figure_to_array(figure: Figure) -> np.ndarray:
    """Renders a figure to pixels.

    Args:
        figure: A matplotlib figure.

    Returns:
        Array of shape `(height, width, 4)`, uint8: red, green, blue, opacity.

    Example:

    >>> figure_to_array(Canvas(3, 2).figure).shape
    (200, 300, 4)
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())


class Canvas:
    """A white figure on which places are given in inches from the upper left corner."""

    def __init__(self, width: float, height: float):
        from matplotlib.figure import Figure

        dpi = min(100.0, MOST_PIXELS / max(width, height))
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width, height), dpi=dpi, facecolor="white")

    def axes(self, left: float, top: float, width: float, height: float) -> Any:
        """Adds axes whose frame has this place and size."""
        bottom = self.height - top - height
        return self.figure.add_axes(
            (left / self.width, bottom / self.height, width / self.width, height / self.height)
        )

    def write(self, title: str, note: str) -> None:
        """Puts the headline on top and the small print at the bottom."""
        left, inch = GAP / self.width, 1 / self.height
        style: dict[str, Any] = {"parse_math": False, "fontsize": FONT_POINTS}
        if title:
            larger = {**style, "fontsize": FONT_POINTS + 3, "va": "top"}
            self.figure.text(left, 1 - 0.1 * inch, title, **larger)
        if note:
            self.figure.text(left, 0.1 * inch, note, color="dimgray", **style)


def title_width(title: str) -> float:
    """Inches that a headline and its margins take."""
    return text_width(title, FONT_POINTS + 3) + 2 * GAP


def label(token: str) -> str:
    """A token on one line: control characters made visible, long ones cut."""
    text = "".join(letter if letter.isprintable() else "\N{OPEN BOX}" for letter in token)
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


def text_width(text: str, points: float = FONT_POINTS + 1) -> float:
    """Width of a text in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=points)
    return text_to_path.get_text_width_height_descent(text, font, ismath=False)[0] / 72


def checked_weights(
    scores: Any, source_tokens: Sequence[str], target_tokens: Sequence[str]
) -> np.ndarray:
    """Returns scores as a float32 NumPy array (N, T, S), or says what is wrong with them."""
    weights = np.asarray(keras.ops.convert_to_numpy(scores)).astype("float32")
    if weights.ndim != 3 or 0 in weights.shape:
        hint = " Pick one sentence of the batch, as in `scores[0]`." if weights.ndim == 4 else ""
        raise ValueError(
            "Expected the attention weights of one sentence in one layer, shape (heads, target "
            f"tokens, source tokens), none of them 0. Received: shape {weights.shape}.{hint}"
        )
    for kind, tokens, size in (
        ("source", source_tokens, weights.shape[2]),
        ("target", target_tokens, weights.shape[1]),
    ):
        if isinstance(tokens, str) or len(tokens) != size:
            raise ValueError(
                f"Expected {size} {kind} tokens, as the scores have shape {weights.shape} (heads, "
                f"target, source). Received: {tokens!r}. Cut padding from scores and tokens alike."
            )
    if not np.all((weights >= -WEIGHT_TOLERANCE) & (weights <= 1 + WEIGHT_TOLERANCE)):
        raise ValueError(
            "Attention weights must lie between 0 and 1: pass them after the softmax. "
            f"Received: values from {weights.min()} to {weights.max()}"
        )
    return weights


def checked_indices(name: str, indices: int | Sequence[int] | None, count: int) -> list[int]:
    """Returns the chosen ones of `count` things, by default all, or says which do not exist."""
    if indices is None:
        return list(range(count))
    chosen = [indices] if isinstance(indices, int) else list(indices)
    if not chosen or not all(0 <= index < count for index in chosen):
        raise ValueError(f"`{name}` must be indices from 0 to {count - 1}. Received: {indices}")
    return chosen
