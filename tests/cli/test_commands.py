"""The commands that use a finished run: their output, their files, their exit codes."""

import gzip
import importlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import types
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attention import Transformer, Translator, corpus_bleu
from keras_attention.cli import main as commands
from keras_attention.cli import streams, translate
from keras_attention.cli.main import COMMANDS, main
from keras_attention.cli.models import preset_of
from keras_attention.engine import select
from keras_attention.interop.export_folder import EXPORT
from keras_attention.recipes.aligning import with_details
from keras_attention.utils import progress
from keras_attention.utils.agreed import agreed, is_told_here
from tests.cli.conftest import as_lines, as_text
from tests.helpers import ROOT, contents, python
from tests.interop.conftest import SOURCES, TARGETS
from tests.recipes.small_runs import write_files

pytestmark = pytest.mark.backends("torch")

LINES = ["The dog sleeps.", "", "A woman sees the small house."]


def test_n_best_as_moses_and_json(run, translator, command):
    best = translator.translate(LINES, n_best=2)
    numbers, texts, scores = zip(
        *(
            row.split(" ||| ")
            for row in command("translate", run, "--n-best", 2, typed=LINES).out.splitlines()
        ),
        strict=True,
    )
    flat = [(index, one) for index, row in enumerate(best) for one in row]
    assert list(map(int, numbers)) == [index for index, _ in flat]
    assert list(texts) == as_lines(one.text for _, one in flat)
    assert list(map(float, scores)) == pytest.approx([one.score for _, one in flat], abs=1e-5)
    rows = command("translate", run, "--n-best", 2, "--json", typed=LINES).out.splitlines()
    found = [json.loads(row) for row in rows]
    assert [row["source"] for row in found] == LINES
    scores = [[one["score"] for one in row["translations"]] for row in found]
    assert scores == [pytest.approx([one.score for one in row]) for row in best]


def test_a_pipe_is_read_as_a_file_is(run, command, tmp_path):
    text = b"The dog sleeps.\r\nA woman sees it.\r\n"
    pairs = b"The dog sleeps.\tDer Hund\nA woman sees it.\tEine Frau\n"
    written = {}
    for name, plain in (("translate", text), ("score", pairs)):
        for data in (plain, b"\xef\xbb\xbf" + plain, gzip.compress(plain)):
            shown = command(name, run, typed=data).out
            assert written.setdefault(name, shown) == shown
    assert command("translate", run, "--input", "-", typed=text).out == written["translate"]
    (tmp_path / "new.gz").write_bytes(gzip.compress(text))
    assert command("translate", run, "--input", tmp_path / "new.gz").out == written["translate"]


