"""Heat maps, read back from the artists of the figure. N=3 heads, T=4 rows, S=6 columns."""

import io
import itertools
import warnings

import keras
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from keras_attention.visualization import attention_figure, attention_figures, figures

pytestmark = pytest.mark.backends("tensorflow")

SOURCE = ["the", "law", "will", "never", "end", "</s>"]
TARGET = ["das", "Gesetz", "endet", "</s>"]


def attention(*shape, seed=0):
    """Random rows that sum to 1, as after a softmax."""
    return np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), size=shape[:-1])


def pixels_of(figure):
    """What is drawn: red, green, blue, opacity (height, width, 4)."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def panels(figure):
    return [axes for axes in figure.axes if axes.get_title().startswith("head")]


def labels(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def test_each_panel_shows_its_head():
    scores = attention(3, 4, 6)
    figure = attention_figure(scores, SOURCE, TARGET, title="Cross-attention, layer 2 of 5")
    assert [axes.get_title() for axes in panels(figure)] == ["head 1", "head 2", "head 3"]
    for head, axes in enumerate(panels(figure)):
        (image,) = axes.images
        np.testing.assert_allclose(image.get_array(), scores[head], rtol=1e-6)
        assert image.get_clim() == (0, 1)
        assert image.origin == "upper"
        assert labels(axes.xaxis) == SOURCE
        assert labels(axes.yaxis) == TARGET
        assert list(axes.get_xticks()) == list(range(6))
        assert list(axes.get_yticks()) == list(range(4))
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("attends to", "from")
    assert [text.get_text() for text in figure.texts] == ["Cross-attention, layer 2 of 5"]


def test_darker_means_more_and_the_first_row_is_on_top():
    """One weight of 1, at row 0 and column 2: in the pixels, a dark spot on the upper right."""
    scores = np.zeros((1, 4, 3))
    scores[0, 0, 2] = 1
    figure = attention_figure(scores, ["a", "b", "c"], TARGET)
    pixels = pixels_of(figure)
    box = panels(figure)[0].get_window_extent()
    top = len(pixels) - box.y1

    def shade(row, column):
        y = int(top + box.height * (row + 0.5) / 4)
        x = int(box.x0 + box.width * (column + 0.5) / 3)
        return int(pixels[y, x, :3].sum())

    dark = shade(0, 2)
    assert all(
        shade(row, column) > 2 * dark
        for row, column in itertools.product(range(4), range(3))
        if (row, column) != (0, 2)
    )


def test_chosen_heads_in_their_order():
    scores = attention(5, 4, 6)
    figure = attention_figure(scores, SOURCE, TARGET, heads=[4, 1])
    assert [axes.get_title() for axes in panels(figure)] == ["head 5", "head 2"]
    for axes, head in zip(panels(figure), [4, 1], strict=True):
        np.testing.assert_allclose(axes.images[0].get_array(), scores[head], rtol=1e-6)


def test_self_attention_names_rows_like_columns():
    figure = attention_figure(attention(1, 6, 6), SOURCE)
    assert labels(panels(figure)[0].yaxis) == SOURCE


@pytest.mark.parametrize("columns, expected", [(1, [1] * 5), (2, [2, 2, 1]), (9, [5])])
def test_grid(columns, expected):
    """Panels that share a row have the same lower edge."""
    figure = attention_figure(attention(5, 4, 6), SOURCE, TARGET, columns=columns)
    edges = [round(axes.get_position().y0, 6) for axes in panels(figure)]
    assert [len(list(group)) for _, group in itertools.groupby(edges)] == expected
    assert edges == sorted(edges, reverse=True)


@pytest.mark.parametrize("note", ["", "synthetic data"])
def test_no_blank_band_lies_under_the_panels(note):
    pixels = pixels_of(attention_figure(attention(3, 4, 6), SOURCE, TARGET, note=note))
    marked = np.flatnonzero((pixels[..., :3] < 250).any((1, 2)))
    band = len(pixels) - 1 - marked[-1]
    gaps = np.diff(marked) - 1
    assert max(band, *gaps) < 0.4 * 100  # pixels: 100 are an inch
    assert band < len(pixels) / 10


def test_tensors_of_the_backend_in_low_precision():
    scores = attention(3, 4, 6)
    figure = attention_figure(keras.ops.convert_to_tensor(scores, "bfloat16"), SOURCE, TARGET)
    np.testing.assert_allclose(panels(figure)[2].images[0].get_array(), scores[2], atol=4e-3)


def test_tokens_are_shown_as_they_are():
    """Dollars and backslashes are no formulas, and drawing them does not fail."""
    tokens = ["$x^2$", "\\frac", "$", "_a_", "{", "</s>"]
    figure = attention_figure(attention(1, 6, 6), tokens, title="cost: $5 to $7", note="$1$")
    axes = panels(figure)[0]
    ticks = [*axes.xaxis.get_ticklabels(), *axes.yaxis.get_ticklabels()]
    assert [text.get_text() for text in ticks] == tokens * 2
    assert not any(text.get_parse_math() for text in [*ticks, *figure.texts])
    assert pixels_of(figure).shape[2] == 4


@pytest.mark.parametrize("count, heads", [(2, 1), (27, 3)])
def test_no_text_touches_another_or_leaves_the_figure(count, heads):
    words = ["registration", "a", "governments", "Donaudampfschifffahrt", "</s>"]
    tokens = list(itertools.islice(itertools.cycle(words), count))
    title = "Encoder self-attention, layer 5 of 6"
    figure = attention_figure(
        attention(heads, count, count), tokens, columns=2, title=title, note="synthetic data"
    )
    figure.draw_without_rendering()  # places the texts
    texts = list(figure.texts)
    for axes in figure.axes:
        texts += [axes.title, axes.xaxis.label, axes.yaxis.label]
        texts += [*axes.xaxis.get_ticklabels(), *axes.yaxis.get_ticklabels()]
    boxes = [text.get_window_extent() for text in texts if text.get_text() and text.get_visible()]
    assert len(boxes) >= heads * (2 * count + 3) + 2
    width, height = figure.get_size_inches() * figure.dpi
    for box in boxes:
        assert 0 <= box.x0 and box.x1 <= width and 0 <= box.y0 and box.y1 <= height
    for one, other in itertools.combinations(boxes, 2):
        overlap_x = min(one.x1, other.x1) - max(one.x0, other.x0)
        overlap_y = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert overlap_x <= 1 or overlap_y <= 1


def test_no_global_state():
    import matplotlib.pyplot as plt

    attention_figure(attention(1, 6, 6), SOURCE)
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    "scores, source, target, message",
    [
        (attention(2, 3, 4, 6), SOURCE, TARGET, r"\(2, 3, 4, 6\).*scores\[0\]"),
        (attention(4, 6), SOURCE, TARGET, r"shape \(4, 6\)"),
        (np.zeros((3, 0, 6)), SOURCE, [], r"no axis of size 0"),
        (attention(3, 4, 6), SOURCE[:-1], TARGET, r"`source_tokens` must be 6 tokens"),
        (attention(3, 4, 6), TARGET, SOURCE, r"`source_tokens` must be 6 tokens"),
        (attention(3, 4, 6), SOURCE, TARGET + ["<pad>"], r"`target_tokens` must be 4 tokens"),
        (attention(3, 4, 6) - 0.5, SOURCE, TARGET, r"from 0 to 1"),
    ],
)
def test_wrong_scores_and_tokens(scores, source, target, message):
    with pytest.raises(ValueError, match=message):
        attention_figure(scores, source, target)


def test_figures_of_a_model():
    """Rows of the decoder's self-attention bear its input, those of cross-attention its output."""
    scores = {
        "encoder": [attention(1, 3, 6, 6, seed=s) for s in (1, 2)],
        "decoder": [attention(1, 3, 4, 4, seed=s) for s in (3, 4)],
        "cross": [attention(1, 3, 4, 6, seed=s) for s in (5, 6)],
    }
    figures = attention_figures(scores, SOURCE, TARGET, note="synthetic data")
    inputs = ["<start>", "das", "Gesetz", "endet"]
    expected = {
        "encoder": ("Encoder self-attention", SOURCE, SOURCE),
        "decoder": ("Decoder self-attention", inputs, inputs),
        "cross": ("Cross-attention", SOURCE, TARGET),
    }
    assert list(figures) == [f"{kind}/layer_{layer}" for kind in scores for layer in (1, 2)]
    for kind, (name, columns, rows) in expected.items():
        for layer in (1, 2):
            figure = figures[f"{kind}/layer_{layer}"]
            title, note = (text.get_text() for text in figure.texts)
            assert (title, note) == (f"{name}, layer {layer} of 2", "synthetic data")
            for head, axes in enumerate(panels(figure)):
                drawn = axes.images[0].get_array()
                np.testing.assert_allclose(drawn, scores[kind][layer - 1][0, head], rtol=1e-6)
                assert labels(axes.xaxis) == columns
                assert labels(axes.yaxis) == rows


