import contextlib
import errno
import json
import multiprocessing
import os
import signal
import stat
import threading
from pathlib import Path

import pytest

from keras_attention.utils import files

pytestmark = pytest.mark.backends("tensorflow")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def in_killed_process(work):
    """Run something that ends with SIGKILL in a child of this process."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL


class TestFile:
    def test_text_and_bytes(self, tmp_path):
        files.write_atomically(tmp_path / "text", "Ä\n")
        files.write_atomically(tmp_path / "bytes", b"\xff\r\n")
        assert (tmp_path / "text").read_bytes() == b"\xc3\x84\n"
        assert (tmp_path / "bytes").read_bytes() == b"\xff\r\n"
        assert names(tmp_path) == ["bytes", "text"]

    def test_failure_leaves_the_old_one(self, tmp_path):
        path = tmp_path / "a"
        path.write_text("old")
        with pytest.raises(KeyError), files.atomic_file(path, "w") as file:
            file.write("new")
            raise KeyError
        assert path.read_text() == "old"
        assert names(tmp_path) == ["a"]

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
    def test_full_disk_names_the_file(self, tmp_path):
        path = tmp_path / "a.txt"
        path.write_text("old")
        with pytest.raises(OSError, match=r"a\.txt' could not be written: No space left"):
            with files.atomic_file(path) as file:
                os.dup2(os.open("/dev/full", os.O_WRONLY), file.fileno())
                file.write(b"new")
        assert path.read_text() == "old"
        assert names(tmp_path) == ["a.txt"]

    def test_an_error_of_another_file_keeps_its_name(self, tmp_path):
        with pytest.raises(FileNotFoundError) as caught:
            with files.atomic_file(tmp_path / "a"):
                open(tmp_path / "absent")
        assert caught.value.filename == str(tmp_path / "absent")

    @pytest.mark.parametrize("make", [os.mkdir, lambda path: os.symlink("elsewhere", path)])
    def test_never_replaces_a_folder_or_a_link(self, tmp_path, make):
        make(tmp_path / "a")
        with pytest.raises(files.OccupiedPath, match="is a folder|is a link"):
            files.write_atomically(tmp_path / "a", "new")
        assert names(tmp_path) == ["a"]

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_leftovers_of_a_killed_process_go_with_the_next_write(self, tmp_path):
        def killed_while_writing():
            with files.atomic_file(tmp_path / "a") as file:
                file.write(b"half")
                file.flush()
                kill_self()

        in_killed_process(killed_while_writing)
        assert names(tmp_path) == [f"{files.LOCK}a", f"{files.PARTIAL}a"]
        files.write_atomically(tmp_path / "a", "whole")
        assert names(tmp_path) == ["a"]
        assert (tmp_path / "a").read_text() == "whole"

    def test_threads_write_one_after_the_other(self, tmp_path):
        path, contents = tmp_path / "a", [str(i) * 5000 for i in range(8)]
        threads = [
            threading.Thread(target=files.write_atomically, args=(path, content))
            for content in contents
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert path.read_text() in contents
        assert names(tmp_path) == ["a"]


class TestFolder:
    def test_replaces_when_told(self, tmp_path):
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "old").touch()
        with (
            pytest.raises(files.OccupiedPath, match="not empty"),
            files.atomic_folder(tmp_path / "a"),
        ):
            raise AssertionError("nothing may be begun")
        with files.atomic_folder(tmp_path / "a", replace=True) as folder:
            (folder / "new").touch()
        assert names(tmp_path / "a") == ["new"]
        assert names(tmp_path) == ["a"]

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    @pytest.mark.parametrize("renames", [1, 2])
    def test_killed_while_it_replaces(self, tmp_path, renames):
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "old").touch()

        def killed_at_rename():
            rename, count = os.rename, []

            def counted(*paths):
                rename(*paths)
                count.append(paths)
                if len(count) == renames:
                    kill_self()

            os.rename = counted
            with files.atomic_folder(tmp_path / "a", replace=True) as folder:
                (folder / "new").touch()

        in_killed_process(killed_at_rename)
        files.remove_leftovers(tmp_path)
        assert names(tmp_path) == ["a"]
        assert names(tmp_path / "a") == [["old"], ["new"]][renames - 1]

    def test_leftovers_of_the_living_stay(self, tmp_path):
        with files.atomic_folder(tmp_path / "a") as folder:
            (folder / "x").touch()
            files.remove_leftovers(tmp_path)
            assert names(folder) == ["x"]
        assert names(tmp_path) == ["a"]

    def test_remove(self, tmp_path):
        with files.atomic_folder(tmp_path / "a") as folder:
            (folder / "x").touch()
        files.remove_folder(tmp_path / "a")
        assert names(tmp_path) == []


class TestDestination:
    def test_what_is_free(self, tmp_path):
        assert files.check_destination(str(tmp_path / "a")) == tmp_path / "a"
        assert files.check_destination(tmp_path / "b" / "c", folder=True) == tmp_path / "b" / "c"
        assert files.check_destination(tmp_path, folder=True) == tmp_path  # It is empty.
        assert names(tmp_path) == []

    def test_only_ours_and_only_when_asked(self, tmp_path):
        path = tmp_path / "a"
        path.write_text("ours")
        ours = lambda path: path.read_text() == "ours"  # noqa: E731
        assert files.check_destination(path, ours=ours, overwrite=True) == path
        with pytest.raises(files.OccupiedPath, match="overwrite=True"):
            files.check_destination(path, ours=ours)
        with pytest.raises(files.OccupiedPath, match="exists.*move it away.$"):
            files.check_destination(path, overwrite=True)
        path.write_text("theirs")
        with pytest.raises(files.OccupiedPath, match="did not write it"):
            files.check_destination(path, ours=ours, overwrite=True)

    def test_own_source(self, tmp_path):
        path = tmp_path / "a"
        path.touch()
        (tmp_path / "hard").hardlink_to(path)
        with pytest.raises(files.OccupiedPath, match="is both a file to read"):
            files.check_destination(tmp_path / "hard", sources=[path], ours=bool, overwrite=True)

    @pytest.mark.parametrize("folder", [False, True])
    def test_links_and_devices(self, tmp_path, folder):
        (tmp_path / "target").mkdir()
        (tmp_path / "link").symlink_to("target")
        with pytest.raises(files.OccupiedPath, match="is a link to 'target'"):
            files.check_destination(tmp_path / "link", folder=folder, ours=bool, overwrite=True)
        with pytest.raises(files.OccupiedPath, match="is a device"):
            files.check_destination(os.devnull, folder=folder, ours=bool, overwrite=True)

    def test_absent_folder(self, tmp_path):
        with pytest.raises(ValueError, match="There is no folder '.*absent'"):
            files.check_destination(tmp_path / "absent" / "a")
        (tmp_path / "file").touch()
        with pytest.raises(ValueError, match="There is no folder '.*file'"):
            files.check_destination(tmp_path / "file" / "a", folder=True)
        for name in ("a", "b/c"):
            folder = tmp_path / "file" / name
            with pytest.raises(
                OSError, match=f"{name}' could not be written, for .*file"
            ) as refused:
                with files.atomic_folder(folder):
                    pytest.fail("a file is no folder to write to")
            assert refused.value.errno

    @pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
    @pytest.mark.parametrize("folder", [False, True])
    def test_where_nothing_can_be_written(self, folder):
        # /proc, where not even the superuser, who may run this test, can make a file.
        with pytest.raises(ValueError, match="nothing can be written to '/proc'"):
            files.check_destination("/proc/a", folder=folder)
        writers = (files.atomic_path, files.atomic_folder, files.locked)
        for write in writers:
            with pytest.raises(OSError, match="/proc"), write(Path("/proc/a")):
                pytest.fail("nothing is there to write to")

    @pytest.mark.parametrize("path", [".", "..", "/", "here", "here/../..", "here/.."])
    def test_the_current_folder_and_those_above_it_stay(self, tmp_path, monkeypatch, path):
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path)
        if path == "here":
            monkeypatch.chdir(tmp_path / "here")
            path = str(tmp_path / "here")
        ours = lambda _: pytest.fail("not even looked at")  # noqa: E731
        for check in (
            lambda: files.check_destination(path, folder=True, ours=ours, overwrite=True),
            lambda: files.atomic_folder(path, replace=True).__enter__(),
        ):
            with pytest.raises(files.OccupiedPath, match="is the current folder, holds it"):
                check()
        assert names(tmp_path) == ["here"]

    def test_a_folder_is_not_listed_to_its_end(self, tmp_path, monkeypatch):
        """Of a home with a million files, one entry is read."""
        for name in ("a", "b", "c"):
            (tmp_path / name).touch()
        read, scandir = [], os.scandir

        @contextlib.contextmanager
        def counting(path):
            with scandir(path) as entries:
                yield (read.append(entry.name) or entry for entry in entries)

        monkeypatch.setattr(os, "scandir", counting)
        with pytest.raises(files.OccupiedPath, match="exists"):
            files.check_destination(tmp_path, folder=True)
        assert len(read) == 1


class TestFileSystems:
    """What some answer, which the system's own functions are made to."""

    @pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
    def test_without_locks_one_writes_and_is_warned(self, tmp_path, monkeypatch, code):
        fcntl = pytest.importorskip("fcntl")

        def refuse(*_):
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(fcntl, "flock", refuse)
        with pytest.warns(UserWarning, match="has no locks.*one process at a time"):
            with files.locked(tmp_path / "a", timeout=3):
                pass
            files.write_atomically(tmp_path / "a", "whole")
            with files.atomic_folder(tmp_path / "b") as folder:
                files.remove_leftovers(tmp_path)  # of the dead: this one lives
                (folder / "x").touch()
        assert (tmp_path / "a").read_text() == "whole" and names(tmp_path / "b") == ["x"]

    @pytest.mark.parametrize("code", [errno.EINVAL, errno.EACCES, errno.EIO])
    def test_a_folder_that_is_not_flushed(self, tmp_path, monkeypatch, code):
        fsync = os.fsync

        def flush_files(descriptor):
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(code, os.strerror(code))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", flush_files)
        (tmp_path / "a").write_text("old")
        if code == errno.EIO:  # The disk fails. What is there is new, which must not be denied.
            with pytest.raises(OSError, match=f"error: '{tmp_path}'$") as error:
                files.write_atomically(tmp_path / "a", "new")
            assert "unchanged" not in str(error.value)
        else:
            files.write_atomically(tmp_path / "a", "new")
            with files.atomic_folder(tmp_path / "b") as folder:
                (folder / "x").touch()
            assert names(tmp_path) == ["a", "b"]
        assert (tmp_path / "a").read_text() == "new"

    @pytest.mark.parametrize("length", [60, 80, 90])
    def test_long_names_are_refused_before_the_work(self, tmp_path, length):
        path = tmp_path / ("\u6f22" * length)  # three bytes each, of 255
        for folder in (False, True):
            with contextlib.ExitStack() as expected:
                if length > 70:
                    message = f"its name has {3 * length} bytes.*Choose a shorter one"
                    expected.enter_context(pytest.raises(ValueError, match=message))
                files.check_destination(path, folder=folder)
        with contextlib.suppress(ValueError):
            for _ in "ab":
                with files.atomic_folder(path, replace=True) as folder:
                    (folder / "x").touch()
        assert len(names(tmp_path)) == (length < 70)


