"""Bulk translation: files in chunks, results whole and in order, restarts, shares, and what is refused."""

import bz2
import concurrent.futures
import gzip
import hashlib
import json
import lzma
import multiprocessing
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from keras_attention.cli import verify
from keras_attention.recipes.bulk_folder import BulkFolder, TextFile
from keras_attention.recipes.bulk_work import run_chunks
from keras_attention.utils.files import (
    DamagedFile,
    OccupiedPath,
    read_signed_json,
    write_signed_json,
)
from keras_attention.utils.places import Folder, matching_files
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

    def folder(self, inputs=None, chunk_lines=CHUNK, **settings):
        files = [TextFile(path) for path in (self.inputs if inputs is None else inputs)]
        return BulkFolder(self.out, files, {"model": "m", **settings}, chunk_lines)

    def do(self, share=(1, 1), job=None, folder=None):
        return run_chunks(folder or self.folder(), job or self.shout, share, show_progress=False)

    def stop_at(self, line, folder=None):
        """Fail at a line; return the parts. Inputs are joined at the end, so all still are in parts."""
        with pytest.raises(RuntimeError, match="out of order"):
            self.do(job=Shout(self.shout.log, line), folder=folder)
        return sorted(path for path in (self.out / "parts").rglob("*") if path.is_file())

    def assert_whole(self):
        expected = {
            name.removesuffix(".gz"): "".join(f"{i} {s.upper()}\n" for i, s in enumerate(lines))
            for name, lines in FILES.items()
        }
        found = {path.name: path.read_bytes().decode() for path in self.out.iterdir()}
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
    files = [file for one in manifest["inputs"] for file in one["files"]]
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in work.inputs]
    assert [file["sha256"] for file in files] == digests
    assert [one["lines"] for one in manifest["inputs"]] == [7, 13, 0, 11]
    # Again: nothing is left to do.
    assert work.do() == joined and work.shout.seen() == LINES


def test_a_second_start_does_what_is_missing(work):
    work.stop_at("line 14")
    assert work.shout.seen() == LINES[:13]  # b.txt.gz's third chunk begins with line 13
    work.do()
    assert work.shout.seen() == LINES
    work.assert_whole()


@pytest.mark.parametrize("order", [(3, 1, 2), range(1, 21)], ids=str)
def test_shares_together_are_the_whole(work, order):
    for k in order:  # The last case has more shares than chunks.
        assert bool(work.do((k, len(order)))) == (k == order[-1])
    assert sorted(work.shout.seen()) == sorted(LINES)
    work.assert_whole()


def test_a_process_killed_at_any_chunk_loses_that_chunk_alone(work):
    """In a process of its own, which stops itself within its fourth chunk and is killed there."""
    here, there = multiprocessing.Pipe()

    def job():
        shout, calls = work.shout(), []

        def process(lines, chunk):
            calls.append(chunk)
            if len(calls) == 4:
                there.send("here")
                time.sleep(60)
            return shout(lines, chunk)

        return process

    process = multiprocessing.get_context("fork").Process(target=work.do, kwargs={"job": job})
    process.start()
    assert here.recv() == "here"
    # Meanwhile nobody else may do the same.
    with pytest.raises(ValueError, match="Another process works on share 1 of 1"):
        work.do()
    process.kill()
    process.join()
    assert work.shout.seen() == LINES[:7]
    work.do()
    assert work.shout.seen() == LINES
    work.assert_whole()


def test_other_settings_and_inputs_are_refused(work):
    work.stop_at("line 14")
    before, seen = contents(work.out), work.shout.seen()
    for other, name in [
        (work.folder(model="n"), "model: 'm' there, 'n' asked for"),
        (work.folder(chunk_lines=4), "chunk_lines: 3 there, 4"),
        (work.folder(work.inputs[:3]), "inputs: "),
    ]:
        with pytest.raises(OccupiedPath, match="other bulk work") as error:
            work.do(folder=other)
        assert name in str(error.value)
    # The last input changed; of the same size, only its sha256 tells. It is found before any work.
    text = work.inputs[3].read_bytes()
    for changed in (b"line 20\nmore", text.replace(b"line 30", b"line 31")):
        work.inputs[3].write_bytes(changed)
        with pytest.raises(ValueError, match=r"c.txt' changed since"):
            work.do()
    assert before.items() <= contents(work.out).items() and work.shout.seen() == seen


def test_another_backend_goes_on_once_all_is_done(work):
    first, second = (work.folder(backend=name) for name in ("torch", "jax"))
    work.stop_at("line 29", first)
    with pytest.raises(OccupiedPath, match="backend: 'torch' there, 'jax' asked for"):
        work.do(folder=second)
    joined = work.do(folder=first)
    seen = work.shout.seen()
    assert work.do(folder=second) == joined and work.shout.seen() == seen


