"""Word merging and alignment error rates, against values worked out by hand."""

import numpy as np
import pytest

from keras_attention_viewer import alignment_error_rate, measured, merge_words
from tests.viewer.entries import SOURCE, sentence_entry

pytestmark = pytest.mark.backends("torch")

# Words: the old dogs sleep . | alte Hunde schlafen .
GOLD = [(1, 0), (2, 1), (3, 2), (4, 3)]


def rows_at(columns):
    """A head (1, T, S) that attends to one column in each row."""
    return np.eye(len(SOURCE))[list(columns)][None]


@pytest.mark.parametrize(
    ("found", "sure", "possible", "expected"),
    [
        ({(0, 0), (1, 1)}, {(0, 0), (1, 1)}, None, 0.0),
        ({(0, 1), (1, 0)}, {(0, 0), (1, 1)}, None, 1.0),
        # |A & S| = 1, |A & P| = 2, |A| = 3, |S| = 2: 1 - 3/5
        ({(0, 0), (1, 1), (2, 0)}, {(0, 0), (2, 2)}, {(1, 1)}, 0.4),
        (set(), set(), None, None),
    ],
)
def test_alignment_error_rate_by_hand(found, sure, possible, expected):
    rate = alignment_error_rate(found, sure, possible)
    assert rate == expected if expected is None else abs(rate - expected) < 1e-12


def test_words_sum_their_columns_and_average_their_rows():
    entry = sentence_entry({"cross": [np.full((1, 5, 7), 1 / 7)]})
    tokens = entry.header["tokens"]
    rng = np.random.default_rng(6)
    weights = rng.dirichlet(np.ones(7), size=(2, 7))
    words = merge_words(weights, tokens["source"], tokens["source"])
    assert words.shape == (2, 6, 6)  # "▁dog" and "s" are one word
    expected = (weights[1, 2, 2] + weights[1, 2, 3] + weights[1, 3, 2] + weights[1, 3, 3]) / 2
    np.testing.assert_allclose(words[1, 2, 2], expected, rtol=1e-6)
    np.testing.assert_allclose(words.sum(-1), 1, rtol=1e-6)


def aer(head, gold=GOLD):
    entry = measured([sentence_entry({"cross": [head]}, alignment=gold)])[0]
    return entry.header["measures"]["cross"][0][0]


def test_a_perfect_head_by_the_word_predicted_and_by_the_word_read():
    # Rows read: start alte Hunde schlafen . ; they predict: alte Hunde schlafen . end
    predicted = aer(rows_at([1, 3, 4, 5, 6]))
    assert (predicted["aer"], predicted["aer_row"]) == (0.0, "predicted")
    read = aer(rows_at([0, 1, 2, 4, 5]))
    assert (read["aer"], read["aer_row"]) == (0.0, "read")


def test_error_rates_of_content_words_by_hand():
    # predicted: alte -> the, Hunde -> dogs, schlafen -> sleep. A = 3 links, S = 3, 2 right: 1 - 4/6.
    # read: alte -> dogs, Hunde -> sleep, schlafen -> (best content word of the row on "."): 0 right.
    head = rows_at([0, 2, 4, 5, 6])
    head[0, 3, 4] = 0.2  # the row on "." has "sleep" as its best content word; read as "schlafen"
    head[0, 3, 5] = 0.8
    result = aer(head)
    # read: alte -> row 1 -> dogs (wrong), Hunde -> row 2 -> sleep (wrong), schlafen -> row 3 -> sleep.
    assert result["aer"] == pytest.approx(1 / 3, abs=1e-4)
    assert result["aer_row"] == "predicted"


def test_links_of_several_sentences_are_counted_together():
    right = sentence_entry({"cross": [rows_at([1, 2, 4, 5, 6])]}, alignment=GOLD)
    wrong = sentence_entry({"cross": [rows_at([0, 0, 0, 0, 0])]}, alignment=GOLD)
    without = sentence_entry({"cross": [rows_at([1, 2, 4, 5, 6])]})
    entry = measured([right, wrong, without])[1]
    # 6 links found, 6 true, 3 right: 1 - 6/12
    assert entry.header["measures"]["cross"][0][0]["aer"] == 0.5
    assert entry.header["gold"] is True


def test_the_mark_stands_on_the_head_with_the_lowest_rate():
    heads = [rows_at(c) for c in ([0, 1, 2, 3, 4], [6] * 5, [1, 2, 4, 5, 6])]
    layers = [np.concatenate(heads[:2]), np.concatenate([heads[1], heads[2]])]
    header = measured([sentence_entry({"cross": layers}, alignment=GOLD)])[0].header
    marks = [
        [h.get("best_alignment", False) for h in layer] for layer in header["measures"]["cross"]
    ]
    assert marks == [[False, False], [False, True]]
    assert header["alignment_rows"] == "predicted"


def test_without_gold_a_head_that_covers_the_sentence_is_taken():
    stuck, aligning = rows_at([4, 4, 4, 4, 4]), rows_at([1, 2, 4, 5, 6])
    header = measured([sentence_entry({"cross": [np.concatenate([stuck, aligning])]})])[0].header
    first, second = header["measures"]["cross"][0]
    assert "best_alignment" not in first and second["best_alignment"] is True
    # stuck: confidence 1, one of 3 content words covered; aligning: all three
    assert first["alignment_score"] == pytest.approx(1 / 3, abs=1e-4)
    assert second["alignment_score"] == 1.0
    assert "aer" not in second and header["gold"] is False
    assert header["alignment_rows"] == "predicted"  # the full stop is predicted in the row on it


def test_a_text_that_is_one_word_tells_nothing_of_alignment():
    """Chinese has no spaces: every head would be right."""
    source, target = ["▁我", "喜", "欢", "</s>"], ["▁我", "们", "</s>"]
    cross = {"cross": [np.full((1, 3, 4), 0.25)]}
    header = measured([sentence_entry(cross, source, target)])[0].header
    assert header["measures"]["cross"][0][0]["alignment_score"] == 0