class TestVerified:
    def test_json_round_trip(self, tmp_path):
        value = {"b": [1.5, None, "ü"], "a": {"c": float("inf")}}
        files.write_json(tmp_path / "a.json", value)
        assert files.read_json(tmp_path / "a.json") == value
        assert json.loads((tmp_path / "a.json").read_text()) == value
        with pytest.raises(files.DamagedFile, match="has no checksum"):
            files.read_signed_json(tmp_path / "a.json")
        files.write_signed_json(tmp_path / "a.json", value)
        assert set(json.loads((tmp_path / "a.json").read_text())) == {"a", "b", "checksum"}
        for read in (files.read_signed_json, files.read_json):
            assert read(tmp_path / "a.json") == value

    def test_every_flipped_bit_of_json_is_noticed(self, tmp_path):
        path, value = tmp_path / "a.json", {"steps": 100, "loss": [0.5]}
        files.write_signed_json(path, value)
        content = path.read_bytes()
        for position in range(len(content)):
            for bit in range(8):
                damaged = bytearray(content)
                damaged[position] ^= 1 << bit
                path.write_bytes(damaged)
                try:
                    assert files.read_signed_json(path, "Write it again.") == value
                except files.DamagedFile as error:
                    assert str(path) in str(error) and "Write it again." in str(error)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_two_processes_wait_for_each_other(tmp_path):
    def write_too():
        with pytest.raises(files.OccupiedPath), files.atomic_folder(tmp_path / "a"):
            (tmp_path / "begun").touch()

    with files.atomic_folder(tmp_path / "a") as folder:
        (folder / "first").touch()
        child = multiprocessing.get_context("fork").Process(target=write_too)
        child.start()
        child.join(timeout=0.3)
        assert child.is_alive()
    child.join()
    assert child.exitcode == 0
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a") == ["first"]


def test_a_new_file_replaces_none_that_came_meanwhile(tmp_path):
    path = tmp_path / "a"
    with pytest.raises(files.OccupiedPath, match="exists"), files.atomic_file(path, is_new=True):
        with pytest.raises(files.OccupiedPath, match="Another process writes"):
            with files.atomic_file(path, is_new=True):
                pass
        path.write_text("theirs")
    assert path.read_text() == "theirs" and [*tmp_path.iterdir()] == [path]
