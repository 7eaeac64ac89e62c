"""The attention that the page shows: as of the Keras model, for the translation that the server gave."""

import base64
import dataclasses

import keras
import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="an extra: serve")

from keras_attention import Transformer, Translator
from keras_attention.serving.app import Service
from keras_attention.serving.attention import check_masked
from keras_attention.serving.fields import Limits
from keras_attention.serving.models import ServedModel
from keras_attention.spec.heads import without_heads
from keras_attention_light import load_translator
from keras_attention_viewer.codec import ONE, Entry
from tests import oracle
from tests.models.test_transformer import named_weights
from tests.serving.served import ask, running

pytestmark = pytest.mark.backends("torch")

NAME = "demo_en_de"


@pytest.fixture(scope="module")
def model():
    return Transformer.from_preset(NAME)


@pytest.fixture(scope="module")
def translator():
    return load_translator(NAME, engine="numba")


@pytest.fixture(scope="module")
def port(translator):
    served = ServedModel(NAME, "en", "de", translator)
    with running(Service([served], Limits(), lambda: None)) as port:
        yield port


def attempt(port, q, **more):
    """What the page gets, and the entry in it."""
    status, _, content = ask(port, "/try", {"q": q, "source": "en", "target": "de", **more})
    assert status == 200 and "problem" not in content, content
    (run,) = content["attention"]["index"]["runs"]
    (sentence,) = run["sentences"]
    (step,) = sentence["steps"]
    blobs = content["attention"]["entries"][NAME][sentence["tag"]][str(step)]
    entry = Entry.from_blobs([base64.b64decode(blob) for blob in blobs])
    assert (run["name"], sentence["text"], sentence["target"]) == (NAME, q, "output")
    assert sentence["target_text"] == content["translatedText"]
    return content, entry


def ids_of(translator, text, translation):
    tokenizer = translator.tokenizer
    output = [*translation.token_ids, tokenizer.end_token_id]
    source = np.array([[*tokenizer.encode(text), tokenizer.end_token_id]])
    return source, np.array([[tokenizer.start_token_id, *output[:-1]]]), output


def test_attention_is_that_of_the_keras_model(port, model, translator):
    for text in ["The dog sleeps.", "A woman sees the small house."]:
        _, entry = attempt(port, text)
        (best,) = translator.translate(text)
        source, read, output = ids_of(translator, text, best)
        scores = model.attention_scores(source, read)
        for kind in ("encoder", "decoder", "cross"):
            expected = [keras.ops.convert_to_numpy(layer)[0] for layer in scores[kind]]
            found = [layer / ONE for layer in entry.weights[kind]]
            np.testing.assert_allclose(found, expected, atol=2e-5)
        assert entry.header["measures"]["cross"][0][0]["rows"] == len(output)


def test_heads_off_are_the_paper_in_numpy_without_them(port, model, translator):
    """Translation, scores, probabilities; and the next request has all heads again."""
    text = "The dog sleeps."
    off = [("cross", 0, 2), ("encoder", 1, 0), ("decoder", 1, 3), ("cross", 0, 0)]
    given = " ".join(f"{kind}.{layer + 1}.{head + 1}" for kind, layer, head in off)
    content, entry = attempt(port, text, heads_off=given, alternatives=1)
    without = Translator(without_heads(translator.model, off), translator.tokenizer, engine="numpy")
    best, second = without.translate(text, 2)
    assert [content["translatedText"], *content["alternatives"]] == [best.text, second.text]
    (whole,) = translator.translate(text)
    assert content["whole"]["translatedText"] == whole.text
    assert content["whole"]["score"] == pytest.approx(whole.score, abs=1e-4)

    get = named_weights(model)

    score = check(translator, text, entry, best, oracle.heads_taken_out(get, off))
    assert content["scores"][0] == pytest.approx(score, abs=1e-3)
    content, entry = attempt(port, text)
    check(translator, text, entry, whole, get)
    assert content["scores"][0] == pytest.approx(whole.score, abs=1e-4)


def check(translator, text, entry, translation, get, masked=()):
    """Compares the probabilities of tokens; returns the score that they give."""
    source, read, output = ids_of(translator, text, translation)
    source[:, [*masked]] = 0
    (logits,) = oracle.transformer(source, read, get, 2)
    told = [
        -oracle.smoothed_nll(row, token, 0.0) for row, token in zip(logits, output, strict=True)
    ]
    found = [one["p"] for one in entry.header["predictions"]]
    np.testing.assert_allclose(found, np.exp(told), atol=1e-4)
    return sum(told) / ((5 + len(output)) / 6) ** translator.length_penalty


