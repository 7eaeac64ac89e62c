"""ONNX files: onnxruntime's logits against NumPy, optimum's way to call them, and the same translations."""

import dataclasses
import json
import sys

import keras
import numpy as np
import pytest

from keras_attention import Tokenizer, Transformer, Translator, export_onnx, load_corpus
from keras_attention.data.presets import load
from keras_attention.decoding import onnx_export
from keras_attention.decoding.onnx_export import write_onnx
from keras_attention.interop.export_folder import EXPORT, MANIFEST, write_manifest
from keras_attention.interop.onnx_model import OnnxModel
from keras_attention.spec import SpecError
from keras_attention.spec.parts import ACTIVATIONS, as_array
from keras_attention.utils.files import DamagedFile, OccupiedPath
from tests.engine.random_spec import K, N, U, random_spec
from tests.interop.conftest import SOURCES, TARGETS
from tests.models.numpy_transformer import encode, teacher_forced_logits
from tests.models.test_options import PAIRWISE, model_of

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
ENCODER, DECODER = "encoder_model.onnx", "decoder_model_merged.onnx"
SOURCE = np.array([[5, 6, 7, 8, 9, 12, 1], [10, 11, 1, 0, 0, 0, 0]])
TARGET = np.array([[0, 3, 4, 5, 7], [0, 6, 11, 0, 9]])
LENGTH = 7
once = pytest.mark.backends("torch")  # NumPy writes, onnxruntime reads


def ids_for(spec):
    source = np.where(SOURCE == 0, spec.pad_token_id, SOURCE)
    target = np.where(TARGET == 0, spec.pad_token_id, TARGET)
    target[:, 0] = spec.start_token_id
    return source, target


def assert_logits(spec, folder):
    """Those of NumPy, of all positions at once, and in steps that go on from the past."""
    source, target = ids_for(spec)
    expected = teacher_forced_logits(spec, source, target)
    suppressed = list(spec.suppressed_token_ids)
    allowed = [i for i in range(expected.shape[-1]) if i not in suppressed]
    assert np.std(expected[..., allowed]) > 0.3
    model = OnnxModel(folder)
    at_once = model({"encoder_token_ids": source, "decoder_token_ids": target})
    encoded, mask = model.encode(source)
    np.testing.assert_allclose(encoded[0], encode(spec, source)[0][0], atol=1e-4)
    past, parts = None, []
    for part in np.split(target, [1, 2, 4], axis=1):
        logits, past = model.decode(part, encoded, mask, past)
        parts.append(logits)
    for found in (at_once, np.concatenate(parts, axis=1)):
        np.testing.assert_allclose(found[..., allowed], expected[..., allowed], atol=1e-4)
        assert (found[..., suppressed] < -1e29).all()


@once
@pytest.mark.parametrize("number", range(len(PAIRWISE) + 1))
def test_logits_of_every_option(number, tmp_path):
    """Any two options of a model together, and a cell with a bias, which no model has."""
    if number == len(PAIRWISE):
        spec = random_spec({"ssru", "untied"})
    else:
        options = PAIRWISE[number]
        more = {"max_length": 9} if options["position_layout"] == "learned" else {}
        spec = model_of(**options, **more).spec().map_weights(as_array)
    write_onnx(spec, tmp_path, LENGTH, 4)
    assert_logits(spec, tmp_path)


@once
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_those_of_keras(name, tmp_path):
    """With an output of one number behind the activation, in place of a whole network."""
    from keras_attention.engine.onnx_graph import OPSET
    from keras_attention.engine.onnx_operations import Graph, OnnxOperations, Value

    graph = Graph(weights := {})
    activation = OnnxOperations(random_spec(), graph, "mask").activation(name)
    graph.node("Identity", activation(Value(graph, "x")), name="y")
    x, y = (onnx.helper.make_tensor_value_info(each, 1, [None]) for each in "xy")
    tensors = [onnx.numpy_helper.from_array(value, each) for each, value in weights.items()]
    graph = onnx.helper.make_graph(graph.nodes, "activation", [x], [y], tensors)
    opset = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    points = np.linspace(-7.3, 8.1, 41, dtype="float32")
    expected = keras.ops.convert_to_numpy(keras.activations.get(name)(points))
    np.testing.assert_allclose(session.run(None, {"x": points})[0], expected, atol=1e-5)


