"""Two models in one call: what the first writes, the second reads."""

import dataclasses
import types
import warnings

import pytest

from keras_attention import Translator
from keras_attention.decoding.pretrained import Pivot
from keras_attention.decoding.unusual_texts import UnusualText, UnusualTexts
from tests.decoding.letters import LetterTokenizer, small_model

pytestmark = pytest.mark.backends("torch")


@pytest.fixture(scope="module")
def two():
    made = (
        Translator(small_model(seed=seed), LetterTokenizer(), beam_size=beam, max_extra_length=6)
        for seed, beam in ((11, 2), (13, 3))
    )
    return [
        dataclasses.replace(each, card={"languages": pair})
        for each, pair in zip(made, (["pt-BR", "en"], ["EN_gb", "de"]), strict=True)
    ]


def test_the_second_translates_what_the_first_says(two):
    first, second = two
    pivot, texts = first.then(second), ["abc", "", "fed", "hgab"]
    between = first(texts)
    assert pivot(texts) == second(between) != between
    assert pivot("hgab") == second(between[3]) != ""
    found = pivot.translate(texts, n_best=3, phrases=[["ij"], [], [], []], unique=False)
    assert found == second.translate(between, n_best=3, phrases=[["ij"], [], [], []], unique=False)
    assert "ij" in found[0][0].text and len(found[0]) == 3
    assert pivot.translate("abc") == second.translate(between[0])


def test_unusual_texts_are_those_of_the_call(two):
    first, second = (dataclasses.replace(each, longest_source=3) for each in two)
    noted = UnusualTexts("lines", first=5)
    pivot = first.then(second)
    pivot.translate(["ab", "abcd"], unusual=noted)
    assert (noted.long, noted.count) == ([6], 2)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UnusualText)
        pivot(["ab", "abcd"])
    assert any("1 of 2 texts" in str(each.message) for each in warned)


@pytest.mark.parametrize(
    "written, read, meet",
    [
        ("en", "de", False),
        ("eng_Latn", "deu_Latn", False),
        ("zh-Hans", "zh_TW", True),
        ("eng_Latn", "en", True),
        ("eng", "de", False),
        ("cmn_Hans", "zh", True),  # perhaps: one of Chinese's own kinds
        (None, "de", True),
    ],
)
def test_languages_meet_where_both_say_them(two, written, read, meet):
    first, second = (
        dataclasses.replace(one, card={"languages": list(pair)} if all(pair) else {})
        for one, pair in zip(two, (("pt", written), (read, "nl")), strict=True)
    )
    if meet:
        assert first.then(second).second is second
        return
    with pytest.raises(ValueError, match=f"into '{written}', but the second one from '{read}'"):
        first.then(second)


def test_the_language_that_is_asked_for_counts(two):
    first, second = two
    many = types.SimpleNamespace(
        translate=None, card={}, tokenizer=second.tokenizer, source_language="fr"
    )
    with pytest.raises(ValueError, match="into 'en', but the second one from 'fr'"):
        Pivot(first, many)


@pytest.mark.parametrize("other", [None, 3, "demo_en_de"])
def test_what_is_no_translator_is_refused(two, other):
    with pytest.raises(ValueError, match="must be a Translator"):
        two[0].then(other)
