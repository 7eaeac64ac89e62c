"""SavedModels: texts and scores of `Translator`, probabilities of NumPy, a process without Keras."""

import dataclasses
import json
import unicodedata

import keras
import numpy as np
import pytest

from keras_attention import Restrictions, Tokenizer, Transformer, Translator, export_saved_model
from keras_attention.cli.main import main
from keras_attention.data.normalization import normalize
from keras_attention.decoding import saved_model
from keras_attention.spec.parts import NonFiniteModel
from tests.helpers import python
from tests.spec_oracle import SpecOracle, random_spec

pytestmark = pytest.mark.backends("tensorflow")
tf = pytest.importorskip("tensorflow")
tensorflow_text = pytest.importorskip("tensorflow_text", reason="pip install tensorflow-text")
TOLERANCE = 1e-4
SENTENCES = [
    "The dog sleeps.",
    "The teachers stayed before they swam.",
    "If the old house is red, the small cats see it.",
]
# Letters with marks in any order, jamo, what is invisible or a space, letters of no vocabulary, and marks
# of SentencePiece, of tags and of regular expressions.
LETTERS = (
    "aeiouTst .,?!'\"-"
    "\u0300\u0301\u0308\u0323\u0327\u0345\u093c\u05b0äöÜßﬁ²½…"
    "가각\u1100\u1161\u11a8"
    "\u00ad\u200b\u200c\u200d\u2060\ufeff\u061c\u202e\u2066\ufe0f\x7f\x85"
    "\0\x01\t\n\r\x0b\x1c\x1f\u00a0\u1680\u2003\u2028\u2029\u3000\u180e"
    "▁\u2585☃😀🇩🇪𝔘\U000e0067\U0010ffff\ue000\ufffd"
    "</s><pad><0x0A>\\[]{}^$|"
)


def hostile_texts():
    random = np.random.default_rng(8)
    texts = ["", " ", "\0", "\u200b", "\ufeff", "▁", " ▁ \t", "</s>", "<pad> <unk>", "\\x{0}"]
    texts.append("a" * 40)
    texts += [unicodedata.normalize(form, "Äpfel für Ǖ 각") for form in ("NFC", "NFD", "NFKD")]
    texts += [
        f"The\u00ad dog{chr(space)}sleeps." for space in (9, 11, 28, 0x85, 0xA0, 0x2029, 0x3000)
    ]
    while len(texts) < 200:
        letters = random.choice([*LETTERS], random.integers(1, 13))
        texts.append("".join(letters))
    return texts


def called(loaded, texts, n_best):
    """The texts and the scores of `translate`, as lists of pairs without what fills up."""
    found = loaded.signatures["translate"](
        texts=tf.constant(texts, tf.string), n_best=tf.constant(n_best)
    )
    return [
        [(text.decode(), score) for text, score in zip(*row, strict=True) if score > -np.inf]
        for row in zip(found["translations"].numpy(), found["scores"].numpy(), strict=True)
    ]


def wanted(translator, texts, n_best):
    return [[(one.text, one.score) for one in best] for best in translator.translate(texts, n_best)]


def assert_same(found, expected):
    assert [[text for text, _ in best] for best in found] == [
        [text for text, _ in best] for best in expected
    ]
    scores = [[score for best in side for _, score in best] for side in (found, expected)]
    np.testing.assert_allclose(*scores, atol=TOLERANCE)


def variables(spec):
    """A spec that TensorFlow's engine runs."""
    return spec.map_weights(lambda weight: keras.Variable(weight, trainable=False))


