"""The commands that use a finished run: their output, their files, their exit codes."""

import gzip
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attention import Translator
from keras_attention.cli import main as commands
from keras_attention.cli import streams, translate
from keras_attention.cli.attention import MAKER
from keras_attention.cli.main import COMMANDS, main
from keras_attention.cli.models import preset_of
from keras_attention.engine import select
from keras_attention.recipes.aligning import with_details
from keras_attention.recipes.bulk import ScoreChunk, _loaded
from keras_attention.recipes.bulk_parts import Chunk
from keras_attention.utils import progress
from tests.interop.conftest import SOURCES, TARGETS, sentence_pieces, write_marian_mt
from tests.recipes.small_runs import write_files

pytestmark = pytest.mark.backends("torch")

ROOT = Path(__file__).resolve().parents[2]
LINES = ["The dog sleeps.", "", "A woman sees the small house."]


def test_lines_are_translated_in_order(run, translator, typed, capsys):
    expected = translator(LINES)
    typed("".join(f"{line}\n" for line in LINES).encode())
    main(["translate", str(run)])
    assert capsys.readouterr().out.splitlines() == [" ".join(t.splitlines()) for t in expected]


def test_n_best_as_moses_and_json(run, translator, typed, capsys):
    best = translator.translate(LINES, n_best=2)
    for option in ([], ["--json"]):
        typed("\n".join(LINES).encode())
        main(["translate", str(run), "--n-best", "2", *option])
        rows = capsys.readouterr().out.splitlines()
        if option:
            found = [json.loads(row) for row in rows]
            assert [row["source"] for row in found] == LINES
            scores = [[one["score"] for one in row["translations"]] for row in found]
            assert scores == [pytest.approx([one.score for one in row]) for row in best]
        else:
            numbers, texts, scores = zip(*(row.split(" ||| ") for row in rows), strict=True)
            flat = [(index, one) for index, row in enumerate(best) for one in row]
            assert list(map(int, numbers)) == [index for index, _ in flat]
            assert list(texts) == [" ".join(one.text.splitlines()) for _, one in flat]
            assert list(map(float, scores)) == pytest.approx([s.score for _, s in flat], abs=1e-5)


def test_a_pipe_is_read_as_a_file_is(run, typed, capsys, tmp_path):
    text = b"The dog sleeps.\r\nA woman sees it.\r\n"
    pairs = b"The dog sleeps.\tDer Hund\nA woman sees it.\tEine Frau\n"
    written = {}
    for command, plain in (("translate", text), ("score", pairs)):
        for data in (plain, b"\xef\xbb\xbf" + plain, gzip.compress(plain)):
            typed(data)
            main([command, str(run)])
            assert written.setdefault(command, shown := capsys.readouterr().out) == shown
    (tmp_path / "new.gz").write_bytes(gzip.compress(text))
    main(["translate", str(run), "--input", str(tmp_path / "new.gz")])
    assert capsys.readouterr().out == written["translate"]


def test_progress_of_a_pipe(run, typed, capsys, monkeypatch):
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
    typed("".join(f"{line}\n" for line in LINES * 3).encode())
    main(["translate", str(run), "--engine", "plain"])
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 9
    assert re.search(
        r"^the standard input \.\.\. [\d:]+, 2 lines; \w+ing ", shown.err, re.MULTILINE
    )


@pytest.mark.parametrize("engine", [None, "plain", "numba", "ctranslate2", keras.backend.backend()])
def test_the_engine_is_asked_for_and_named(run, translator, typed, capsys, engine):
    if engine in ("numba", "ctranslate2"):
        pytest.importorskip(engine)
    typed("".join(f"{line}\n" for line in LINES).encode())
    main(["translate", str(run), *([] if engine is None else ["--engine", engine])])
    shown = capsys.readouterr()
    named = re.findall(r"^keras-attention translate: decoded by (\w+)\. ", shown.err, re.MULTILINE)
    assert named == ["numba" if engine is None else engine]
    if engine != "ctranslate2":  # it has a search of its own
        assert shown.out.splitlines() == [" ".join(t.splitlines()) for t in translator(LINES)]
    assert len(shown.out.splitlines()) == len(LINES)