@once
@pytest.mark.parametrize("options", [{"untied", "depths"}, {"target_vocabulary"}])
def test_a_driver_that_knows_optimums_names(options, tmp_path):
    """Greedy search as optimum and transformers.js call the files, which feed a past at the first step."""
    spec = random_spec(options)
    write_onnx(spec, tmp_path, 20, 4)
    encoder, decoder = (
        onnxruntime.InferenceSession(tmp_path / name) for name in (ENCODER, DECODER)
    )
    assert [each.name for each in encoder.get_inputs()] == ["input_ids", "attention_mask"]
    assert [each.name for each in encoder.get_outputs()] == ["last_hidden_state"]
    depth = len(spec.decoder.blocks)
    states = [
        f"{i}.{side}.{part}"
        for i in range(depth)
        for side in ("decoder", "encoder")
        for part in ("key", "value")
    ]
    inputs = {each.name: each.shape for each in decoder.get_inputs()}
    outputs = [each.name for each in decoder.get_outputs()]
    assert outputs == ["logits", *(f"present.{state}" for state in states)]
    assert inputs.keys() == {
        *("input_ids", "encoder_hidden_states", "encoder_attention_mask", "use_cache_branch"),
        *(f"past_key_values.{state}" for state in states),
    }
    assert inputs["past_key_values.0.decoder.key"][1::2] == [N, K]
    assert inputs["past_key_values.0.encoder.value"][1::2] == [N, U]
    source, _ = ids_for(spec)
    mask = (source != spec.pad_token_id).astype("int64")
    (hidden,) = encoder.run(None, {"input_ids": source, "attention_mask": mask})
    past = {
        f"past_key_values.{state}": np.zeros((2, N, 1, K if "key" in state else U), "float32")
        for state in states
    }
    tokens = np.full((2, 1), spec.start_token_id)
    for step in range(6):
        fed = {
            "input_ids": tokens[:, -1:],
            "encoder_hidden_states": hidden,
            "encoder_attention_mask": mask,
            "use_cache_branch": np.array([step > 0]),
        }
        logits, *present = decoder.run(None, {**fed, **past})
        for state, value in zip(states, present, strict=True):
            if step == 0 or ".decoder." in state:
                past[f"past_key_values.{state}"] = value
        tokens = np.concatenate([tokens, logits[:, -1].argmax(axis=-1)[:, None]], axis=1)
        expected = teacher_forced_logits(spec, source, tokens[:, :-1])[:, -1]
        np.testing.assert_allclose(logits[:, -1], expected, atol=1e-4)
    assert np.abs(logits[0] - logits[1]).max() > 1e-3, "sources matter"


@once
def test_a_position_beyond_the_last_is_an_error(tmp_path):
    write_onnx(random_spec(), tmp_path, 6, 4)
    model = OnnxModel(tmp_path)
    assert model.max_length == 6
    with pytest.raises(Exception, match="out of data bounds"):
        model.encode(SOURCE)


def test_every_backend_writes_the_same_bytes(tmp_path):
    options = {"num_layers": (1, 2), "normalize_first": True, "use_logits_bias": True}
    spec = model_of(**options).spec()
    for name, one in (("tensors", spec), ("arrays", spec.map_weights(as_array))):
        (tmp_path / name).mkdir()
        write_onnx(one, tmp_path / name, 5, 4)
    for file in (ENCODER, DECODER):
        assert (tmp_path / "tensors" / file).read_bytes() == (
            tmp_path / "arrays" / file
        ).read_bytes()


