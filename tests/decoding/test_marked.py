"""Tags and placeholders through a trained model, whose alignments are known for such simple sentences."""

import html
import re

import keras
import pytest

from keras_attention import Tokenizer, Transformer, Translation, Translator
from keras_attention.data.markup import placeholders_of
from keras_attention.decoding.marked import MarkedTranslator
from keras_attention.decoding.requests import WrongText

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


@pytest.fixture(scope="module", params=["of Keras", "of a spec"])
def translator(request):
    """Its attention is that of a Keras model, or what NumPy computes from a spec."""
    if request.param == "of a spec":
        return Translator.from_preset("demo_en_de", engine="numpy", show_progress=False)
    model, tokenizer = (kind.from_preset("demo_en_de") for kind in (Transformer, Tokenizer))
    engine = keras.backend.backend()
    return Translator(model, tokenizer, engine=engine, show_progress=False)


def test_a_trained_model(translator):
    found = [best[0] for best in MarkedTranslator(translator, HEAD).translate(TEXTS)]
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
    assert [found[0].score, found[1].score] == pytest.approx([plain.score] * 2, rel=1e-4)
    assert (found[0].text, found[0].token_ids) == (plain.text, plain.token_ids)


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
    [[found]] = MarkedTranslator(translator, HEAD).translate([text])
    assert seen == [["The dog sleeps %s."]] and found.text.count("%s") == 1
    assert found.text.startswith("Der %s") or found.text.startswith("<b>Der %s")


@pytest.mark.parametrize("translator", ["of Keras"], indirect=True)  # NumPy's knows no prefixes.
def test_options_of_the_texts_that_are_translated_again(translator):
    texts, begun = ["A dog sleeps.", "The {x} dog sleeps."], ["Eine", "Die"]
    found = MarkedTranslator(translator, HEAD).translate(texts, 2, prefixes=begun)
    assert [len(best) for best in found] == [2, 2]
    assert all(one.text.startswith("Eine") for one in found[0])
    assert all(re.match(r"(\{x\} )?Die", one.text) for one in found[1])
    with pytest.raises(WrongText, match="Text 1 is empty") as error:
        MarkedTranslator(translator, HEAD).translate(["A dog.", "%s"], prefixes=begun)
    assert error.value.index == 1


def test_html_has_tags_and_entities_but_no_placeholders(translator):
    marked = MarkedTranslator(translator, HEAD, is_html=True)
    texts = ["The {name} dog sleeps.", "The dog &lt;sleeps&gt;.", "The <b>dog</b> sleeps."]
    found = [best.text for [best] in marked.translate(texts)]
    assert found[0] == translator(texts[0])
    assert found[1] == html.escape(translator("The dog <sleeps>."), quote=False)
    assert found[2] in ("Der <b>Hund</b> schläft.", "<b>Der Hund</b> schläft.")


def test_no_tag_comes_out_of_a_text_without_tags(translator, monkeypatch):
    """Such as one of wide brackets, which the tokenizer makes narrow ones."""
    written = Translation("<b onclick=x> 1 < 2", -1.0, (5, 6), True)
    monkeypatch.setattr(Translator, "translate", lambda self, texts, *rest: [[written]])
    marked = MarkedTranslator(translator, is_html=True)
    assert marked.translate(["a"])[0][0].text == "&lt;b onclick=x> 1 &lt; 2"


def test_no_translator():
    with pytest.raises(
        ValueError, match="`translator` must be a `Translator`.*Received: translator=3"
    ):
        MarkedTranslator(3)
