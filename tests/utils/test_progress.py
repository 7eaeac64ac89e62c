"""What the progress line says: nothing at first, then lines in a pipe and one moving line on a terminal."""

import contextlib
import errno
import io
import os
import re
import struct
import sys
import threading
import time

import pytest

from keras_attention.utils import progress
from keras_attention.utils.progress import Progress, activity, say, with_progress
from tests.helpers import python

pytestmark = pytest.mark.backends("tensorflow")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def impatient(monkeypatch):
    """As if minutes were hundredths of seconds."""
    for name in ("SILENT_SECONDS", "TERMINAL_SECONDS", "PIPE_SECONDS", "PIPE_SECONDS_LATER"):
        monkeypatch.setattr(progress, name, 0.02)


def _wait_for(text, stream):
    """Until the thread that updates the line has written it, which a busy machine delays."""
    deadline = time.monotonic() + 60
    while text not in stream.getvalue() and time.monotonic() < deadline:
        time.sleep(0.02)


def test_short_work_is_silent():
    stream = io.StringIO()
    with Progress(3, "counting", "sheep", stream=stream) as shown:
        shown.add(3)
    assert stream.getvalue() == ""


def test_parts_are_counted_when_they_are_done_and_an_error_ends_the_line(impatient, monkeypatch):
    stream, found = io.StringIO(), []
    monkeypatch.setattr(sys, "stderr", stream)
    try:
        for part in with_progress("abc", 6, "counting", "sheep", sizes=[1, 2, 3]):
            done = progress._active[0]._done
            found.append((part, done))
            _wait_for(f"{done} of 6", stream)
            if part == "c":
                raise KeyError
    except KeyError as error:
        # Also while somebody keeps the error, and with it the variables of all functions.
        assert error.__traceback__ is not None and not progress._active
    assert found == [("a", 0), ("b", 1), ("c", 3)]
    assert "3 of 6 sheep" in stream.getvalue() and "6 of 6" not in stream.getvalue()


@pytest.mark.parametrize("columns, rows", [(0, 0), (120, 0), (120, 50)])
def test_a_terminal_that_does_not_tell_its_size(impatient, monkeypatch, columns, rows):
    pty, fcntl, termios = (pytest.importorskip(name) for name in ("pty", "fcntl", "termios"))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    with open(theirs, "w") as stream, Progress(2, "counting", "sheep", stream=stream) as shown:
        time.sleep(0.05)
        shown.add(1)
        time.sleep(0.05)
    shown_there = ""
    with contextlib.suppress(OSError):  # The other end is closed; what was written comes in parts.
        while part := os.read(ours, 10_000):
            shown_there += part.decode()
    os.close(ours)
    assert "counting:  50%|" in shown_there or "counting: 1 of 2 sheep" in shown_there


def test_whole_lines_in_a_pipe(impatient):
    stream = io.StringIO()
    with Progress(4, "counting", "sheep", stream=stream) as shown:
        for _ in range(4):
            time.sleep(0.05)
            shown.values("3 black")
            shown.add(1)
    lines = stream.getvalue().splitlines()
    assert lines and "\r" not in stream.getvalue()
    assert all(re.match(r"counting: \d of 4 sheep, \d+%, .* left", line) for line in lines)
    assert lines[-1].startswith("counting: 4 of 4 sheep, 100%") and lines[-1].endswith("3 black")
    assert len(set(lines)) == len(lines)


def test_a_clock_that_ran_over_its_end(impatient):
    stream = io.StringIO()
    with Progress(4, "training", "seconds", stream=stream) as shown:
        for seconds in (2, 5):
            time.sleep(0.05)
            shown.reach(seconds)
    assert stream.getvalue().splitlines()[-1].startswith("training: 4 of 4 seconds, 100%")


def test_the_time_left_follows_the_mean_pace(impatient):
    """Also while the line is kept alive between the counts."""
    stream = io.StringIO()
    began = time.monotonic()
    with Progress(40, "counting", "sheep", stream=stream) as shown:
        for _ in range(4):
            time.sleep(0.3)
            shown.add(1)
            elapsed = time.monotonic() - began
        with shown.during("resting"):  # no part of the pace
            time.sleep(2.0)
    left = [60 * int(m) + int(s) for m, s in re.findall(r" (\d+):(\d+) left", stream.getvalue())]
    assert len(left) > 4 and min(left) >= 36 * 0.3 - 1 and left[-1] <= 10 * elapsed


def test_a_known_time_counts_down_and_then_is_not_told(impatient):
    stream = io.StringIO()
    with Progress(2, "finishing", "steps", stream=stream) as shown:
        shown.left(2.4)
        _wait_for("00:02 left", stream)
        _wait_for("00:01 left", stream)
        time.sleep(1.5)
        shown.add(1)
    lines = stream.getvalue().splitlines()
    assert lines[-1] == "finishing: 1 of 2 steps, 50%" and "00:00" not in stream.getvalue()


