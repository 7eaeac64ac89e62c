"""Paragraphs are split, translated and joined: against texts joined by hand."""

import dataclasses
import importlib.util
import sys
import types

import pytest

from keras_attention import Restrictions, Tokenizer, Transformer, Translator
from keras_attention.decoding.paragraphs import check_split_sentences, translate_by_sentences
from keras_attention.decoding.unusual_texts import UnusualText
from tests.decoding.letters import LetterTokenizer
from tests.decoding.test_restrictions import Stuck

pytestmark = pytest.mark.backends("torch")


@pytest.fixture
def segments(monkeypatch):
    """A package whose segments are what stands between bars, which are no part of the text."""
    fake = types.ModuleType("sentencex")
    fake.segment = lambda language, text: text.split("|")
    monkeypatch.setitem(sys.modules, "sentencex", fake)


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("One. |Two.", "<One.> <Two.>"),
        ("One.|Two.|Three.", "<One.> <Two.> <Three.>"),
        ("One. |Two.|\n\n|Three.  ", "<One.> <Two.>\n\n<Three.>"),
        ("One.| Two.", "<One.> <Two.>"),
        ("One. |silent |Two.", "<One.> <Two.>"),
        (" One ", "<One>"),
        ("", ""),
        (" | \n", ""),
    ],
)
def test_what_stands_between_sentences_stays(segments, text, joined):
    asked = []

    def translate(sentences):
        asked.append(list(sentences))
        return ["" if one == "silent" else f"<{one}>" for one in sentences]

    assert translate_by_sentences(translate, ["Before. ", text, "Behind."], "xy") == [
        "<Before.>",
        joined,
        "<Behind.>",
    ]
    assert len(asked) == 1 and all(one == one.strip() != "" for one in asked[0])


def test_of_the_package_nothing_is_lost():
    pytest.importorskip("sentencex", reason="not installed: pip install sentencex")
    text = "Dr. Smith paid 3.5 dollars.  He slept.\n\nIt rains."
    seen = []
    upper = translate_by_sentences(
        lambda lines: [seen.append(one) or one.upper() for one in lines], [text], "en"
    )
    assert upper == [text.upper()]
    assert seen == ["Dr. Smith paid 3.5 dollars.", "He slept.", "It rains."]
    dated = ["Am 3. Mai kam er.  Ja."]  # which the rules of English split behind "3."
    assert translate_by_sentences(lambda lines: lines, dated, "deu_Latn") == dated
    kept = translate_by_sentences(lambda lines: [f"<{one}>" for one in lines], dated, "ger")
    assert kept == ["<Am 3. Mai kam er.>  <Ja.>"]
    found = translate_by_sentences(lambda lines: ["a."] * len(lines), ["你好。我是学生。"], "zh")
    assert found == ["a. a."]


def test_a_translator_of_paragraphs(segments):
    tokenizer = Tokenizer.train(["ein kleines Haus", "a small house"], vocabulary_size=280)
    model = Transformer(tokenizer.vocabulary_size, 1, 8, 12, 2, seed=3)
    for variable in model.trainable_variables:
        variable.assign(3 * variable.value)  # It babbles.
    plain = Translator(model, tokenizer, beam_size=2, max_extra_length=3)
    split = dataclasses.replace(plain, split_sentences="en")
    parts = ["a small house", "a house"]
    one, other = plain(parts)
    assert one.strip() == one and other.strip() == other and one != other
    assert split("a small house|a house") == f"{one} {other}".strip()
    assert split(["a house", "a small house\n|a house"]) == [other, f"{one}\n{other}"]
    with pytest.raises(ValueError, match="Call the translator itself"):
        split.translate("a house")
    with pytest.raises(ValueError, match="Call the translator itself"):
        split.translate_mbr(["a house"], 2)
    long = dataclasses.replace(split, longest_source=1)
    with pytest.warns(UnusualText, match="^3 of 3 sentences are longer"):
        long(["", "a small|a small house|a house"])
    short = dataclasses.replace(split, restrictions=Restrictions(min_length=90))
    with pytest.raises(ValueError, match="^Text 2 needs .*: 'a house'"):
        short(["", "", "a house|a small house"])


def test_a_sentence_that_loops_is_translated_again(segments):
    looping = Translator(Stuck(), LetterTokenizer(31), beam_size=3, max_extra_length=7)
    breaking = dataclasses.replace(looping, break_loops=True)
    one, other = breaking(["acd", "bcd"])
    assert one == looping("acd") and other != looping("bcd")
    assert dataclasses.replace(breaking, split_sentences="en")("acd|bcd") == f"{one} {other}"


@pytest.mark.parametrize("language", ["", "no such thing", 3, "e", "xx", "EM-US"])
def test_wrong_languages(segments, language):
    with pytest.raises(ValueError, match="`split_sentences` must be the language code"):
        check_split_sentences("split_sentences", language)


@pytest.mark.parametrize("language", ["en", "DE", "pt_BR", "zh-Hant", "ast", "bh"])
def test_languages(segments, language):
    assert check_split_sentences("split_sentences", language) == language


@pytest.mark.skipif(importlib.util.find_spec("sentencex") is not None, reason="it is installed")
def test_a_package_that_is_not_installed_is_named():
    with pytest.raises(ImportError, match="pip install sentencex"):
        check_split_sentences("split_sentences", "en")


@pytest.mark.parametrize("language, asked", [("xx-no", "xx"), ("DE", "de"), ("pes_Arab", "fa")])
def test_a_part_of_a_code_is_not_taken_for_the_language(segments, monkeypatch, language, asked):
    def segment(language, text):
        assert language == asked
        return [text]

    monkeypatch.setattr(sys.modules["sentencex"], "segment", segment)
    assert translate_by_sentences(list, ["a b"], language) == ["a b"]
