"""Filters: which pairs go, how many the report says, and what stays the same on each pass."""

import json

import numpy as np
import pytest

from keras_attention import Corpus, ParallelText, TokenStore
from keras_attention.data import FilteredText, Filters
from keras_attention.data.filters import describe
from tests.data.counting_text import NumberTokenizer

pytestmark = pytest.mark.backends("tensorflow")

PAIRS = [
    ("3 4 5", "6 7"),
    ("", "8"),
    ("9 9 9 9 9", "9 9 9 9"),  # over-long for 4 words
    ("3 4 5", "6 7"),  # a duplicate
    ("8", "9 10 11"),  # three words for one
    ("5", " \t"),
    ("3 4 5", "6 8"),
    ("8", "9 10"),
    ("8", "9 10"),  # a duplicate
    ("", ""),  # empty, though a duplicate of nothing that stays
]
ALL = Filters(max_words=4, max_ratio=2, drop_duplicates=True)


class CountedPasses(ParallelText):
    passes = 0

    def __iter__(self):
        self.passes += 1
        return super().__iter__()


def text(pairs=PAIRS):
    return CountedPasses("numbers", pairs)


@pytest.mark.parametrize(
    "filters, kept, removed",
    [
        (Filters(), [0, 2, 3, 4, 6, 7, 8], (3, 0, 0, 0)),
        (Filters(max_words=4), [0, 3, 4, 6, 7, 8], (3, 1, 0, 0)),
        (Filters(max_ratio=2), [0, 2, 3, 6, 7, 8], (3, 0, 1, 0)),
        (Filters(max_ratio=1.4), [2], (3, 0, 6, 0)),
        (Filters(drop_duplicates=True), [0, 2, 4, 6, 7], (3, 0, 0, 2)),
        (ALL, [0, 6, 7], (3, 1, 1, 2)),
    ],
)
def test_each_rule(filters, kept, removed):
    filtered = FilteredText(text(), filters)
    assert list(filtered) == [PAIRS[i] for i in kept]
    assert len(filtered) == len(kept)
    empty, over_long, length_ratio, duplicate = removed
    assert json.loads(json.dumps(filtered.report())) == {
        "read": 10, "kept": len(kept), "empty": empty, "over_long": over_long,
        "length_ratio": length_ratio, "duplicate": duplicate,
    }  # fmt: skip


def test_the_text_is_read_once_to_judge_and_once_a_pass():
    source = text()
    filtered = FilteredText(source, ALL)
    assert source.passes == 0
    assert (len(filtered), len(filtered.fingerprint()), filtered.report()["kept"]) == (3, 64, 3)
    assert source.passes == 1
    assert list(filtered) == list(filtered) and source.passes == 3


def test_the_fingerprint_tells_text_and_filters_apart():
    texts = [text(), text([*PAIRS[:-1], ("", "x")])]
    filters = [Filters(), Filters(max_words=4), Filters(max_ratio=4.0), ALL]
    prints = [FilteredText(t, f).fingerprint() for t in texts for f in filters]
    assert len({*prints, text().fingerprint()}) == 9
    assert FilteredText(text(), ALL).fingerprint() == prints[3]


def test_random_duplicates_against_a_dictionary():
    random = np.random.default_rng(5)
    pairs = [(f"{a}", f"{b}") for a, b in random.integers(0, 30, (2000, 2))]
    filtered = FilteredText(text(pairs), Filters(drop_duplicates=True))
    assert list(filtered) == list(dict.fromkeys(pairs))


def test_in_a_token_store(tmp_path):
    filtered = FilteredText(text(), ALL)
    store = TokenStore.build(tmp_path, filtered, NumberTokenizer())
    assert [store.target(i).tolist() for i in range(len(store))] == [
        [6, 7, 1],
        [6, 8, 1],
        [9, 10, 1],
    ]
    assert store.metadata["text_fingerprint"] == filtered.fingerprint()
    assert store.metadata["dropped_empty"] == 0


def test_a_corpus_takes_filters_for_training_alone():
    corpus = Corpus("c", "en", "de", False, "", text(), text(), text())
    filtered = corpus.filtered(ALL)
    assert [len(part) for part in filtered.splits.values()] == [3, 10, 10]
    assert corpus.filtered(None) is corpus and len(corpus.train) == 10
    # Other filters take the place of the first ones, and report on the whole text.
    assert filtered.filtered(Filters(max_words=4)).train.report() == {
        "read": 10, "kept": 6, "empty": 3, "over_long": 1, "length_ratio": 0, "duplicate": 0,
    }  # fmt: skip


def test_nothing_left():
    with pytest.raises(
        ValueError, match="No pair of 'numbers' is left: 2 pairs read, 0 kept.*1 empty"
    ):
        len(FilteredText(text([("a b", "c"), ("", "d")]), Filters(max_words=1)))
    assert describe(FilteredText(text(), ALL).report()) == (
        "10 pairs read, 3 kept (30.0%); left out: 3 empty, 1 over-long, 1 length ratio, 2 duplicate"
    )


def test_a_tag_is_no_word():
    pairs = [("<2de> <bt> one two", "eins zwei"), ("<2de> one two three", "eins zwei drei")]
    filtered = FilteredText(text(pairs), Filters(max_words=2, max_ratio=1))
    assert list(filtered) == pairs[:1]
