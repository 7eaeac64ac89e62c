"""Bulk work: files in chunks, results whole and in order, restarts, buckets, and what is refused."""

import bz2
import gzip
import json
import lzma
import multiprocessing
import os
import sys
import time

import pytest

from keras_attention.recipes.bulk_work import BulkWork, TextFile
from keras_attention.utils.files import DamagedFile, OccupiedPath
from keras_attention.utils.places import check_place, matching_files, writing
from tests.helpers import contents
from tests.recipes.bulk_jobs import Shout

pytestmark = pytest.mark.backends("torch")

LINES = [f"line {i}\u2028 with a separator" if i % 5 == 0 else f"line {i}" for i in range(31)]
FILES = {"a.txt": LINES[:7], "b.txt.gz": LINES[7:20], "empty.txt": [], "c.txt": LINES[20:]}
CHUNK = 3


class Work:
    """The work of `Shout` on the files of `FILES`, which are below a folder."""

    def __init__(self, folder):
        self.out, self.shout, self.inputs = folder / "out", Shout(folder / "seen.log"), []
        for name, lines in FILES.items():
            text = "\n".join(lines).encode()  # without a last newline
            self.inputs.append(folder / name)
            self.inputs[-1].write_bytes(gzip.compress(text) if name.endswith(".gz") else text)

    def do(self, job=None, inputs=None, out=None, chunk_lines=CHUNK, **settings):
        files = [TextFile(path) for path in (self.inputs if inputs is None else inputs)]
        work = BulkWork(out or self.out, files, {"model": "m", **settings}, chunk_lines)
        return work.run(job or self.shout, show_progress=False)

    def stop_at(self, line, **given):
        """Fail at a line; return the parts. Inputs are joined at the end, so all still are in parts."""
        with pytest.raises(RuntimeError, match="out of order"):
            self.do(Shout(self.shout.log, line), **given)
        return sorted(path for path in (self.out / "parts").rglob("*") if path.is_file())

    def assert_whole(self):
        expected = {
            name.removesuffix(".gz"): "".join(f"{i} {s.upper()}\n" for i, s in enumerate(lines))
            for name, lines in FILES.items()
        }
        found = {name: content.decode() for name, content in contents(self.out).items()}
        del found["manifest.json"]
        assert found == expected


@pytest.fixture
def work(tmp_path):
    return Work(tmp_path)


def test_results_are_joined_in_the_order_of_the_input(work):
    joined = work.do()
    assert [path.name for path in joined] == ["a.txt", "b.txt", "empty.txt", "c.txt"]
    work.assert_whole()
    assert work.shout.seen() == LINES
    manifest = json.loads((work.out / "manifest.json").read_text())
    assert [one["lines"] for one in manifest["inputs"]] == [7, 13, 0, 11]
    # Again: nothing is left to do.
    assert work.do() == joined and work.shout.seen() == LINES


@pytest.mark.parametrize("name", ["work", "texts", "lock"])
def test_a_result_has_the_name_of_its_input_whatever_that_is(work, name):
    (work.out.parent / name).write_text("one\ntwo\n")
    (joined,) = work.do(inputs=[work.out.parent / name])
    assert joined.read_text() == "0 ONE\n1 TWO\n" and joined == work.out / name


def test_a_killed_process_loses_its_chunk_alone(work):
    """In a process of its own, which stops itself within its fourth chunk and is killed there."""
    here, there = multiprocessing.Pipe()
    calls = []

    def process(lines, chunk):
        calls.append(chunk)
        if len(calls) == 4:
            there.send("here")
            time.sleep(60)
        return work.shout.work(lines, chunk)

    given = {"job": lambda: process}
    process_of_its_own = multiprocessing.get_context("fork").Process(target=work.do, kwargs=given)
    process_of_its_own.start()
    assert here.recv() == "here"
    # Meanwhile nobody else may do the same.
    with pytest.raises(ValueError, match="Another process works on the texts in"):
        work.do()
    process_of_its_own.kill()
    process_of_its_own.join()
    assert work.shout.seen() == LINES[:7]
    work.do()
    assert work.shout.seen() == LINES
    work.assert_whole()


def test_a_process_killed_while_it_joins_has_lost_nothing(work, monkeypatch):
    work.stop_at("line 29")
    remove = os.replace

    def killed(source, target):
        if os.path.basename(target) == "b.txt":
            raise KeyboardInterrupt
        remove(source, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, "replace", killed)
        work.do()
    assert (work.out / "a.txt").is_file() and not (work.out / "b.txt").exists()
    work.do()
    assert work.shout.seen() == LINES
    work.assert_whole()