def test_nothing_reads_a_masked_word(port, model, translator):
    text, masked = "A woman sees the small house.", (1, 5)
    content, entry = attempt(port, text, masked="2 6")
    (plain,) = translator.translate(text)
    assert content["translatedText"] != plain.text
    assert content["whole"]["translatedText"] == plain.text
    tokens = [one["text"] for one in entry.header["tokens"]["source"]]
    assert [tokens[place] for place in masked] == ["▁woman", "▁small"]
    for kind in ("encoder", "cross"):
        weights = np.array(entry.weights[kind])
        assert not weights[..., masked].any() and weights[..., 0].any()
    output = translator.tokenizer.encode(content["translatedText"])
    found = dataclasses.replace(plain, token_ids=output)
    score = check(translator, text, entry, found, named_weights(model), masked)
    assert content["scores"][0] == pytest.approx(score, abs=1e-3)
    content, _ = attempt(port, text)
    assert content["translatedText"] == plain.text and "whole" not in content


@pytest.mark.parametrize("off", [(), (("cross", 0, 2), ("encoder", 1, 0))])
def test_why_one_word_and_not_another(port, model, translator, off):
    """By the paper in NumPy, with one word masked before, and heads switched off."""
    text, at, rank, words = "A woman sees the small house.", 4, 2, [(0,), (1, 2), (5,)]
    given = " ".join(f"{kind}.{layer + 1}.{head + 1}" for kind, layer, head in off)
    more = {"heads_off": given, "masked": "4", "contrast": "5.3 1 2.3 6"}
    content, entry = attempt(port, text, **more)
    (best,) = translator.translate(text)
    best = dataclasses.replace(
        best, token_ids=translator.tokenizer.encode(content["translatedText"])
    )
    get = oracle.heads_taken_out(named_weights(model), off)
    source, read, output = ids_of(translator, text, best)

    def difference(pair, *masked):
        ids = source.copy()
        ids[:, [3, *masked]] = 0
        row = oracle.transformer(ids, read, get, 2)[0, at]
        one, other = (-oracle.smoothed_nll(row, token, 0.0) for token in pair)
        return one - other

    piece, p = entry.header["predictions"][at]["others"][rank]
    tokenizer = translator.tokenizer
    ids = [i for i in range(tokenizer.vocabulary_size) if tokenizer.id_to_token(i) == piece]
    pair = output[at], ids[0]
    whole = difference(pair)
    assert content["contrast"]["whole"] == pytest.approx(whole, abs=1e-3)
    own = entry.header["predictions"][at]["p"]
    assert np.log(own / p) == pytest.approx(whole, abs=1e-2)
    lost = [whole - difference(pair, *word) for word in words]
    np.testing.assert_allclose(content["contrast"]["lost"], lost, atol=1e-3)
    assert max(map(abs, lost)) > 0.1


def test_a_prefix_is_kept_also_without_heads(port, translator):
    for more in ({}, {"heads_off": "cross.2.1"}):
        content, entry = attempt(port, "The dog sleeps.", prefix="Eine Katze", **more)
        assert content["translatedText"].startswith("Eine Katze ")
        shown = "".join(one["text"] for one in entry.header["tokens"]["decoder_output"])
        assert shown.startswith("▁Eine▁Katze")
    (best,) = translator.translate("The dog sleeps.", prefixes="Eine Katze")
    assert content["whole"]["translatedText"] == best.text


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"heads_off": "cross.3.1"}, "no cross head 1 in layer 3: it has 2 layers"),
        ({"masked": "1 9"}, "`masked` names token 9; the text has "),
        ({"masked": "0"}, "as the numbers of their tokens, counted from 1"),
        ({"contrast": "1"}, "begins with a token and the rank of another one"),
        ({"contrast": "9.1 1"}, "must name one of "),
        ({"contrast": "1.6 1"}, "one of 5 others"),
        ({"contrast": "1.1 9"}, "and words of "),
    ],
)
def test_what_is_not_there_is_refused(port, wrong, problem):
    asked = {"q": "The dog.", "source": "en", "target": "de", **wrong}
    status, _, content = ask(port, "/try", asked)
    assert status == 400 and problem in content["error"]


def test_a_text_of_which_a_tokenizer_reads_nothing_has_no_tokens_to_mask(translator):
    check_masked(translator, "\u2581", [])
    with pytest.raises(ValueError, match="`masked` names token 1; the text has 0"):
        check_masked(translator, "\u2581", [0])
