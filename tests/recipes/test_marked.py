"""Tags and placeholders through a trained model, whose alignments are known for such simple sentences."""

import re

import keras
import pytest

from keras_attention import Tokenizer, Transformer, Translator
from keras_attention.data.markup import placeholders_of
from keras_attention.decoding.requests import WrongText
from keras_attention.recipes.marked import translate_marked

pytestmark = pytest.mark.backends("torch")  # the attention of each backend: ../models

HEAD = (0, 2)  # the one that aligns
TEXTS = [
    "The dog sleeps.",
    "The <b>dog</b> sleeps.",
    "<p>The <i>old</i> woman sees a <b>house</b>.</p>",
    "The student asks whether he will <u>scream</u> tonight.",
    "The {name} dog <br/> sleeps.",
    "",
    "<br/>%s",
]


@pytest.fixture(scope="module")
def translator():
    model, tokenizer = (kind.from_preset("demo_en_de") for kind in (Transformer, Tokenizer))
    engine = keras.backend.backend()
    return Translator(model, tokenizer, engine=engine, show_progress=False)


def test_a_trained_model(translator):
    found = [best[0] for best in translate_marked(translator, TEXTS, head=HEAD)]
    assert [re.sub("<[^>]*>", "", one.text) for one in found[:4]] == [
        "Der Hund schläft.",
        "Der Hund schläft.",
        "Die alte Frau sieht ein Haus.",
        "Der Student fragt, ob er heute Abend schreien wird.",
    ]
    for number, tag, word in ((1, "b", "Hund"), (3, "u", "schreien")):
        [inside] = re.findall(f"<{tag}>(.*?)</{tag}>", found[number].text)
        assert word in inside.split() and len(inside.split()) < 3
    assert sorted(re.findall("<[^>]*>", found[2].text)) == sorted(re.findall("<[^>]*>", TEXTS[2]))
    assert re.fullmatch("<p>.*[.]</p>", found[2].text)
    assert [one.text for one in found[5:]] == ["", "<br/>%s"]
    # The model does not copy the placeholder, so it read the text without it.
    plain = translator.translate("The dog sleeps.")[0]
    assert re.sub(r"\{name\}|<br/>", "", found[4].text).split() == plain.text.split()
    assert placeholders_of(found[4].text) == {"{name}": 1} and found[4].text.count("<br/>") == 1
    assert (found[0], found[1].score) == (plain, plain.score)


def test_a_copied_placeholder_stays_where_the_model_wrote_it(translator, monkeypatch):
    seen, plain = [], Translator.translate

    def translate(self, texts, *rest, **options):
        seen.append(list(texts))
        asked = [text.replace(" %s", "") for text in texts]
        found = plain(self, asked, *rest, **options)
        if "%s" in texts[0]:
            object.__setattr__(found[0][0], "text", "Der %s Hund schläft.")
        return found

    monkeypatch.setattr(Translator, "translate", translate)
    text = "The <b>dog</b> sleeps %s."
    [[found]] = translate_marked(translator, [text], head=HEAD)
    assert seen == [["The dog sleeps %s."]] and found.text.count("%s") == 1
    assert found.text.startswith("Der %s") or found.text.startswith("<b>Der %s")


def test_options_of_the_texts_that_are_translated_again(translator):
    texts, begun = ["A dog sleeps.", "The {x} dog sleeps."], ["Eine", "Die"]
    found = translate_marked(translator, texts, 2, HEAD, prefixes=begun)
    assert [len(best) for best in found] == [2, 2]
    assert all(one.text.startswith("Eine") for one in found[0])
    assert all(re.match(r"(\{x\} )?Die", one.text) for one in found[1])
    with pytest.raises(WrongText, match="Text 1 is empty") as error:
        translate_marked(translator, ["A dog.", "%s"], 1, HEAD, prefixes=begun)
    assert error.value.index == 1
