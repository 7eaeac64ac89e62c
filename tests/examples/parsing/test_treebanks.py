"""Treebanks from folders, from a small archive, and from a server of our own."""

import hashlib
import zipfile

import pytest
from parsing import treebanks
from parsing.treebanks import load_treebank, treebank_from_files

from tests.data.archive_server import serving

pytestmark = pytest.mark.backends("tensorflow")


def written(path, word):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"( (S (NP-SBJ (NN {word})) (VP (-NONE- *) (VBZ runs)) (. .)) )\n", "utf-8")
    return path


def sources(trees):
    return [one.leaves()[0] for one in trees]


def test_sections_of_the_penn_treebank(tmp_path):
    for section in range(25):
        written(tmp_path / f"parsed/mrg/wsj/{section:02}/wsj_{section:02}01.mrg", f"s{section}")
        (tmp_path / f"parsed/mrg/wsj/{section:02}/readme").write_text("no trees")
    bank = load_treebank("penn", tmp_path)
    assert sources(bank.train) == [f"s{section}" for section in range(2, 22)]
    assert sources(bank.validation) == ["s22"]
    assert sources(bank.test) == ["s23"]
    (tmp_path / "parsed/mrg/wsj/07/wsj_0701.mrg").unlink()
    with pytest.raises(FileNotFoundError, match="missing.*07. Expected"):
        load_treebank("penn", tmp_path)
    with pytest.raises(ValueError, match="LDC"):
        load_treebank("penn")


def sample_archive(folder):
    archive = folder / "treebank.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for number in range(1, 200):
            tree = f"( (S (NN dog{'-' * number})) )"
            file.writestr(f"treebank/combined/wsj_{number:04}.mrg", tree)
    return archive


def test_the_sample_is_divided_by_article_from_archive_and_folder(tmp_path):
    with zipfile.ZipFile(sample_archive(tmp_path)) as archive:
        archive.extractall(tmp_path)
    for folder in (tmp_path, tmp_path / "treebank"):
        bank = load_treebank("wsj_sample", folder)
        assert sources(bank.test) == [f"dog{'-' * number}" for number in range(10, 200, 10)]
        assert sources(bank.validation) == [f"dog{'-' * number}" for number in range(5, 200, 10)]
        assert len(sources(bank.train)) == 199 - 19 - 20
    (tmp_path / "treebank/combined/wsj_0003.mrg").unlink()
    with pytest.raises(FileNotFoundError, match="wsj_0003.mrg"):
        load_treebank("wsj_sample", tmp_path / "treebank")


@pytest.fixture
def small_craft(tmp_path, monkeypatch):
    """Three articles under the addresses of CRAFT."""
    sums = {}
    for part, article in (("train", "1"), ("validation", "22"), ("test", "333")):
        path = written(tmp_path / f"mirror/{article}.tree", f"w{article}")
        sums[part] = {article: hashlib.sha256(path.read_bytes()).hexdigest()}
    monkeypatch.setattr(treebanks, "craft_sums", lambda: sums)
    return tmp_path / "mirror"


def test_craft_is_downloaded_once_and_checked(small_craft, tmp_path):
    with serving(small_craft) as server:
        for _ in range(2):
            bank = load_treebank("craft", cache_dir=tmp_path, base_url=server.url)
            assert [sources(trees) for trees in bank.parts.values()] == [["w1"], ["w22"], ["w333"]]
        assert len(server.asked) == 3
    written(tmp_path / "craft/22.tree", "changed")
    with pytest.raises(ValueError, match="22.tree' does not have the expected content"):
        load_treebank("craft", cache_dir=tmp_path, base_url=server.url)


def test_craft_from_a_folder_that_lacks_an_article(small_craft):
    assert sources(load_treebank("craft", small_craft).test) == ["w333"]
    (small_craft / "22.tree").unlink()
    with pytest.raises(FileNotFoundError, match="22.tree"):
        load_treebank("craft", small_craft)


def test_the_corpus_of_a_treebank(tmp_path):
    file = written(tmp_path / "x.mrg", "dog")
    bank = treebank_from_files([tmp_path], [file], [file, file])
    assert list(bank.corpus().train) == [("dog runs .", "(S (NP NN )NP (VP VBZ )VP . )S")]
    for leaves, tree in (
        ("XX", "(S (NP XX )NP (VP XX )VP XX )S"),
        ("words", "(S (NP dog )NP (VP runs )VP . )S"),
    ):
        assert list(bank.corpus(leaves).test)[1] == ("dog runs .", tree)


def test_bad_input_is_named(tmp_path):
    file = written(tmp_path / "x.mrg", "dog")
    with pytest.raises(ValueError, match="Unknown treebank.*craft.*'wsj'"):
        load_treebank("wsj")
    with pytest.raises(FileNotFoundError, match="`test`"):
        treebank_from_files([file], [file], [tmp_path / "absent"])
    with pytest.raises(ValueError, match="`train` must be a list"):
        treebank_from_files(file, [file], [file])
    file.write_text("( (S (NN a)) )\n( (S (NN b) )\n")
    with pytest.raises(ValueError, match=r"x.mrg', line 2: 1 .* missing"):
        treebank_from_files([file], [file], [file]).corpus()
    file.write_bytes(b"( (S (NN \xff)) )")
    with pytest.raises(ValueError, match="x.mrg' is not UTF-8"):
        treebank_from_files([file], [file], [file]).corpus()


@pytest.mark.parametrize("damage", ["empty", "cut", "no archive"])
def test_a_damaged_archive_is_named(damage, tmp_path):
    archive = sample_archive(tmp_path)
    whole = archive.read_bytes()
    archive.write_bytes({"empty": b"", "cut": whole[:-300], "no archive": b"<html>"}[damage])
    with pytest.raises(ValueError, match=r"treebank.zip' is damaged: .*\. Put a whole copy"):
        load_treebank("wsj_sample", tmp_path)


def test_a_damaged_member_of_the_archive_is_named(tmp_path):
    archive = sample_archive(tmp_path)
    bank = load_treebank("wsj_sample", tmp_path)
    whole = archive.read_bytes()
    with zipfile.ZipFile(archive) as file:
        info = file.getinfo("treebank/combined/wsj_0010.mrg")
    start = info.header_offset + 30 + len(info.filename)
    for place in (start, start + info.compress_size // 2):
        archive.write_bytes(whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :])
        bank = load_treebank("wsj_sample", tmp_path)
        assert len(list(bank.train)) == 199 - 19 - 20
        with pytest.raises(
            ValueError, match="treebank.zip/treebank/combined/wsj_0010.mrg' is damaged"
        ):
            list(bank.test)


def test_the_text_of_a_treebank_is_as_its_files_have_it(tmp_path):
    file = tmp_path / "x.mrg"
    file.write_text(r"( (NP (-LRB- -LRB-) (CD 1\/2) (NN -LCB-) (NN and/or) (-RRB- -RRB-)) )")
    expected = r"-LRB- 1\/2 -LCB- and/or -RRB-"
    pair = (expected, f"(NP {expected} )NP")
    assert list(treebank_from_files([file], [file], [file]).corpus("words").train) == [pair]
