"""Readers of parallel text: files written byte by byte, expectations written by hand."""

import bz2
import gzip
import lzma
import os
import re
import sys
import tarfile
import tracemalloc
import zipfile

import pytest

from keras_attention import ParallelText
from keras_attention.data.parallel_text import ChainedPairs, FilePairs, TsvPairs, read_lines

pytestmark = pytest.mark.backends("tensorflow")


def write(path, content, compress=False):
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if compress else content)
    return path


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(
    "content, lines",
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"no end", ["no end"]),
        (b"\n\nthird\n\n", ["", "", "third", ""]),
        (b"dos\r\nkept\rinside\r\r\n", ["dos", "kept\rinside\r"]),
        ("a\u2028b\x0bc\x0cd\x85e\x1cf\n".encode(), ["a\u2028b\x0bc\x0cd\x85e\x1cf"]),
        (b"\xef\xbb\xbfbom\n\xef\xbb\xbfsecond\n", ["bom", "\ufeffsecond"]),
        ("u\u0308 \u00fc  two \t\n".encode(), ["u\u0308 \u00fc  two \t"]),
    ],
)
def test_lines(tmp_path, content, lines, compress):
    """The name says nothing: a plain file may end in .gz and a compressed one in .txt."""
    path = write(tmp_path / ("text.txt" if compress else "text.gz"), content, compress)
    assert list(read_lines(path)) == lines


