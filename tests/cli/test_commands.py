"""The commands that use a finished run: their output, their files, their exit codes."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attention import Tokenizer, Translator
from keras_attention.cli import main as commands
from keras_attention.cli.main import COMMANDS, main

ROOT = Path(__file__).resolve().parents[2]
LINES = ["The dog sleeps.", "", "A woman sees the small house."]


@pytest.fixture
def typed(monkeypatch):
    """Sets what comes from the standard input."""

    def set_input(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))

    return set_input


def exit_code(*arguments):
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    return left.value.code


@pytest.fixture(scope="module")
def translator(run):
    model = keras.saving.load_model(run / "model.keras", compile=False)
    tokenizer = Tokenizer.load(run / "tokenizer")
    return Translator(model, tokenizer, beam_size=2, length_penalty=0.6)  # as the run's settings


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


def test_a_file_into_a_new_file(run, translator, tmp_path, capsys):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("\ufeff" + "\n".join(LINES), "utf-8")
    files = ["--input", str(source), "--output", str(target)]
    main(["translate", str(run), *files])
    assert target.read_text("utf-8").splitlines() == [
        " ".join(t.split("\n")) for t in translator(LINES)
    ]
    before = target.read_bytes()
    assert exit_code("translate", run, *files) == 2
    assert exit_code("translate", run, "--input", source, "--output", source) == 2
    errors = capsys.readouterr().err
    assert "exists" in errors and "is read for what would be written there" in errors
    assert target.read_bytes() == before and {p.name for p in tmp_path.iterdir()} == {
        "in.txt",
        "out.txt",
    }


@pytest.mark.parametrize(
    "arguments,data,message",
    [
        (["--n-best", "3"], b"", "at most the beam size, which is 2"),
        (["--n-best", "0"], b"", "--n-best must be at least 1"),
        (["--beam-size", "0"], b"", "beam_size"),
        (["--precision", "float7"], b"", "float7"),
        (["--input", "no.txt"], b"", "there is no file 'no.txt'"),
        ([], b"good\n\xff\xfe\n", "line 2 is not UTF-8"),
    ],
)
def test_bad_use_of_translate(run, typed, capsys, arguments, data, message):
    typed(data)
    assert exit_code("translate", run, *arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("keras-attention translate: ")


def test_a_pipe_that_is_closed_early_ends_quietly(run, tmp_path):
    """In a process of its own, whose reader ends at once."""
    lines = tmp_path / "in.txt"
    lines.write_text("A dog.\n")
    command = f"{sys.executable} -m keras_attention translate {run} --beam-size 1 --input {lines}"
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


def test_scores_are_sums_of_log_probabilities(run, translator, typed, capsys):
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
    assert exit_code("score", run) == 2
    assert "line 1 must be a source, one tab and a translation" in capsys.readouterr().err


def test_pictures_of_attention(run, tmp_path, capsys):
    folder = tmp_path / "pictures"
    arguments = ["attention", str(run), "The dog sleeps.", "Der Hund", "--output", str(folder)]
    main(arguments)
    names = ["cross-layer_1.png", "decoder-layer_1.png", "encoder-layer_1.png"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.iterdir())
    assert capsys.readouterr().out.startswith("Der Hund\n")
    assert exit_code(*arguments) == 2  # the folder is taken
    assert "exists" in capsys.readouterr().err


def sentence_of(page):
    """The only sentence in a page of the attention viewer."""
    text = re.search(r'id="attention-data">(.*?)</script>', page.read_text("utf-8"))[1]
    (run,) = json.loads(text)["index"]["runs"]
    (sentence,) = run["sentences"]
    return sentence


def test_a_page_of_attention(run, translator, tmp_path, capsys):
    given, own = tmp_path / "given.html", tmp_path / "own.html"
    main(["attention", str(run), LINES[0], "Der Hund schläft.", "--output", str(given)])
    sentence = sentence_of(given)
    assert (sentence["text"], sentence["target_text"]) == (LINES[0], "Der Hund schläft.")
    assert exit_code("attention", run, LINES[0], "--output", given) == 2
    assert "exists" in capsys.readouterr().err
    main(["attention", str(run), LINES[0], "--output", str(own)])
    sentence = sentence_of(own)
    assert (sentence["target"], sentence["target_text"]) == ("output", translator(LINES[0]))


def test_heads_by_importance(run, tmp_path, capsys):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("The dog sleeps.\n\nA cat sits.\n")
    target.write_text("Der Hund schläft.\nx\nEine Katze sitzt.\n")
    files = ["--source-file", str(source), "--target-file", str(target)]
    main(["heads", str(run), *files])
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert {tuple(row[:3]) for row in rows} == {
        (kind, "1", head) for kind in ("encoder", "decoder", "cross") for head in "12"
    }
    values = [float(row[3]) for row in rows]
    assert values == sorted(values, reverse=True)
    assert max(map(abs, values)) > 0
    assert exit_code("heads", run, *files, "--pairs", "0") == 2
    assert "--pairs must be at least 1" in capsys.readouterr().err


def test_an_average(run, tmp_path, capsys):
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
    assert exit_code("average", run, "--output", output) == 2
    assert output.read_bytes() == before
    assert exit_code("average", run, "--output", tmp_path / "mean.h5") == 2


def test_a_run_in_one_line(run, translator):
    ours = Translator.from_run(run)
    assert (ours.beam_size, ours.length_penalty) == (2, 0.6)
    assert ours(LINES) == translator(LINES)
    assert Translator.from_run(run, beam_size=1).beam_size == 1
    with pytest.raises(ValueError, match="is not the folder of a run"):
        Translator.from_run(run / "tokenizer")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    assert exit_code(command, "--help") == 0
    assert f"keras-attention {command}" in capsys.readouterr().out


def test_help_needs_no_keras():
    program = (
        "import sys; sys.argv[0] = 'keras-attention'\n"
        "from keras_attention.cli.main import main\n"
        "try: main(['train', '--help'])\n"
        "except SystemExit: print('keras' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False False", done.stderr


def test_a_misspelt_command(capsys):
    assert exit_code("trian") == 2
    assert "Did you mean train?" in capsys.readouterr().err
    assert exit_code() == 2 and exit_code("--help") == 0


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
    assert exit_code("train") == code
    assert "Traceback" not in capsys.readouterr().err
