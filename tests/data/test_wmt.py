"""WMT14 and the authors' WMT16 set: from small archives on a server of our own, and from folders."""

import gzip
import hashlib
import itertools
import random
import re

import pytest

from keras_attention import Tokenizer, load_corpus
from keras_attention.data import Filters, wmt
from keras_attention.data import download as download_module
from tests.data.archive_server import serving, write_archive

pytestmark = pytest.mark.backends("tensorflow")

# Lines of each part, all different; the second German line of Common Crawl is empty.
LINES = {"europarl-v7": 3, "commoncrawl": 4, "news-commentary-v9": 2, "giga": 5, "undoc": 1}
NEWSTEST = {"newstest2013": 3, "newstest2014": 2}


def content(name, language):
    lines = [f"{language} {name} {i}" for i in range({**LINES, **NEWSTEST}[name])]
    if (name, language) == ("commoncrawl", "de"):
        lines[1] = ""
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A server with archives under the addresses of statmt.org, and sacrebleu answered from here."""
    monkeypatch.setattr(download_module.time, "sleep", lambda seconds: None)
    folder = tmp_path / "mirror"
    for sub in ("wmt10", "wmt13", "wmt14"):
        (folder / sub).mkdir(parents=True)
    for archive, name, member in (
        ("wmt13/training-parallel-europarl-v7.tgz", "europarl-v7", "training/europarl-v7.{}-en"),
        ("wmt13/training-parallel-commoncrawl.tgz", "commoncrawl", "commoncrawl.{}-en"),
        ("wmt14/training-parallel-nc-v9.tgz", "news-commentary-v9",
         "./training/news-commentary-v9.{}-en"),
        ("wmt13/training-parallel-un.tgz", "undoc", "un/undoc.2000.{}-en"),
    ):  # fmt: skip
        sides = [(foreign, side) for foreign in ("de", "fr") for side in (foreign, "en")]
        files = {f"{member.format(f)}.{side}": content(name, side) for f, side in sides}
        files["README"] = random.Random(1).randbytes(20_000)  # does not compress
        write_archive(folder / archive, files)
    giga = {
        f"giga-fren.release2.fixed.{side}.gz": gzip.compress(content("giga", side))
        for side in ("en", "fr")
    }
    write_archive(folder / "wmt10" / "training-giga-fren.tar", giga, "w")
    with serving(folder) as server:
        server.folder = folder
        yield server


@pytest.fixture
def newstest(monkeypatch, tmp_path):
    """sacrebleu's test sets; what it was asked for."""
    import sacrebleu

    asked = []
    years = {"wmt13": "newstest2013", "wmt14/full": "newstest2014"}

    def file(name, language):
        path = tmp_path / f"{name}.{language}"
        path.write_bytes(content(name, language))
        return str(path)

    def source(name, direction):
        asked.append((name, direction))
        return file(years[name], direction[:2])

    monkeypatch.setattr(sacrebleu, "get_source_file", source)
    monkeypatch.setattr(
        sacrebleu, "get_reference_files", lambda name, pair: [file(years[name], pair[3:])]
    )
    return asked


NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def load(tmp_path):
    """Loads by way of a cache folder of the test's own."""

    def load(url, *languages, name="wmt14"):
        return load_corpus(name, None, *languages, cache_dir=tmp_path / "cache", base_url=url)

    return load


def lengths(corpus):
    return {split: len(text) for split, text in corpus.splits.items()}


