"""Corpora by name and from files: tiny corpora written here, and Multi30K where it is at hand."""

import gzip
import hashlib
import os
import pickle  # noqa: TID251
import re

import pytest

from keras_attention import corpus_from_files, corpus_from_tsv, load_corpus, write_corpus
from keras_attention.data import Filters
from keras_attention.data import multi30k as multi30k_module
from tests.data.archive_server import serving

pytestmark = pytest.mark.backends("tensorflow")

LENGTHS = {"train": 9, "val": 3, "test_2016_flickr": 5, "test_2017_flickr": 4}


def write_lines(path, lines):
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.fixture
def multi30k(tmp_path):
    """A folder in the layout of Multi30K with a few made-up lines."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    for split, length in LENGTHS.items():
        for language in ("en", "de", "fr"):
            lines = [f"{language} {split} {i}" for i in range(length)]
            write_lines(folder / f"{split}.{language}.gz", lines)
    return folder


def test_demo():
    corpus = load_corpus("demo")
    assert corpus.synthetic and "ynthetic" in corpus.description
    assert (corpus.source_language, corpus.target_language) == ("en", "de")
    assert {split: len(text) for split, text in corpus.splits.items()} == {
        "train": 10_000, "validation": 400, "test": 500,
    }  # fmt: skip
    assert corpus.alignments.keys() == {pair for text in corpus.splits.values() for pair in text}
    # Results are reported on exactly these sentences: change the grammar and say so.
    assert corpus.test.fingerprint().startswith("7d6911bedf51bd02")


def test_the_first_pairs():
    corpus = load_corpus("demo")
    some = corpus.first(7)
    assert list(some.train) == list(corpus.train)[:7]
    assert some.train.fingerprint() != corpus.train.fingerprint()
    assert (some.validation, some.test, some.alignments) == (
        *(corpus.validation, corpus.test),
        corpus.alignments,
    )
    fewer = corpus.first(test=3)
    assert list(fewer.test) == list(corpus.test)[:3] and fewer.train is corpus.train
    for pairs in (0, 10_001):
        with pytest.raises(ValueError, match="`pairs` must be an int from 1 to 10,000"):
            corpus.first(pairs)


@pytest.mark.parametrize("arguments", [{"data_dir": "."}, {"source_language": "fr"}])
def test_demo_has_no_files_and_one_direction(arguments):
    with pytest.raises(ValueError, match="embedded.*'en' to 'de' only.*Received"):
        load_corpus("demo", **arguments)


@pytest.mark.parametrize("source, target", [("en", "de"), ("fr", "de"), ("de", "en")])
def test_multi30k_from_a_folder(multi30k, source, target):
    corpus = load_corpus("multi30k", multi30k, source, target)
    assert not corpus.synthetic and (corpus.source_language, corpus.target_language) == (
        source,
        target,
    )
    assert {split: len(text) for split, text in corpus.splits.items()} == {
        "train": 9, "validation": 3, "test": 5, "test_2017_flickr": 4,
    }  # fmt: skip
    assert list(corpus.validation) == [(f"{source} val {i}", f"{target} val {i}") for i in range(3)]
    assert next(iter(corpus.test)) == (
        f"{source} test_2016_flickr 0",
        f"{target} test_2016_flickr 0",
    )


def test_multi30k_plain_files_and_missing_ones(multi30k):
    (multi30k / "test_2017_flickr.de.gz").unlink()
    packed = multi30k / "val.de.gz"
    (multi30k / "val.de").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    corpus = load_corpus("multi30k", str(multi30k))
    assert set(corpus.splits) == {"train", "validation", "test"}
    assert list(corpus.validation.targets()) == ["de val 0", "de val 1", "de val 2"]
    (multi30k / "val.de").unlink()
    (multi30k / "train.en.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"missing in '.*mirror': train\.en, val\.de, each"):
        load_corpus("multi30k", multi30k)


def test_multi30k_broken_file_is_found_at_once(multi30k):
    write_lines(multi30k / "val.en.gz", ["one line"])
    with pytest.raises(ValueError, match=r"val\.en\.gz' has 1 lines, '.*val\.de\.gz' has 3"):
        load_corpus("multi30k", multi30k)


@pytest.mark.parametrize("languages", [("en", "cs"), ("de", "de"), ("english", "de")])
def test_multi30k_languages(multi30k, languages):
    with pytest.raises(ValueError, match=f"en, de, fr.*Received: source_language='{languages[0]}'"):
        load_corpus("multi30k", multi30k, *languages)


@pytest.fixture
def mirror(multi30k, monkeypatch):
    """Address of a local server with the made-up Multi30K, its checksums the expected ones."""
    for file in multi30k.iterdir():
        assert file.name in multi30k_module.MULTI30K_SHA256
        checksum = hashlib.sha256(file.read_bytes()).hexdigest()
        monkeypatch.setitem(multi30k_module.MULTI30K_SHA256, file.name, checksum)
    with serving(multi30k) as server:
        yield server.url


def test_multi30k_download(mirror, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_ATTENTION_CACHE", str(tmp_path / "cache"))
    first = load_corpus("multi30k", base_url=mirror)
    assert len(first.train) == 9
    files = {file.name for file in (tmp_path / "cache" / "multi30k").iterdir()}
    assert files == {f"{split}.{language}.gz" for split in LENGTHS for language in ("en", "de")}
    # The second time nothing is fetched.
    second = load_corpus("multi30k", base_url="http://127.0.0.1:1/nobody")
    assert second.train.fingerprint() == first.train.fingerprint()


def test_multi30k_download_of_other_content(mirror, multi30k, tmp_path):
    write_lines(multi30k / "val.en.gz", ["changed"])
    with pytest.raises(ValueError, match=r"val\.en\.gz\.part' does not have the expected content"):
        load_corpus("multi30k", cache_dir=tmp_path / "cache", base_url=mirror)
    assert not (tmp_path / "cache" / "multi30k" / "val.en.gz").exists()


def test_multi30k_without_connection(mirror, multi30k, tmp_path):
    (multi30k / "val.de.gz").unlink()
    folder = tmp_path / "cache" / "multi30k"
    expected = (
        rf"val\.de\.gz: .*404.*\n.*put these files from {re.escape(mirror)} into "
        rf"'{re.escape(str(folder))}', .*data_dir` \(--data-dir\): val\.de\.gz, test_2016_flickr\.en\.gz, "
    )
    with pytest.raises(ConnectionError, match=expected):
        load_corpus("multi30k", cache_dir=tmp_path / "cache", base_url=mirror)
    assert (folder / "train.en.gz").exists()


REAL = os.environ.get("KERAS_ATTENTION_MULTI30K")


@pytest.mark.skipif(not REAL, reason="set KERAS_ATTENTION_MULTI30K to a folder with Multi30K")
def test_real_multi30k(tmp_path):
    """The files themselves, found in the download folder, have the committed checksums."""
    (tmp_path / "multi30k").symlink_to(REAL)
    for languages in (("en", "de"), ("de", "fr")):
        corpus = load_corpus("multi30k", None, *languages, cache_dir=tmp_path, base_url="http://[")
        assert {split: len(text) for split, text in corpus.splits.items()} == {
            "train": 29_000, "validation": 1_014, "test": 1_000, "test_2017_flickr": 1_000,
        }  # fmt: skip


@pytest.fixture
def own(tmp_path):
    """Two files of 60 lines, and their pairs."""
    pairs = [(f"line {i}", f"Zeile {i}") for i in range(60)]
    source = write_lines(tmp_path / "own.en", [pair[0] for pair in pairs])
    target = write_lines(tmp_path / "own.de.gz", [pair[1] for pair in pairs])
    return (source, target), pairs


def test_own_files_with_held_out_parts(own):
    files, pairs = own
    corpus = corpus_from_files(files, source_language="en", target_language="de")
    assert {split: len(text) for split, text in corpus.splits.items()} == {
        "train": 54, "validation": 3, "test": 3,
    }  # fmt: skip
    parts = [set(text) for text in corpus.splits.values()]
    assert set.union(*parts) == set(pairs) and sum(map(len, parts)) == 60
    assert not corpus.synthetic and corpus.target_language == "de"
    again = corpus_from_files([str(file) for file in files])
    assert list(again.test) == list(corpus.test)


def test_own_files_for_some_parts(own, tmp_path):
    files, _ = own
    other = [write_lines(tmp_path / f"dev.{side}", [side, "same"]) for side in ("en", "de")]
    corpus = corpus_from_files(files, validation=tuple(other), test_size=11)
    assert list(corpus.validation) == [("en", "de"), ("same", "same")]
    assert len(corpus.test) == 11 and len(corpus.train) == 49
    corpus = corpus_from_files(files, validation_size=7, test_size=0)
    assert corpus.test is None and set(corpus.splits) == {"train", "validation"}
    assert len(corpus.train) == 53


def test_own_files_refused(own, tmp_path):
    files, _ = own
    other = [write_lines(tmp_path / f"dev.{side}", [side]) for side in ("en", "de")]
    with pytest.raises(ValueError, match="`validation_size` holds pairs out.*validation_size=5"):
        corpus_from_files(files, validation=other, validation_size=5)
    for split in ("validation", "test"):
        with pytest.raises(ValueError, match=f"`{split}` must not be the text that is trained on"):
            corpus_from_files(files, **{split: files})
    with pytest.raises(ValueError, match="`train` must be two files, a source and its translation"):
        corpus_from_files((files[0], files[0]))
    with pytest.raises(FileNotFoundError, match="nobody.de' does not exist"):
        corpus_from_files(files, test=(files[0], tmp_path / "nobody.de"))
    with pytest.raises(ValueError, match="validation part is needed"):
        corpus_from_files(files, validation_size=0)
    with pytest.raises(ValueError, match="`target_language` must be"):
        corpus_from_files(files, target_language="a/b")
    short = write_lines(tmp_path / "short", ["one"])
    for broken in ({"validation": (files[0], short)}, {"test": (short, files[1])}):
        with pytest.raises(ValueError, match="has 60 lines|has 1 lines"):
            corpus_from_files(files, **broken)


def test_one_language_for_both_sides_loses_no_file(own, tmp_path):
    corpus = corpus_from_files(own[0], source_language="de", target_language="de")
    with pytest.raises(ValueError, match="must differ.*Received: 'de' for both"):
        write_corpus(corpus, tmp_path / "written")
    assert not (tmp_path / "written").exists()


def test_goes_to_another_process(tmp_path):
    files = [write_lines(tmp_path / side, [f"{side} {i % 31}" for i in range(40)]) for side in "ab"]
    own = corpus_from_files(files, test_size=3, filters=Filters(drop_duplicates=True))
    for corpus in (own, load_corpus("demo")):
        again = pickle.loads(pickle.dumps(corpus))
        assert {name: list(text) for name, text in again.splits.items()} == {
            name: list(text) for name, text in corpus.splits.items()
        }
        assert again.train.fingerprint() == corpus.train.fingerprint()
        assert again.alignments == corpus.alignments


def test_own_tsv(tmp_path):
    lines = [f"line {i}\tZeile {i}" if i % 5 else "" for i in range(50)]
    path = write_lines(tmp_path / "own.tsv", lines)
    corpus = corpus_from_tsv(path, test_size=1, name="mine")
    assert [len(text) for text in corpus.splits.values()] == [37, 2, 1]
    assert "10 blank lines skipped" in corpus.description
    assert corpus.name == "mine" and corpus.train.name == "mine/train"
    source, target = next(iter(corpus.train))
    assert source.split()[1] == target.split()[1]
    write_lines(path, ["line 1\tZeile 1", "line 2"])
    with pytest.raises(ValueError, match=r"own\.tsv', line 2: expected one tab"):
        corpus_from_tsv(path)
