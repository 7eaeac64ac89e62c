"""One door: a run makes a `Transformer`, a `Tokenizer` and a `Translator`; other folders: ../interop."""

import shutil

import keras
import numpy as np
import pytest

from keras_attention import Tokenizer, Transformer, Translator
from keras_attention.data.presets import is_preset
from keras_attention.interop import hub
from keras_attention.recipes.order import save_model
from keras_attention.spec import SpecError
from keras_attention.utils.run_folder import RunFolder
from tests.decoding.letters import assert_alike
from tests.recipes.small_runs import untrained_run

BACKEND = keras.backend.backend()
TEXTS = ["ein Hund", "", "das Haus ist klein und der Hund sieht es"]
OPTIONS = {"beam_size": 3, "length_penalty": 0.8, "max_extra_length": 6}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    untrained_run(folder)
    save_model(Translator.from_run(folder).model, RunFolder(folder))  # beside it, its spec
    return folder


@pytest.mark.parametrize("engine", [BACKEND, *["auto"] * (BACKEND == "torch")])
def test_a_preset_translates_as_its_run(run, engine):
    expected = Translator.from_run(run, engine=engine, **OPTIONS).translate(TEXTS, n_best=2)
    found = Translator.from_preset(run, engine=engine, **OPTIONS).translate(TEXTS, n_best=2)
    assert_alike(found, expected, rtol=1e-7)


@pytest.mark.backends("torch")
def test_search_settings_are_those_of_the_run(run):
    by_run, by_preset = Translator.from_run(run), Translator.from_preset(run)
    for name in ("beam_size", "length_penalty", "longest_source"):
        assert getattr(by_preset, name) == getattr(by_run, name)
    assert Translator.from_preset(run, beam_size=2).beam_size == 2


@pytest.mark.backends("torch")
def test_a_model_of_a_run_has_its_weights(run):
    model, expected = Transformer.from_preset(run, dropout=0.3), Translator.from_run(run).model
    assert model.dropout == 0.3
    for ours, theirs in zip(model.weights, expected.weights, strict=True):
        if "seed" not in ours.path:
            np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (ours, theirs)))
    ids = Tokenizer.from_preset(run).encode(TEXTS)
    assert ids == Translator.from_run(run).tokenizer.encode(TEXTS)


@pytest.mark.backends("torch")
def test_a_handle_is_a_folder_of_the_hub(run, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "keras_attention.data.presets.download", lambda handle: asked.append(handle) or run
    )
    found = Translator.from_preset("hf://owner/name", **OPTIONS)
    assert found(TEXTS) == Translator.from_preset(run, **OPTIONS)(TEXTS)
    assert asked == ["hf://owner/name"]
    assert hub.is_handle("kaggle://a/b/c/d") and not hub.is_handle("s3://bucket/model")


@pytest.mark.backends("torch")
def test_what_is_no_preset(run, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    for load in (Translator.from_preset, Transformer.from_preset, Tokenizer.from_preset):
        with pytest.raises(
            ValueError,
            match="notes.txt.*Expected: .*CTranslate2.*MarianMT.*ONNX.*a preset.*Firefox.*a finished run",
        ):
            load(tmp_path)
        with pytest.raises(FileNotFoundError, match="There is no folder '.*absent'"):
            load(tmp_path / "absent")
    with pytest.raises(ValueError, match="`positions` must be one of"):
        Translator.from_preset(run, positions="both")
    with pytest.raises(ValueError, match="`vocabulary_size` is missing"):
        Transformer.from_preset("base")
    with pytest.raises(SpecError, match="`Transformer.from_preset`, makes a Keras model"):
        Translator.from_preset(run, engine="plain")
    unfinished = tmp_path / "unfinished"
    shutil.copytree(run, unfinished)
    for path in unfinished.glob("model.keras*"):
        path.unlink()
    with pytest.raises(ValueError, match="not finished"):
        Translator.from_preset(unfinished)
    assert is_preset(tmp_path) and not is_preset("tiny")
