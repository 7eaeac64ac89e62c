"""Words of pieces, by the marks of the three tokenizers."""

import pytest

from keras_attention_viewer import describe_tokens, split_words
from keras_attention_viewer.tokens import word_count, word_text

pytestmark = pytest.mark.backends("torch")


def words(pieces, special=()):
    return [token["word"] for token in describe_tokens(pieces, special)]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["▁Wasch", "bär", "en", "▁schlaf", "en", "."], [0, 0, 0, 1, 1, 2]),
        (["Wasch", "##bär", "##en", "schlafen", "."], [0, 0, 0, 1, 2]),
        (["Wasch@@", "bär@@", "en", "schlafen", "."], [0, 0, 0, 1, 2]),
        (["plain", "words", "here"], [0, 1, 2]),
        (["▁(", "see", "▁3", ".", "5", "▁well", "-", "known", ").", '"'], [0, 1, 2, 2, 2, 3, 3, 3, 4, 4]),
        (["▁", "Hund"], [0, 0]),
        (["▁", "«", "Hund", "»", "▁", "da", "▁", "!"], [0, 0, 1, 2, 3, 3, 4, 4]),
    ],
)  # fmt: skip
def test_words_of_pieces(pieces, expected):
    assert words(pieces) == expected


def test_special_tokens_have_no_word_and_part_words():
    assert words(["<start>", "▁ein", "▁Hund"], special=[0]) == [None, 0, 1]
    assert words(["▁ein", "</s>"], special=[1]) == [0, None]
    assert [token["special"] for token in describe_tokens(["▁ein", "</s>"], [1])] == [False, True]


def test_pieces_and_text_have_the_same_words():
    text = 'He said: "Well-known (since 3.5)!", didn\'t he?'
    pieces = '▁He ▁said : ▁ " Well - known ▁( since ▁3 .5 ) !", ▁didn \' t ▁he ?'.split()
    assert "".join(pieces).replace("▁", " ").strip() == text
    tokens = describe_tokens(pieces)
    assert split_words(text) == [
        "He", "said", ":", '"', "Well-known", "(", "since", "3.5", ')!",', "didn't", "he", "?",
    ]  # fmt: skip
    assert word_count(tokens) == 12
    assert [word_text(tokens[i : i + 1]) for i, t in enumerate(tokens) if t["punctuation"]] == [
        ":", "", '"', "-", "(", ")", '!",', "'", "?",
    ]  # fmt: skip


def test_ranks_are_one_for_each_token():
    assert [t["rank"] for t in describe_tokens(["a", "b"], ranks=[7, None])] == [7, None]
    with pytest.raises(ValueError, match="a rank for each of 2 tokens.*1 ranks"):
        describe_tokens(["a", "b"], ranks=[7])