@once
def test_large_models_have_a_file_of_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_export, "LARGEST_FILE", 1000)
    spec = random_spec({"untied"})
    write_onnx(spec, tmp_path, LENGTH, 4)
    assert {file.name for file in tmp_path.iterdir()} == {
        *(ENCODER, DECODER, f"{ENCODER}_data", f"{DECODER}_data")
    }
    assert_logits(spec, tmp_path)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The package's trained model, and the folder of its export."""
    translator = Translator.from_preset("demo_en_de", engine="numpy", show_progress=False)
    folder = translator.export(tmp_path_factory.mktemp("demo") / "onnx", "onnx")
    return translator, folder


@once
def test_the_same_translations(demo):
    translator, folder = demo
    again = Translator.from_preset(folder, show_progress=False)
    assert again.beam_size == translator.beam_size == 4
    assert again.engine_for(3).name == "onnx"
    texts = [*[source for source, _ in load_corpus("demo").test][:20], "", "Zyx ☃ qqq."]
    for ours, theirs in zip(
        translator.translate(texts, n_best=3), again.translate(texts, n_best=3), strict=True
    ):
        assert [each.token_ids for each in ours] == [each.token_ids for each in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)


@once
def test_restrictions_and_prefixes_as_for_any_model(demo):
    """What chooses between the steps of an engine chooses between those of a file."""
    from keras_attention import Restrictions

    folder = demo[1]
    model, tokenizer = (kind.from_preset("demo_en_de") for kind in (Transformer, Tokenizer))
    ours = Translator(model, tokenizer, engine="torch", show_progress=False)
    options = {"restrictions": Restrictions(banned=["Hund"]), "beam_size": 3}
    found = []
    for one in (ours, Translator.from_preset(folder, show_progress=False)):
        one = dataclasses.replace(one, **options)
        found.append(one.translate(["The dog sleeps.", "The cat"], prefixes=["Das", ""]))
    assert [best[0].text for best in found[0]] == [best[0].text for best in found[1]]
    assert found[1][0][0].text.startswith("Das") and "Hund" not in found[1][0][0].text


@once
def test_marian_tokenizer_gives_the_same_ids(demo):
    """What other programs read beside the graphs; ids stay ours."""
    transformers = pytest.importorskip("transformers")
    translator, folder = demo
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [*[source for source, _ in load_corpus("demo").test][:40], "Über Ämter, e\u0301!"]
    ours = translator.tokenizer
    found = theirs(texts)["input_ids"]
    assert found == [[*row, ours.end_token_id] for row in ours.encode(texts)]
    assert theirs.pad_token_id == ours.pad_token_id
    config = transformers.AutoConfig.from_pretrained(folder)
    spec = load("demo_en_de").spec
    assert config.model_type == ("pegasus" if spec.options()["normalize_first"] else "marian")
    assert (config.decoder_start_token_id, config.eos_token_id) == (0, 1)
    assert config.vocab_size == ours.vocabulary_size
    settings = transformers.GenerationConfig.from_pretrained(folder)
    assert (settings.num_beams, settings.max_length) == (4, 1024)


def small(**options):
    tokenizer = Tokenizer.train([*SOURCES, *TARGETS], vocabulary_size=290)
    sizes = {"num_layers": 1, "hidden_dim": 20, "intermediate_dim": 28, "num_heads": 5}
    return Transformer(tokenizer.vocabulary_size, **{**sizes, **options}), tokenizer


@once
def test_what_marian_has_not_has_our_tokenizer_alone(tmp_path):
    model, tokenizer = small(decoder_cell="ssru", position_layout="halves")
    export_onnx(model, tokenizer, tmp_path / "cells")
    assert {each.name for each in (tmp_path / "cells").iterdir()} == {
        *(ENCODER, DECODER, "keras_attention.json", "tokenizer")
    }
    options = {"beam_size": 3, "max_extra_length": 5, "show_progress": False}
    wanted = Translator(model, tokenizer, **options)(SOURCES)
    assert Translator.from_preset(tmp_path / "cells", **options)(SOURCES) == wanted