@pytest.fixture
def short_run(run, tmp_path):
    """A run that was trained on sources of up to 12 tokens."""
    folder = shutil.copytree(run, tmp_path / "short")
    report = json.loads((run / "report.json").read_text())
    (folder / "report.json").write_text(json.dumps({**report, "batches": {"longest_source": 12}}))
    return folder


UNUSUAL = ["A dog.", "世界", "", "A woman sees the small house. " * 4, "A dog.", "世界 A"]


def test_unusual_lines_are_named_once(short_run, tmp_path, typed, capsys, monkeypatch):
    monkeypatch.setattr(streams, "CHUNK_LINES", 2)
    message = (
        r"1 of 6 lines are longer than any in training \(12 tokens\): 4\. .*"
        "2 of 6 lines consist mostly of characters that the vocabulary lacks: 2, 6"
    )
    typed("".join(f"{line}\n" for line in UNUSUAL).encode())
    main(["translate", str(short_run)])
    shown = capsys.readouterr()
    assert len(re.findall(message, shown.err)) == 1 and len(shown.out.splitlines()) == 6
    typed("".join(f"{line}\tEin Hund\n" for line in UNUSUAL).encode())
    main(["score", str(short_run)])
    assert len(re.findall(message.replace("lines", "sources"), capsys.readouterr().err)) == 1
    typed(b"A dog.\n")
    main(["translate", str(short_run)])
    assert "training" not in capsys.readouterr().err


def test_bulk_translation_names_the_first_unusual_lines(short_run, tmp_path, capsys):
    (tmp_path / "a.en").write_text("".join(f"{line}\n" for line in UNUSUAL), "utf-8")
    main(["translate", str(short_run), "--input", str(tmp_path / "a.en"), "--chunk-lines", "4",
          "--output-dir", str(tmp_path / "out")])  # fmt: skip
    error = capsys.readouterr().err
    assert "Input 1, from line 1: 1 of 4 lines are longer" in error and "lacks: 2. " in error
    assert error.count("Input 1") == 1


def test_a_file_into_a_new_file(run, translator, tmp_path, refused):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("\ufeff" + "\n".join(LINES), "utf-8")
    files = ["--input", str(source), "--output", str(target)]
    main(["translate", str(run), *files])
    assert target.read_text("utf-8").splitlines() == [
        " ".join(t.split("\n")) for t in translator(LINES)
    ]
    before = target.read_bytes()
    assert "exists" in refused("translate", run, *files)
    both = refused("translate", run, "--input", source, "--output", source)
    assert "is both a file to read and the file to write" in both
    assert target.read_bytes() == before and {p.name for p in tmp_path.iterdir()} == {
        "in.txt",
        "out.txt",
    }


@pytest.mark.parametrize("option", [[], ["--n-best", "2"], ["--n-best", "2", "--json"]])
def test_a_corpus_in_chunks_is_as_each_file_alone(run, tmp_path, capsys, option, refused):
    texts = {
        "a.en": LINES,
        "b.en": [*LINES[::-1], "A dog\u2028sleeps.", "It sees her."],
        "no.en": [],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("\n".join(lines), "utf-8")
    pattern, out = tmp_path / "*.en", tmp_path / "out"
    sizes = ["--chunk-lines", "2", "--output-dir", out, *option]
    main([str(word) for word in ["translate", run, "--input", pattern, *sizes, "--chunk", "2/2"]])
    assert capsys.readouterr().out == ""
    main([str(word) for word in ["translate", run, "--input", pattern, *sizes]])
    assert capsys.readouterr().out.splitlines() == [str(out / name) for name in texts]
    for name in texts:
        main(["translate", str(run), "--input", str(tmp_path / name), *option])
        alone = capsys.readouterr().out
        assert (out / name).read_bytes().decode() == alone and len(alone) > 0 or name == "no.en"
    assert "beam_size: 2 there, 3 asked for" in refused(
        "translate", run, "--input", pattern, *sizes, "--beam-size", "3"
    )


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
    run, tmp_path, capsys, monkeypatch, options, refused
):
    monkeypatch.chdir(tmp_path)
    Path("a.en").write_text("The <b>dog</b> sleeps.\n\nA {0} runs.\nA dog", "utf-8")
    Path("begun").write_text("Ein\n\nDas\nEin\n", "utf-8")
    command = ["translate", str(run), "--input", "a.en", *options]
    main([*command, "--output-dir", "out", "--chunk-lines", "3"])
    main(command)
    alone = capsys.readouterr().out.removeprefix("out/a.en\n")
    # Batches of other shapes are rounded otherwise.
    found, expected = (
        re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.2f}", text)
        for text in (Path("out/a.en").read_text("utf-8"), alone)
    )
    assert found == expected and alone.strip()
    assert "there, " in refused(*command[:4], "--output-dir", "out", "--chunk-lines", "3")


