"""The paper's Figures 3 and 4 from their weights, as the viewer saves them."""

import numpy as np
import pytest

from tests.viewer.heads import entry
from tests.viewer.looks import saved, saved_svg, svg_lines
from tests.visualization.test_paper_lines import COLORS as SMALL
from tests.visualization.test_paper_lines import FIGURE_3, FIGURE_4

pytestmark = pytest.mark.backends("torch")

COLORS = [color.upper() for color in SMALL]
# Points, measured in the paper's figures.
PITCH, GAP, WORD = 11.27, 75.1, 60.08
MAKING = (
    "It is in this spirit that a majority of American governments have passed new laws since 2009 "
    "making the registration or voting process more difficult . <EOS>"
).split()
LAW = (
    "The Law will never be perfect , but its application should be just - this is what we are missing "
    ", in my opinion . <EOS>"
).split()


def figure_entry(words, asking, weights):
    """Layer 5 of 6 with the weights of one word's row, all else 0; the target does not matter."""
    heads = np.zeros((8, len(words), len(words)))
    for head, word, weight in weights:
        heads[head - 1, words.index(asking), words.index(word)] = weight
    layers = [np.zeros_like(heads)] * 4 + [heads, np.zeros_like(heads)]
    return entry({"encoder": layers}, source=words)


@pytest.mark.parametrize(
    "words, asking, weights",
    [(MAKING, "making", FIGURE_3), (LAW, "its", FIGURE_4)],
    ids=["Figure 3", "Figure 4, bottom"],
)
def test_a_figure_of_the_paper(visits, words, asking, weights):
    """What a single word reads, head by head: Figure 3, and the lower half of Figure 4."""
    heads = sorted({head for head, *_ in weights})
    query = words.index(asking)
    state = f"kind=encoder&layer=5&heads={','.join(map(str, heads))}&word=r{query}&turned=1"
    svg = saved_svg(visits.show([figure_entry(words, asking, weights)], state))

    reads = sorted((head, words.index(word), round(255 * w) / 255) for head, word, w in weights)
    middle = (query + 0.5) * PITCH
    expected = [
        (middle, WORD, (word + 0.5) * PITCH, WORD + GAP, COLORS[head - 1], opacity, 1.5)
        for head, word, opacity in reads
        if opacity >= 4 / 255
    ]
    lines = svg_lines(svg)
    assert [line[4] for line in lines] == [line[4] for line in expected]
    numbers = [[*line[:4], *line[5:]] for line in lines]
    np.testing.assert_allclose(numbers, [[*line[:4], *line[5:]] for line in expected], atol=1e-4)

    boxes = [box for box in svg.iter("rect") if box.get("class") == "box"]
    slot = {head: order for order, head in enumerate(heads)}
    size = WORD / len(heads)
    for box, (head, word, opacity) in zip(boxes, reads, strict=True):
        assert box.get("fill") == COLORS[head - 1]
        found = [float(box.get(key)) for key in ("x", "y", "width", "height", "fill-opacity")]
        place = [word * PITCH, WORD + GAP + slot[head] * size, PITCH, size, opacity]
        np.testing.assert_allclose(found, place, atol=1e-4)
    [grey] = [box for box in svg.iter("rect") if box.get("class") == "query"]
    found = [float(grey.get(key)) for key in ("x", "y", "width", "height")]
    np.testing.assert_allclose(found, [query * PITCH, 0, PITCH, WORD], atol=1e-4)
    assert grey.get("fill") == "#D3D3D3"
    assert [text.text for text in svg.iter("text")] == [*words, *words]
    groups = [group.get("class") for group in svg.iter("g")]
    assert groups == ["boxes", "lines", "words"]  # boxes lie behind the words


def test_lines_of_all_words_share_their_opacity_and_the_faint_are_left_out(visits):
    """Two heads, no word chosen: opacity = weight / 2; below 4/255 there is no line, and no box at all."""
    weights = np.zeros((2, 3, 3))
    weights[0] = np.eye(3) * 0.8
    weights[1, 0] = [0.0275, 0.035, 0.9]  # 3.5/255, 4.5/255 and 115/255 when they are halved
    made = entry({"encoder": [weights]}, source=["one", "two", "three"])
    page = visits.show([made], "heads=1,2&layer=1")
    svg = saved_svg(page)
    assert not [box for box in svg.iter("rect") if box.get("class") in ("box", "query")]
    left, right = WORD, WORD + GAP  # asking words at the left, where the picture is not turned
    found = svg_lines(svg)
    assert [line[4] for line in found] == [COLORS[0]] * 3 + [COLORS[1]] * 3
    places = [
        [left, (t + 0.5) * PITCH, right, (s + 0.5) * PITCH]
        for t, s in [(0, 0), (1, 1), (2, 2), (0, 0), (0, 1), (0, 2)]
    ]
    np.testing.assert_allclose([line[:4] for line in found], places, atol=1e-4)
    opacities = np.array([102, 102, 102, 4, 4, 115]) / 255
    np.testing.assert_allclose([line[5] for line in found], opacities, atol=1e-4)


def test_matrix_as_svg_and_png(visits):
    weights = np.array([[[0.25, 0.75, 0], [0, 1, 0], [0.5, 0, 0.5]]])
    made = entry({"encoder": [weights]}, source=["one", "two", "<b>&"])
    page = visits.show([made], "view=matrix")
    svg = saved_svg(page)
    cells = [rect for rect in svg.iter("rect") if rect.get("class") != "paper"]
    assert len(cells) == 5  # zeros are paper
    opacities = [float(rect.get("fill-opacity")) for rect in cells]
    np.testing.assert_allclose(opacities, [64 / 255, 191 / 255, 1, 128 / 255, 128 / 255], atol=1e-4)
    assert {rect.get("fill") for rect in cells} == {COLORS[0]}
    values, words = (
        [text.text for text in group.iter("text")]
        for group in svg.iter("g")
        if group.get("class") in ("values", "words")
    )
    assert values == ["0.25", "0.75", "1.00", "0.50", "0.50"]
    assert words == ["one", "two", "<b>&"] * 2
    png = saved(page, "PNG")
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(png[start : start + 4], "big") for start in (16, 20))
    side = 4 * (WORD + 3 * PITCH)  # four pixels a point
    assert abs(width - side) <= 4 and abs(height - side) <= 4