@once
def test_refuses_what_cannot_be(tmp_path, monkeypatch):
    model, tokenizer = small()
    folder = tmp_path / "model"
    translator = Translator(model, tokenizer, show_progress=False)
    with pytest.raises(ValueError, match="'onnx'.*Received: format='onx'"):
        translator.export(folder, "onx")
    with pytest.raises(ValueError, match="has no option 'quantization'"):
        translator.export(folder, "onnx", quantization="int8")
    with pytest.raises(ValueError, match="do not belong together"):
        export_onnx(model, Tokenizer.train(TARGETS, 285), folder)
    with monkeypatch.context() as without, pytest.raises(ImportError, match="pip install 'onnx>"):
        without.setitem(sys.modules, "onnx", None)
        export_onnx(model, tokenizer, folder)
    assert not any(tmp_path.iterdir())
    export_onnx(model, tokenizer, folder, max_length=9)
    with pytest.raises(OccupiedPath):
        export_onnx(model, tokenizer, folder)
    export_onnx(model, tokenizer, folder, max_length=9, overwrite=True)
    assert EXPORT.is_ours(folder)
    (folder / "config.json").write_text("{}")
    with pytest.raises(OccupiedPath):
        export_onnx(model, tokenizer, folder, overwrite=True)


@once
def test_what_an_onnx_folder_cannot_do_is_refused(demo, tmp_path, monkeypatch):
    translator, folder = demo
    again = Translator.from_preset(folder, show_progress=False)
    with pytest.raises(ValueError, match="leave `engine` and `precision` out.*'numba'"):
        Translator.from_preset(folder, engine="numba")
    with pytest.raises(ValueError, match="leave `engine` and `precision` out.*'plain'"):
        Translator.from_preset(folder, engine="plain")
    with pytest.raises(SpecError, match="holds ONNX files"):
        Transformer.from_preset(folder)
    with pytest.raises(ValueError, match="spec"):
        again.export(tmp_path / "again", "onnx")
    with pytest.raises(ValueError, match="Text 1 .*1024 positions"):
        again(["ok", "The dog sleeps. " * 400])
    with monkeypatch.context() as without, pytest.raises(ImportError, match="onnxruntime>"):
        without.setitem(sys.modules, "onnxruntime", None)
        Translator.from_preset(folder)


@once
def test_damaged_and_foreign_files_are_named(tmp_path):
    model, tokenizer = small()
    folder = export_onnx(model, tokenizer, tmp_path / "model")
    whole = (folder / DECODER).read_bytes()
    (folder / DECODER).write_bytes(whole[:-2000])
    with pytest.raises(DamagedFile, match=DECODER):
        Translator.from_preset(folder)
    (folder / DECODER).write_bytes(whole)
    (folder / ENCODER).unlink()
    with pytest.raises(DamagedFile, match=ENCODER):
        Translator.from_preset(folder)
    export_onnx(model, tokenizer, folder.with_name("unlisted"))
    (folder.with_name("unlisted") / MANIFEST).unlink()
    with pytest.raises(ValueError, match="no export of this package"):
        Translator.from_preset(folder.with_name("unlisted"))
    graph = onnx.load_from_string(whole)
    del graph.metadata_props[:]
    export_onnx(model, tokenizer, tmp_path / "other")
    onnx.save(graph, tmp_path / "other" / DECODER)
    (tmp_path / "other" / MANIFEST).unlink()
    write_manifest(tmp_path / "other", "onnx")
    with pytest.raises(ValueError, match="ONNX files of another program"):
        Translator.from_preset(tmp_path / "other")
    assert json.loads((tmp_path / "other" / "config.json").read_text())["model_type"] == "marian"
