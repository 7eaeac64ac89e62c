"""Which languages the models of a server translate."""

import re
import types

import pytest

from keras_attention.serving.models import Directions, check_languages, paired
from tests.serving.served import Shouting

pytestmark = pytest.mark.backends("torch")


def translator(*languages):
    made = Shouting()
    made.card = {"languages": list(languages)} if languages else {}
    return made


def test_languages_are_those_of_the_card_unless_they_are_given():
    translators = [translator("en", "de"), translator("DE", "fr-CA")]
    models = paired(["one", "other"], translators, None)
    assert [(one.name, one.source, one.target) for one in models] == [
        ("one", "en", "de"),
        ("other", "de", "fr-ca"),
    ]
    assert [one.translator for one in models] == translators
    given = check_languages(["da", "NL", "nl", "da"], 2)
    models = paired(["one", "other"], translators, given)
    assert [(one.source, one.target) for one in models] == [("da", "nl"), ("nl", "da")]
    assert check_languages(None, 2) is None


@pytest.mark.parametrize(
    ("translators", "given", "message"),
    [
        ([translator()], None, "'m0' does not say which languages it translates"),
        ([translator("source", "target")], None, "'m0' does not say"),
        ([translator("en", "EN")], None, "'m0' would translate 'en' into itself"),
        (
            [translator("en", "de"), translator("en", "de")],
            None,
            "'m0' and 'm1' both translate from 'en' to 'de'",
        ),
    ],
)
def test_unclear_languages_are_refused(translators, given, message):
    names = [f"m{index}" for index in range(len(translators))]
    with pytest.raises(ValueError, match=re.escape(message)):
        paired(names, translators, given)


def test_a_glossary_is_of_two_languages():
    many = translator()
    sides = {"source_language": None, "target_language": None}
    many.tokenizer = types.SimpleNamespace(languages=("en", "de", "fr"), tags={}, **sides)
    many.glossary = {"dog": "Hund"}
    with pytest.raises(ValueError, match="two languages, and 'm0' translates between 3. Name them"):
        paired(["m0"], [many], None)


@pytest.mark.parametrize("codes", [["en"], ["en", "de", "fr"], ["en", "no such"], ["e", "de"], []])
def test_codes_are_a_pair_for_each_model(codes):
    with pytest.raises(ValueError, match="--languages must be the codes of two languages"):
        check_languages(codes, 1)


def test_directions():
    pairs = [("en", "de"), ("de", "en"), ("fr", "de"), ("de", "qx")]
    models = paired(["a", "b", "c", "d"], [translator(*pair) for pair in pairs], None)
    directions = Directions(models)
    assert [directions.find(*pair) for pair in pairs] == models
    assert directions.find("auto", "en") is models[1]
    assert directions.languages() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": ["en", "qx"]},
        {"code": "fr", "name": "French", "targets": ["de"]},
        {"code": "qx", "name": "qx", "targets": []},
    ]
    with pytest.raises(LookupError, match="detects no language"):
        directions.find("auto", "de")  # en or fr
    for pair in (("en", "fr"), ("xx", "de"), ("auto", "xx"), ("de", "de")):
        with pytest.raises(
            LookupError, match=f"no model from '{pair[0]}' to '{pair[1]}'.*en to de"
        ):
            directions.find(*pair)
