"""What the figures share: layout in inches, labels, checks of attention weights.

Figures are made without `pyplot`, so they change no global state, switch no backend and open no window: a
training callback can draw them. Save one with `figure.savefig("attention.png")`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_attention.utils.checks import can_iterate, check_integer

FONT_POINTS = 8
# Fonts of Linux, macOS and Windows for Chinese, Japanese, Korean and other scripts.
MORE_LETTERS = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "WenQuanYi Zen Hei", "IPAGothic", "Hiragino Sans"),
    *("PingFang SC", "Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic"),
    *("Arial Unicode MS", "Noto Sans Devanagari"),
)
GAP = 0.22  # inches
LONGEST_LABEL = 16  # characters
MOST_PIXELS = 10_000  # a side
WEIGHT_TOLERANCE = 0.02  # bfloat16 weights that sum to 1 may exceed it a little


class Canvas:
    """A white figure whose layout is given in inches from the upper left corner."""

    def __init__(self, width: float, height: float):
        from matplotlib.figure import Figure

        dpi = min(100.0, MOST_PIXELS / max(width, height))
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width, height), dpi=dpi, facecolor="white")

    def axes(self, left: float, top: float, width: float, height: float) -> Any:
        """Add axes whose frame has this position and size."""
        bottom = self.height - top - height
        return self.figure.add_axes(
            (left / self.width, bottom / self.height, width / self.width, height / self.height)
        )

    def write(self, title: str, note: str) -> None:
        """Write the title at the top and the small print at the bottom."""
        left, inch = GAP / self.width, 1 / self.height
        style: dict[str, Any] = {"parse_math": False, "fontsize": FONT_POINTS}
        if title:
            larger = {**style, "fontsize": FONT_POINTS + 3, "va": "top"}
            self.figure.text(left, 1 - 0.1 * inch, title, **larger)
        if note:
            self.figure.text(left, 0.1 * inch, note, color="dimgray", **style)


@contextlib.contextmanager
def fonts_for_all_letters() -> Iterator[None]:
    """Within this context, letters that matplotlib's font lacks are taken from `MORE_LETTERS`.

    If none of these fonts is installed, matplotlib draws boxes and warns about each letter.
    """
    import matplotlib
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    others = [name for name in MORE_LETTERS if name in installed]
    with matplotlib.rc_context({"font.family": [*matplotlib.rcParams["font.family"], *others]}):
        yield


def title_width(title: str) -> float:
    """Return the width of a title with its margins, in inches."""
    return text_width(title, FONT_POINTS + 3) + 2 * GAP


def label(token: str) -> str:
    """Return a token on one line, with control characters made visible, and cut if it is long."""
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
    """Check attention weights and their tokens; return a float32 NumPy array (N, T, S)."""
    try:
        weights = np.asarray(keras.ops.convert_to_numpy(scores)).astype("float32")
    except (TypeError, ValueError) as error:
        raise ValueError(f"`scores` must be an array or a tensor. Received: {scores!r}") from error
    if weights.ndim != 3 or 0 in weights.shape:
        hint = " Pick one sentence of the batch, as in `scores[0]`." if weights.ndim == 4 else ""
        raise ValueError(
            "`scores` must be the attention weights of one sentence in one layer, of shape (N, T, S), "
            f"with no axis of size 0. Received: shape {weights.shape}.{hint}"
        )
    for kind, tokens, size in (
        ("source", source_tokens, weights.shape[2]),
        ("target", target_tokens, weights.shape[1]),
    ):
        if len(tokens) != size:
            raise ValueError(
                f"`{kind}_tokens` must be {size} tokens, as the scores have the shape (N, T, S) = "
                f"{weights.shape}. Received: {kind}_tokens={tokens!r}. Cut padding from both scores and "
                "tokens."
            )
    if not np.all((weights >= -WEIGHT_TOLERANCE) & (weights <= 1 + WEIGHT_TOLERANCE)):
        raise ValueError(
            "`scores` must be attention weights after the softmax, from 0 to 1. "
            f"Received: values from {weights.min()} to {weights.max()}"
        )
    return weights


def checked_indices(name: str, indices: int | Sequence[int] | None, count: int) -> list[int]:
    """Return indices as a list, by default all of `count`; raise a ValueError if one is out of range."""
    if indices is None:
        return list(range(count))
    given: Any = indices if can_iterate(indices) and not isinstance(indices, str) else [indices]
    try:
        chosen = [check_integer(name, index, 0, count - 1) for index in given]
    except ValueError:
        chosen = []
    if not chosen:
        raise ValueError(
            f"`{name}` must be indices from 0 to {count - 1}. Received: {name}={indices!r}"
        )
    return chosen
