"""Bulk translation: files in chunks, results whole and in order, restarts, shares, and what is refused."""

import bz2
import concurrent.futures
import gzip
import hashlib
import json
import lzma
import os
import signal
import subprocess
import sys
import threading
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
from tests.recipes.bulk_jobs import Shout

pytestmark = pytest.mark.backends("torch")

LINES = [f"line {i}\u2028 with a separator" if i % 5 == 0 else f"line {i}" for i in range(31)]
FILES = {"a.txt": LINES[:7], "b.txt.gz": LINES[7:20], "empty.txt": [], "c.txt": LINES[20:]}
CHUNK = 3


@pytest.fixture
def inputs(tmp_path):
    paths = []
    for name, lines in FILES.items():
        text = "\n".join(lines).encode()  # without a last newline
        paths.append(tmp_path / name)
        paths[-1].write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return paths


@pytest.fixture
def shout(tmp_path):
    return Shout(tmp_path / "seen.log")


def folder_for(tmp_path, inputs, settings=None, chunk_lines=CHUNK):
    files = [TextFile(path) for path in inputs]
    return BulkFolder(tmp_path / "out", files, settings or {"model": "m"}, chunk_lines)


def assert_is_whole(out):
    expected = {
        name.removesuffix(".gz"): "".join(f"{i} {line.upper()}\n" for i, line in enumerate(lines))
        for name, lines in FILES.items()
    }
    found = {path.name: path.read_bytes().decode() for path in out.iterdir()}
    del found["manifest.json"]
    assert found == expected


def test_results_are_joined_in_the_order_of_the_input(tmp_path, inputs, shout):
    joined = run_chunks(folder_for(tmp_path, inputs), shout, show_progress=False)
    assert [path.name for path in joined] == ["a.txt", "b.txt", "empty.txt", "c.txt"]
    assert_is_whole(tmp_path / "out")
    assert shout.seen() == LINES
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    files = [file for one in manifest["inputs"] for file in one["files"]]
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in inputs]
    assert [file["sha256"] for file in files] == digests
    assert [one["lines"] for one in manifest["inputs"]] == [7, 13, 0, 11]
    # Again: nothing is left to do.
    assert run_chunks(folder_for(tmp_path, inputs), shout, show_progress=False) == joined
    assert shout.seen() == LINES


def test_a_second_start_does_what_is_missing(tmp_path, inputs, shout):
    with pytest.raises(RuntimeError, match="out of order"):
        run_chunks(folder_for(tmp_path, inputs), Shout(shout.log, "line 14"), show_progress=False)
    done = shout.seen()
    assert done == LINES[:13]  # b.txt.gz's third chunk begins with line 13
    run_chunks(folder_for(tmp_path, inputs), shout, show_progress=False)
    assert shout.seen() == LINES
    assert_is_whole(tmp_path / "out")


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), range(1, 21)], ids=str)
def test_shares_together_are_the_whole(tmp_path, inputs, shout, order):
    for k in order:
        share = (k, len(order))  # The last case has more shares than chunks.
        joined = run_chunks(folder_for(tmp_path, inputs), shout, share, show_progress=False)
        assert bool(joined) == (k == order[-1])
    assert sorted(shout.seen()) == sorted(LINES)
    assert_is_whole(tmp_path / "out")