@pytest.fixture(scope="module")
def demo():
    return Translator.from_preset("demo_en_de", engine="tensorflow", show_progress=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports") / "demo" / "1"
    main(["export", "demo_en_de", str(folder), "--format", "saved_model", "--max-length", "90"])
    return folder


@pytest.fixture(scope="module")
def loaded(folder):
    return tf.saved_model.load(str(folder))


@pytest.mark.filterwarnings("ignore::keras_attention.decoding.unusual_texts.UnusualText")
@pytest.mark.parametrize(("beam_size", "n_best"), [(1, 1), (4, 4)])
def test_texts_and_scores_of_translator(beam_size, n_best, demo, loaded, tmp_path):
    if beam_size == 1:
        demo = dataclasses.replace(demo, beam_size=1)
        loaded = tf.saved_model.load(str(demo.export(tmp_path / "greedy", "saved_model")))
    texts = [*hostile_texts(), *SENTENCES]
    assert len(set(map(normalize, texts))) > 150
    expected = wanted(demo, texts, n_best)
    assert_same(called(loaded, texts, n_best), expected)
    assert {len(best) for best in expected} == {1, n_best}  # 1 of empty texts


def test_a_model_with_lora_is_exported_merged(demo, tmp_path):
    model = Transformer.from_preset("demo_en_de")
    model.enable_lora(4)
    for layer in model.lora_layers().values():
        b = layer.lora_kernel_b
        b.assign(np.random.default_rng(8).normal(size=b.shape))
    translator = dataclasses.replace(demo, model=model)
    loaded = tf.saved_model.load(str(translator.export(tmp_path / "lora", "saved_model")))
    expected = wanted(translator, SENTENCES, 2)
    assert_same(called(loaded, SENTENCES, 2), expected)
    assert [best[0][0] for best in expected] != demo(SENTENCES)


def test_defaults_are_the_translators(demo, loaded):
    found = loaded.translate(tf.constant(SENTENCES))
    assert [text.decode() for text in found["translations"][:, 0].numpy()] == demo(SENTENCES)
    assert found["scores"].shape == (3, 1)


def test_no_texts(loaded):
    assert called(loaded, [], 2) == []
    nothing = tf.constant([], tf.string)
    found = loaded.signatures["score"](sources=nothing, targets=nothing)["log_probabilities"]
    assert found.shape == (0,)


PROGRAM = """
import importlib.util, json, sys
from pathlib import Path

package = Path(importlib.util.find_spec("tensorflow_text").origin).parent
sys.modules.update(dict.fromkeys(("keras", "keras_attention"), None))  # cannot be imported
import tensorflow as tf

# What TensorFlow Serving has, too; `import tensorflow_text` loads these, and layers for Keras.
for name in ("_sentencepiece_tokenizer", "_normalize_ops"):
    tf.load_op_library(str(package / "python" / "ops" / f"{name}.so"))
loaded = tf.saved_model.load(sys.argv[1])
found = loaded.signatures["serving_default"](tf.constant(json.loads(sys.argv[2])))
print(json.dumps([text.decode() for text in found["translations"][:, 0].numpy()]))
"""


def test_a_process_without_keras(demo, folder):
    no_gpu = {"CUDA_VISIBLE_DEVICES": ""}
    done = python("-c", PROGRAM, folder, json.dumps(SENTENCES), environment=no_gpu)
    assert json.loads(done.stdout) == demo(SENTENCES)


@pytest.mark.parametrize(
    ("texts", "n_best", "message"),
    [
        (["a", "dog " * 200, ""], 1, "longer than 90 tokens.*sentences.*1"),
        ([b"fine", b"\xff\xfe"], 1, "not UTF-8.*1"),
        (["a"], 5, "n_best.*from 1 to 4, the beam size.*5"),
        (["a"], 0, "n_best.*from 1 to 4, the beam size.*0"),
    ],
)
def test_errors_of_calls(texts, n_best, message, loaded):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"(?s){message}"):
        called(loaded, texts, n_best)


