"""Places, labels and pixels that the figures share."""

import numpy as np
import pytest

from keras_attention.visualization.figures import (
    LONGEST_LABEL,
    MOST_PIXELS,
    Canvas,
    figure_to_array,
    label,
    text_width,
)

pytestmark = pytest.mark.backends("tensorflow")


def test_figure_to_array_has_the_colours_where_they_were_drawn():
    canvas = Canvas(4, 3)
    axes = canvas.axes(1, 0.5, 2, 1)  # inches: x 1 to 3, y 0.5 to 1.5 from the top
    axes.axis("off")
    axes.imshow([[[255, 0, 0], [0, 0, 255]]], aspect="auto", interpolation="nearest")
    pixels = figure_to_array(canvas.figure)
    assert pixels.shape == (300, 400, 4)
    assert pixels.dtype == np.uint8
    assert pixels[100, 150].tolist() == [255, 0, 0, 255]
    assert pixels[100, 250].tolist() == [0, 0, 255, 255]
    for y, x in ((45, 150), (155, 150), (100, 95), (100, 305)):
        assert pixels[y, x].tolist() == [255, 255, 255, 255]


def test_rendering_twice_gives_the_same_pixels():
    figure = Canvas(2, 1).figure
    figure.text(0.5, 0.5, "word")
    np.testing.assert_array_equal(figure_to_array(figure), figure_to_array(figure))


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