@pytest.mark.parametrize("name", ["mine", "parts/mine"])
def test_a_folder_with_other_files_is_refused(work, name):
    mine = work.out / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(OccupiedPath, match="not the folder of bulk work"):
        work.do()
    assert contents(work.out) == {name: b"mine"} and work.shout.seen() == []


def test_a_bad_line_is_named_before_anything_is_done(work):
    with open(work.inputs[3], "ab") as file:
        file.write(b"\nbad \xff\n")
    with pytest.raises(ValueError, match=r"c.txt', line 12, byte 5"):
        work.do()
    assert work.shout.seen() == [] and list(work.out.iterdir()) == []


def test_a_job_that_fails_at_once_leaves_the_folder_free(work):
    def job():
        raise ValueError("no such precision")

    with pytest.raises(ValueError, match="no such precision"):
        work.do(job=job)
    work.do(folder=work.folder(model="other"))
    work.assert_whole()


def test_inputs_that_would_share_a_name_are_refused(work, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("x")
    (tmp_path / "manifest.json").write_text("x")
    for more in ("sub/a.txt", "manifest.json"):
        with pytest.raises(ValueError, match="is taken"):
            work.folder([*work.inputs, tmp_path / more])
    with pytest.raises(ValueError, match="at least one file"):
        work.folder([])
    with pytest.raises(FileNotFoundError, match="missing"):
        work.folder([tmp_path / "missing"])


def test_of_shares_that_end_together_one_joins(tmp_path):
    for attempt in range(10):
        (tmp_path / str(attempt)).mkdir()
        work, start = Work(tmp_path / str(attempt)), threading.Barrier(2)

        def share(k, work=work, start=start):
            start.wait()
            work.do((k, 2))

        with concurrent.futures.ThreadPoolExecutor() as threads:
            list(threads.map(share, (1, 2)))
        work.assert_whole()


def test_a_share_that_is_claimed_during_the_check_is_accepted(work, monkeypatch):
    first, second = work.folder(), work.folder()
    is_claimed = second.is_claimed

    def and_claims():
        found = is_claimed()
        first.claim()
        return found

    monkeypatch.setattr(second, "is_claimed", and_claims)
    second.check()
    assert first.is_claimed()


def test_a_folder_that_is_made_while_it_is_listed_is_empty(tmp_path, monkeypatch):
    is_dir = Path.is_dir

    def and_makes(path):
        found = is_dir(path)
        os.makedirs(tmp_path / "out", exist_ok=True)
        return found

    monkeypatch.setattr(Path, "is_dir", and_makes)
    assert Folder(tmp_path / "out").names() == []
    (tmp_path / "file").touch()
    assert Folder(tmp_path / "file").names() == [""]
    assert Folder(tmp_path / "file").names("below") == []
    assert "file" in Folder(tmp_path).names()


def verified(work, capsys):
    """The code of exit of `verify` on the folder, and what it prints."""
    try:
        verify.main([str(work.out)], "verify")
    except SystemExit as ended:
        return ended.code, capsys.readouterr().out
    return 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "damage, place",
    [
        *(("flipped", place) for place in range(5)),
        *(("cut", 1), ("empty", 2)),
        # By the first part of the same input, and of another one: that is of the same lines.
        *(("swapped", 1), ("swapped", 3)),
    ],
)
def test_a_damaged_part_is_not_joined(work, capsys, damage, place):
    parts = work.stop_at("line 29")
    victim = parts[place]
    whole = victim.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) * (place + 1) // 6] ^= 4
    other = parts[0].read_bytes()
    content = {"cut": whole[:-5], "flipped": bytes(flipped), "empty": b"", "swapped": other}[damage]
    victim.write_bytes(content)
    code, found = verified(work, capsys)
    assert code == 1
    assert str(victim) in found and "makes it again" in found and " 1 damaged" in found
    with pytest.raises(DamagedFile, match=f"{victim.name}' is damaged.*Delete it"):
        work.do()
    victim.unlink()
    work.do()
    work.assert_whole()


def test_verify_knows_parts_and_results(work, capsys):
    parts = work.stop_at("line 29")
    assert verified(work, capsys) == (0, f"{len(parts) + 1} files compared, 0 damaged.\n")
    work.do()
    assert verified(work, capsys) == (0, "5 files compared, 0 damaged.\n")
    result = work.out / "b.txt"
    result.write_bytes(result.read_bytes()[:-20])
    code, found = verified(work, capsys)
    assert code and "b.txt" in found
    with pytest.raises(DamagedFile, match="b.txt' was changed after it was written. Move it away"):
        work.do()
    result.unlink()
    work.do()
    work.assert_whole()


def test_somebody_elses_file_with_the_name_of_a_result_stays(work):
    work.stop_at("line 1")
    theirs = work.out / "c.txt"
    theirs.write_text("theirs")
    with pytest.raises(OccupiedPath, match="c.txt' exists, and this work did not write it"):
        work.do()
    assert theirs.read_text() == "theirs"


