"""Places, labels and pixels that the figures share."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from keras_attention.visualization.figures import (
    LONGEST_LABEL,
    MOST_PIXELS,
    Canvas,
    label,
    text_width,
)

pytestmark = pytest.mark.backends("tensorflow")


def pixels_of(figure):
    """What is drawn: red, green, blue, opacity (height, width, 4)."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def test_axes_are_where_they_were_asked_for():
    canvas = Canvas(4, 3)
    axes = canvas.axes(1, 0.5, 2, 1)  # inches: x 1 to 3, y 0.5 to 1.5 from the top
    axes.axis("off")
    axes.imshow([[[255, 0, 0], [0, 0, 255]]], aspect="auto", interpolation="nearest")
    pixels = pixels_of(canvas.figure)
    assert pixels.shape == (300, 400, 4)
    assert pixels.dtype == np.uint8
    assert pixels[100, 150].tolist() == [255, 0, 0, 255]
    assert pixels[100, 250].tolist() == [0, 0, 255, 255]
    for y, x in ((45, 150), (155, 150), (100, 95), (100, 305)):
        assert pixels[y, x].tolist() == [255, 255, 255, 255]


def test_huge_figures_are_rendered_coarser():
    figure = Canvas(400, 3).figure
    assert figure.get_figwidth() * figure.dpi == pytest.approx(MOST_PIXELS)
    assert Canvas(4, 3).figure.dpi == 100


@pytest.mark.parametrize(
    "token, expected",
    [
        ("▁Haus", "▁Haus"),
        ("</s>", "</s>"),
        ("a\nb", "a\N{OPEN BOX}b"),
        ("x" * LONGEST_LABEL, "x" * LONGEST_LABEL),
        ("x" * (LONGEST_LABEL + 1), "x" * (LONGEST_LABEL - 1) + "…"),
    ],
)
def test_label(token, expected):
    assert label(token) == expected


def test_text_width_is_what_is_drawn():
    canvas = Canvas(5, 1)
    text = canvas.figure.text(0, 0.5, "Aufmerksamkeit", fontsize=9)
    drawn = text.get_window_extent().width / 100
    assert text_width("Aufmerksamkeit", 9) == pytest.approx(drawn, rel=0.1)