def test_a_model_of_another_program_in_chunks(tmp_path, capsys, refused):
    pytest.importorskip("transformers", reason="not installed: pip install transformers")
    spm = sentence_pieces(SOURCES, 40), sentence_pieces(TARGETS, 44)
    model, out = tmp_path / "model", tmp_path / "out"
    write_marian_mt(model, spm, separate=True)
    for name, lines in (("new.en", [*SOURCES, "", "cats"]), ("new.de", [*TARGETS, "", "Hunde"])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    files = tmp_path / "new.en", tmp_path / "new.de"
    chunks = ["--chunk-lines", "4", "--output-dir"]
    for start in (["translate", "--input", files[0]], ["score"]):
        command = [start[0], model, *start[1:]]
        if start == ["score"]:
            command += ["--source-file", files[0], "--target-file", files[1]]
        folder = out / start[0]
        main([str(word) for word in [*command, *chunks, folder]])
        [result] = map(Path, capsys.readouterr().out.splitlines())
        main([str(word) for word in command])
        alone = capsys.readouterr().out
        assert alone.count("\n") == 6
        if start == ["score"]:
            alone, found = (list(map(float, text.split())) for text in (alone, result.read_text()))
            assert found == pytest.approx(alone, rel=1e-4, abs=1e-4)
        else:
            assert result.read_text("utf-8") == alone and "".join(alone.split())
    job = ScoreChunk(_loaded(model)[0])
    pairs = list(zip(SOURCES, TARGETS, strict=True))
    chunk = Chunk(0, 0, 0, len(pairs))
    scores = ForkingPickler.loads(ForkingPickler.dumps(job))()(pairs, chunk)  # as Ray sends it
    assert list(map(float, scores.split())) == pytest.approx(found[: len(pairs)], rel=1e-4)
    weights = model / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    preset_of.cache_clear()
    assert re.search(
        "holds other bulk work \\(model: '.*' there, ", refused(*command, *chunks, folder)
    )


def test_another_model_does_not_go_on_with_a_corpus(run, tmp_path, refused):
    (tmp_path / "a.en").write_text("A dog.")
    out, other = tmp_path / "out", tmp_path / "other"
    given = ["--input", tmp_path / "a.en", "--output-dir", out]
    main([str(word) for word in ["translate", run, *given, "--chunk", "1/9"]])
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    shutil.copytree(run, other)
    model = keras.saving.load_model(run / "model.keras", compile=False)
    model.trainable_variables[0].assign(model.trainable_variables[0] * 2)
    model.save(other / "model.keras")
    assert re.search(
        "holds other bulk work \\(model: '.*' there, ", refused("translate", other, *given)
    )
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "options, message",
    [
        (["--chunk", "3/2"], "17/400.*Received: 3/2"),
        (["--workers", "2"], "`workers` needs `ray`"),
        (["--output", "x"], "cannot be combined with --output"),
    ],
)
def test_bad_use_of_bulk_translation(run, tmp_path, refused, options, message):
    (tmp_path / "a.en").write_text("A dog.")
    out = tmp_path / "out"
    given = ["--input", tmp_path / "a.en", "--output-dir", out, *options]
    assert re.search(message, refused("translate", run, *given))
    assert not out.exists() or not list(out.iterdir())