class TestDownload:
    @pytest.mark.parametrize(
        "source, target, parts",
        [
            ("en", "de", ["europarl-v7", "commoncrawl", "news-commentary-v9"]),
            ("fr", "en", ["europarl-v7", "commoncrawl", "news-commentary-v9", "giga", "undoc"]),
        ],
    )
    def test_all_parts_in_order(self, load, mirror, newstest, tmp_path, source, target, parts):
        corpus = load(mirror.url, source, target)
        sides = [b"".join(content(part, side) for part in parts) for side in (source, target)]
        expected = list(zip(*(side.decode().splitlines() for side in sides), strict=True))
        kept = [pair for pair in expected if all(pair)]
        assert list(corpus.train) == kept
        assert corpus.train.report()["read"] == len(expected) == sum(LINES[p] for p in parts)
        assert list(corpus.test) == [
            (f"{source} newstest2014 {i}", f"{target} newstest2014 {i}") for i in range(2)
        ]
        assert lengths(corpus) == {"train": len(kept), "validation": 3, "test": 2}
        direction = f"{source}-{target}"
        assert newstest == [("wmt13", direction), ("wmt14/full", direction)]
        assert not corpus.synthetic and (corpus.source_language, corpus.name) == (source, "wmt14")

    def test_resumed_after_a_cut_and_then_offline(self, load, mirror, newstest, tmp_path):
        mirror.cuts = [1500, 700]
        first = load(mirror.url)
        address = "/wmt13/training-parallel-europarl-v7.tgz"
        assert mirror.asked[:3] == [
            (address, None), (address, "bytes=1500-"), (address, "bytes=2200-"),
        ]  # fmt: skip
        asked = len(mirror.asked)
        for archive in (tmp_path / "cache/wmt14").glob("*.tgz"):
            archive.unlink()  # once read, the archives are not needed
        offline = load(NOBODY)
        assert offline.train.fingerprint() == first.train.fingerprint()
        assert len(mirror.asked) == asked

    def test_a_changed_byte_is_refused(self, load, mirror, newstest, tmp_path):
        load(mirror.url)
        file = tmp_path / "cache" / "wmt14" / "commoncrawl.de-en.de"
        right = file.read_bytes()
        recorded = (file.parent / "commoncrawl.de-en.de.sha256").read_text().split()
        assert recorded == [hashlib.sha256(right).hexdigest(), file.name]
        file.write_bytes(right[:5] + bytes([right[5] ^ 1]) + right[6:])
        with pytest.raises(
            ValueError, match=r"de-en\.de' does not have the expected content.*Delete"
        ):
            load(mirror.url)
        # Read from the archive again, which itself must be the one of the first time.
        file.unlink()
        again = load(mirror.url)
        assert file.read_bytes() == right and len(again.train) == 8
        archive = file.parent / "training-parallel-commoncrawl.tgz"
        file.unlink()
        archive.write_bytes(archive.read_bytes()[:-1] + b"!")
        with pytest.raises(
            ValueError, match=r"commoncrawl\.tgz' does not have the expected content"
        ):
            load(mirror.url)

    def test_another_archive_at_the_address_is_refused(self, load, mirror, newstest, tmp_path):
        folder = tmp_path / "cache" / "wmt14"
        load(mirror.url)
        for name in ("training-parallel-nc-v9.tgz", "news-commentary-v9.de-en.de"):
            (folder / name).unlink()
        served = mirror.folder / "wmt14" / "training-parallel-nc-v9.tgz"
        served.write_bytes(served.read_bytes()[:-1] + b"!")
        with pytest.raises(
            ValueError, match=r"nc-v9\.tgz\.part' does not have the expected content"
        ):
            load(mirror.url)
        assert not (folder / "training-parallel-nc-v9.tgz").exists()

    @pytest.mark.parametrize("foreign", ["de", "fr"])
    def test_without_connection_one_message_names_all(self, load, tmp_path, foreign, monkeypatch):
        monkeypatch.setattr(download_module.time, "sleep", lambda seconds: None)
        with pytest.raises(ConnectionError) as error:
            load(NOBODY, "en", foreign)
        message = str(error.value)
        for part in wmt.WMT14[foreign]:
            assert f"{NOBODY}{part.address}" in message
            assert part.file("en") in message and part.file(foreign) in message
        folder = str(tmp_path / "cache" / "wmt14")
        for word in (f"newstest2014.{foreign}", "newstest2013.en", folder, "data_dir"):
            assert word in message, message

    def test_files_put_there_by_hand(self, load, mirror, tmp_path, monkeypatch):
        """Archives and newstest files in the cache folder: no connection, no sacrebleu."""
        import sacrebleu

        folder = tmp_path / "cache" / "wmt14"
        folder.mkdir(parents=True)
        for archive in mirror.folder.glob("wmt1[34]/*"):
            (folder / archive.name).write_bytes(archive.read_bytes())
        monkeypatch.setattr(
            sacrebleu, "get_source_file", lambda *_: (_ for _ in ()).throw(OSError("no net"))
        )
        with pytest.raises(ConnectionError, match="sacrebleu could not get wmt13 en-de: no net"):
            load(NOBODY)
        for name, language in itertools.product(NEWSTEST, ("en", "de")):
            (folder / f"{name}.{language}").write_bytes(content(name, language))
        corpus = load(NOBODY)
        assert lengths(corpus) == {"train": 8, "validation": 3, "test": 2}


