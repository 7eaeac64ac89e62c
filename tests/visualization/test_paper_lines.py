"""The paper's style, read back from the artists. N=3 heads, T=4 queries, S=5 attended words."""

import numpy as np
import pytest
from attention_figures import paper_figures
from matplotlib.colors import to_hex

from keras_attention.visualization import paper_attention_figure

pytestmark = pytest.mark.backends("tensorflow")

SOURCE = ["making", "it", "more", "difficult", "</s>"]
TARGET = ["macht", "es", "schwerer", "</s>"]
SCORES = np.random.default_rng(0).dirichlet(np.ones(5), size=(3, 4))
# d3's category10, in the order of heads 1 to 8.
COLORS = "#1F77B4 #FF7F0E #2CA02C #D62728 #9467BD #8C564B #E377C2 #7F7F7F".lower().split()


def places(axes, tokens, row):
    return {
        text.get_position()[0]: text.get_text()
        for text in axes.texts
        if text.get_gid() == f"row {row}"
    }


def drawn_lines(axes, source, target):
    """(colour, asking word, attended word, opacity) of every line, in the order of painting."""
    below, above = places(axes, source, 0), places(axes, target, 1)
    lines = []
    for collection in axes.collections:
        shades = collection.get_colors()
        for (start, end), shade in zip(collection.get_segments(), shades, strict=True):
            assert start[1] - end[1] == pytest.approx(75.1)
            lines.append((to_hex(shade[:3]), above[start[0]], below[end[0]], shade[3]))
        assert (collection.get_linewidths() == 1.5).all()
    return lines


# Written from the published pictures, not from the package's own data.
FIGURE_3 = [
    *[(1, "more", 0.525), (1, "difficult", 0.455)],
    *[(2, "making", 0.067), (2, "more", 0.863), (2, "difficult", 0.063)],
    *[(3, "more", 0.376), (3, "difficult", 0.600)],
    *[(4, "more", 0.161), (4, "difficult", 0.835)],
    *[(5, "making", 0.557), (5, "more", 0.035), (5, "difficult", 0.169), (5, "<EOS>", 0.196)],
    *[(6, "difficult", 0.980)],
    *[(7, "laws", 0.086), (7, "2009", 0.533), (7, "making", 0.145), (7, ".", 0.055)],
    *[(7, "<EOS>", 0.106), (8, "making", 0.020), (8, "more", 0.812), (8, "difficult", 0.161)],
]
FIGURE_4 = [
    *[(5, "Law", 0.914), (5, "application", 0.035)],
    *[(6, "The", 0.020), (6, "Law", 0.412), (6, "application", 0.502)],
]


@pytest.mark.parametrize(
    "name, word, expected, words",
    [("paper_figure_3", "making", FIGURE_3, 27), ("paper_figure_4_its", "its", FIGURE_4, 26)],
)
def test_the_papers_pictures_line_by_line(name, word, expected, words):
    axes = paper_figures()[name].axes[0]
    tokens = [text.get_text() for text in axes.texts if text.get_gid() == "row 0"]
    assert len(tokens) == words and tokens[-1] == "<EOS>"
    lines = drawn_lines(axes, tokens, tokens)
    assert [line[:3] for line in lines] == [(COLORS[h - 1], word, t) for h, t, _ in expected]
    np.testing.assert_allclose(
        [line[3] for line in lines], [w for *_, w in expected], atol=0.5 / 255
    )
    # The word that asks stands in the one grey box; each word has a box of each head's share below.
    grey, *boxes = axes.patches
    assert to_hex(grey.get_facecolor()) == "#d3d3d3"
    heads = len({head for head, *_ in expected})
    assert len(boxes) == heads * words
    assert boxes[0].get_height() == pytest.approx(60.08 / heads)
    assert {round(box.get_width(), 2) for box in axes.patches} == {11.27}


# What some words read most, by a public SVG of the same pictures (of Figure 4: by its lower half).
@pytest.mark.parametrize(
    "name, head, count, most",
    [
        ("paper_figure_4", 5, 117, {"its": "Law"}),
        ("paper_figure_5_1", 3, 136, {"its": "application", "are": "missing", "my": "opinion"}),
        ("paper_figure_5_2", 4, 64, {"its": "application", "will": "be", "is": "what"}),
    ],
)
def test_the_papers_whole_heads(name, head, count, most):
    """The PDF has one line more in each: padding, which reads itself."""
    axes = paper_figures()[name].axes[0]
    tokens = [text.get_text() for text in axes.texts if text.get_gid() == "row 0"]
    assert len(tokens) == 26 and not axes.patches
    lines = drawn_lines(axes, tokens, tokens)
    assert len(lines) == count and {line[0] for line in lines} == {COLORS[head - 1]}
    # What each word reads sums to 1, less the lines that were too faint to be drawn.
    sums, reads = {}, {}
    starts = [start[0] for start, _ in axes.collections[0].get_segments()]
    for place, (_, asking, attended, opacity) in zip(starts, lines, strict=True):
        sums[place] = sums.get(place, 0) + opacity
        reads.setdefault(asking, {})[attended] = opacity
    assert len(sums) == 26 and 0.72 < min(sums.values()) <= max(sums.values()) < 1 + 1e-6
    assert {word: max(reads[word], key=reads[word].get) for word in most} == most
    if head == 5:  # The lower half of Figure 4 shows the same row.
        assert reads["its"] == pytest.approx({w: o for h, w, o in FIGURE_4 if h == 5}, abs=2e-3)


def test_all_words_ask_and_weights_are_shared_by_the_heads():
    axes = paper_attention_figure(SCORES, SOURCE, TARGET, heads=[2, 0]).axes[0]
    lines = drawn_lines(axes, SOURCE, TARGET)
    expected = [
        (COLORS[head], TARGET[t], SOURCE[s], SCORES[head, t, s] / 2)
        for head in (2, 0)
        for t in range(4)
        for s in range(5)
        if round(SCORES[head, t, s] / 2 * 255) >= 4
    ]
    assert 0 < len(expected) < 40  # Some are too faint to be drawn.
    assert [line[:3] for line in lines] == [line[:3] for line in expected]
    np.testing.assert_allclose(
        [line[3] for line in lines], [line[3] for line in expected], atol=0.5 / 255
    )
    assert not axes.patches


def test_text_reads_upwards_and_lies_inside():
    figure = paper_attention_figure(SCORES, SOURCE, TARGET, query=[1, 3])
    figure.draw_without_rendering()
    width, height = figure.get_size_inches() * figure.dpi
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        assert text.get_rotation() == 90
        assert 0 <= box.x0 and box.x1 <= width and 0 <= box.y0 and box.y1 <= height
    boxes = figure.axes[0].patches[2:]
    mean = (SCORES[:, 1] + SCORES[:, 3]) / 2
    opacity = np.array([box.get_facecolor()[3] for box in boxes]).reshape(3, 5)
    np.testing.assert_allclose(opacity, mean, atol=0.5 / 255 + 1e-6)


def test_a_sentence_that_is_too_long_says_how_to_cut_it():
    with pytest.raises(ValueError, match=r"room for 400.*Received: 401 tokens.*tokens\[:400\]"):
        paper_attention_figure(np.zeros((1, 401, 401)), ["a"] * 401)


@pytest.mark.parametrize("query", [4, -1, "a", 1.5, np.array(1), []])
def test_what_is_no_index_is_refused(query):
    with pytest.raises(ValueError, match="`query` must be indices from 0 to 3. Received"):
        paper_attention_figure(SCORES, SOURCE, TARGET, query=query)
