"""Lines between words, read back from the artists. N=3 heads, T=4 queries, S=5 attended words."""

import numpy as np
import pytest

from keras_attention.visualization.attention_lines import attention_lines_figure
from keras_attention.visualization.figures import figure_to_array

SOURCE = ["making", "it", "more", "difficult", "</s>"]
TARGET = ["macht", "es", "schwerer", "</s>"]
SCORES = np.random.default_rng(0).dirichlet(np.ones(5), size=(3, 4))


def place(axes, text):
    """The height at which a word stands, on the left and on the right side."""
    return [item.get_position()[1] for item in axes.texts if item.get_text() == text]


@pytest.mark.parametrize("query, queries", [(None, [0, 1, 2, 3]), (2, [2]), ([3, 1], [3, 1])])
def test_lines_join_the_words_with_the_weight_as_opacity(query, queries):
    axes = attention_lines_figure(SCORES, SOURCE, TARGET, query=query, heads=[2, 0]).axes[0]
    assert len(axes.collections) == 2
    for collection, head in zip(axes.collections, [2, 0], strict=True):
        lines = collection.get_segments()
        opacity = collection.get_colors()[:, 3]
        assert len(lines) == len(opacity) == len(queries) * 5
        pairs = [(t, s) for t in queries for s in range(5)]
        for (start, end), alpha, (t, s) in zip(lines, opacity, pairs, strict=True):
            assert start[0] < end[0]
            assert start[1] == place(axes, TARGET[t])[0]
            assert end[1] == place(axes, SOURCE[s])[-1]
            assert alpha == pytest.approx(SCORES[head, t, s], abs=1e-6)


def test_words_from_top_to_bottom_and_silent_ones_in_grey():
    axes = attention_lines_figure(SCORES, SOURCE, TARGET, query=1).axes[0]
    left, right = axes.texts[:4], axes.texts[4:]
    assert [text.get_text() for text in left] == TARGET
    assert [text.get_text() for text in right] == SOURCE
    heights = [text.get_position()[1] for text in right]
    assert heights == sorted(heights)
    assert axes.yaxis_inverted()
    assert [text.get_color() for text in left] == ["silver", "black", "silver", "silver"]


def test_boxes_hold_the_mean_weight_of_the_asking_words():
    axes = attention_lines_figure(SCORES, SOURCE, TARGET, query=[0, 3]).axes[0]
    opacity = np.array([patch.get_facecolor()[3] for patch in axes.patches]).reshape(3, 5)
    np.testing.assert_allclose(opacity, (SCORES[:, 0] + SCORES[:, 3]) / 2, atol=1e-6)
    rows = np.array([patch.get_y() for patch in axes.patches]).reshape(3, 5)
    assert (np.diff(rows, axis=1) > 0).all()
    assert not attention_lines_figure(SCORES, SOURCE, TARGET).axes[0].patches


def test_legend_names_the_heads_in_the_colours_of_their_lines():
    axes = attention_lines_figure(SCORES, SOURCE, TARGET, heads=[2, 0]).axes[0]
    legend = axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["head 3", "head 1"]
    for handle, collection in zip(legend.get_lines(), axes.collections, strict=True):
        np.testing.assert_allclose(handle.get_color()[:3], collection.get_colors()[0, :3])
    first, second = (collection.get_colors()[0, :3].tolist() for collection in axes.collections)
    assert first != second


@pytest.mark.parametrize("query", [None, 1])
def test_everything_lies_inside_the_figure(query):
    figure = attention_lines_figure(
        SCORES, SOURCE, TARGET, query=query, title="Cross-attention, layer 3 of 4", note="synthetic"
    )
    figure_to_array(figure)
    width, height = figure.get_size_inches() * figure.dpi
    (axes,) = figure.axes
    boxes = [item.get_window_extent() for item in [*figure.texts, *axes.texts, axes.get_legend()]]
    for box in boxes:
        assert 0 <= box.x0 and box.x1 <= width and 0 <= box.y0 and box.y1 <= height


@pytest.mark.parametrize("query", [4, -1, []])
def test_wrong_query(query):
    with pytest.raises(ValueError, match="`query` must be indices from 0 to 3"):
        attention_lines_figure(SCORES, SOURCE, TARGET, query=query)


def test_wrong_tokens():
    with pytest.raises(ValueError, match="`source_tokens` must be 5 tokens"):
        attention_lines_figure(SCORES, TARGET, SOURCE)