def test_other_settings_and_inputs_are_refused(work):
    work.stop_at("line 14")
    before, seen = contents(work.out), work.shout.seen()
    for other, message in [
        ({"model": "n"}, "model: 'm' there, 'n' asked for"),
        ({"chunk_lines": 4}, "chunk_lines: 3 there, 4"),
        ({"inputs": work.inputs[:3]}, "names: "),
    ]:
        with pytest.raises(OccupiedPath, match=f"other bulk work .*{message}"):
            work.do(**other)
    text = work.inputs[3].read_bytes()
    for changed in (b"line 20\nmore", text.replace(b"line 30", b"line 31")):
        work.inputs[3].write_bytes(changed)
        with pytest.raises(ValueError, match=r"text of 'c.txt' changed since"):
            work.do()
    assert contents(work.out) == before and work.shout.seen() == seen


def test_an_input_that_is_packed_in_another_way_is_the_same(work, tmp_path):
    work.stop_at("line 14")
    a, b, empty, c = work.inputs
    again = [tmp_path / "a.txt.xz", tmp_path / "b.txt", empty, tmp_path / "c.txt.bz2"]
    again[0].write_bytes(lzma.compress(a.read_bytes()))
    again[1].write_bytes(gzip.decompress(b.read_bytes()))
    again[3].write_bytes(bz2.compress(c.read_bytes()))
    work.do(inputs=again)
    assert work.shout.seen() == LINES
    work.assert_whole()


@pytest.mark.parametrize("name", ["mine", "parts/mine"])
def test_a_folder_with_other_files_is_refused(work, name):
    mine = work.out / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(OccupiedPath, match="not the folder of bulk work"):
        work.do()
    assert contents(work.out) == {name: b"mine"} and work.shout.seen() == []


def test_a_file_in_place_of_the_folder_is_refused(work):
    work.out.write_text("mine")
    with pytest.raises(OccupiedPath, match="out' is a file, and the results get a folder. Choose"):
        work.do()
    assert work.out.read_text() == "mine"


def test_an_input_that_becomes_shorter_while_it_is_read_is_no_result(work):
    def job():
        work.inputs[3].write_text("line 20\nline 21")
        return work.shout()

    whole = work.inputs[3].read_bytes()
    with pytest.raises(ValueError, match="'c.txt' has become shorter .* ends after 2 lines"):
        work.do(job)
    assert not (work.out / "c.txt").exists()
    work.inputs[3].write_bytes(whole)
    work.do()
    work.assert_whole()


def test_somebody_elses_file_with_the_name_of_a_result_stays(work):
    work.stop_at("line 1")
    theirs = work.out / "c.txt"
    theirs.write_text("theirs")
    with pytest.raises(OccupiedPath, match="c.txt' exists, and this work did not write it"):
        work.do()
    assert theirs.read_text() == "theirs"


def test_what_fails_before_any_result_leaves_the_folder_free(work):
    def job():
        raise ValueError("no such precision")

    with open(work.inputs[3], "ab") as file:
        file.write(b"\nbad \xff\n")
    with pytest.raises(ValueError, match=r"c.txt', line 12, byte 5"):
        work.do()
    assert work.shout.seen() == [] and list(work.out.iterdir()) == []
    work = Work(work.out.parent)
    with pytest.raises(ValueError, match="no such precision"):
        work.do(job)
    work.do(model="other")
    work.assert_whole()


def test_inputs_that_are_none_or_share_a_name_are_refused(work, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("x")
    (tmp_path / "manifest.json").write_text("x")
    for more in ("sub/a.txt", "manifest.json"):
        with pytest.raises(ValueError, match="is taken"):
            work.do(inputs=[*work.inputs, tmp_path / more])
    (tmp_path / ".gz").write_text("x")
    with pytest.raises(ValueError, match="gets the name of its input, but .*gz' has none"):
        work.do(inputs=[*work.inputs, tmp_path / ".gz"])
    with pytest.raises(ValueError, match="at least one file"):
        work.do(inputs=[])
    with pytest.raises(FileNotFoundError, match="missing"):
        work.do(inputs=[tmp_path / "missing"])


@pytest.mark.parametrize(
    "damage, place",
    [
        *(("flipped", place) for place in range(5)),
        *(("cut", 1), ("empty", 2)),
        # By the first part of the same input, and of another one: that is of the same lines.
        *(("swapped", 1), ("swapped", 3)),
    ],
)
def test_a_damaged_part_is_not_joined(work, damage, place):
    parts = work.stop_at("line 29")
    victim = parts[place]
    whole = victim.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) * (place + 1) // 6] ^= 4
    other = parts[0].read_bytes()
    content = {"cut": whole[:-5], "flipped": bytes(flipped), "empty": b"", "swapped": other}[damage]
    victim.write_bytes(content)
    with pytest.raises(DamagedFile, match=f"{victim.name}' is damaged.*Delete it"):
        work.do()
    victim.unlink()
    work.do()
    work.assert_whole()