@pytest.mark.parametrize(
    "arguments,data,message",
    [
        (["--chunk", "1/2"], b"", "--chunk needs --output-dir"),
        (["--ray"], b"", "--ray needs --output-dir"),
        (["--input", "a", "b"], b"", "Several files of --input need --output-dir"),
        (["--n-best", "3"], b"", "at most the beam size, which is 2"),
        (["--input", "no.txt"], b"", "there is no file 'no.txt'"),
        (
            [],
            b"good\n\xff\xfe\n",
            "'the standard input', line 2, byte 1 of the line: 0xFF is not UTF-8",
        ),
        ([], "dog\n".encode("utf-16-le"), "'the standard input', line 1, holds a NUL"),
    ],
)
def test_bad_use_of_translate(run, typed, refused, arguments, data, message):
    typed(data)
    error = refused("translate", run, *arguments)
    assert message in error and error.startswith("keras-attention translate: ")


def test_a_pipe_that_is_closed_early_ends_quietly(run, tmp_path):
    """In a process of its own, whose reader ends at once."""
    lines = tmp_path / "in.txt"
    lines.write_text("A dog.\n")
    command = (
        f"{sys.executable} -m keras_attention_light translate {run} --beam-size 1 --input {lines}"
    )
    done = subprocess.run(
        ["bash", "-c", f"{command} | true; exit ${{PIPESTATUS[0]}}"],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 141
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr
    # Nor do libraries write of themselves.
    assert "oneDNN" not in done.stderr and "absl" not in done.stderr


def test_scores_are_sums_of_log_probabilities(run, translator, typed, capsys, refused):
    """The oracle: a softmax in NumPy over the logits, one pair at a time, without padding."""
    pairs = [
        ("The dog sleeps.", "Der Hund"),
        ("A woman sees it.", "Eine Frau sieht den kleinen Hund."),
    ]
    model, tokenizer = translator.model, translator.tokenizer
    expected = []
    for source, target in pairs:
        ids = [[*tokenizer.encode(text), tokenizer.end_token_id] for text in (source, target)]
        inputs = {
            "encoder_token_ids": np.array([ids[0]], "int32"),
            "decoder_token_ids": np.array([[tokenizer.start_token_id, *ids[1][:-1]]], "int32"),
        }
        logits = keras.ops.convert_to_numpy(model(inputs, training=False))[0].astype("float64")
        normalizer = np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) + logits.max(1)
        expected.append(sum(logits[t, i] for t, i in enumerate(ids[1])) - normalizer.sum())
    typed("".join(f"{source}\t{target}\n" for source, target in pairs).encode())
    main(["score", str(run)])
    found = [float(line) for line in capsys.readouterr().out.splitlines()]
    assert found == pytest.approx(expected, abs=1e-3)
    typed(b"no tab\n")
    assert "line 1 must be a source, one tab and a translation" in refused("score", run)