def test_errors_of_score(loaded):
    score = loaded.signatures["score"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="needs its target"):
        score(sources=tf.constant(["a", "b"]), targets=tf.constant(["a"]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="target is longer than 140 tokens"):
        score(sources=tf.constant(["a"]), targets=tf.constant(["Hund " * 200]))


@pytest.fixture(scope="module")
def tokenizer():
    texts = ["the old house is red", "das alte Haus ist rot", "a dog <2de>", "ein Hund"] * 3
    return Tokenizer.train(texts, vocabulary_size=290, symbols=["<2de>"])


VARIANTS = {
    "pre_norm": {
        "normalize_first": True,
        "bias": True,
        "activation": "gelu",
        "tied": False,
        "logits_bias": True,
        "suppressed_token_ids": (0, 7),
    },
    "cells": {"ssru": True, "widths": (3, 2)},
    "learned": {"layout": "learned", "depth": (1, 2)},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_models_of_every_structure(name, tokenizer, tmp_path):
    tokenizer = Tokenizer(tokenizer.model, source_prefix="<2de>" if name == "cells" else None)
    spec = random_spec(tokenizer.vocabulary_size, **VARIANTS[name])
    translator = Translator(
        variables(spec),
        tokenizer,
        beam_size=3,
        length_penalty=1.1,
        max_extra_length=4,
        engine="tensorflow",
        show_progress=False,
    )
    path = translator.export(tmp_path / "model", "saved_model", max_length=30)
    loaded = tf.saved_model.load(str(path))
    texts = ["the old dog", "", "a red", "das Haus"]
    for n_best in (1, 3):
        assert_same(called(loaded, texts, n_best), wanted(translator, texts, n_best))
    targets = ["ein Hund", "das alte Haus", "", "rot"]
    found = loaded.signatures["score"](sources=tf.constant(texts), targets=tf.constant(targets))
    oracle = SpecOracle(spec)
    expected = [
        oracle.log_probabilities([*source, 1], [*target, 1]).sum()
        for source, target in zip(
            tokenizer.encode(texts), tokenizer.encode(targets, side="target"), strict=True
        )
    ]
    np.testing.assert_allclose(found["log_probabilities"], expected, atol=TOLERANCE * 10, rtol=1e-5)
    if name == "learned":  # It has 15 positions.
        with pytest.raises(tf.errors.InvalidArgumentError, match="longer than 15 tokens"):
            called(loaded, ["the old house is red " * 3], 1)


def test_refuses_what_it_cannot_hold(demo, tokenizer, tmp_path, monkeypatch):
    spec = random_spec(tokenizer.vocabulary_size)
    folder = tmp_path / "model"
    with pytest.raises(ValueError, match="'saved_model'.*Received: .*'savedmodel'"):
        demo.export(folder, "savedmodel")
    with pytest.raises(ValueError, match="no option 'quantization'; it has beam_size,"):
        demo.export(folder, "saved_model", quantization="int8")
    restricted = dataclasses.replace(demo, restrictions=Restrictions(banned=["Hund"]))
    with pytest.raises(ValueError, match="'saved_model' has no restrictions"):
        restricted.export(folder, "saved_model")
    words = tmp_path / "words"
    words.write_text("".join(f"w{i}\n" for i in range(tokenizer.vocabulary_size - 3)))
    with pytest.raises(ValueError, match="a 'bpe' tokenizer.*algorithm='presegmented'"):
        export_saved_model(spec, Tokenizer.from_vocabulary(words), folder)
    with pytest.raises(ValueError, match="do not belong together"):
        export_saved_model(random_spec(33), tokenizer, folder)
    with pytest.raises(NonFiniteModel, match="'embedding.embeddings' is infinite or NaN"):
        export_saved_model(spec.map_weights(lambda weight: weight * np.nan), tokenizer, folder)
    with monkeypatch.context() as patch:
        patch.setattr(keras.backend, "backend", lambda: "jax")
        with pytest.raises(ValueError, match="on 'jax'.*KERAS_BACKEND=tensorflow"):
            export_saved_model(spec, tokenizer, folder)
        patch.setattr(saved_model, "is_installed", lambda name: name == "tensorflow")
        with pytest.raises(ImportError, match=r"tensorflow_text cannot.*\[saved_model\]"):
            export_saved_model(spec, tokenizer, folder)
    assert not folder.exists() and len(list(tmp_path.iterdir())) == 1