def test_a_pipe_as_an_input(work):
    pipe, writer = os.pipe()
    os.write(writer, b"one\ntwo\nthree\n")
    os.close(writer)
    joined = work.do(inputs=[f"/dev/fd/{pipe}"])
    os.close(pipe)
    assert [path.read_text() for path in joined] == ["0 ONE\n1 TWO\n2 THREE\n"]


def test_files_whose_lines_belong_together(work):
    """Two, as a text and its translation, or three: prefixes, phrases and a text."""
    a, b, *_ = work.inputs
    for count in (2, 3):
        together = TextFile(*[a] * count)
        assert list(together) == [(line,) * count for line in LINES[:7]]
        assert together.name == "a.txt"
        for odd in range(count):
            files = [b if i == odd else a for i in range(count)]
            with pytest.raises(ValueError, match="b.txt.gz' has 13" if odd else "has 13 .*has 7"):
                BulkWork(work.out, [TextFile(*files)], {}, 2).run(work.shout, show_progress=False)
    assert list(work.out.iterdir()) == []


class TestElsewhere:
    """fsspec's folder in memory stands for a bucket: no locks, and no local path."""

    OUT = "memory://bucket/out"
    INPUTS = tuple(f"memory://bucket/in/{name}" for name in FILES)

    @pytest.fixture
    def bucket(self, work):
        system = pytest.importorskip("fsspec").filesystem("memory")
        system.store.clear()
        for path in work.inputs:
            system.pipe_file(f"/bucket/in/{path.name}", path.read_bytes())
        yield system
        system.store.clear()

    def test_gives_the_same_as_a_local_folder(self, bucket, work):
        given = {"inputs": self.INPUTS, "out": self.OUT}
        work.stop_at("line 14", **given)
        assert any("parts" in name for name in bucket.store)
        joined = work.do(**given)
        assert work.shout.seen() == LINES
        assert str(joined[1]) == "memory://bucket/out/b.txt"
        assert work.do(**given) == joined and work.shout.seen() == LINES
        bucket.get("/bucket/out", str(work.out), recursive=True)
        work.assert_whole()

    def test_what_is_refused(self, bucket, work):
        bucket.pipe_file("/bucket/full/mine", b"mine")
        with pytest.raises(OccupiedPath, match="not the folder of bulk work"):
            work.do(inputs=self.INPUTS, out="memory://bucket/full")
        with pytest.raises(FileNotFoundError, match="/bucket/none"):
            work.do(inputs=["memory://bucket/none"], out=self.OUT)
        with pytest.raises(ValueError, match="`inputs` must be a path or a URL.*nosuch://a"):
            TextFile("nosuch://a")
        bucket.pipe_file("/bucket/in/c.txt", b"good\nbad \xff\n")
        with pytest.raises(ValueError, match="memory://bucket/in/c.txt', line 2, byte 5"):
            work.do(inputs=self.INPUTS, out=self.OUT)
        assert work.shout.seen() == [] and bucket.find("/bucket/out") == []
        assert bucket.cat_file("/bucket/full/mine") == b"mine"

    def test_a_file_that_cannot_be_written_leaves_nothing(self, bucket):
        place = check_place("place", f"{self.OUT}/a.txt")
        with pytest.raises(OSError, match="no room"), writing(place) as file:
            file.write(b"half")
            raise OSError("no room")
        assert bucket.find("/bucket/out") == []

    def test_patterns(self, bucket, monkeypatch):
        expected = ["memory://bucket/in/a.txt", "memory://bucket/in/c.txt"]
        assert matching_files("memory://bucket/in/[ac].txt") == expected
        # As a file system of HTTP does, which finds URLs, not paths.
        monkeypatch.setattr(type(bucket), "glob", lambda self, pattern: expected)
        assert matching_files("memory://bucket/in/[ac].txt") == expected
        monkeypatch.undo()
        assert matching_files("memory://bucket/in/none") == []

    def test_only_what_is_elsewhere_needs_upath(self, work, monkeypatch):
        monkeypatch.setitem(sys.modules, "upath", None)
        with pytest.raises(ImportError, match=r"s3://b/a.*needs universal-pathlib: pip install"):
            TextFile("s3://b/a")
        work.do(inputs=[f"file://{path}" for path in work.inputs])
        work.assert_whole()