def test_progress_of_a_pipe(run, command, monkeypatch):
    monkeypatch.setattr(progress, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(progress, "PIPE_SECONDS", 0.0)
    monkeypatch.setattr(streams, "CHUNK_LINES", 2)
    note = progress.Progress.note

    def note_at_once(self, text):
        """Writes the line itself: the thread that does it may sleep through short work."""
        note(self, text)
        if self._bar is not None:
            self._tick()

    monkeypatch.setattr(progress.Progress, "note", note_at_once)
    asked = ["--engine", "plain", "--beam-size", 1, "--max-length", 3]
    shown = command("translate", run, *asked, typed=LINES * 2)
    assert len(shown.out.splitlines()) == 6
    assert re.search(r"^the standard input \.\.\. [\d:]+, 2 lines; \w+ing ", shown.err, re.M)


@pytest.mark.parametrize("engine", [None, "plain", "numba", "ctranslate2", keras.backend.backend()])
def test_the_engine_is_asked_for_and_named(run, translator, command, engine):
    if engine in ("numba", "ctranslate2"):
        pytest.importorskip(engine)
    asked = [] if engine is None else ["--engine", engine]
    shown = command("translate", run, *asked, typed=LINES)
    named = re.findall(r"^keras-attention translate: decoded by (\w+)\. ", shown.err, re.MULTILINE)
    assert named == ["numba" if engine is None else engine]
    if engine != "ctranslate2":  # it has a search of its own
        assert shown.out.splitlines() == as_lines(translator(LINES))
    assert len(shown.out.splitlines()) == len(LINES)


@pytest.fixture
def short_run(run, tmp_path):
    """A run that was trained on sources of up to 12 tokens."""
    folder = shutil.copytree(run, tmp_path / "short")
    report = json.loads((run / "report.json").read_text())
    (folder / "report.json").write_text(json.dumps({**report, "batches": {"longest_source": 12}}))
    return folder


UNUSUAL = ["A dog.", "世界", "", "A woman sees the small house. " * 4, "A dog.", "世界 A"]


def test_unusual_lines_are_named_once(short_run, tmp_path, command, monkeypatch):
    monkeypatch.setattr(streams, "CHUNK_LINES", 2)
    message = (
        r"1 of 6 lines are longer than any in training \(12 tokens\): 4\. .*"
        "2 of 6 lines consist mostly of characters that the vocabulary lacks: 2, 6"
    )
    shown = command("translate", short_run, typed=UNUSUAL)
    assert len(re.findall(message, shown.err)) == 1 and len(shown.out.splitlines()) == 6
    error = command("score", short_run, typed=[f"{line}\tEin Hund" for line in UNUSUAL]).err
    assert len(re.findall(message.replace("lines", "sources"), error)) == 1
    assert "training" not in command("translate", short_run, typed=["A dog."]).err


def test_bulk_translation_names_the_first_unusual_lines(short_run, tmp_path, command):
    (tmp_path / "a.en").write_text(as_text(UNUSUAL), "utf-8")
    given = ["--input", tmp_path / "a.en", "--chunk-lines", 4, "--output-dir", tmp_path / "out"]
    error = command("translate", short_run, *given).err
    assert "Input 1, from line 1: 1 of 4 lines are longer" in error and "lacks: 2. " in error
    assert error.count("Input 1") == 1


def test_a_file_into_a_new_file(run, translator, tmp_path, command, refused):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("\ufeff" + "\n".join(LINES), "utf-8")
    words = ["translate", run, "--input", source, "--output"]
    command(*words, target)
    assert target.read_text("utf-8").splitlines() == as_lines(translator(LINES))
    before = contents(tmp_path)
    assert "exists" in refused(*words, target)
    assert "is both a file to read and the file to write" in refused(*words, source)
    assert contents(tmp_path) == before and {*before} == {"in.txt", "out.txt"}


@pytest.mark.parametrize("option", [[], ["--n-best", "2"]])  # below: JSON
def test_a_corpus_in_chunks_is_as_each_file_alone(run, tmp_path, command, option, refused):
    texts = {
        "a.en": LINES,
        "b.en": [*LINES[::-1], "A dog\u2028sleeps.", "It sees her."],
        "no.en": [],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("\n".join(lines), "utf-8")
    out = tmp_path / "out"
    bulk = ["translate", run, "--input", tmp_path / "*.en", "--chunk-lines", 2, *option]
    bulk += ["--output-dir", out]
    assert command(*bulk).out.splitlines() == [str(out / name) for name in texts]
    for name in texts:
        alone = command("translate", run, "--input", tmp_path / name, *option).out
        assert (out / name).read_bytes().decode() == alone and len(alone) > 0 or name == "no.en"
    assert "beam_size: 2 there, 3 asked for" in refused(*bulk, "--beam-size", 3)


@pytest.mark.parametrize(
    "options",
    [
        ["--sample", "--top-k", "9", "--seed", "3", "--n-best", "3"],
        ["--ban", "ein", "--no-repeat-ngram", "2", "--max-length", "9", "--prefix-file", "begun"],
        ["--alignment", "--alignment-head", "0", "1", "--phrases-file", "begun"],
        ["--markup", "--n-best", "2", "--json"],
    ],
)
def test_choices_in_chunks_are_as_in_one_piece(
    run, tmp_path, command, monkeypatch, options, refused
):
    monkeypatch.chdir(tmp_path)
    Path("a.en").write_text("The <b>dog</b> sleeps.\n\nA {0} runs.\nA dog", "utf-8")
    Path("begun").write_text("Ein\n\nDas\nEin\n", "utf-8")
    words = ["translate", run, "--input", "a.en"]
    chunks = ["--output-dir", "out", "--chunk-lines", 3]
    command(*words, *options, *chunks)
    alone = command(*words, *options).out
    # Batches of other shapes are rounded otherwise.
    found, expected = (
        re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.2f}", text)
        for text in (Path("out/a.en").read_text("utf-8"), alone)
    )
    assert found == expected and alone.strip()
    assert "there, " in refused(*words, *chunks)


def test_a_model_of_another_program_in_chunks(foreign, tmp_path, command, refused):
    model, out = foreign / "separate", tmp_path / "out"
    files = tmp_path / "new.en", tmp_path / "new.de"
    for file, lines in zip(files, ([*SOURCES, "", "cats"], [*TARGETS, "", "Hunde"]), strict=True):
        file.write_text(as_text(lines), "utf-8")
    chunks = ["--chunk-lines", 4, "--output-dir"]
    words = ["translate", model, "--input", files[0]]
    [result] = command(*words, *chunks, out / "translate").out.splitlines()
    alone = command(*words).out
    assert Path(result).read_text("utf-8") == alone and "".join(alone.split())
    assert alone.count("\n") == 6
    words = ["score", model, "--source-file", files[0], "--target-file", files[1]]
    [result] = command(*words, *chunks, out / "score").out.splitlines()
    found, alone = (
        list(map(float, text.split())) for text in (Path(result).read_text(), command(*words).out)
    )
    assert found == pytest.approx(alone, rel=1e-4, abs=1e-4) and len(found) == 6
    weights = model / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    preset_of.cache_clear()
    error = refused(*words, *chunks, out / "score")
    assert re.search("holds other bulk work \\(model: '.*' there, ", error)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"good\n\xff\xfe\n", "line 2, byte 1 of the line: 0xFF is not UTF-8"),
        ("dog\n".encode("utf-16-le"), "line 1, holds a NUL"),
    ],
)
def test_what_is_no_text_is_not_translated(run, refused, data, message):
    error = refused("translate", run, typed=data)
    assert error.startswith("keras-attention translate: ")
    assert f"'the standard input', {message}" in error