def test_a_process_killed_at_any_chunk_loses_that_chunk_alone(tmp_path, inputs, shout):
    """In a process of its own, which stops itself within its fourth chunk and is killed there."""
    script = f"""
import sys, time
from tests.recipes.bulk_jobs import Shout
from tests.recipes.test_bulk import folder_for, run_chunks
from pathlib import Path
shout = Shout(Path({str(shout.log)!r}))()
calls = []
def work(lines, chunk):
    calls.append(chunk)
    if len(calls) == 4:
        print("here", flush=True)
        time.sleep(60)
    return shout(lines, chunk)
run_chunks(folder_for(Path({str(tmp_path)!r}), {[str(p) for p in inputs]!r}), lambda: work)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "here\n"
    # Meanwhile nobody else may do the same.
    with pytest.raises(ValueError, match="Another process works on share 1 of 1"):
        run_chunks(folder_for(tmp_path, inputs), shout, show_progress=False)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert shout.seen() == LINES[:7] + LINES[7:7]
    run_chunks(folder_for(tmp_path, inputs), shout, show_progress=False)
    assert shout.seen() == LINES
    assert_is_whole(tmp_path / "out")


def test_other_settings_and_inputs_are_refused(tmp_path, inputs, shout):
    stops = Shout(shout.log, "line 14")
    with pytest.raises(RuntimeError):
        run_chunks(folder_for(tmp_path, inputs), stops, show_progress=False)
    out = tmp_path / "out"
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for other, name in [
        (folder_for(tmp_path, inputs, {"model": "n"}), "model: 'm' there, 'n' asked for"),
        (folder_for(tmp_path, inputs, chunk_lines=4), "chunk_lines: 3 there, 4"),
        (folder_for(tmp_path, inputs[:3]), "inputs: "),
    ]:
        with pytest.raises(OccupiedPath, match="other bulk work") as error:
            run_chunks(other, shout, show_progress=False)
        assert name in str(error.value)
    for text in ("line 20\nmore", "LINE" + inputs[3].read_text("utf-8")[4:]):
        inputs[3].write_bytes(text.encode())
        with pytest.raises(ValueError, match=r"c.txt' changed since"):
            run_chunks(
                folder_for(tmp_path, inputs),
                stops.__class__(shout.log),
                (4, 4),
                show_progress=False,
            )
    assert before.items() <= {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}.items()


def test_another_backend_goes_on_once_all_is_done(tmp_path, inputs, shout):
    settings = [{"model": "m", "backend": name} for name in ("torch", "jax")]
    with pytest.raises(RuntimeError, match="out of order"):
        run_chunks(
            folder_for(tmp_path, inputs, settings[0]),
            Shout(shout.log, "line 29"),
            show_progress=False,
        )
    with pytest.raises(OccupiedPath, match="backend: 'torch' there, 'jax' asked for"):
        run_chunks(folder_for(tmp_path, inputs, settings[1]), shout, show_progress=False)
    joined = run_chunks(folder_for(tmp_path, inputs, settings[0]), shout, show_progress=False)
    seen = shout.seen()
    assert (
        run_chunks(folder_for(tmp_path, inputs, settings[1]), shout, show_progress=False) == joined
    )
    assert shout.seen() == seen


@pytest.mark.parametrize("name", ["mine", "parts/mine"])
def test_a_folder_with_other_files_is_refused(tmp_path, inputs, shout, name):
    mine = tmp_path / "out" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(OccupiedPath, match="not the folder of bulk work"):
        run_chunks(folder_for(tmp_path, inputs), shout, show_progress=False)
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == [mine]
    assert mine.read_text() == "mine" and shout.seen() == []


def test_a_bad_line_is_named_before_anything_is_done(tmp_path, inputs, shout):
    with open(inputs[3], "ab") as file:
        file.write(b"\nbad \xff\n")
    with pytest.raises(ValueError, match=r"c.txt', line 12, byte 5"):
        run_chunks(folder_for(tmp_path, inputs), shout, show_progress=False)
    assert shout.seen() == [] and list((tmp_path / "out").iterdir()) == []


def test_a_job_that_fails_at_once_leaves_the_folder_free(tmp_path, inputs, shout):
    def job():
        raise ValueError("no such precision")

    with pytest.raises(ValueError, match="no such precision"):
        run_chunks(folder_for(tmp_path, inputs), job, show_progress=False)
    run_chunks(folder_for(tmp_path, inputs, {"model": "other"}), shout, show_progress=False)
    assert_is_whole(tmp_path / "out")


def test_inputs_that_would_share_a_name_are_refused(tmp_path, inputs):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("x")
    (tmp_path / "manifest.json").write_text("x")
    for more in ("sub/a.txt", "manifest.json"):
        with pytest.raises(ValueError, match="is taken"):
            folder_for(tmp_path, [*inputs, tmp_path / more])
    with pytest.raises(ValueError, match="at least one file"):
        folder_for(tmp_path, [])
    with pytest.raises(FileNotFoundError, match="missing"):
        folder_for(tmp_path, [tmp_path / "missing"])


def test_a_change_of_the_last_input_is_found_before_work(tmp_path, inputs, shout):
    """Of the same size: only its sha256 tells."""
    with pytest.raises(RuntimeError, match="out of order"):
        run_chunks(folder_for(tmp_path, inputs), Shout(shout.log, "line 1"), show_progress=False)
    inputs[3].write_bytes(inputs[3].read_bytes().replace(b"line 30", b"line 31"))
    with pytest.raises(ValueError, match="c.txt' changed since"):
        run_chunks(folder_for(tmp_path, inputs), shout, show_progress=False)
    assert shout.seen() == []


def test_of_shares_that_end_together_one_joins(tmp_path, inputs, shout):
    for attempt in range(10):
        start = threading.Barrier(2)

        def share(k, out=tmp_path / str(attempt), start=start):
            start.wait()
            run_chunks(folder_for(out, inputs), shout, (k, 2), show_progress=False)

        with concurrent.futures.ThreadPoolExecutor() as threads:
            list(threads.map(share, (1, 2)))
        assert_is_whole(tmp_path / str(attempt) / "out")


def test_a_share_that_is_claimed_during_the_check_is_accepted(tmp_path, inputs, monkeypatch):
    first, second = folder_for(tmp_path, inputs), folder_for(tmp_path, inputs)
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


def stopped(tmp_path, inputs, shout, at="line 29"):
    """The folder of work that stopped at a line, and its parts."""
    with pytest.raises(RuntimeError, match="out of order"):
        run_chunks(folder_for(tmp_path, inputs), Shout(shout.log, at), show_progress=False)
    # Inputs are joined at the end, so all of them still are in parts.
    return sorted(path for path in (tmp_path / "out" / "parts").rglob("*") if path.is_file())


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "swapped"])
def test_a_damaged_part_is_not_joined(tmp_path, inputs, shout, capsys, damage, place):
    parts = stopped(tmp_path, inputs, shout)
    victim = parts[place]
    whole = victim.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) * (place + 1) // 6] ^= 4
    other = parts[place - 1].read_bytes()
    content = {"cut": whole[:-5], "flipped": bytes(flipped), "empty": b"", "swapped": other}[damage]
    victim.write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        verify.main([str(tmp_path / "out")], "verify")
    assert ended.value.code == 1
    found = capsys.readouterr().out
    assert str(victim) in found and "makes it again" in found and " 1 damaged" in found
    with pytest.raises(DamagedFile, match=f"{victim.name}' is damaged.*Delete it"):
        run_chunks(folder_for(tmp_path, inputs), shout, show_progress=False)
    victim.unlink()
    run_chunks(folder_for(tmp_path, inputs), shout, show_progress=False)
    assert_is_whole(tmp_path / "out")


def test_verify_knows_parts_and_results(tmp_path, inputs, shout, capsys):
    parts = stopped(tmp_path, inputs, shout)
    verify.main([str(tmp_path / "out")], "verify")
    assert capsys.readouterr().out == f"{len(parts) + 1} files compared, 0 damaged.\n"
    run_chunks(folder_for(tmp_path, inputs), shout, show_progress=False)
    verify.main([str(tmp_path / "out")], "verify")
    assert capsys.readouterr().out == "5 files compared, 0 damaged.\n"
    result = tmp_path / "out" / "b.txt"
    result.write_bytes(result.read_bytes()[:-20])
    with pytest.raises(SystemExit):
        verify.main([str(tmp_path / "out")], "verify")
    assert "b.txt" in capsys.readouterr().out
    with pytest.raises(DamagedFile, match="b.txt' was changed after it was written. Move it away"):
        run_chunks(folder_for(tmp_path, inputs), shout, show_progress=False)
    result.unlink()
    run_chunks(folder_for(tmp_path, inputs), shout, show_progress=False)
    assert_is_whole(tmp_path / "out")


def test_somebody_elses_file_with_the_name_of_a_result_stays(tmp_path, inputs, shout):
    stopped(tmp_path, inputs, shout, "line 1")
    theirs = tmp_path / "out" / "c.txt"
    theirs.write_text("theirs")
    with pytest.raises(OccupiedPath, match="c.txt' exists, and this work did not write it"):
        run_chunks(folder_for(tmp_path, inputs), shout, show_progress=False)
    assert theirs.read_text() == "theirs"


def test_a_finished_folder_of_an_older_version_is_known(tmp_path, inputs, shout):
    run_chunks(folder_for(tmp_path, inputs), shout, show_progress=False)
    file = tmp_path / "out" / "manifest.json"
    manifest = read_signed_json(file)
    write_signed_json(file, {name: value for name, value in manifest.items() if name != "sha256"})
    run_chunks(folder_for(tmp_path, inputs), shout, show_progress=False)
    assert shout.seen() == LINES
    assert_is_whole(tmp_path / "out")


def test_an_input_that_is_packed_in_another_way_is_the_same(tmp_path, inputs, shout):
    """Packed, unpacked, or packed once more at another level: the text is what counts."""
    stopped(tmp_path, inputs, shout, "line 14")
    packed = tmp_path / "a.txt.xz"
    packed.write_bytes(lzma.compress(inputs[0].read_bytes()))
    plain = tmp_path / "b.txt"
    plain.write_bytes(gzip.decompress(inputs[1].read_bytes()))
    repacked = inputs[3].with_name("c.txt.bz2")
    repacked.write_bytes(bz2.compress(inputs[3].read_bytes()))
    again = [packed, plain, inputs[2], repacked]
    run_chunks(folder_for(tmp_path, again), shout, show_progress=False)
    assert shout.seen() == LINES
    assert_is_whole(tmp_path / "out")
    repacked.write_bytes(bz2.compress(inputs[3].read_bytes()[:-1]))
    with pytest.raises(ValueError, match="c.txt.bz2' changed since"):
        run_chunks(folder_for(tmp_path, again), shout, show_progress=False)


def test_a_pipe_as_an_input(tmp_path, shout):
    pipe, writer = os.pipe()
    os.write(writer, b"one\ntwo\nthree\n")
    os.close(writer)
    joined = run_chunks(folder_for(tmp_path, [f"/dev/fd/{pipe}"]), shout, show_progress=False)
    os.close(pipe)
    assert [path.read_text() for path in joined] == ["0 ONE\n1 TWO\n2 THREE\n"]


def test_two_files_whose_lines_belong_together(tmp_path, inputs):
    pairs = TextFile(inputs[0], inputs[0])
    assert list(pairs) == [(line, line) for line in LINES[:7]] and pairs.name == "a.txt"
    with pytest.raises(ValueError, match="has 7 lines, .*has 13"):
        BulkFolder(tmp_path / "out", [TextFile(*inputs[:2])], {}, 2).claim()
    assert list((tmp_path / "out").iterdir()) == []


class TestElsewhere:
    """fsspec's folder in memory stands for a bucket: no locks, and no local path."""

    @pytest.fixture
    def bucket(self, inputs):
        system = pytest.importorskip("fsspec").filesystem("memory")
        system.store.clear()
        for path in inputs:
            system.pipe_file(f"/bucket/in/{path.name}", path.read_bytes())
        yield system
        system.store.clear()

    def folder(self, out="memory://bucket/out"):
        files = [TextFile(f"memory://bucket/in/{name}") for name in FILES]
        return BulkFolder(out, files, {"model": "m"}, CHUNK)

    def test_gives_the_same_as_a_local_folder(self, bucket, shout, tmp_path):
        with pytest.raises(RuntimeError, match="out of order"):
            run_chunks(self.folder(), Shout(shout.log, "line 14"), show_progress=False)
        assert any("parts" in name for name in bucket.store)
        joined = run_chunks(self.folder(), shout, show_progress=False)
        assert shout.seen() == LINES
        assert str(joined[1]) == "memory://bucket/out/b.txt"
        names = {name.rsplit("/", 1)[-1] for name in bucket.find("/bucket/out")}
        assert names == {"a.txt", "b.txt", "c.txt", "empty.txt", "manifest.json"}
        bucket.get("/bucket/out", str(tmp_path / "out"), recursive=True)
        assert_is_whole(tmp_path / "out")

    def test_what_is_refused(self, bucket, shout):
        bucket.pipe_file("/bucket/full/mine", b"mine")
        with pytest.raises(OccupiedPath, match="not the folder of bulk work"):
            run_chunks(self.folder("memory://bucket/full"), shout, show_progress=False)
        with pytest.raises(FileNotFoundError, match="memory://bucket/none' does not exist"):
            TextFile("memory://bucket/none")
        with pytest.raises(ValueError, match="`inputs` must be a path or a URL.*nosuch://a"):
            TextFile("nosuch://a")
        bucket.pipe_file("/bucket/in/c.txt", b"good\nbad \xff\n")
        with pytest.raises(ValueError, match="memory://bucket/in/c.txt', line 2, byte 5"):
            run_chunks(self.folder(), shout, show_progress=False)
        assert shout.seen() == [] and bucket.find("/bucket/out") == []
        assert bucket.cat_file("/bucket/full/mine") == b"mine"

    def test_patterns(self, bucket):
        expected = ["memory://bucket/in/a.txt", "memory://bucket/in/c.txt"]
        assert matching_files("memory://bucket/in/[ac].txt") == expected
        assert matching_files("memory://bucket/in/none") == []

    def test_only_what_is_elsewhere_needs_upath(self, inputs, shout, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "upath", None)
        with pytest.raises(ImportError, match=r"s3://b/a.*needs universal-pathlib: pip install"):
            TextFile("s3://b/a")
        files = [f"file://{path}" for path in inputs]
        run_chunks(folder_for(tmp_path, files), shout, show_progress=False)
        assert_is_whole(tmp_path / "out")
