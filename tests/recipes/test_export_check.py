"""`check_export`: exports of the package's trained model agree, and what is wrong with one is said."""

import dataclasses
import json
import math
import re
import shutil

import numpy as np
import pytest

from keras_attention import Tokenizer, Transformer, Translator, check_export, load_corpus
from keras_attention.cli.main import main
from keras_attention.interop.export_folder import MANIFEST, write_manifest
from keras_attention.recipes import export_check, export_probe
from keras_attention.recipes.export_readers import READERS, Ours, Reader, Search, _sums
from keras_attention.recipes.scoring import log_probabilities

pytestmark = pytest.mark.backends("tensorflow")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install onnxruntime")
PAIRS = [pair for pair, _ in zip(load_corpus("demo").test, range(12), strict=False)]
TEXTS, REFERENCES = (list(side) for side in zip(*PAIRS, strict=True))
DECODER = "decoder_model_merged.onnx"


@pytest.fixture(scope="module")
def translator():
    return Translator.from_preset("demo_en_de", show_progress=False)


@pytest.fixture(scope="module")
def onnx_folder(translator, tmp_path_factory):
    return translator.export(tmp_path_factory.mktemp("exports") / "onnx", "onnx")


@pytest.fixture
def in_process(monkeypatch):
    """Programs run in this process, which has its backend already."""

    def run(command, **settings):
        export_probe.main(*command[-2:])

    monkeypatch.setattr(export_check.subprocess, "run", run)


def broken(translator):
    """One matrix of 16 is wrong, as if its axes were swapped."""
    spec = translator.model
    path = "decoder.blocks.0.feed_forward.outer.kernel"
    wrong = iter([w[::-1] if name == path else w for name, w in spec.weights().items()])
    return dataclasses.replace(translator, model=spec.map_weights(lambda weight: next(wrong)))


FORMATS = [
    ("onnx", {}, "onnxruntime", "float32"),
    ("hugging_face", {}, "keras_attention", "float32"),
    ("saved_model", {}, "TensorFlow", "float32"),
    ("ctranslate2", {}, "CTranslate2", "float32"),
    ("ctranslate2", {"quantization": "int8"}, "CTranslate2", "int8_float32"),
]


@pytest.mark.parametrize("name, options, program, precision", FORMATS)
def test_an_export_is_the_model_and_a_broken_one_is_not(
    name, options, program, precision, translator, tmp_path, in_process
):
    needed = {"ctranslate2": "ctranslate2", "saved_model": "tensorflow_text"}
    pytest.importorskip(needed.get(name, "numpy"))
    translator.export(tmp_path / "right", name, **options)
    found = check_export(translator, tmp_path / "right", TEXTS, REFERENCES)
    print(found)
    assert found.passed and not found.problems, found
    original, *others = found.programs
    assert original.program == "original" and original.score_difference == 0.0
    assert [each.program for each in others][:1] == [program]
    for each in others:
        assert each.precision == precision
        limit = 1e-4 if precision == "float32" else 0.1
        assert 0.0 < each.score_difference < limit
        if precision == "float32":
            assert (each.equal_sentences, each.equal_tokens) == (1.0, 1.0)
        assert each.bleu == pytest.approx(original.bleu, abs=3.0) and each.bleu > 50.0
        assert each.bytes > 100_000 and each.seconds > 0.0
    if precision != "float32":
        assert others[0].bytes < 0.6 * original.bytes
    broken(translator).export(tmp_path / "wrong", name, **options)
    found = check_export(translator, tmp_path / "wrong", TEXTS)
    print(found)
    assert not found.passed and f"{program} finds log P" in found.problems[0]
    assert "The weights differ" in str(found)
    text = next(text for text in TEXTS if repr(text) in found.problems[0])
    assert text
    first = found.differences[0]
    assert first.original == translator_greedy(translator, first.source) != first.other
    # The programs disagree on one sentence, so the search is not what made the difference.
    assert abs(first.original_scores[0] - first.other_scores[0]) > 0.1


def translator_greedy(translator, text):
    return dataclasses.replace(translator, beam_size=1)(text)


@pytest.mark.parametrize("change", [1e-3, math.nan])
def test_one_number_of_a_file_is_found(change, translator, onnx_folder, tmp_path, in_process):
    """One gain of the last normalisation."""
    onnx = pytest.importorskip("onnx")
    folder = tmp_path / "changed"
    shutil.copytree(onnx_folder, folder)
    model = onnx.load(folder / DECODER)
    (tensor,) = [each for each in model.graph.initializer if each.name == "decoder.norm.gamma"] or [
        each
        for each in model.graph.initializer
        if each.name == "decoder.blocks.1.feed_forward_norm.gamma"
    ]
    values = onnx.numpy_helper.to_array(tensor).copy()
    values[3] += 300 * change
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(model, folder / DECODER)
    found = check_export(translator, folder, TEXTS[:2])
    assert not found.passed and f"{DECODER}' is damaged" in found.problems[0]
    (folder / MANIFEST).unlink()
    write_manifest(folder, "onnx")  # as if it had been wrong from the start
    found = check_export(translator, folder, TEXTS)
    problem = "logits .* are not finite" if math.isnan(change) else "onnxruntime finds log P"
    assert not found.passed and re.search(problem, found.problems[0])


