"""Glossaries: which terms are found, and that their translations occur."""

import dataclasses
import gzip
import re
import warnings

import pytest

from keras_attention import Sampling, Translator
from keras_attention.decoding.glossary import Glossary, read_glossary
from keras_attention.decoding.unusual_texts import UnusualText, UnusualTexts
from tests.decoding.letters import LetterTokenizer, small_model

pytestmark = pytest.mark.backends("torch")

TERMS = {
    "dog": "Köter",
    "hot dog": "Hotdog",
    "US": "USA",
    "us": "uns",
    "Köln": "Cologne",
    "straße": "street",
    "οδος": "way",
    "猫": "Katze",
    "猫カフェ": "Katzencafé",
    "แมว": "Mieze",
    "AI": "KI",
    "कि": "dass",
    "C++": "C plus plus",
    "istanbul": "Stamboul",
    "ﾈｺ": "Mieze",
}


@pytest.mark.parametrize(
    "text, expected",
    [
        ("The dog, a hot dog: DOG!", ["Köter", "Hotdog"]),  # the longest; each once; any case
        ("dogs hotdog _dog dog2", []),  # parts of words
        ("dog's (dog) hot-dog", ["Köter"]),
        ("US us Us uS", ["USA", "uns"]),  # as written before any case
        ("Ko\u0308ln köln KÖLN", ["Cologne"]),  # composed first; a capital is as written
        ("köln", []),
        ("Straße", ["street"]),
        ("STRASSE", []),
        ("ΟΔΟΣ", ["way"]),  # a final sigma in capitals
        ("黒い猫がいる", ["Katze"]),  # no spaces
        ("猫カフェの猫", ["Katzencafé", "Katze"]),
        ("ผมเลี้ยงแมวสองตัว", ["Mieze"]),
        ("AIは猫", ["KI", "Katze"]),
        ("AIR", []),
        ("人々AI〇", ["KI"]),  # signs among Chinese characters
        ("ｸﾛｲﾈｺﾀﾞ", ["Mieze"]),  # kana of half width
        ("İstanbul'da", ["Stamboul"]),  # a capital of Turkish
        ("कि", ["dass"]),
        ("किताब", []),  # another word that begins with it
        ("C++ C+++", ["C plus plus"]),
        ("hot\u00a0 dog\u00ad", ["Hotdog"]),  # spaces and soft hyphens do not count
        ("", []),
    ],
)
def test_which_terms_are_found(text, expected):
    assert Glossary(TERMS).translations(text) == expected


def test_a_file_and_a_dict_say_the_same(tmp_path):
    lines = "".join(f"{term}\t{translation}\r\n" for term, translation in TERMS.items())
    path = tmp_path / "terms.tsv"
    content = b"\xef\xbb\xbf" + lines.encode() + b"\n  \nhot  dog\tHotdog\n"
    for stored in (content, gzip.compress(content)):
        path.write_bytes(stored)
        found = read_glossary(path).translations("A hot dog in Köln.")
        assert found == ["Hotdog", "Cologne"]


BAD_FILES = {
    "one side": (b"a\tb\ndog\n", r"line 2 of '.*' with 0 tabs: 'dog'"),
    "three sides": (b"a\tb\tc\n", r"line 1 of '.*' with 2 tabs"),
    "an empty side": (b"a\tb\n\nc\t \n", r"1 to 200 characters. Received: line 3 of '.*' with ' '"),
    "an invisible side": (b"\xc2\xad\tb\n", "line 1"),
    "a long side": (b"a\t" + b"b" * 201, "1 to 200 characters"),
    "disagreement": (
        b"a b\tc\nd\te\na  b\tf\n",
        r"line 3 of '.*' translates 'a b' by 'f', but line 1 of '.*' by 'c'",
    ),
    "no terms": (b"\n \n", "holds no terms"),
    "empty": (b"", "holds no terms"),
    "Latin-1": (
        "K\u00f6ter\tb\n".encode("latin1"),
        "line 1, byte 2 of the line: 0xF6 is not UTF-8",
    ),
    "UTF-16": ("a\tb\n".encode("utf-16"), "UTF-16"),
    "NUL": (b"a\tb\nc\0\td\n", "line 2, holds a NUL"),
    "a long line": (b"x" * 2**20, "line 1 of '.*' with 0 tabs: 'x{200}'"),
    "many terms": (
        b"".join(b"%d\tx\n" % number for number in range(100_001)),
        "1 to 100,000 terms.*100,001 terms",
    ),
}


