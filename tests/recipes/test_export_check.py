"""`check_export`: exports of the package's trained model translate as it does, and broken ones do not."""

import dataclasses
import json
import re

import pytest

from keras_attention import Tokenizer, Transformer, Translator, check_export, load_corpus
from keras_attention.cli.main import main
from keras_attention.data.presets import is_run
from keras_attention.decoding.pretrained import FORMATS
from keras_attention.interop.export_folder import MANIFEST
from keras_attention.recipes import export_check
from keras_attention.serving.models import paired
from keras_attention.utils.files import DamagedFile, OccupiedPath, read_json
from tests.recipes.small_runs import untrained_run

pytestmark = pytest.mark.backends("tensorflow")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install onnxruntime")
OTHERS = {"ctranslate2": "ctranslate2", "saved_model": "tensorflow_text"}
TEXTS = [pair[0] for pair, _ in zip(load_corpus("demo").test, range(7), strict=False)]


@pytest.fixture(scope="module")
def translator():
    return Translator.from_preset("demo_en_de", show_progress=False)


@pytest.fixture(scope="module")
def onnx_folder(translator, tmp_path_factory):
    return translator.export(tmp_path_factory.mktemp("exports") / "onnx", "onnx")


def broken(translator):
    """One matrix of 16 is wrong, as if its axes were swapped."""
    spec = translator.model
    path = "decoder.blocks.0.feed_forward.outer.kernel"
    wrong = iter([w[::-1] if name == path else w for name, w in spec.weights().items()])
    return dataclasses.replace(translator, model=spec.map_weights(lambda weight: next(wrong)))


@pytest.mark.parametrize(
    "name, programs",
    [
        ("onnx", {"onnxruntime"}),
        ("hugging_face", {"keras_attention", "transformers"}),
        ("saved_model", {"TensorFlow"}),
        ("ctranslate2", {"keras_attention", "CTranslate2"}),
    ],
)
def test_an_export_translates_as_the_model_and_a_broken_one_does_not(
    name, programs, translator, tmp_path
):
    pytest.importorskip(OTHERS.get(name, "numpy"))
    short = dataclasses.replace(translator, max_extra_length=0)  # Some are cut off.
    short.export(tmp_path / "right", name)
    # What the export has not, and, of a SavedModel, has of its own.
    others = {"restrictions": {"max_length": 2}, "max_extra_length": 2 * (name == "saved_model")}
    wide = dataclasses.replace(short, beam_size=3, **others)
    found = check_export(wide, tmp_path / "right", [*TEXTS, " "])
    assert found.passed and (found.format, found.sentences) == (name, 7), str(found)
    assert {*found.differences, *found.not_installed} == programs
    with pytest.raises(OccupiedPath, match="exists"):
        short.export(tmp_path / "right", name)
    broken(translator).export(tmp_path / "right", name, overwrite=True)
    found = check_export(translator, tmp_path / "right", TEXTS)
    own = translator if name == "saved_model" else dataclasses.replace(translator, beam_size=1)
    wanted = dict(zip(TEXTS, own(TEXTS), strict=True))
    assert not found.passed
    for program, differences in found.differences.items():
        assert differences and f"{program}: {7 - len(differences)} of 7 tra" in str(found)
        for each in differences:
            assert each.model == wanted[each.source] != each.export
        assert {differences[0].source, differences[0].export} <= {
            *re.split("\n *(?:export: )?", str(found))
        }


def test_the_command(translator, onnx_folder, tmp_path, capsys):
    """Of the card's five examples, or of a file; it fails if the export is broken."""
    command = ["export", "demo_en_de"]
    main([*command, str(onnx_folder), "--check"])
    printed = capsys.readouterr().out
    assert "onnxruntime: 5 of 5" in printed and "translates as the model does" in printed
    sources = tmp_path / "a.en"
    sources.write_text("".join(f"{text}\n" for text in TEXTS[:3]))
    broken(translator).export(tmp_path / "wrong", "onnx")
    with pytest.raises(SystemExit) as left:
        main([*command, str(tmp_path / "wrong"), "--check", str(sources)])
    assert left.value.code == 1
    assert re.search("onnxruntime: [012] of 3 .*WRONG", capsys.readouterr().out, re.DOTALL)


def test_the_command_refuses_wrong_options(tmp_path, refused_by):
    new, sources, empty = (tmp_path / name for name in ("new", "a.en", "empty.en"))
    sources.write_text("A dog.\nA cat.\n")
    empty.write_text("\n")
    for arguments, message in (
        ([new], "--format is missing"),
        ([new, "--overwrite", "--check", sources], "--format is missing"),
        ([new, "--format", "onnx", "--check", empty], "holds no sentence"),
        ([new, "--format", "onnx", "--check", tmp_path / "none"], "none"),
        ([tmp_path, "--check", sources], "is no export of this package"),
    ):
        error = refused_by(main, ["export", "demo_en_de", *map(str, arguments)])
        assert re.search(message, error), error
    assert not new.exists()