class TestFolder:
    def write(self, folder, names):
        folder.mkdir(exist_ok=True)
        for name, part in names.items():
            for language in ("en", "de"):
                path = folder / name.format(language)
                path.parent.mkdir(exist_ok=True)
                data = content(part, language)
                path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)

    @pytest.mark.parametrize(
        "train, validation, test",
        [
            ({"train.{}": "europarl-v7"}, "valid.{}", "test.{}"),
            ({"train.{}.gz": "europarl-v7"}, "val.{}.gz", "test.{}"),
            (
                {
                    "training/europarl-v7.de-en.{}.gz": "europarl-v7",
                    "commoncrawl.de-en.{}": "commoncrawl",
                    "training/news-commentary-v9.de-en.{}": "news-commentary-v9",
                },
                *("dev/newstest2013.{}", "newstest2014.{}.gz"),
            ),
        ],
    )
    def test_accepted_names(self, tmp_path, train, validation, test):
        self.write(tmp_path, {**train, validation: "newstest2013", test: "newstest2014"})
        corpus = load_corpus("wmt14", tmp_path)
        assert lengths(corpus) == {"train": 3 if len(train) == 1 else 8, "validation": 3, "test": 2}
        assert next(iter(corpus.train)) == ("en europarl-v7 0", "de europarl-v7 0")
        assert list(corpus.validation.targets()) == [f"de newstest2013 {i}" for i in range(3)]

    def test_filters(self, tmp_path):
        names = {"train.{}": "commoncrawl", "valid.{}": "newstest2013", "test.{}": "newstest2014"}
        self.write(tmp_path, names)
        plain = load_corpus("wmt14", tmp_path)
        assert plain.train.report()["empty"] == 1 and len(plain.train) == 3
        corpus = load_corpus("wmt14", tmp_path, filters=Filters(drop_duplicates=True, max_ratio=1))
        assert corpus.train.report()["read"] == 4 and list(corpus.train) == list(plain.train)
        assert corpus.train.fingerprint() != plain.train.fingerprint()

    def test_missing_files_are_named_with_their_addresses(self, tmp_path):
        self.write(tmp_path, {"commoncrawl.de-en.{}": "commoncrawl", "test.{}": "newstest2014"})
        with pytest.raises(FileNotFoundError) as error:
            load_corpus("wmt14", tmp_path)
        first, *rest = str(error.value).splitlines()
        assert re.search(
            r"missing in '.*': europarl-v7\.de-en\.en, europarl-v7\.de-en\.de, news-commentary-v9"
            r"\.de-en\.en, news-commentary-v9\.de-en\.de, newstest2013\.en, newstest2013\.de; each",
            first,
        )
        assert any(
            "http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz" in line for line in rest
        )

    @pytest.mark.parametrize("languages", [("en", "cs"), ("de", "fr"), ("en", "en")])
    def test_languages(self, tmp_path, languages):
        with pytest.raises(
            ValueError, match=f"one of 'de', 'fr'.*target_language='{languages[1]}'"
        ):
            load_corpus("wmt14", tmp_path, *languages)


class TestWmt16:
    FILES = {
        "train.tok.clean.bpe.32000.en": "the wash@@ bear sleeps\na fox\n",
        "train.tok.clean.bpe.32000.de": "der Wasch@@ bär schläft\nein Fu@@ chs\n",
        "newstest2013.tok.bpe.32000.en": "a bear\n",
        "newstest2013.tok.bpe.32000.de": "ein bär\n",
        "newstest2014.tok.bpe.32000.en": "the fox\nthe bear\n",
        "newstest2014.tok.bpe.32000.de": "der Fu@@ chs\nder bär\n",
        "vocab.bpe.32000": "<unk>\n<s>\n</s>\nder\nWasch@@\nbär\nFu@@\nchs\nthe\nfox\n",
    }

    def check(self, corpus):
        assert list(corpus.train)[1] == ("a fox", "ein Fu@@ chs")
        assert corpus.references("test") == ["der Fuchs", "der bär"]
        tokenizer = Tokenizer.from_vocabulary(corpus.vocabulary)
        assert tokenizer.vocabulary_size == 3 + 7
        assert tokenizer.encode("der Fu@@ chs") == [3, 6, 7]

    def test_downloaded(self, load, mirror, tmp_path):
        files = {name: text.encode() for name, text in self.FILES.items()}
        write_archive(mirror.folder / "wmt16_en_de.tar.gz", files)
        for address in (mirror.url, NOBODY):  # the second time nothing is fetched
            self.check(load(address, name="wmt16_en_de"))

    def test_from_a_folder(self, tmp_path):
        for name, text in self.FILES.items():
            (tmp_path / name).write_text(text, "utf-8")
        self.check(load_corpus("wmt16_en_de", tmp_path))
        (tmp_path / "vocab.bpe.32000").unlink()
        with pytest.raises(
            FileNotFoundError, match="are missing in .*: vocab.bpe.32000. The archive"
        ):
            load_corpus("wmt16_en_de", tmp_path)
        with pytest.raises(ValueError, match="between 'en' and 'de'.*target_language='fr'"):
            load_corpus("wmt16_en_de", tmp_path, "en", "fr")

    def test_without_connection(self, load, tmp_path, monkeypatch):
        monkeypatch.setattr(download_module.time, "sleep", lambda seconds: None)
        with pytest.raises(ConnectionError, match="put wmt16_en_de.tar.gz from .*vocab.bpe.32000"):
            load(NOBODY, name="wmt16_en_de")
