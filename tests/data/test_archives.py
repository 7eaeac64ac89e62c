"""Members of archives: read by name, written where the caller says, never anywhere else."""

import gzip
import hashlib
import tarfile
import tracemalloc

import numpy as np
import pytest

from keras_attention.data.archives import check_is_archive, extract
from tests.data.archive_server import write_archive

pytestmark = pytest.mark.backends("tensorflow")

FILES = {"training/a.en": b"one\ntwo\n", "./training/a.de": b"eins\nzwei\n", "other": b"x" * 9000}


def everything(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_named_members_alone_are_read(tmp_path, mode):
    archive = write_archive(tmp_path / "archive", FILES, mode)
    wanted = {"training/a.en": tmp_path / "x" / "a.en", "training/a.de": tmp_path / "b.de"}
    extract(archive, wanted)
    assert (tmp_path / "x" / "a.en").read_bytes() == b"one\ntwo\n"
    assert (tmp_path / "b.de").read_bytes() == b"eins\nzwei\n"
    assert everything(tmp_path) == {
        "archive", "x", "x/a.en", "x/a.en.sha256", "b.de", "b.de.sha256",
    }  # fmt: skip
    recorded = hashlib.sha256(b"eins\nzwei\n").hexdigest()
    assert (tmp_path / "b.de.sha256").read_text() == f"{recorded}  b.de\n"


def test_malicious_names_and_links_write_nothing(tmp_path):
    """An archive that tries to leave its folder, and to have the wanted file written through a link."""
    (tmp_path / "precious").write_text("dear")
    folder = tmp_path / "cache"
    links = [("out", tarfile.SYMTYPE, str(tmp_path)), ("fifo", tarfile.FIFOTYPE, "")]
    files = {
        "../precious": b"evil", str(tmp_path / "precious"): b"evil", "out/precious": b"evil",
        "../../new": b"evil", "a.en": b"good\n",
    }  # fmt: skip
    folder.mkdir()
    archive = write_archive(tmp_path / "archive.tgz", files, links=links)
    extract(archive, {"a.en": folder / "a.en"})
    assert everything(tmp_path) == {
        "precious", "archive.tgz", "cache", "cache/a.en", "cache/a.en.sha256",
    }  # fmt: skip
    assert (tmp_path / "precious").read_text() == "dear"
    # Even a caller who asks for such a name gets the content in the file of his choice.
    extract(archive, {"../precious": folder / "b.en"})
    assert (folder / "b.en").read_text() == "evil" and (tmp_path / "precious").read_text() == "dear"


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
def test_what_is_no_plain_file_is_refused(tmp_path, kind):
    (tmp_path / "precious").write_text("dear")
    links = [("a.en", kind, str(tmp_path / "precious"))]
    archive = write_archive(tmp_path / "archive.tgz", {}, links=links)
    with pytest.raises(ValueError, match="'a.en' in .*archive.tgz' is not a plain file"):
        extract(archive, {"a.en": tmp_path / "a.en"})
    assert everything(tmp_path) == {"precious", "archive.tgz"}


def test_absent_member(tmp_path):
    archive = write_archive(tmp_path / "archive.tgz", FILES)
    with pytest.raises(ValueError, match="archive.tgz' does not hold a.fr, b.fr"):
        extract(archive, {n: tmp_path / n for n in ("other", "a.fr", "b.fr")})


def test_damaged_archives(tmp_path):
    path = write_archive(tmp_path / "archive.tgz", {"big": bytes(range(256)) * 2000, "late": b"x"})
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(
        ValueError, match="archive.tgz' is damaged .*Delete it, and 'archive.tgz.sha"
    ):
        extract(path, {"late": tmp_path / "late"})
    assert everything(tmp_path) == {"archive.tgz"}
    for page in (b"<html>quota exceeded</html>", b"", gzip.compress(b"no archive")):
        path.write_bytes(page)
        with pytest.raises(ValueError, match="is not a tar archive .*a web page now"):
            check_is_archive(path)


def test_no_flipped_bit_of_a_compressed_archive_is_used(tmp_path):
    """gzip has its checksum at the end, behind the member that is wanted."""
    random = np.random.default_rng(3)
    text = bytes(random.integers(97, 123, 3000, "u1"))
    path = write_archive(tmp_path / "archive.tgz", {"a.en": text, "other": text[::-1]})
    content = path.read_bytes()
    begin = content.index(b"\0", 10) + 1  # Behind gzip's header, which ends with a file name.
    for position in random.integers(begin, len(content), 200):
        damaged = bytearray(content)
        damaged[position] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="archive.tgz' is damaged|does not hold"):
            extract(path, {"a.en": tmp_path / "a.en"})
    assert everything(tmp_path) == {"archive.tgz"}
    path.write_bytes(content)
    extract(path, {"a.en": tmp_path / "a.en"})
    assert (tmp_path / "a.en").read_bytes() == text