@pytest.mark.parametrize("compress", [False, True])
def test_undecodable_bytes_are_named(tmp_path, compress):
    content = b"\xef\xbb\xbf" + "gut\nschön\nfür".encode() + b" T\xfcr\nend\n"
    path = write(tmp_path / "latin.de", content, compress)
    lines = read_lines(path)
    assert [next(lines), next(lines)] == ["gut", "schön"]
    with pytest.raises(ValueError, match=r"latin\.de', line 3, byte 7 of the line: 0xFC.*iconv"):
        next(lines)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packings(tmp_path, pack):
    lines = [f"Zeile {i} ü" for i in range(3000)]
    content = "\ufeff" + "\n".join(lines)
    middle = len(content.encode()) // 2
    parts = content.encode()[:middle], content.encode()[middle:]
    path = write(tmp_path / "text.txt", b"".join(map(pack, parts)))  # several streams in one file
    assert list(read_lines(path)) == lines
    whole = pack(content.encode())
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 255
    with pytest.raises(ValueError, match=r"cut' is a damaged (gzip|bzip2|xz) file"):
        list(read_lines(write(tmp_path / "cut", whole[: len(whole) // 2])))
    # Its lines may be wrong before its checksum is.
    with pytest.raises(ValueError, match=r"changed'"):
        list(read_lines(write(tmp_path / "changed", bytes(changed))))


ZSTD = bytes.fromhex("28b52ffd00004100006f6e650a74776f0a")  # "one\ntwo\n" packed without a checksum


def test_zstandard_is_named_where_it_cannot_be_read(tmp_path, monkeypatch):
    for library in ("compression.zstd", "backports.zstd", "pyzstd"):
        monkeypatch.setitem(sys.modules, library, None)
    path = write(tmp_path / "text", ZSTD)
    with pytest.raises(ValueError, match="text' cannot be read: .*Zstandard.*pip install"):
        list(read_lines(path))


def test_zstandard(tmp_path):
    pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    path = write(tmp_path / "text", ZSTD)
    assert list(read_lines(path)) == ["one", "two"]
    with pytest.raises(ValueError, match="text' is a damaged Zstandard file"):
        list(read_lines(write(path, ZSTD[:-3])))


def test_what_is_no_text_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "book.xlsx", "w") as archive:
        archive.writestr("text", "one\n")
    for mode, name in (("w", "plain"), ("w:gz", "packed")):
        with tarfile.open(tmp_path / name, mode) as archive:
            archive.add(tmp_path / "book.xlsx", "book")
    for name, content, what in (
        ("book.xlsx", None, "is no text but a zip archive, as .xlsx"),
        ("plain", None, "is no text but a tar archive"),
        ("packed", None, "is no text but a tar archive"),
        ("7z", b"7z\xbc\xaf\x27\x1c123", "is no text but a 7z archive"),
        ("lz4", b"\x04\x22\x4d\x18123", "is no text but packed by lz4"),
        ("lzma", lzma.compress(b"a", lzma.FORMAT_ALONE), "is no text but packed by lzma"),
        ("Z", b"\x1f\x9d\x90", "is no text but packed by compress"),
        ("pdf", b"%PDF-1.7\n", "is no text but a PDF file"),
        ("le", "ein\n".encode("utf-16"), "is no text but UTF-16: .*iconv"),
        ("be", b"\xfe\xff" + "中文".encode("utf-16-be"), "is no text but UTF-16: .*iconv"),
        ("utf16", "ein\nHund\n".encode("utf-16-le"), ", line 1, holds a NUL.*iconv -f utf-16"),
        ("old", b"one\rtwo\r", ".*CR alone"),
        ("a.csv", b"one\n", "has no plain sentences.*corpus_from_tsv"),
        ("a.jsonl.gz", b"one\n", "has no plain sentences.*fields"),
        ("a.TMX", b"one\n", "has no plain sentences.*tool"),
        ("a.de.sgm", b"one\n", "has no plain sentences.*<seg>"),
    ):
        if content is not None:
            write(tmp_path / name, content)
        with pytest.raises(ValueError, match=f"{re.escape(name)}' ?{what}"):
            list(read_lines(tmp_path / name))
    assert list(read_lines(write(tmp_path / "old", b"one\r"))) == ["one"]


def test_pairs_from_files(tmp_path):
    source = write(tmp_path / "a.en", "Good day.\n\nThanks!\n")
    target = write(tmp_path / "a.de", "Guten Tag.\nLeer\nDanke!", compress=True)
    text = ParallelText("a", FilePairs(str(source), target))
    expected = [("Good day.", "Guten Tag."), ("", "Leer"), ("Thanks!", "Danke!")]
    assert list(text) == list(text) == expected
    assert len(text) == 3
    assert list(text.sources()) == ["Good day.", "", "Thanks!"]
    assert list(text.targets()) == ["Guten Tag.", "Leer", "Danke!"]
    assert "a" in repr(text)


@pytest.mark.parametrize("lengths", [(3, 5), (5, 3), (4, 5), (1, 0), (0, 2)])
def test_unequal_files(tmp_path, lengths):
    files = [write(tmp_path / f"{n}.txt", "line\n" * n) for n in lengths]
    pattern = (
        rf"{lengths[0]}\.txt' has {lengths[0]} lines, '.*{lengths[1]}\.txt' has {lengths[1]}\."
    )
    with pytest.raises(ValueError, match=pattern):
        len(ParallelText("a", FilePairs(*files)))


def test_missing_and_empty_files(tmp_path):
    empty = write(tmp_path / "empty.txt", "")
    with pytest.raises(FileNotFoundError, match="nowhere.txt' does not exist"):
        FilePairs(empty, tmp_path / "nowhere.txt")
    with pytest.raises(FileNotFoundError, match="is a folder"):
        TsvPairs(tmp_path)
    with pytest.raises(ValueError, match=r"empty\.txt' and '.*empty\.txt' are empty"):
        len(ParallelText("a", FilePairs(empty, empty)))
    with pytest.raises(ValueError, match=r"empty\.txt' is empty"):
        list(ParallelText("a", TsvPairs(empty)))
    with pytest.raises(ValueError, match="'nothing' has no sentence pairs"):
        len(ParallelText("nothing", []))
    for pairs in ([("", ""), ("a", " "), ("\t", "b")], [("a", "")]):
        with pytest.raises(ValueError, match=f"words on both sides, of {len(pairs)} pairs"):
            len(ParallelText("blank", pairs))
    assert len(ParallelText("one", [("", ""), ("a", "b")])) == 2


def test_tsv(tmp_path):
    path = write(tmp_path / "a.tsv", "\ufeffone\teins\r\n two \t\n", compress=True)
    assert list(TsvPairs(path)) == [("one", "eins"), (" two ", "")]


def test_all_bad_lines_of_a_tsv_are_told_at_once(tmp_path):
    lines = ["a\tb" if number in (1, 5, 30) else "a b" for number in range(1, 31)]
    with pytest.raises(ValueError, match="line 2: .* 26 other lines: 3, 4, 6, .*, 13, ..[.]$"):
        list(TsvPairs(write(tmp_path / "a.tsv", "\n".join(lines))))


@pytest.mark.parametrize("line, tabs", [("one eins", 0), ("one\teins\tuno", 2)])
def test_tsv_with_another_number_of_columns(tmp_path, line, tabs):
    path = write(tmp_path / "a.tsv", f"good\tgut\n{line}\n")
    with pytest.raises(
        ValueError, match=rf"a\.tsv', line 2: expected one tab.* Received {tabs} tabs"
    ):
        len(ParallelText("a", TsvPairs(path)))


def test_blank_lines_of_a_tsv_separate_documents(tmp_path):
    """\u00a0 and a tab alone: what has no text but a tab is a pair with empty sides, as before."""
    path = write(
        tmp_path / "a.tsv",
        "one\teins\n\n  \r\ntwo\tzwei\n\u00a0\n\t\n\t\t\n\ufeff\nthree\tdrei\n\u200b",
    )
    pairs = TsvPairs(path)
    for _ in range(2):
        assert list(pairs) == [("one", "eins"), ("two", "zwei"), ("", ""), ("three", "drei")]
        assert pairs.blank_lines == 6
    with pytest.raises(ValueError, match="blank.tsv' is empty"):
        list(TsvPairs(write(tmp_path / "blank.tsv", "\n\n  \n")))
    with pytest.raises(ValueError, match="line 3: .* 1 other lines: 6[.]$"):
        list(TsvPairs(write(tmp_path / "bad.tsv", "a\tb\n\nbad\nc\td\n\ufeff\nbad")))


def test_blank_lines_of_a_tsv_with_languages_name_none(tmp_path):
    """As a spreadsheet writes an empty row: with all its tabs."""
    pairs = TsvPairs(
        write(
            tmp_path / "a.tsv", "one\teins\tde\n\n\t\t\n \t\t\u200b\ntwo\tdeux\tfr\n\u00ad\tx\tfr"
        ),
        True,
    )
    assert list(pairs) == [("<2de> one", "eins"), ("<2fr> two", "deux"), ("\u00ad", "x")]
    assert pairs.blank_lines == 3


@pytest.mark.parametrize("side", ["source", "target", "tsv"])
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_is_read_once_and_can_be_iterated_again(tmp_path, side):
    """As a shell's `<(zcat a.gz)` gives it: what comes out of a pipe comes once."""
    content = {"source": "a\nb\nc\n", "target": "d\ne\nf\n", "tsv": "a\td\nb\te\nc\tf\n"}
    pipe, writer = os.pipe()
    os.write(
        writer,
        gzip.compress(content[side].encode()) if side == "target" else content[side].encode(),
    )
    os.close(writer)
    paths = {name: write(tmp_path / name, text) for name, text in content.items()}
    paths[side] = f"/dev/fd/{pipe}"
    pairs = TsvPairs(paths["tsv"]) if side == "tsv" else FilePairs(paths["source"], paths["target"])
    os.close(pipe)
    expected = [("a", "d"), ("b", "e"), ("c", "f")]
    assert list(pairs) == list(pairs) == expected
    assert ParallelText("pipe", pairs).fingerprint() == ParallelText("a", expected).fingerprint()


@pytest.mark.parametrize("device", [os.devnull, "/dev/zero"])
def test_a_device_is_no_text(device):
    with pytest.raises(FileNotFoundError, match="is a device; a text file"):
        FilePairs(device, device)


def test_fingerprint_is_of_the_content(tmp_path):
    pairs = [("a b", "ä"), ("", "c")]
    prints = {ParallelText(name, pairs).fingerprint() for name in ("one", "other")}
    files = write(tmp_path / "source", "a b\n\n"), write(tmp_path / "target", "ä\r\nc")
    prints.add(ParallelText("files", FilePairs(*files)).fingerprint())
    content = "a b\tä\n\tc\n".encode()
    for pack in (gzip.compress, bz2.compress, lzma.compress):
        packed = write(tmp_path / pack.__module__, pack(content))
        prints.add(ParallelText("tsv", TsvPairs(packed)).fingerprint())
    assert len(prints) == 1 and len(prints.pop()) == 64
    others = [
        pairs,
        [("a b", "a"), ("", "c")],
        [("", "c"), ("a b", "ä")],
        [("ä", "a b"), ("c", "")],
        [("a b", "ä"), ("c", "")],
        [("a b", "ä")],
        [("a b", "ä"), ("", "c"), ("", "")],
        [("a", " bä"), ("", "c")],
    ]
    assert len({ParallelText("x", other).fingerprint() for other in others}) == len(others)


def test_memory_does_not_grow_with_the_file(tmp_path):
    line = "word " * 400 + "\n"
    files = [write(tmp_path / side, line * 3_000, compress=True) for side in ("source", "target")]
    text = ParallelText("big", FilePairs(*files))
    tracemalloc.start()
    try:
        assert len(text) == 3_000
        assert sum(len(source) for source, _ in text) == 3_000 * (len(line) - 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3_000 * len(line) / 10


def test_chained_pairs_can_be_read_again_and_again(tmp_path):
    files = [write(tmp_path / name, f"{name} 1\n{name} 2\n") for name in ("a", "b")]
    text = ParallelText("chain", ChainedPairs([[("x", "y")], FilePairs(*files), [("z", "")]]))
    expected = [("x", "y"), ("a 1", "b 1"), ("a 2", "b 2"), ("z", "")]
    assert list(text) == list(text) == expected and len(text) == 4
    assert text.fingerprint() == ParallelText("list", expected).fingerprint()


@pytest.mark.parametrize("at_most, pairs", [(None, 7), (14, 7), (13, 4), (7, 4), (6, 3), (1, 1)])
def test_both_sides_for_a_tokenizer(at_most, pairs):
    text = ParallelText("seven", [(f"s{i}", f"t{i}") for i in range(7)])
    sentences = list(text.both_sides(at_most))
    taken = [int(sentence[1:]) for sentence in sentences[::2]]
    assert sentences == [f"{side}{i}" for i in taken for side in "st"]
    assert len(taken) == pairs and len({b - a for a, b in zip(taken, taken[1:], strict=False)}) <= 1
    assert taken[0] == 0


@pytest.mark.parametrize(
    "message, pairs",
    {
        "must be a source and a target": [("a",), ("a", None), ("a", "b", "c"), (1, 2)],
        "holds half of a surrogate pair": [("a\ud83d", "b"), ("a", "\udcfc")],
        "has a line break": [("a", "b\nc")],
    }.items(),
)
def test_no_pair(message, pairs):
    for pair in pairs:
        with pytest.raises(ValueError, match=f"Pair 3 of 'mine' {message}"):
            len(ParallelText("mine", [("a", "b"), ("", ""), pair]))


@pytest.mark.parametrize("name", ["n" * 256, "\u5c0f" * 86])
def test_a_name_that_no_file_can_have_is_refused(tmp_path, name):
    for read in (lambda path: list(read_lines(path)), TsvPairs):
        with pytest.raises(ValueError, match=r"too long .* its name has 25[68] bytes"):
            read(tmp_path / name)