@pytest.mark.parametrize(
    "text, options, message",
    [
        (b"a\n" + b"b" * 301, ["--max-line", 300], "Line 2 has 301 characters; at most 300"),
        (b"a" * 20_001, [], "Line 1 has 20,001 characters; at most 20,000"),
    ],
)
def test_a_line_that_is_too_long_is_named(run, refused, text, options, message):
    assert message in refused("translate", run, *options, typed=text)


def test_a_result_that_came_meanwhile_is_not_replaced(run, monkeypatch, tmp_path):
    output = tmp_path / "out"

    class Meanwhile(io.BytesIO):
        def readinto1(self, buffer):
            output.write_text("theirs")
            return super().readinto1(buffer)

    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=Meanwhile(b"a\n")))
    with pytest.raises(FileExistsError, match="was left as it is"):
        translate.main([str(run), "--output", str(output)], "translate")
    assert output.read_text() == "theirs"


def test_a_pipe_that_is_closed_early_ends_quietly(run, tmp_path):
    """In a process of its own, whose reader ends at once."""
    lines = tmp_path / "in.txt"
    lines.write_text("A dog.\n")
    words = f"{sys.executable} -m keras_attention_light translate {run} --beam-size 1 --input"
    done = subprocess.run(
        ["bash", "-c", f"{words} {lines} | true; exit ${{PIPESTATUS[0]}}"],
        cwd=ROOT, env=dict(os.environ), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 141
    # Nor do libraries write of themselves.
    for note in ("Traceback", "BrokenPipe", "oneDNN", "absl"):
        assert note not in done.stderr


def test_an_average(run, tmp_path, command, refused):
    """The three checkpoints hold a model times 1.5, 1.5 ** 2 and 1.5 ** 3; the model is the last."""
    output = tmp_path / "mean.keras"
    shown = command("average", run, "--last", 2, "--output", output).out
    assert "update-00000004, update-00000006" in shown
    last = keras.saving.load_model(run / "model.keras", compile=False)
    mean = keras.saving.load_model(output, compile=False)
    for one, other in zip(last.trainable_variables, mean.trainable_variables, strict=True):
        expected = keras.ops.convert_to_numpy(one) * (1 + 1 / 1.5) / 2
        found = keras.ops.convert_to_numpy(other)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    before = contents(tmp_path)
    refused("average", run, "--output", output)
    refused("average", run, "--output", tmp_path / "mean.h5")
    error = refused("average", run, "--last", 4, "--output", tmp_path / "four.keras")
    assert re.search("--last must be at most 3, .*Received: 4", error)
    assert contents(tmp_path) == before and {*before} == {"mean.keras"}


def test_settings_of_another_version(run, tmp_path, refused):
    other = shutil.copytree(run, tmp_path / "other")
    settings = json.loads((other / "config.json").read_text())
    kept = {name: settings[name] for name in ("train_fingerprint", "languages") if name in settings}
    (other / "config.json").write_text(json.dumps(kept))  # the first versions signed nothing
    pair = write_files(tmp_path, "pair", 0, 3)
    files = ["--source-file", pair[0], "--reference-file", pair[1]]
    for words in (
        ["translate", other], ["attention", other, "A dog."], ["evaluate", other, *files],
        ["average", other, "--output", tmp_path / "mean.keras"],
    ):  # fmt: skip
        assert "config.json' lacks " in refused(*words)


def test_a_run_in_one_line(run, translator):
    ours = Translator.from_run(run)
    assert (ours.beam_size, ours.length_penalty) == (2, 0.6)
    assert ours(LINES) == translator(LINES)
    assert Translator.from_run(run, beam_size=1).beam_size == 1
    with pytest.raises(ValueError, match="is not the folder of a run"):
        Translator.from_run(run / "tokenizer")
    with pytest.raises(ValueError, match="must be a path"):
        Translator.from_run(3)


def test_public_models_are_listed_with_their_sources(capsys, monkeypatch):
    main(["models", "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["handle"]: row for row in rows} == Transformer.presets() and 40 <= len(rows) <= 60
    assert all(row["handle"] and row["languages"] and row["family"] for row in rows)
    # The published file, and in brackets which part of it where it is not of the weights.
    assert all(re.search(r"\.(json|yml|py|md)( \([^()]+\))?$", row["source"]) for row in rows)
    main(["models", "M2M"])
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == [
        f"hf://facebook/m2m100_{n}" for n in ("418M", "1.2B")
    ]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    main(["models"])
    shown = capsys.readouterr().out.splitlines()
    told = [line for line in shown if line.startswith("    ")]
    assert [line for line in shown if line not in told] == [row["handle"] for row in rows]
    assert len(told) > len(rows) and max(map(len, told)) <= 80
    with pytest.raises(SystemExit):
        main(["models", "no such model"])
    with pytest.raises(SystemExit):
        main(["models", "M2M", "--source-language", "de"])
    assert "can be used only with --measure" in capsys.readouterr().err
    address = next(row["handle"] for row in rows if row["family"].startswith("Tatoeba"))
    with pytest.raises(FileNotFoundError, match="Download its files, unpack them"):
        Translator.from_preset(address)


def test_a_model_is_measured(tmp_path, capsys):
    translator = Translator.from_preset("demo_en_de", show_progress=False)
    texts = ["The dog sleeps.", "The old teacher reads the book."]
    references = [translator(texts[0]), "Kein Wort davon."]
    for name, lines in (("a.en", texts), ("a.de", references)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    main(["models", "demo_en_de", "--measure", str(tmp_path / "a.en"), str(tmp_path / "a.de")])
    found = json.loads(capsys.readouterr().out)
    translations = translator(texts)
    assert found["bleu"] == round(corpus_bleu(translations, references, language="de").score, 2)
    assert (found["handle"], found["test"], found["sentences"]) == (
        "demo_en_de",
        ["a.en", "a.de"],
        2,
    )
    assert 0 < found["chrf"] < 100 and "tok:13a" in found["signatures"][0]


def help_of(words, capsys):
    with pytest.raises(SystemExit) as left:
        main([*words, "--help"])
    assert left.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    shown = help_of([name], capsys)
    assert f"keras-attention {name}" in shown
    if name != "plan":  # whose options are those of `train`
        assert f"  keras-attention {name} " in shown.partition("example")[2]


def test_help_needs_no_keras_and_no_docstrings():
    """`python -OO` drops them."""
    program = (
        "import sys, keras_attention_light\n"
        "from keras_attention.cli.main import main\n"
        "try: main(['train', '--help'])\n"
        "except SystemExit: print('keras' in sys.modules, 'numpy' in sys.modules)"
    )
    done = python("-OO", "-c", program)
    assert done.stdout.splitlines()[-1] == "False False", done.stderr
    assert "--preset" in done.stdout


@pytest.mark.parametrize(
    "arguments, hint",
    [
        (["train", "--stpes", "30"], "--stpes 30 Did you mean '--steps'?"),
        (["train", "--step", "30"], "--step 30 Did you mean '--steps'?"),
        (["translate", "run", "--n-bset=2"], "--n-bset=2 Did you mean '--n-best'?"),
        (["translate", "run", "new.en"], "unrecognized arguments: new.en\n"),
        (["trian"], "Did you mean 'train'?"),
        ([], ""),
    ],
)
def test_a_misspelt_option_or_command(refused, arguments, hint):
    assert hint in refused(*arguments)


def test_the_overview(capsys):
    assert "commands:" in help_of([], capsys)


@pytest.mark.parametrize(
    "error,code",
    [
        (ValueError("bad"), 2),
        (agreed(ValueError("bad"), is_told_here=False), 2),  # Another process tells it.
        (FileNotFoundError(2, "no file"), 2),
        (OSError(28, "No space left"), 1),
        (MemoryError("full"), 1),
        (FloatingPointError("diverged"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(monkeypatch, error, code, capsys):
    class Command:
        def main(self, arguments, program):
            raise error

    monkeypatch.setattr(commands.importlib, "import_module", lambda name: Command())
    with pytest.raises(SystemExit) as left:
        main(["train"])
    assert left.value.code == code
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert is_told_here(error) or told == ""


@pytest.mark.parametrize("engine", ["numba", "ctranslate2"])
def test_an_engine_that_is_not_installed_is_refused_at_once(run, refused, monkeypatch, engine):
    monkeypatch.setattr(select, "is_installed", lambda package: False)
    monkeypatch.setattr(translate, "start_backend", lambda: pytest.fail("the backend started"))
    assert f"not installed: pip install {engine}." in refused("translate", run, "--engine", engine)


@pytest.mark.parametrize(
    "words, message",
    [
        ("translate RUN --chunk-lines 2", "--chunk-lines needs --output-dir"),
        ("translate RUN --ray", "--ray needs --output-dir"),
        ("translate RUN --input a b", "Several files of --input need --output-dir"),
        ("translate RUN --n-best 3", "at most the beam size, which is 2"),
        ("translate RUN --input no.txt", "there is no file 'no.txt'"),
        (
            "translate RUN --input s3://a/b.txt",
            "A URL of --input needs --output-dir. Received: s3:",
        ),
        ("translate RUN --input a --output-dir new --output x", "combined with --output"),
        ("translate RUN --input a --output-dir new --n-best 3", "--n-best must be at most"),
        ("translate RUN --engine plain --precision float32", "own dtype"),
        ("translate RUN --engine jax", "KERAS_BACKEND is torch"),
        ("score RUN --source-file a", "belong together"),
        ("score RUN --source-file a b --target-file a", "Several files of --source-file need"),
        ("score RUN --source-file no --target-file b", "'no' does not exist"),
        ("score RUN --workers 2", "--workers needs --output-dir"),
        ("score RUN --output-dir new", "needs --source-file and --target-file"),
        ("score RUN --source-file no* --target-file b --output-dir new", "there is no file 'no*'"),
        ("score 'no run'", "There is no folder 'no run'"),
        ("attention hf://owner 'A dog.'", "must have the form hf://owner/name"),
        ("evaluate RUN --source-file no --reference-file b", "'no' does not exist"),
        ("train --preset bas", "'base'"),
    ],
)
def test_what_needs_no_backend_is_refused_before_it_starts(
    run, refused, monkeypatch, tmp_path, words, message
):
    name, *given = [str(run) if word == "RUN" else word for word in shlex.split(words)]
    module = importlib.import_module(f"keras_attention.cli.{name}")
    monkeypatch.setattr(module, "start_backend", lambda: pytest.fail("the backend started"))
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.chdir(tmp_path)
    for file, text in (("a", "A dog.\n"), ("b", "Ein Hund.\nJa.\n")):
        (tmp_path / file).write_text(text)
    error = refused(name, *given)
    assert message in error and error.startswith(f"keras-attention {name}: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_export_writes_what_other_programs_read(run, translator, tmp_path, command):
    marian, converted = tmp_path / "marian", tmp_path / "converted"
    words = ["export", run, marian, "--format", "hugging_face", "--max-length", 61]
    assert command(*words).out == f"The model is in {marian}\n"
    settings = json.loads((marian / "config.json").read_text())
    assert settings["max_position_embeddings"] == 61
    assert json.loads((marian / "generation_config.json").read_text())["num_beams"] == 2
    again = Translator.from_preset(marian, length_penalty=0.6, show_progress=False)
    assert again(LINES) == translator(LINES)
    command("export", run, converted, "--format", "ctranslate2", "--quantization", "int8")
    assert (converted / "model.bin").is_file()
    command("export", run, tmp_path / "wide", "--format", "hugging_face", "--beam-size", 3)
    assert Translator.from_preset(tmp_path / "wide").beam_size == 3


def test_alignments_behind_the_text(run, translator, command):
    """Numbers of words; an empty line has none. The JSON form has the scores of tokens, too."""
    wanted = with_details(translator, LINES, translator.translate(LINES), (0, 1))
    best = [row[0] for row in wanted]
    words = ["translate", run, "--alignment", "--alignment-head", 0, 1]
    shown = command(*words, typed=LINES).out
    links = [" ".join(f"{s}-{t}" for s, t in one.alignment) for one in best]
    texts = as_lines(one.text for one in best)
    assert shown.splitlines() == list(map(" ||| ".join, zip(texts, links, strict=True)))
    assert links[0] and not links[1]
    shown = command(*words, "--json", typed=LINES).out
    rows = [json.loads(line)["translations"][0] for line in shown.splitlines()]
    found = [[tuple(link) for link in row["alignment"]] for row in rows]
    assert found == [list(one.alignment) for one in best]
    scores = [score for row in rows for score in row["token_scores"]]
    expected = [score for one in best for score in one.token_scores]
    np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-5)


def test_export_refuses_bad_options(run, tmp_path, refused):
    folder = tmp_path / "new"
    wrong = ["--format", "hugging_face", "--quantization", "int8"]
    error = refused("export", run, folder, *wrong)
    assert "'hugging_face' has no option 'quantization'" in error
    refused("export", run, run, "--format", "hugging_face", "--overwrite")
    assert not folder.exists() and (run / "model.keras").is_file()
    folder.mkdir()
    EXPORT.seal(folder, {"exported": "onnx"})
    assert "or pass --overwrite to replace it" in refused("export", run, folder, "--format", "onnx")