def test_a_corpus_is_scored_in_chunks(run, tmp_path, capsys, refused):
    pairs = {"a": LINES, "b": [*LINES[::-1], "A dog\u2028sleeps."]}
    for name, lines in pairs.items():
        (tmp_path / f"{name}.en").write_text("\n".join(lines), "utf-8")
        (tmp_path / f"{name}.de").write_text("\n".join(lines[::-1]), "utf-8")
    files = ["--source-file", f"{tmp_path}/*.en", "--target-file", f"{tmp_path}/*.de"]
    out = tmp_path / "out"
    bulk = ["score", str(run), *files, "--output-dir", str(out), "--chunk-lines", "2"]
    main([*bulk, "--chunk", "1/2"])
    assert capsys.readouterr().out == ""
    main([*bulk, "--chunk", "2/2"])
    assert capsys.readouterr().out.splitlines() == [str(out / "a.de"), str(out / "b.de")]
    for name, lines in pairs.items():
        sides = [str(tmp_path / f"{name}.{language}") for language in ("en", "de")]
        main(["score", str(run), "--source-file", sides[0], "--target-file", sides[1]])
        alone = [float(value) for value in capsys.readouterr().out.split()]
        found = [float(value) for value in (out / f"{name}.de").read_text().split()]
        assert len(found) == len(lines) and found == pytest.approx(alone, abs=1e-4)
    # Of translating and scoring, each refuses the other's folder.
    assert "work: 'score' there, 'translate' asked for" in refused(
        "translate", run, "--input", f"{tmp_path}/*.de", "--output-dir", out
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--source-file", "{0}/a"], "belong together"),
        (
            ["--source-file", "{0}/a", "{0}/b", "--target-file", "{0}/a"],
            "Several files of --source-file need",
        ),
        (["--chunk", "1/2"], "--chunk needs --output-dir"),
        (["--output-dir", "{0}/out"], "needs --source-file and --target-file"),
        (
            ["--source-file", "{0}/?", "--target-file", "{0}/a", "--output-dir", "{0}/out"],
            "Received: 2 and 1 files",
        ),
        (
            ["--source-file", "{0}/a", "--target-file", "{0}/b", "--output-dir", "{0}/out"],
            "/a' has 1 lines, '.*/b' has 2",
        ),
        (
            ["--source-file", "{0}/no*", "--target-file", "{0}/b", "--output-dir", "{0}/out"],
            "--source-file: there is no file",
        ),
    ],
)
def test_bad_use_of_score(run, tmp_path, refused, arguments, message):
    (tmp_path / "a").write_text("A dog.\n")
    (tmp_path / "b").write_text("Ein Hund.\nJa.\n")
    assert re.search(message, refused("score", run, *(word.format(tmp_path) for word in arguments)))
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_pictures_of_attention(run, tmp_path, capsys, refused):
    folder = tmp_path / "pictures"
    arguments = ["attention", str(run), "The dog sleeps.", "Der Hund", "--output", str(folder)]
    main(arguments)
    names = ["cross-layer_1.png", "decoder-layer_1.png", "encoder-layer_1.png"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.iterdir())
    assert capsys.readouterr().out.startswith("Der Hund\n")
    error = refused(*arguments)  # the folder is taken
    assert "exists" in error and "pass --overwrite" in error
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    main([*arguments[:3], "Die Katze", *arguments[4:], "--overwrite"])
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sorted(after) == names and all(after[name] != before[name] for name in names[:2])
    (folder / "notes.txt").write_text(f"mine, about `{MAKER}`")
    assert "keras_attention did not write it" in refused(*arguments, "--overwrite")
    assert (folder / "notes.txt").read_text().startswith("mine") and len(
        list(folder.iterdir())
    ) == 4


def sentence_of(page):
    """The only sentence in a page of the attention viewer."""
    text = re.search(r'id="attention-data">(.*?)</script>', page.read_text("utf-8"))[1]
    (run,) = json.loads(text)["index"]["runs"]
    (sentence,) = run["sentences"]
    return sentence


def test_a_page_of_attention(run, translator, tmp_path, refused):
    given, own = tmp_path / "given.html", tmp_path / "own.html"
    main(["attention", str(run), LINES[0], "Der Hund schläft.", "--output", str(given)])
    sentence = sentence_of(given)
    assert (sentence["text"], sentence["target_text"]) == (LINES[0], "Der Hund schläft.")
    assert "must end in .html, or be a new folder" in refused(
        "attention", run, LINES[0], "--output", tmp_path / "own.png"
    )
    error = refused("attention", run, LINES[0], "--output", given)
    assert "exists" in error and "pass --overwrite" in error
    main(["attention", str(run), LINES[0], "--output", str(own)])
    sentence = sentence_of(own)
    assert (sentence["target"], sentence["target_text"]) == ("output", translator(LINES[0]))
    main(["attention", str(run), LINES[2], "Ja.", "--output", str(own), "--overwrite"])
    assert sentence_of(own)["text"] == LINES[2]