@pytest.mark.parametrize("content, message", BAD_FILES.values(), ids=BAD_FILES)
def test_a_wrong_file_is_refused(tmp_path, content, message):
    path = tmp_path / "terms"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_glossary(path)


@pytest.mark.parametrize(
    "glossary, message",
    [
        ({}, "0 terms"),
        ({"a": ""}, "entry 0 of the glossary with ''"),
        ({"a": "b", " ": "c"}, "entry 1 of the glossary with ' '"),
        ({"a": 3}, "entry 0 .*'3'"),
        ({"a": "\ud800"}, "entry 0"),
        ({"a b": "c", "a  b": "d"}, "entry 1 .* translates 'a b' by 'd', but entry 0 .* by 'c'"),
        ("no such file", "`glossary` must be a dict .*'no such file'"),
        (["a"], r"`glossary` must be a dict .*\['a'\]"),
    ],
)
def test_a_wrong_glossary_is_refused(glossary, message):
    with pytest.raises(ValueError, match=message):
        Translator(small_model(seed=11), LetterTokenizer(), glossary=glossary)


def test_a_glossary_needs_a_beam_and_an_engine_that_can():
    model = small_model(seed=11)
    for options in ({"beam_size": 1}, {"sampling": Sampling()}):
        with pytest.raises(ValueError, match="`glossary` needs a beam"):
            Translator(model, LetterTokenizer(), glossary={"a": "b"}, **options)
    with pytest.raises(ValueError, match="'numba' makes the whole search, without constraints"):
        Translator(model, LetterTokenizer(), glossary={"a": "b"}, engine="numba")


@pytest.fixture(scope="module")
def demo():
    return Translator.from_preset("demo_en_de")


def test_translations_have_those_of_the_glossary(demo):
    glossed = dataclasses.replace(demo, glossary={"dog": "die Katze", "garden": "Hof"})
    texts = ["The dog sleeps.", "The woman sleeps.", "", "The dog waits in the garden."]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnusualText)
        found = [best[0] for best in glossed.translate(texts)]
    wanted = [["die Katze"], [], [], ["die Katze", "Hof"]]
    expected = demo.translate(texts, phrases=wanted)
    assert [one.token_ids for one in found] == [best[0].token_ids for best in expected]
    for one, phrases in zip(found, wanted, strict=True):
        assert all(phrase in one.text for phrase in phrases)
    # One's own phrases and prefixes are beside them, and what those say already is not asked for again.
    both = glossed.translate(texts[:1], phrases=[["schlafen"]])[0][0]
    assert "die Katze" in both.text and "schlafen" in both.text
    begun = glossed.translate(texts[0], prefixes="Wo ist die Katze")[0]
    assert begun.text.count("Katze") == 1


def test_a_translation_is_a_whole_word_beside_ones_own_phrases(demo):
    glossed = dataclasses.replace(demo, glossary={"dog": "Kater"})
    [[best]] = glossed.translate(["The dog sleeps."], phrases=[["Katerft"]])
    assert re.search(r"\bKater\b", best.text) and "Katerft" in best.text
    [[best]] = glossed.translate(["The dog sleeps."], prefixes=["Der Katerft"])
    assert re.search(r"\bKater\b", best.text) and best.text.startswith("Der Katerft")


def test_what_cannot_be_met_is_said_and_left_out(demo):
    long = " ".join(["Katze"] * 33)
    assert len(demo.tokenizer.encode([long])[0]) >= 33
    texts = ["The woman sleeps.", "The dog sleeps."]
    glossed = dataclasses.replace(
        demo, glossary={"dog": long, "sleeps": "schläft"}, max_extra_length=9
    )
    with pytest.warns(UnusualText, match=re.escape(f"of texts 1 ({long!r}).")):
        found = glossed.translate(texts)
    assert [best[0].text for best in found] == demo(texts)
    # The library's letters are no vocabulary of bytes: one lacks what it does not know.
    letters = LetterTokenizer()
    letters.unknown_token_id = letters.encode(["c"])[0][0]
    lacking = Translator(
        small_model(seed=11), letters, glossary={"a": "bc", "b": "dd"}, max_extra_length=5
    )
    noted = UnusualTexts("lines", first=7)
    best = lacking.translate(["a b", "b"], unusual=noted)
    assert noted.unmet == [(7, "bc")] and "of lines 7 ('bc')." in noted.message()
    assert all("dd" in found[0].text for found in best)
