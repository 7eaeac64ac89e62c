"""A preset of ours in KerasHub: the same ids and weights, and greedily the same translations."""

import dataclasses
import itertools
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attention import Tokenizer, Translator
from keras_attention.data import load_corpus
from keras_attention.data.presets import load
from tests.decoding.test_saved_preset import plain_translator, same_weights, tokenizer_of
from tests.helpers import numpy
from tests.models.test_options import RICH, model_of
from tests.test_readme import python_blocks, run

keras_hub = pytest.importorskip("keras_hub")
DOCS = Path(__file__).resolve().parent.parent / "docs" / "pretrained.md"
DEMO = [pair[0] for pair in itertools.islice(load_corpus("demo").test, 6)]
TEXTS = ["ein Hund", "das Haus ist klein und der Hund sieht es", "der kleine Hund"]


@pytest.fixture(scope="module", autouse=True)
def door():
    import keras_attention.keras_hub

    return keras_attention.keras_hub


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return str(plain_translator().save_to_preset(tmp_path_factory.mktemp("saved") / "small"))


def test_the_docs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    section = (
        DOCS.read_text(encoding="utf-8").partition("## In KerasHub\n")[2].partition("\n## ")[0]
    )
    blocks = [*python_blocks(section)]
    assert blocks
    run(blocks, str(DOCS))


def test_translations_are_those_of_the_translator(tmp_path):
    """Of a trained model, the sampler's beam finds ours without a length penalty."""
    translator = Translator.from_preset("demo_en_de")
    hub = keras_hub.models.Seq2SeqLM.from_preset(
        str(translator.save_to_preset(tmp_path / "demo", sample=[]))
    )
    hub.compile(sampler="greedy")
    assert hub.generate(DEMO, max_length=40) == dataclasses.replace(translator, beam_size=1)(DEMO)
    hub.compile(sampler=keras_hub.samplers.BeamSampler(num_beams=3))
    ours = dataclasses.replace(translator, beam_size=3, length_penalty=0.0)
    found = hub.generate(DEMO[0], max_length=40)
    assert found == ours(DEMO[0]) != ""
    # What is given of a translation stays, and the beams continue it.
    begun = {"encoder_text": DEMO[:2], "decoder_text": ["Meine Tante", ""]}
    [tante, other] = hub.generate(begun, max_length=40)
    assert tante.startswith("Meine Tante ") and other == ours(DEMO[1])


def test_every_kind_of_model(tmp_path):
    """Two vocabularies, another start token, cells, suppressed tokens; all are cut off at one length."""
    model = model_of(**{**RICH, "use_logits_bias": False}, position_layout="learned", max_length=11)
    tokenizer, texts = tokenizer_of(model), ["s5 s7 s4", "s9 s4 s8"]
    folder = Translator(model, tokenizer).save_to_preset(tmp_path / "rich", sample=[])
    hub = keras_hub.models.Seq2SeqLM.from_preset(str(folder))
    assert hub.preprocessor.encoder_sequence_length == 11
    hub.compile(sampler="greedy")
    ours = Translator(model, tokenizer, beam_size=1, max_extra_length=5, engine="plain")(texts)
    # Of three tokens and an end, with five more, and a start token.
    found = hub.generate(texts, max_length=3 + 1 + 5 + 1)
    assert found == ours and all(found)


def test_parts_come_alone_and_go_into_a_preset_of_keras_hub(saved, tmp_path, monkeypatch):
    spec = load(saved).spec
    backbone = keras_hub.models.Backbone.from_preset(saved)
    same_weights(backbone.spec(), spec)
    assert keras_hub.models.Backbone.from_preset(saved, load_weights=False).built
    tokenizer, own = keras_hub.models.Tokenizer.from_preset(saved), Tokenizer.from_preset(saved)
    assert tokenizer(TEXTS) == own.encode(TEXTS) and tokenizer(TEXTS[0]) == own.encode(TEXTS[0])
    assert tokenizer.detokenize(tokenizer(TEXTS)) == TEXTS
    assert tokenizer.token_to_id(tokenizer.id_to_token(270)) == 270 < tokenizer.vocabulary_size()
    task = keras_hub.models.Seq2SeqLM.from_preset(saved)
    task.save_to_preset(tmp_path / "theirs")
    again = keras_hub.models.Seq2SeqLM.from_preset(str(tmp_path / "theirs"))
    same_weights(again.backbone.spec(), spec)
    assert again.preprocessor.tokenizer(TEXTS) == own.encode(TEXTS)
    hub, sent = pytest.importorskip("huggingface_hub"), []
    monkeypatch.setattr(
        hub, "create_repo", lambda repo_id, **_: hub.RepoUrl(f"https://hf.co/{repo_id}")
    )
    monkeypatch.setattr(hub, "file_exists", lambda **_: True)
    monkeypatch.setattr(hub, "upload_folder", lambda **options: sent.append(options))
    keras_hub.upload_preset("hf://owner/name", saved)
    assert sent == [{"repo_id": "owner/name", "folder_path": saved}]


@pytest.mark.backends("torch")
def test_it_trains(saved):
    """The labels are the inputs one to the left; padding has no weight."""
    task = keras_hub.models.Seq2SeqLM.from_preset(saved)
    pairs = {"encoder_text": TEXTS, "decoder_text": ["a dog", "the house is small", "a small dog"]}
    x, y, weights = task.preprocessor(pairs, encoder_sequence_length=30, decoder_sequence_length=25)
    own = Tokenizer.from_preset(saved)
    ids = own.encode("the house is small", side="target")
    for row, expected in ((x["decoder_token_ids"], [0, *ids, 1]), (y, [*ids, 1])):
        assert numpy(row)[1].tolist() == [*expected, *[0] * (25 - len(expected))]
    assert numpy(weights).sum(axis=1)[1] == len(ids) + 1
    task.preprocessor = None
    before = numpy(task.backbone.token_embedding.embeddings)
    task.fit(x, y, sample_weight=weights, epochs=1, verbose=0)
    assert np.abs(numpy(task.backbone.token_embedding.embeddings) - before).max() > 0


@pytest.mark.backends("torch")
def test_what_is_refused(saved):
    task = keras_hub.models.Seq2SeqLM.from_preset(saved)
    with pytest.raises(ValueError, match="Text 1 has 11 tokens.* room for 10.*larger `encoder_seq"):
        task.preprocessor.generate_preprocess(["a", "b" * 9], encoder_sequence_length=10)
    with pytest.raises(ValueError, match="split into tokens in Python"):
        task.preprocessor.generate_preprocess(keras.Input((), dtype="int32"))