def test_several_spaces_are_one(translator, onnx_folder, monkeypatch):
    """Some programs write as many as there are pieces of a space alone."""
    translate, libraries = export_check.PROGRAMS["onnx"]["onnxruntime"]
    for spaces, is_same in (("   ", True), ("", False)):

        def spaced(*given, spaces=spaces):
            return [text.replace(" ", spaces) for text in translate(*given)]

        monkeypatch.setitem(export_check.PROGRAMS, "onnx", {"onnxruntime": (spaced, libraries)})
        assert check_export(translator, onnx_folder, TEXTS).passed == is_same


def test_what_cannot_be_checked_is_named(translator, onnx_folder, tmp_path, monkeypatch):
    without_card = dataclasses.replace(translator, card={})
    for given, texts in ((translator, [" "]), (without_card, None)):
        with pytest.raises(ValueError, match="no sentence to translate"):
            check_export(given, onnx_folder, texts)
    short = translator.export(tmp_path / "short", "onnx", max_length=4)
    with pytest.raises(ValueError, match="Text 0 .* 4 positions"):
        check_export(translator, short, TEXTS[:2])
    with open(short / "encoder_model.onnx", "r+b") as file:
        file.write(b"?")
    with pytest.raises(DamagedFile, match=r"encoder_model\.onnx' is damaged"):
        check_export(translator, short, TEXTS[:2])
    monkeypatch.setattr(export_check, "is_installed", lambda name: name != "onnxruntime")
    with pytest.raises(ImportError, match="pip install onnxruntime"):
        check_export(translator, onnx_folder, TEXTS[:2])


def test_rounded_weights_and_missing_programs_are_said(translator, tmp_path, monkeypatch):
    folder = broken(translator).export(tmp_path / "int8", "ctranslate2", quantization="int8")
    monkeypatch.setattr(export_check, "is_installed", lambda name: name != "ctranslate2")
    found = check_export(translator, folder, TEXTS[:2])
    assert [*found.differences] == ["keras_attention"] and not found.passed
    assert "CTranslate2 is not installed: not checked." in str(found)
    assert "rounded to int8" in str(found)


@pytest.mark.parametrize("name, needed", {**dict.fromkeys(FORMATS, "onnx"), **OTHERS}.items())
def test_the_languages_of_a_run_are_those_of_its_export(name, needed, tmp_path):
    """Nothing but the run says them; what nobody has named is not written."""
    pytest.importorskip(needed)
    run = untrained_run(tmp_path)
    settings = json.loads((run / "config.json").read_text())
    for languages, known in ((["eng", "zh-Hant"],) * 2, (["source", "target"], None)):
        (run / "config.json").write_text(json.dumps({**settings, "languages": languages}))
        folder = Translator.from_preset(run).export(tmp_path / "export", name, overwrite=True)
        assert read_json(folder / MANIFEST).get("languages") == known
        if name == "hugging_face":
            said = json.loads((folder / "tokenizer_config.json").read_text())
            assert [said.get("source_lang"), said.get("target_lang")] == (known or [None, None])
        if name == "saved_model":
            continue
        found = Translator.from_preset(folder)
        assert found.card == ({"languages": known} if known else {})
        if known:
            assert paired(["it"], [found], None)[0].source == known[0]
    Translator.from_preset(run).export(run / "model", name)
    assert is_run(run)


def test_a_keras_model_is_compared_by_its_present_weights(tmp_path):
    tokenizer = Tokenizer.train(TEXTS, vocabulary_size=320)
    sizes = {"num_layers": 1, "hidden_dim": 20, "intermediate_dim": 28, "num_heads": 5}
    model = Transformer(tokenizer.vocabulary_size, seed=9, **sizes)
    translator = Translator(model, tokenizer, beam_size=1, max_extra_length=3, show_progress=False)
    translator.export(tmp_path / "onnx", "onnx")
    without_loops = dataclasses.replace(translator, break_loops=True)  # as no export is
    for one in (translator, without_loops):
        assert check_export(one, tmp_path / "onnx", TEXTS[:3]).passed
    assert without_loops(TEXTS[:3]) != translator(TEXTS[:3])
    for weight in model.trainable_weights:
        weight.assign(-weight)
    assert not check_export(translator, tmp_path / "onnx", TEXTS[:3]).passed