@pytest.mark.parametrize("shift, is_right", [(0.19, True), (0.21, False)])
def test_rounded_weights_may_hurt_single_targets(
    shift, is_right, translator, tmp_path, in_process, monkeypatch
):
    """The mean over the targets counts: twice the shift for one half, nothing for the other."""
    pytest.importorskip("ctranslate2")
    folder = translator.export(tmp_path / "int8", "ctranslate2", quantization="int8")
    check = export_check._Check
    scores = {}

    def compare(self, folder, kind, name, reader, tolerance):
        shifts = [2 * shift * (i % 2) for i in range(len(self._scores))]
        lengths = zip(self._scores, shifts, self._lengths, strict=True)
        scores[name] = [score - moved * length for score, moved, length in lengths]
        return original(self, folder, kind, name, reader, tolerance)

    def probe(folder, kind, name, *rest):
        found = export_probe_of(folder, kind, name, *rest)
        return {**found, "scores": scores[name]} if name in scores else found

    original, export_probe_of = check.compare, export_check._probe
    monkeypatch.setattr(check, "compare", compare)
    monkeypatch.setattr(export_check, "_probe", probe)
    assert len(TEXTS) % 2 == 0
    found = check_export(translator, folder, TEXTS)
    assert found.passed is is_right and found.programs[1].score_difference == pytest.approx(
        2 * shift
    )


def test_scores_are_log_probabilities(translator):
    """Of a Keras model and of files; what is never produced has no probability."""
    model = Transformer.from_spec(translator.model)
    expected = log_probabilities(model, translator.tokenizer, TEXTS[:5], REFERENCES[:5], False)
    search = Search(1, 0.6, 50)
    found = Ours("demo_en_de", search).score(TEXTS[:5], REFERENCES[:5])
    assert np.std(expected) > 0.01
    np.testing.assert_allclose(found, expected, atol=1e-4)

    rng = np.random.default_rng(3)
    table = rng.normal(size=(2, 4, 7))
    table[..., 6] = -np.inf
    shares = np.exp(table) / np.exp(table).sum(axis=-1, keepdims=True)
    wanted = [
        sum(math.log(shares[i, t, token]) for t, token in enumerate(row))
        for i, row in enumerate([[5, 2], [1, 3, 4, 5]])
    ]
    found = _sums([[1], [2]], [[5, 2], [1, 3, 4, 5]], 0, lambda source, target: table)
    np.testing.assert_allclose(found, wanted)


class Fake(Ours):
    """Reads what it should, and changes the first `number` translations."""

    number = 0

    def translate(self, texts):
        found = super().translate(texts)
        return [f"{text} Haus" if i < self.number else text for i, text in enumerate(found)]


@pytest.mark.parametrize("number, beam_size, alike, passes", [
    (1, 1, True, True), (2, 1, False, False), (2, 2, False, True), (2, 2, True, False),
])  # fmt: skip
def test_other_translations_with_the_same_weights(
    number, beam_size, alike, passes, translator, onnx_folder, in_process, monkeypatch
):
    """One of a few may be a near tie; two are too many, unless the program's search has rules of its own."""
    kind = type("Numbered", (Fake,), {"number": number})
    reader = Reader(kind, searches_alike=alike)
    monkeypatch.setitem(READERS, "onnx", {"changing": reader})
    found = check_export(translator, onnx_folder, [*TEXTS[:6], " "], beam_size=beam_size)
    assert found.sentences == 6
    assert found.programs[1].equal_sentences == pytest.approx(1 - number / 6)
    assert 0.5 < found.programs[1].equal_tokens < 1.0 and found.programs[0].bleu == pytest.approx(
        100
    )
    assert len(found.differences) == number
    for each in found.differences:
        np.testing.assert_allclose(each.original_scores, each.other_scores, atol=1e-4)
    assert found.passed == passes
    assert passes or f"translates {number} of 6 sentences in another way" in found.problems[0]


