"""One synthetic head for each label, and one without; numbers worked out by hand."""

import numpy as np
import pytest

from keras_attention_viewer import measured
from tests.viewer.entries import random_entry, sentence_entry

pytestmark = pytest.mark.backends("torch")

LENGTH = 21  # source tokens; every seventh is a comma, the last is the end
SENTENCES = 6


def source_tokens():
    return ["</s>" if i == LENGTH - 1 else "▁," if i % 7 == 6 else f"▁w{i}" for i in range(LENGTH)]


def at(columns):
    """One head that attends to one column in each row."""
    return np.eye(LENGTH)[np.asarray(columns)]


def spread(width):
    """Equal weights on `width` columns that have nothing to do with the row."""
    weights = np.zeros((LENGTH, LENGTH))
    for row in range(LENGTH):
        weights[row, [(5 * row + 3 * i + 8) % LENGTH for i in range(width)]] = 1 / width
    return weights


ROWS = np.arange(LENGTH)
COMMAS = np.array([6, 13])
NEAR = np.clip(ROWS + np.where(ROWS % 2, 1, -1), 0, LENGTH - 1)  # beside the row, left and right
HEADS = {
    "sink": at(np.full(LENGTH, LENGTH - 1)),
    "punctuation": at(COMMAS[ROWS % 2]),
    "previous token": at(np.maximum(ROWS - 1, 0)),
    "next token": at(np.minimum(ROWS + 1, LENGTH - 1)),
    "itself": at(ROWS),
    "diagonal": at(NEAR),
    "rare words": at(np.full(LENGTH, 3)),
    "broad": np.full((LENGTH, LENGTH), 1 / LENGTH),
    None: spread(4),
}


def header_of(kind, heads, sentences=SENTENCES, **options):
    weights = np.stack(heads)
    ranks = [900 if i == 3 else i for i in range(LENGTH)]
    entry = sentence_entry(
        {kind: [weights]}, source_tokens(), source_tokens(), ranks=ranks, **options
    )
    return measured([entry], [entry] * (sentences - 1))[0].header


@pytest.mark.parametrize("label", HEADS)
def test_a_head_gets_its_label_and_no_other(label):
    head = header_of("encoder", [HEADS[label]])["measures"]["encoder"][0][0]
    assert head["rows"] == SENTENCES * LENGTH
    assert head["labels"] == ([] if label is None else [label])


def test_the_aligning_head_is_labelled_in_cross_attention():
    words = [i for i in range(LENGTH - 1) if i % 7 != 6]
    backwards = {word: words[-1 - i] for i, word in enumerate(words)}
    gold = [(backwards[i], i) for i in words]  # each token is a word
    aligning = at([backwards.get(i, LENGTH - 1) for i in ROWS])
    heads = [HEADS[None], aligning, HEADS["broad"]]
    first, second, third = header_of("cross", heads, alignment=gold)["measures"]["cross"][0]
    assert (second["labels"], second["aer"]) == (["alignment"], 0.0)
    assert first["labels"] == []
    assert third["labels"] == ["broad"]
    assert not {"previous", "next", "self"} & set(second)


def test_few_rows_give_numbers_and_no_label():
    head = header_of("encoder", [HEADS["itself"]], sentences=4)["measures"]["encoder"][0][0]
    assert (head["rows"], head["self"], head["labels"]) == (84, 1.0, [])


def test_numbers_of_a_head_by_hand():
    source = ["▁a", "▁b", "▁,", "</s>"]
    weights = np.array(
        [[0.1, 0.6, 0.3, 0.0], [0.5, 0.5, 0.0, 0.0], [0.0, 0.2, 0.0, 0.8], [0.25] * 4]
    )
    entry = sentence_entry({"encoder": [weights[None]]}, source, ["▁x", "</s>"])
    head = measured([entry])[0].header["measures"]["encoder"][0][0]
    entropies = [
        -sum(w * np.log(w) for w in row if w) / np.log(4)
        for row in ([0.1, 0.6, 0.3], [0.5, 0.5], [0.2, 0.8], [0.25] * 4)
    ]
    expected = {
        "rows": 4,
        "confidence": (0.6 + 0.5 + 0.2 + 0.25) / 4,
        "sink": (0.0 + 0.0 + 0.8 + 0.25) / 4,
        "punctuation": (0.3 + 0.0 + 0.0 + 0.25) / 4,
        # |t - s|: 0.6 + 2 * 0.3, 0.5, 0.2 + 0.8, (3 + 2 + 1) / 4
        "distance": (1.2 + 0.5 + 1.0 + 1.5) / 4,
        "diagonal": (0.1 + 0.5 + 0.0 + 0.25) / 4,
        "entropy": np.mean(entropies),
        # largest weights: b; a (the first of two equal ones); </s>; a
        "previous": 1 / 3,
        "next": 2 / 3,
        "self": 0.0,
    }
    for name, value in expected.items():
        assert head[name] == pytest.approx(value, abs=1e-4), name
    assert "rare" not in head  # no ranks are known


def test_a_decoder_row_that_sees_only_itself_does_not_count():
    weights = np.array([[1.0, 0, 0], [0.4, 0.6, 0], [0.1, 0.2, 0.7]])
    entry = sentence_entry({"decoder": [weights[None]]}, ["▁a", "</s>"], ["▁x", "▁y", "</s>"])
    head = measured([entry])[0].header["measures"]["decoder"][0][0]
    assert head["rows"] == 2
    assert head["self"] == 1.0
    assert head["sink"] == pytest.approx((0.4 + 0.1) / 2, abs=1e-4)  # the start token
    assert head["confidence"] == pytest.approx((0.6 + 0.7) / 2, abs=1e-4)
    assert "next" not in head


def test_distance_in_cross_attention_is_in_proportion():
    # Two rows over six columns: the middle of row 0 is column 1, that of row 1 is column 4.
    entry = sentence_entry(
        {"cross": [np.eye(6)[[1, 4]][None]]}, ["▁a", "▁b", "▁c", "▁d", "▁e", "</s>"], ["▁x", "</s>"]
    )
    head = measured([entry])[0].header["measures"]["cross"][0][0]
    assert (head["distance"], head["diagonal"]) == (0.0, 1.0)


def test_measures_have_the_shape_of_the_model_and_rest_on_all_sentences():
    rng = np.random.default_rng(7)
    entries = [random_entry(rng, layers=2, heads=3) for _ in range(3)]
    results = measured(entries[:2], entries[2:])
    assert len(results) == 2
    assert results[0].header["measures"] == results[1].header["measures"]
    for layers in results[0].header["measures"].values():
        assert [len(layer) for layer in layers] == [3, 3]
    assert results[0].header["measures"]["encoder"][1][2]["rows"] == 3 * 7
    assert entries[0].header["measures"] is None  # the given ones are as they were


def test_entries_of_several_models_are_refused():
    rng = np.random.default_rng(8)
    with pytest.raises(ValueError, match="several sizes"):
        measured([random_entry(rng, heads=2), random_entry(rng, heads=3)])
    with pytest.raises(ValueError, match="at least one"):
        measured([])