def test_a_narrow_terminal_shows_a_note_in_place_of_the_numbers(impatient, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    with Progress(1350, "training", "updates", stream=stream) as shown:
        shown.values("loss 2.314, 12,413 tokens/s")
        shown.add(983)
        _wait_for("tokens/s", stream)
        with shown.during("translating the validation set"):
            _wait_for("translating", stream)
    lines = [line.strip() for line in stream.getvalue().split("\r")]
    assert any(line.endswith("left, loss 2.314, 12,413 tokens/s") for line in lines)
    assert any(line.endswith("left, translating the validation set") for line in lines)


def test_the_line_lives_while_nothing_is_counted(impatient):
    stream = io.StringIO()
    with Progress(2, "counting", "sheep", stream=stream), activity("compiling"):
        _wait_for("compiling", stream)
    assert "counting: 0 of 2 sheep" in stream.getvalue() and "compiling" in stream.getvalue()


def test_one_moving_line_on_a_terminal(impatient):
    stream = Terminal()
    with Progress(3, "counting", "sheep", stream=stream) as shown:
        for _ in range(3):
            time.sleep(0.05)
            shown.add(1)
    text = stream.getvalue()
    assert text.count("\n") == 1 and text.count("\r") > 1
    assert "3 of 3 sheep" in text.split("\n")[0].split("\r")[-1]


def test_a_permanent_line_draws_no_progress_line_that_is_silent_yet(monkeypatch):
    monkeypatch.setattr(progress, "SILENT_SECONDS", 600.0)
    stream = Terminal()
    with Progress(3, "counting", "sheep", stream=stream) as shown:
        shown.add(1)
        say("the first", stream)
    assert "counting" not in stream.getvalue() and stream.getvalue().endswith("the first\n")


def test_work_within_work_is_a_note(impatient):
    outer_stream, inner_stream = io.StringIO(), io.StringIO()
    with Progress(2, "training", "updates", stream=outer_stream) as outer:
        time.sleep(0.05)
        with Progress(5, "translating", "sentences", stream=inner_stream) as inner:
            inner.add(2)
            time.sleep(0.05)
            outer.add(1)
    assert inner_stream.getvalue() == ""
    assert "translating 2 of 5 sentences" in outer_stream.getvalue()


def test_a_line_that_stays():
    stream = io.StringIO()
    say("epoch 1", stream)
    assert stream.getvalue() == "epoch 1\n"


def test_disabled(impatient):
    stream = io.StringIO()
    with Progress(2, "counting", "sheep", enabled=False, stream=stream) as shown:
        time.sleep(0.05)
        shown.add(2)
        shown.note("resting")
    assert stream.getvalue() == ""


def test_the_outermost_work_may_end_first(impatient, monkeypatch):
    """As in several threads: what is left has no line of its own, and the ticker lives on."""
    errors = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    outer, inner = Progress(3, "outer", "sheep"), Progress(5, "inner", "goats")
    with contextlib.ExitStack() as stack:
        outer.__enter__()
        stack.enter_context(inner)
        ticker = progress._ticker
        outer.__exit__(None, None, None)
        time.sleep(0.1)
        assert ticker.is_alive()
    assert not errors


@pytest.mark.parametrize(("columns", "rows"), [(60, ""), (60, "24"), (100, "24"), (140, "24")])
def test_a_line_on_a_terminal_keeps_the_units_of_its_numbers(impatient, monkeypatch, columns, rows):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", rows)  # as of a shell, and of pytest-xdist
    stream = Terminal()
    with Progress(1350, "training", "updates", stream=stream) as shown:
        shown.values("loss 2.314, perplexity 31.41, 12,413 tokens/s")
        shown.add(983)
        _wait_for("983", stream)
    lines = {line.strip() for line in stream.getvalue().split("\r")} - {""}
    assert lines
    for line in lines:
        assert len(line) < columns and re.search(
            r"\d+ of 1350 updates, .* left(, .*tokens/s)?$", line
        )
    assert any("tokens/s" in line for line in lines) == (columns > 60)
    assert any("|" in line for line in lines) == (columns == 140)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_closed_terminal_ends_no_work(code):
    class Closed(Terminal):
        def write(self, text):
            raise OSError(code, os.strerror(code))

    lasts = contextlib.nullcontext() if code == errno.EIO else pytest.raises(OSError)
    with lasts:
        say("epoch 3", Closed())


def test_a_user_who_wants_no_progress_gets_none():
    code = (
        "import time; from keras_attention.utils import progress as p; p.SILENT_SECONDS = 0\n"
        "p.TERMINAL_SECONDS = 0.02\n"
        "with p.Progress(3, 'counting') as shown:\n"
        "    shown.add(1); shown.left(3); shown.values('x'); time.sleep(0.3)"
    )
    done = python("-c", code, environment={"TQDM_DISABLE": "1"})
    assert "counting" not in done.stderr and "Error" not in done.stderr


def test_a_stream_that_breaks_stops_no_other_thread(impatient):
    """The reader of a log ends: the thread that shows the line fails, and keeps no lock of others."""

    def broken(*given):
        raise BrokenPipeError(errno.EPIPE, "nobody reads")

    bar = progress._Bar(total=5, file=io.StringIO(), delay=0.001)
    time.sleep(0.01)
    bar.display = broken

    def show():
        with contextlib.suppress(BrokenPipeError):
            bar.refresh()

    def take():
        with bar.get_lock():
            taken.set()

    taken = threading.Event()
    ticker = threading.Thread(target=show)
    ticker.start()
    ticker.join()
    threading.Thread(target=take, daemon=True).start()
    assert taken.wait(10)
