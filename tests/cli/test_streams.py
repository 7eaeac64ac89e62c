"""The standard streams of a command: closed ones, other locales, and who waits for an answer."""

import io
import json
import os
import select
import shlex
import subprocess
import sys

import pytest

from keras_attention.cli import streams
from keras_attention.cli.options import Parser
from keras_attention.cli.streams import chunks_as_they_come, typed_text
from keras_attention.utils import progress
from tests.helpers import ROOT

pytestmark = pytest.mark.backends("torch")
LINES = ["The dog sleeps.", "", "A Größe sees 小 house."]
ASCII = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
COMMAND = [sys.executable, "-m", "keras_attention_light"]
# NumPy's sums depend on what is in a batch, and it stands in for Numba where that is not compiled yet.
EXACT = ["--json", "--engine", "numpy", "--batch-tokens", "1"]


PLACE = {"cwd": ROOT, "env": {**os.environ, "PYTHONPATH": str(ROOT)}}


def started(words, environment=(), **options):
    place = {**PLACE, "env": {**PLACE["env"], **dict(environment)}}
    return subprocess.run(words, **place, **options, capture_output=True, timeout=500)


def in_shell(words, redirected):
    return started(["bash", "-c", f"{shlex.join(map(str, words))} {redirected}"])


@pytest.fixture(scope="module")
def expected(run):
    done = started([*COMMAND, "translate", run, *EXACT], input="\n".join(LINES).encode())
    assert done.returncode == 0, done.stderr
    rows = done.stdout.decode().splitlines()
    assert [json.loads(row)["source"] for row in rows] == LINES
    return rows


@pytest.mark.parametrize("closed", ["2>&-", "<&- 1>&- 2>&-"])
def test_closed_streams_get_nothing_and_give_nothing(run, expected, tmp_path, closed):
    """The files that are opened next would get the free numbers, and messages meant for number 2."""
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text("\n".join(LINES), "utf-8")
    words = [*COMMAND, "translate", run, *EXACT, "--input", source]
    done = in_shell([*words, "--output", target], closed)
    assert done.returncode == 0
    assert target.read_text("utf-8").splitlines() == expected
    assert done.stdout + done.stderr == b""
    done = in_shell(words, closed)
    assert done.returncode == 0
    assert done.stdout.decode().splitlines() == ([] if "1>" in closed else expected)
    done = in_shell([*COMMAND, "translate", run, "--engine", "marian"], closed)
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_closed_input_is_an_empty_one(run):
    done = in_shell([*COMMAND, "translate", run], "<&-")
    assert (done.returncode, done.stdout) == (0, b""), done.stderr


def test_a_note_without_a_place_is_no_result(monkeypatch, capsys):
    """As in a program without a console, where Python has no stream."""
    monkeypatch.setattr(sys, "stderr", None)
    progress.say("decoded by numba")
    with progress.Progress(2, "counting", "sheep") as shown:
        shown.add(1)
        shown.note("resting")
    assert capsys.readouterr().out == ""


def test_text_is_utf_8_whatever_the_locale(run, expected, tmp_path):
    """That of the command line, too, but for names of files, which are bytes."""
    source = tmp_path / "größe.en"
    source.write_text("\n".join(LINES), "utf-8")
    words = [*COMMAND, "translate", run, *EXACT, "--input", source]
    done = started(words, ASCII)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines() == expected
    done = started([*COMMAND, "translate", run, "--input", tmp_path / "nö"], ASCII)
    assert done.returncode == 2
    assert f"there is no file '{tmp_path}/n" in done.stderr.decode()
    program = (
        "import sys, keras_attention_light; from keras_attention.cli.streams import *; "
        "open_standard_streams(); print(typed_text(sys.argv[1]))"
    )
    done = started([sys.executable, "-c", program, "schläft"], ASCII)
    assert done.stdout.decode() == "schläft\n", done.stderr


def test_a_typed_text_in_no_encoding_is_refused(capsys):
    parser = Parser(prog="some")
    parser.add_argument("--name", type=typed_text)
    assert parser.parse_args(["--name", "Gr\udcc3\udcb6\udcc3\udc9fe"]).name == "Größe"
    with pytest.raises(SystemExit):
        parser.parse_args(["--name", "Gr\udcf6"])
    assert "--name" in capsys.readouterr().err


def test_a_result_that_the_console_cannot_show_is_not_lost(monkeypatch):
    shown = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    progress.show("Ein Hund schläft.")
    shown.flush()
    assert shown.buffer.getvalue() == b"Ein Hund schl\\xe4ft.\n"


def test_who_waits_is_answered(run, expected):
    """The second line has begun when the first is answered; all others come at once."""
    words = [*COMMAND, "translate", run, *EXACT]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen(words, **PLACE, **pipes, bufsize=0)
    try:
        first, rest = LINES[0].encode(), "\n".join(LINES[1:]).encode()
        child.stdin.write(first + b"\n" + first[:5])
        assert select.select([child.stdout], [], [], 300)[0], "no answer"
        assert child.stdout.readline().decode() == f"{expected[0]}\n"
        child.stdin.write(first[5:] + b"\n" + rest)
        child.stdin.close()
        rows = child.stdout.read().decode().splitlines()
        assert rows == expected
        assert child.wait(300) == 0
    finally:
        child.kill()


def test_lines_are_passed_on_when_no_more_are_there(monkeypatch):
    monkeypatch.setattr(streams, "CHUNK_LINES", 5)
    ours, theirs = os.pipe()
    found = []

    def work(number, lines):
        found.append((number, lines))
        if len(found) == 1:  # Only now does the rest of the last line come.
            os.write(theirs, b" six\nseven\neight\nnine\nten")
            os.close(theirs)

    os.write(theirs, b"one\ntwo\nthree\nfour\nfive")
    with open(ours, "rb") as stream:
        chunks_as_they_come(stream, "a pipe", work)
    assert found == [
        (0, ["one", "two", "three", "four"]),
        (4, ["five six", "seven", "eight", "nine", "ten"]),
    ]


def test_a_file_is_passed_on_in_large_parts(tmp_path):
    file = tmp_path / "text"
    file.write_text("".join(f"line {i}\n" for i in range(2345)))
    sizes = []
    with open(file, "rb") as stream:
        chunks_as_they_come(stream, "a file", lambda number, lines: sizes.append(len(lines)))
    assert sizes == [1000, 1000, 345]
    unseen = io.BufferedReader(io.BytesIO(b"one\ntwo\n"))
    chunks_as_they_come(unseen, "bytes", lambda *given: sizes.append(given))
    assert sizes[3:] == [(0, ["one", "two"])]