def test_the_command(onnx_folder, tmp_path, capsys):
    """In processes of their own, whose memory is counted."""
    sources, references = tmp_path / "a.en", tmp_path / "a.de"
    sources.write_text("".join(f"{text}\n" for text in TEXTS[:3]))
    references.write_text("".join(f"{text}\n" for text in REFERENCES[:3]))
    command = ["export", "demo_en_de", str(onnx_folder), "--check", str(sources)]
    output = ["--check-references", str(references), "--check-output", str(tmp_path / "check.json")]
    main([*command, *output])
    printed = capsys.readouterr().out
    assert "onnx, 3 sentences, beam of 1" in printed and "The export is the model." in printed
    written = json.loads((tmp_path / "check.json").read_text())
    assert written["passed"] and written["format"] == "onnx"
    assert [each["program"] for each in written["programs"]] == ["original", "onnxruntime"]
    assert all(each["peak_bytes"] > 2e7 for each in written["programs"])


def exit_code(*arguments):
    with pytest.raises(SystemExit) as left:
        main(["export", "demo_en_de", *map(str, arguments)])
    return left.value.code


def test_the_command_fails_if_the_export_is_broken(translator, tmp_path, capsys, in_process):
    sources = tmp_path / "a.en"
    sources.write_text("".join(f"{text}\n" for text in TEXTS[:3]))
    broken(translator).export(tmp_path / "wrong", "onnx")
    assert exit_code(tmp_path / "wrong", "--check", sources) == 1
    assert "WRONG: onnxruntime finds log P" in capsys.readouterr().out


def test_the_command_refuses_wrong_options(onnx_folder, tmp_path, capsys):
    new, sources, empty = (tmp_path / name for name in ("new", "a.en", "empty.en"))
    sources.write_text("A dog.\nA cat.\n")
    empty.write_text("\n")
    one = tmp_path / "one.de"
    one.write_text("Ein Hund.\n")
    for arguments, message in (
        ([new], "--format is missing"),
        ([new, "--overwrite", "--check", sources], "--format is missing"),
        ([new, "--format", "onnx", "--check-references", one], "--check-references is for --check"),
        ([new, "--format", "onnx", "--check", empty], "holds no sentence"),
        ([new, "--format", "onnx", "--check", tmp_path / "none"], "none"),
        ([new, "--format", "onnx", "--check", sources, "--check-references", one], "2 lines, .* 1"),
        ([new, "--format", "onnx", "--check", sources, "--check-beam-size", "0"], "at least 1"),
        ([tmp_path, "--check", sources], "is no export of this package"),
    ):
        assert exit_code(*arguments) == 2
        error = capsys.readouterr().err
        assert re.search(message, error), error
    assert not new.exists()


def test_what_cannot_be_checked_is_named(
    translator, onnx_folder, tmp_path, in_process, monkeypatch
):
    with pytest.raises(ValueError, match="1 texts, 2 references"):
        check_export(translator, onnx_folder, TEXTS[:1], TEXTS[:2])
    with pytest.raises(ValueError, match="at least one that is not empty"):
        check_export(translator, onnx_folder, [" "])
    short = translator.export(tmp_path / "short", "onnx", max_length=4)
    found = check_export(translator, short, TEXTS[:2])
    assert re.search("^onnxruntime cannot .*: Text 0 .* 4 positions", found.problems[0])
    assert not found.passed and len(found.programs) == 1
    reader = Reader(Ours, ("no_such_library",))
    monkeypatch.setitem(READERS, "onnx", {"a program": reader})
    with pytest.raises(ImportError, match="by a program; not installed: pip install no_such_lib"):
        check_export(translator, onnx_folder, TEXTS[:2])
    monkeypatch.delitem(READERS, "onnx")
    with pytest.raises(
        ValueError, match="no export that can be checked: ctranslate2, hugging_face"
    ):
        check_export(translator, onnx_folder, TEXTS[:2])


def test_a_process_that_dies_is_named(translator, onnx_folder, monkeypatch):
    class Done:
        returncode, stderr = -9, "out of memory\n"

    monkeypatch.setattr(export_check.subprocess, "run", lambda *args, **settings: Done)
    with pytest.raises(RuntimeError, match="ran original ended with code -9: out of memory"):
        check_export(translator, onnx_folder, TEXTS[:2])


def test_a_keras_model_is_compared_by_its_present_weights(tmp_path, in_process):
    tokenizer = Tokenizer.train([*TEXTS, *REFERENCES], vocabulary_size=320)
    sizes = {"num_layers": 1, "hidden_dim": 20, "intermediate_dim": 28, "num_heads": 5}
    model = Transformer(tokenizer.vocabulary_size, seed=3, **sizes)
    translator = Translator(model, tokenizer, max_extra_length=3, show_progress=False)
    translator.export(tmp_path / "onnx", "onnx")
    assert check_export(translator, tmp_path / "onnx", TEXTS[:3]).passed
    weight = model.trainable_weights[-1]
    weight.assign(weight + 0.5)
    assert not check_export(translator, tmp_path / "onnx", TEXTS[:3]).passed