def test_a_finished_folder_of_an_older_version_is_known(work):
    work.do()
    file = work.out / "manifest.json"
    manifest = read_signed_json(file)
    write_signed_json(file, {name: value for name, value in manifest.items() if name != "sha256"})
    work.do()
    assert work.shout.seen() == LINES
    work.assert_whole()


def test_an_input_that_is_packed_in_another_way_is_the_same(work, tmp_path):
    """Packed, unpacked, or packed once more at another level: the text is what counts."""
    work.stop_at("line 14")
    a, b, empty, c = work.inputs
    packed = tmp_path / "a.txt.xz"
    packed.write_bytes(lzma.compress(a.read_bytes()))
    plain = tmp_path / "b.txt"
    plain.write_bytes(gzip.decompress(b.read_bytes()))
    repacked = tmp_path / "c.txt.bz2"
    repacked.write_bytes(bz2.compress(c.read_bytes()))
    again = [packed, plain, empty, repacked]
    work.do(folder=work.folder(again))
    assert work.shout.seen() == LINES
    work.assert_whole()
    repacked.write_bytes(bz2.compress(c.read_bytes()[:-1]))
    with pytest.raises(ValueError, match="c.txt.bz2' changed since"):
        work.do(folder=work.folder(again))


def test_a_pipe_as_an_input(work):
    pipe, writer = os.pipe()
    os.write(writer, b"one\ntwo\nthree\n")
    os.close(writer)
    joined = work.do(folder=work.folder([f"/dev/fd/{pipe}"]))
    os.close(pipe)
    assert [path.read_text() for path in joined] == ["0 ONE\n1 TWO\n2 THREE\n"]


def test_two_files_whose_lines_belong_together(work):
    a, b, *_ = work.inputs
    pairs = TextFile(a, a)
    assert list(pairs) == [(line, line) for line in LINES[:7]] and pairs.name == "a.txt"
    with pytest.raises(ValueError, match="has 7 lines, .*has 13"):
        BulkFolder(work.out, [TextFile(a, b)], {}, 2).claim()
    assert list(work.out.iterdir()) == []


class TestElsewhere:
    """fsspec's folder in memory stands for a bucket: no locks, and no local path."""

    @pytest.fixture
    def bucket(self, work):
        system = pytest.importorskip("fsspec").filesystem("memory")
        system.store.clear()
        for path in work.inputs:
            system.pipe_file(f"/bucket/in/{path.name}", path.read_bytes())
        yield system
        system.store.clear()

    def folder(self, out="memory://bucket/out"):
        files = [TextFile(f"memory://bucket/in/{name}") for name in FILES]
        return BulkFolder(out, files, {"model": "m"}, CHUNK)

    def test_gives_the_same_as_a_local_folder(self, bucket, work):
        work.stop_at("line 14", self.folder())
        assert any("parts" in name for name in bucket.store)
        joined = work.do(folder=self.folder())
        assert work.shout.seen() == LINES
        assert str(joined[1]) == "memory://bucket/out/b.txt"
        names = {name.rsplit("/", 1)[-1] for name in bucket.find("/bucket/out")}
        assert names == {"a.txt", "b.txt", "c.txt", "empty.txt", "manifest.json"}
        bucket.get("/bucket/out", str(work.out), recursive=True)
        work.assert_whole()

    def test_what_is_refused(self, bucket, work):
        bucket.pipe_file("/bucket/full/mine", b"mine")
        with pytest.raises(OccupiedPath, match="not the folder of bulk work"):
            work.do(folder=self.folder("memory://bucket/full"))
        with pytest.raises(FileNotFoundError, match="memory://bucket/none' does not exist"):
            TextFile("memory://bucket/none")
        with pytest.raises(ValueError, match="`inputs` must be a path or a URL.*nosuch://a"):
            TextFile("nosuch://a")
        bucket.pipe_file("/bucket/in/c.txt", b"good\nbad \xff\n")
        with pytest.raises(ValueError, match="memory://bucket/in/c.txt', line 2, byte 5"):
            work.do(folder=self.folder())
        assert work.shout.seen() == [] and bucket.find("/bucket/out") == []
        assert bucket.cat_file("/bucket/full/mine") == b"mine"

    def test_patterns(self, bucket):
        expected = ["memory://bucket/in/a.txt", "memory://bucket/in/c.txt"]
        assert matching_files("memory://bucket/in/[ac].txt") == expected
        assert matching_files("memory://bucket/in/none") == []

    def test_only_what_is_elsewhere_needs_upath(self, work, monkeypatch):
        monkeypatch.setitem(sys.modules, "upath", None)
        with pytest.raises(ImportError, match=r"s3://b/a.*needs universal-pathlib: pip install"):
            TextFile("s3://b/a")
        work.do(folder=work.folder([f"file://{path}" for path in work.inputs]))
        work.assert_whole()