def test_the_page_without_a_name_replaces_an_earlier_one(run, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "attention.html"
    for text in (LINES[0], LINES[2]):
        main(["attention", str(run), text, "Ja."])
        assert sentence_of(page)["text"] == text
    page.write_text("<p>mine</p>")
    assert "keras_attention did not write it" in refused("attention", run, LINES[0], "Ja.")
    assert page.read_text() == "<p>mine</p>"


def test_heads_by_importance(run, tmp_path, capsys):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("The dog sleeps.\n\nA cat sits.\n")
    target.write_text("Der Hund schläft.\nx\nEine Katze sitzt.\n")
    files = ["--source-file", str(source), "--target-file", str(target)]
    main(["heads", str(run), *files])
    names, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert names == ["kind", "layer", "head", "rise"]
    assert {tuple(row[:3]) for row in rows} == {
        (kind, "1", head) for kind in ("encoder", "decoder", "cross") for head in "12"
    }
    values = [float(row[3]) for row in rows]
    assert values == sorted(values, reverse=True)
    assert max(map(abs, values)) > 0


def test_an_average(run, tmp_path, monkeypatch, capsys, refused):
    """The three checkpoints hold a model times 1.5, 1.5 ** 2 and 1.5 ** 3; the model is the last."""
    output = tmp_path / "mean.keras"
    main(["average", str(run), "--last", "2", "--output", str(output)])
    assert "update-00000004, update-00000006" in capsys.readouterr().out
    last = keras.saving.load_model(run / "model.keras", compile=False)
    mean = keras.saving.load_model(output, compile=False)
    for one, other in zip(last.trainable_variables, mean.trainable_variables, strict=True):
        expected = keras.ops.convert_to_numpy(one) * (1 + 1 / 1.5) / 2
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(other), expected, rtol=1e-5, atol=1e-7
        )
    before = output.read_bytes()
    refused("average", run, "--output", output)
    assert output.read_bytes() == before
    refused("average", run, "--output", tmp_path / "mean.h5")
    # Refused before the backend starts.
    monkeypatch.setattr("keras_attention.cli.average.start_backend", pytest.fail)
    error = refused("average", run, "--last", "4", "--output", tmp_path / "four.keras")
    assert re.search("--last must be at most 3, .*Received: 4", error)
    assert {path.name for path in tmp_path.iterdir()} == {"mean.keras"}


def test_settings_of_another_version(run, tmp_path, refused):
    other = shutil.copytree(run, tmp_path / "other")
    settings = json.loads((other / "config.json").read_text())
    kept = {name: settings[name] for name in ("train_fingerprint", "languages") if name in settings}
    (other / "config.json").write_text(json.dumps(kept))  # the first versions signed nothing
    pair = write_files(tmp_path, "pair", 0, 3)
    files = ["--source-file", pair[0], "--reference-file", pair[1]]
    for command in (
        ["translate", other], ["attention", other, "A dog."], ["evaluate", other, *files],
        ["average", other, "--output", tmp_path / "mean.keras"],
    ):  # fmt: skip
        assert "config.json' lacks " in refused(*command)


def test_a_run_in_one_line(run, translator):
    ours = Translator.from_run(run)
    assert (ours.beam_size, ours.length_penalty) == (2, 0.6)
    assert ours(LINES) == translator(LINES)
    assert Translator.from_run(run, beam_size=1).beam_size == 1
    with pytest.raises(ValueError, match="is not the folder of a run"):
        Translator.from_run(run / "tokenizer")
    for start in (Translator.from_run, Translator.from_spec):
        with pytest.raises(ValueError, match="`folder` must be a path"):
            start(3)


def help_of(command, capsys):
    with pytest.raises(SystemExit) as left:
        main([*command.split(), "--help"])
    assert left.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    shown = help_of(command, capsys)
    assert f"keras-attention {command}" in shown
    if command != "plan":  # whose options are those of `train`
        assert f"  keras-attention {command} " in shown.partition("example")[2]