def test_figures_of_a_model_want_one_sentence_and_known_kinds():
    with pytest.raises(ValueError, match=r"\(2, 3, 4, 6\) in layer 1 of 'cross'"):
        attention_figures({"cross": [attention(2, 3, 4, 6)]}, SOURCE, TARGET)
    with pytest.raises(ValueError, match=r"Received: \['other'\]"):
        attention_figures({"other": [attention(1, 3, 4, 6)]}, SOURCE, TARGET)


def test_letters_come_from_an_installed_font_that_has_them(monkeypatch):
    # DejaVu, matplotlib's own, has no U+1D81; STIX, which comes along, has it.
    monkeypatch.setattr(figures, "MORE_LETTERS", ("No such font", "STIXGeneral"))
    figure = attention_figure(np.full((1, 2, 3), 1 / 3), ["ein", "\u1d81", "Hund"], ["a", "dog"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pixels_of(figure)
    monkeypatch.setattr(figures, "MORE_LETTERS", ())
    alone = attention_figure(np.full((1, 2, 3), 1 / 3), ["ein", "\u1d81", "Hund"], ["a", "dog"])
    with pytest.warns(UserWarning, match="missing from font"):
        pixels_of(alone)


def test_a_row_label_with_dollars_is_no_formula():
    figure = attention_figure(np.full((1, 2, 3), 0.3), ["a", "b", "c"], ["$$", "e"], row_label="$$")
    figure.savefig(io.BytesIO())


def test_axes_are_where_they_were_asked_for():
    canvas = figures.Canvas(4, 3)
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
    figure = figures.Canvas(400, 3).figure
    assert figure.get_figwidth() * figure.dpi == pytest.approx(figures.MOST_PIXELS)
    assert figures.Canvas(4, 3).figure.dpi == 100


@pytest.mark.parametrize(
    "token, expected",
    [
        ("▁Haus", "▁Haus"),
        ("</s>", "</s>"),
        ("a\nb", "a\N{OPEN BOX}b"),
        ("x" * figures.LONGEST_LABEL, "x" * figures.LONGEST_LABEL),
        ("x" * (figures.LONGEST_LABEL + 1), "x" * (figures.LONGEST_LABEL - 1) + "…"),
    ],
)
def test_label(token, expected):
    assert figures.label(token) == expected


def test_text_width_is_what_is_drawn():
    canvas = figures.Canvas(5, 1)
    text = canvas.figure.text(0, 0.5, "Aufmerksamkeit", fontsize=9)
    drawn = text.get_window_extent().width / 100
    assert figures.text_width("Aufmerksamkeit", 9) == pytest.approx(drawn, rel=0.1)