def test_a_plain_archive_that_is_cut_off_or_has_damaged_members_is_seen(tmp_path):
    """It has no checksum of its own, but an end; and its members have one, if they are packed."""
    text = b"".join(b"line %d\n" % i for i in range(3000))
    files = {"a.en.gz": gzip.compress(text), "b.en.gz": gzip.compress(text[::-1])}
    path = write_archive(tmp_path / "archive.tar", files, "w")
    content = path.read_bytes()
    check_is_archive(path)
    with tarfile.open(path) as archive:
        (at,) = {member.offset_data for member in archive if member.name == "b.en.gz"}
    for damaged in (content[: at - 512], content[: at + 700], content.rstrip(b"\0")):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="archive.tar' is damaged"):
            extract(path, {"a.en.gz": tmp_path / "a.en.gz"})
        with pytest.raises(
            ValueError, match="archive.tar' is not a tar archive .*, or not a whole one"
        ):
            check_is_archive(path)
    random = np.random.default_rng(7)
    for position in random.integers(at + 20, at + len(files["b.en.gz"]), 60):
        damaged = bytearray(content)
        damaged[position] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="archive.tar' is damaged .*b.en.gz"):
            extract(path, {"b.en.gz": tmp_path / "b.en.gz"})
    assert everything(tmp_path) == {"archive.tar"}


def test_an_archive_that_is_made_to_fill_the_disk(tmp_path):
    path = write_archive(tmp_path / "archive.tgz", {"a.en": bytes(2**27)})
    with pytest.raises(
        ValueError, match="holds more than 67,108,864 bytes.*'a.en' has 134,217,728"
    ):
        extract(path, {"a.en": tmp_path / "a.en"})
    assert everything(tmp_path) == {"archive.tgz"}


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_size_that_no_archive_has_ends_no_check_in_waiting(tmp_path, mode):
    """`tarfile` would go on reading after the end of the file, for centuries."""
    path = tmp_path / "archive"
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("a.en")
        member.pax_headers = {"size": str(2**60)}
        archive.addfile(member)
    for read in (check_is_archive, lambda path: extract(path, {"b.en": tmp_path / "b.en"})):
        with pytest.raises(ValueError, match="'a.en' has 1,152,921,504,606,846,976"):
            read(path)
    assert everything(tmp_path) == {"archive"}


def test_a_long_name_that_is_made_to_fill_the_memory(tmp_path):
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 2**27
    path = tmp_path / "archive.tgz"
    with gzip.open(path, "wb") as file:
        file.write(member.tobuf(tarfile.GNU_FORMAT))
        for _ in range(member.size >> 20):
            file.write(bytes(2**20))
    for read in (check_is_archive, lambda path: extract(path, {"b.en": tmp_path / "b.en"})):
        tracemalloc.start()
        with pytest.raises(ValueError, match="it holds too much for text"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 1.2 * 2**26
        tracemalloc.stop()