def test_help_needs_no_keras():
    program = (
        "import sys, keras_attention_light\n"
        "from keras_attention.cli.main import main\n"
        "try: main(['train', '--help'])\n"
        "except SystemExit: print('keras' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False False", done.stderr


@pytest.mark.parametrize(
    "arguments, hint",
    [
        (["train", "--stpes", "30"], "--stpes 30 Did you mean '--steps'?"),
        (["train", "--step", "30"], "--step 30 Did you mean '--steps'?"),
        (["translate", "run", "--n-bset=2"], "--n-bset=2 Did you mean '--n-best'?"),
        (["translate", "run", "new.en"], "unrecognized arguments: new.en\n"),
    ],
)
def test_a_misspelt_option(refused, arguments, hint):
    assert hint in refused(*arguments)


def test_a_misspelt_command(capsys, refused):
    assert "Did you mean 'train'?" in refused("trian")
    refused()
    assert "commands:" in help_of("", capsys)


@pytest.mark.parametrize(
    "error,code",
    [
        (ValueError("bad"), 2),
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
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["numba", "ctranslate2"])
def test_an_engine_that_is_not_installed_is_refused_at_once(run, refused, monkeypatch, engine):
    monkeypatch.setattr(select, "is_installed", lambda package: False)
    monkeypatch.setattr(translate, "start_backend", lambda: pytest.fail("the backend started"))
    assert f"not installed: pip install {engine}." in refused("translate", run, "--engine", engine)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["score", "no run"], "There is no folder 'no run'"),
        (["heads", ".", "--source-file", "a", "--target-file", "b"], "no model that is known"),
        (["attention", "hf://owner", "A dog."], "must have the form hf://owner/name"),
        (
            ["evaluate", "{run}", "--source-file", "a", "--reference-file", "b"],
            "'a' does not exist",
        ),
        (["heads", "{run}", "--source-file", "a", "--target-file", "b"], "'a' does not exist"),
        (["score", "{run}", "--source-file", "a", "--target-file", "b"], "'a' does not exist"),
        (["train", "--preset", "bas"], "'base'"),
        (["translate", "{run}", "--engine", "plain", "--precision", "float32"], "own dtype"),
        (["translate", "{run}", "--engine", "jax"], "KERAS_BACKEND is torch"),
        (["translate", "{run}", "--input", "a", "--output-dir", "b", "--n-best", "3"], "n-best"),
    ],
)
def test_what_needs_no_backend_is_refused_before_it_starts(
    run, refused, monkeypatch, tmp_path, arguments, message
):
    module = importlib.import_module(f"keras_attention.cli.{arguments[0]}")
    monkeypatch.setattr(module, "start_backend", lambda: pytest.fail("the backend started"))
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.chdir(tmp_path)
    assert message in refused(*(word.format(run=run) for word in arguments))


def test_export_writes_what_other_programs_read(run, translator, tmp_path, capsys):
    marian = tmp_path / "marian"
    main(["export", str(run), str(marian), "--format", "hugging_face", "--max-length", "61"])
    assert capsys.readouterr().out == f"The model is in {marian}\n"
    settings = json.loads((marian / "config.json").read_text())
    assert settings["max_position_embeddings"] == 61
    assert json.loads((marian / "generation_config.json").read_text())["num_beams"] == 2
    again = Translator.from_preset(marian, length_penalty=0.6, show_progress=False)
    assert again(LINES) == translator(LINES)
    converted = tmp_path / "converted"
    wanted = ["--format", "ctranslate2", "--quantization", "int8"]
    main(["export", str(run), str(converted), *wanted])
    assert (converted / "model.bin").is_file()


def test_alignments_behind_the_text(run, translator, typed, capsys):
    """Numbers of words; an empty line has none. The JSON form has the scores of tokens, too."""
    given = "".join(f"{line}\n" for line in LINES).encode()
    expected = with_details(translator, LINES, translator.translate(LINES), (0, 1))
    command = ["translate", str(run), "--alignment", "--alignment-head", "0", "1"]
    typed(given)
    main(command)
    links = [" ".join(f"{s}-{t}" for s, t in best[0].alignment) for best in expected]
    texts = [" ".join(best[0].text.splitlines()) for best in expected]
    assert capsys.readouterr().out.splitlines() == [
        f"{text} ||| {link}" for text, link in zip(texts, links, strict=True)
    ]
    assert links[0] and not links[1]
    typed(given)
    main([*command, "--json"])
    rows = [json.loads(line)["translations"][0] for line in capsys.readouterr().out.splitlines()]
    assert [[tuple(link) for link in row["alignment"]] for row in rows] == [
        list(best[0].alignment) for best in expected
    ]
    scores = [score for row in rows for score in row["token_scores"]]
    wanted = [score for best in expected for score in best[0].token_scores]
    np.testing.assert_allclose(scores, wanted, rtol=1e-3, atol=1e-5)


def test_export_refuses_bad_options(run, tmp_path, refused):
    folder = tmp_path / "new"
    wrong = ["--format", "hugging_face", "--quantization", "int8"]
    assert "--quantization is not for --format hugging_face" in refused(
        "export", run, folder, *wrong
    )
    refused("export", run, run, "--format", "hugging_face", "--overwrite")
    assert not folder.exists() and (run / "model.keras").is_file()
