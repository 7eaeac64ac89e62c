"""TokenStore: content, reuse, atomic building, damage."""

import os
import threading
import time

import numpy as np
import pytest

from keras_attention import Tokenizer, TokenStore
from keras_attention.data import token_store
from keras_attention.utils import progress
from keras_attention.utils.files import PARTIAL, read_signed_json, write_signed_json
from tests.data.counting_text import NumberText, NumberTokenizer, number_text
from tests.helpers import contents

pytestmark = pytest.mark.backends("tensorflow")

PAIRS = [("3 4 5", "6 7"), ("8", "9 10 11 12"), ("13 14", "15"), ("59999 2", "3 3 3")]
TEXT = NumberText(PAIRS)


class CountingTokenizer(NumberTokenizer):
    calls = 0

    def encode(self, texts):
        self.calls += 1
        return super().encode(texts)


def test_content(tmp_path):
    store = TokenStore.build(tmp_path / "new" / "folder", TEXT, NumberTokenizer())
    assert len(store) == 4
    for i, (source, target) in enumerate(PAIRS):
        assert store.source(i).tolist() == [*map(int, source.split()), 1]
        assert store.target(i).tolist() == [*map(int, target.split()), 1]
    assert store.source_lengths.tolist() == [4, 2, 3, 3]
    assert store.target_lengths.tolist() == [3, 5, 2, 4]
    assert store.source_lengths.dtype == store.target_lengths.dtype == np.int32
    metadata = store.metadata
    assert (metadata["pairs"], metadata["source_tokens"], metadata["target_tokens"]) == (4, 12, 14)
    assert metadata["vocabulary_size"] == 60_000
    for index in (4, -1):
        with pytest.raises(IndexError, match="pairs 0 to 3"):
            store.source(index)


@pytest.mark.parametrize("vocabulary_size, width", [(65_536, 2), (65_537, 4)])
def test_id_width(tmp_path, vocabulary_size, width):
    text = NumberText([(str(vocabulary_size - 1), "2 3")])
    store = TokenStore.build(tmp_path, text, NumberTokenizer(vocabulary_size))
    assert store.source(0).tolist() == [vocabulary_size - 1, 1]
    assert (store.folder / "target.ids").stat().st_size == 3 * width


def test_empty_sides_are_dropped_and_counted(tmp_path):
    text = NumberText([("", "3"), ("4 5", "6"), (" ", ""), ("7", "8 9"), ("10", "\t")])
    store = TokenStore.build(tmp_path, text, NumberTokenizer())
    assert [store.source(i).tolist() for i in range(len(store))] == [[4, 5, 1], [7, 1]]
    assert [store.target(i).tolist() for i in range(len(store))] == [[6, 1], [8, 9, 1]]
    assert store.metadata["dropped_empty"] == 3


def test_chunks_do_not_show(tmp_path, monkeypatch, capsys):
    text = number_text([(3, 5), (2, 2), (7, 4), (5, 3), (4, 9)])
    text.pairs[2:2] = [("", "")] * 3  # a whole chunk without a pair that stays
    whole = TokenStore.build(tmp_path / "whole", text, NumberTokenizer())
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(progress, "SILENT_SECONDS", -1.0)
    monkeypatch.setattr(token_store, "CHUNK_PAIRS", 2)
    chunks = TokenStore.build(tmp_path / "chunks", text, NumberTokenizer())
    assert contents(chunks.folder) == contents(whole.folder)
    assert "tokenizing: 8 of 8 pairs" in capsys.readouterr().err
    TokenStore.build(tmp_path / "silent", text, NumberTokenizer(), verbose=False)
    assert capsys.readouterr() == ("", "")


def test_padded_rows(tmp_path):
    store = TokenStore.build(tmp_path, TEXT, NumberTokenizer())
    rows = store.padded("target", np.array([1, -1, 3, 0]), 6)
    assert rows.dtype == np.int32
    assert rows.tolist() == [
        [9, 10, 11, 12, 1, 0],
        [0, 0, 0, 0, 0, 0],
        [3, 3, 3, 1, 0, 0],
        [6, 7, 1, 0, 0, 0],
    ]
    with pytest.raises(ValueError, match="too small for the longest target: 5 tokens"):
        store.padded("target", np.array([1, 0]), 4)


class TestReuse:
    def test_second_build_opens_the_first(self, tmp_path):
        tokenizer = CountingTokenizer()
        first = TokenStore.build(tmp_path, TEXT, tokenizer)
        assert tokenizer.calls == 2
        before = contents(first.folder)
        second = TokenStore.build(tmp_path, NumberText(PAIRS), tokenizer)
        assert tokenizer.calls == 2
        assert second.folder == first.folder and contents(first.folder) == before

    def test_changes_are_built_beside(self, tmp_path):
        first = TokenStore.build(tmp_path, TEXT, NumberTokenizer())
        before = contents(first.folder)
        other_text = TokenStore.build(tmp_path, NumberText(PAIRS[:3]), NumberTokenizer())
        other_tokenizer = TokenStore.build(tmp_path, TEXT, NumberTokenizer(70_000))
        assert (len(first), len(other_text), len(other_tokenizer)) == (4, 3, 4)
        assert len({first.folder, other_text.folder, other_tokenizer.folder}) == 3
        assert contents(first.folder) == before

    def test_foreign_folder_of_that_name(self, tmp_path):
        folder = TokenStore.build(tmp_path, TEXT, NumberTokenizer()).folder
        path = folder / "metadata.json"
        write_signed_json(path, read_signed_json(path) | {"text_fingerprint": "other"})
        before = contents(folder)
        with pytest.raises(ValueError, match="holds another store .text_fingerprint differ"):
            TokenStore.build(tmp_path, TEXT, NumberTokenizer())
        assert contents(folder) == before

    def test_built_by_two_at_once(self, tmp_path):
        """The second waits for the first, and reads nothing."""
        begun, stores, reads = threading.Event(), [], []

        class Slow(NumberText):
            def __iter__(self):
                reads.append(len(reads))
                begun.set()
                time.sleep(0.2)
                return super().__iter__()

        def build():
            stores.append(TokenStore.build(tmp_path, Slow(PAIRS), NumberTokenizer()))

        threads = [threading.Thread(target=build) for _ in range(2)]
        threads[0].start()
        assert begun.wait(60)
        threads[1].start()
        for thread in threads:
            thread.join()
        assert [store.source(1).tolist() for store in stores] == [[8, 1], [8, 1]]
        assert reads == [0]
        assert os.listdir(tmp_path) == [stores[0].folder.name]


@pytest.fixture(scope="module")
def sentences():
    lines = [f"the {a} dog and the {b} dogs run" for a in ("big", "old") for b in "xyz"]
    return NumberText([(s, s[::-1]) for s in [*lines, " "]])


@pytest.fixture(scope="module")
def subwords(sentences):
    return Tokenizer.train([side for pair in sentences.pairs for side in pair] * 3, 340)


class TestDropout:
    def build(self, folder, text, tokenizer, **options):
        options = {"dropout": 0.4, "samples": 3, "seed": 5, **options}
        return TokenStore.build(folder, text, tokenizer, verbose=False, **options)

    def test_the_text_so_many_times_cut_anew(self, tmp_path, sentences, subwords, monkeypatch):
        monkeypatch.setattr(token_store, "CHUNK_PAIRS", 4)
        store = self.build(tmp_path, sentences, subwords)
        assert len(store) == 18
        assert (store.metadata["samples"], store.metadata["dropped_empty"]) == (3, 1)
        for i in range(18):
            pair = subwords.decode(store.source(i)), subwords.decode(store.target(i))
            assert pair == sentences.pairs[i % 6]
        cuts = {(i % 6, tuple(store.source(i))) for i in range(18)}
        assert len(cuts) == 18
        plain = TokenStore.build(tmp_path, sentences, subwords)
        for side in ("source_tokens", "target_tokens"):
            assert store.metadata[side] > 3.3 * plain.metadata[side]
        assert len(plain) == 6 and plain.folder != store.folder

    def test_both_sides_and_all_chunks_differ(self, tmp_path, subwords, monkeypatch):
        monkeypatch.setattr(token_store, "CHUNK_PAIRS", 1)
        same = NumberText([("the old dog and the big dogs", "the old dog and the big dogs")] * 2)
        store = self.build(tmp_path, same, subwords, dropout=0.5)
        rows = [tuple(side(i)) for i in range(6) for side in (store.source, store.target)]
        assert len(set(rows)) >= 11

    def test_depends_on_the_seed_alone(self, tmp_path, sentences, subwords):
        first = self.build(tmp_path / "first", sentences, subwords)
        again = self.build(tmp_path / "again", sentences, subwords)
        assert contents(again.folder) == contents(first.folder)
        others = [
            self.build(tmp_path / "first", sentences, subwords, **other)
            for other in ({"seed": 6}, {"samples": 2}, {"dropout": 0.3})
        ]
        assert len({first.folder, *(other.folder for other in others)}) == 4
        assert not np.array_equal(others[0].source_lengths, first.source_lengths)

    @pytest.mark.parametrize(
        "options, message",
        [
            ({"dropout": 0.0}, "Without `dropout`, all samples of a text are the same.*samples=3"),
            ({"samples": 0}, "samples=0"),
            ({"samples": 1.5}, "samples=1.5"),
            ({"dropout": 1.5}, "`dropout` must be a finite number.*below 1"),
            ({"dropout": None}, "`dropout` must be a finite number"),
            ({"seed": -1}, "`seed` must be an int of at least 0"),
        ],
    )
    def test_errors(self, tmp_path, sentences, subwords, options, message):
        with pytest.raises(ValueError, match=message):
            self.build(tmp_path, sentences, subwords, **options)
        assert os.listdir(tmp_path) == []


class TestInterrupted:
    @pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
    def test_leaves_nothing(self, tmp_path, monkeypatch, error):
        monkeypatch.setattr(token_store, "CHUNK_PAIRS", 1)

        class Broken(NumberText):
            def __iter__(self):
                yield from self.pairs[:3]
                raise error

        with pytest.raises(error):
            TokenStore.build(tmp_path, Broken(PAIRS), NumberTokenizer(), verbose=False)
        assert os.listdir(tmp_path) == []
        assert len(TokenStore.build(tmp_path, TEXT, NumberTokenizer(), verbose=False)) == 4


class TestOpen:
    def test_store_or_parent(self, tmp_path):
        built = TokenStore.build(tmp_path, TEXT, NumberTokenizer())
        (tmp_path / f"{PARTIAL}left-over").mkdir()
        (tmp_path / f"{PARTIAL}left-over" / "metadata.json").write_text("{}")
        for folder in (built.folder, str(tmp_path)):
            assert TokenStore.open(folder).target(2).tolist() == [15, 1]

    def test_several(self, tmp_path):
        names = [
            TokenStore.build(tmp_path, NumberText(PAIRS[:n]), NumberTokenizer()).folder.name
            for n in (2, 3)
        ]
        with pytest.raises(ValueError, match="several token stores.*" + ", ".join(sorted(names))):
            TokenStore.open(tmp_path)

    def test_none(self, tmp_path):
        file = tmp_path / "file"
        file.write_text("x")
        for folder in (tmp_path, tmp_path / "absent", file):
            with pytest.raises(ValueError, match="is no token store"):
                TokenStore.open(folder)

    def test_what_a_dead_process_left_goes(self, tmp_path):
        (tmp_path / f"{PARTIAL}v2-of-another-text").mkdir()
        (tmp_path / f"{PARTIAL}v2-of-another-text" / "source.ids").write_bytes(b"half")
        (tmp_path / "notes.txt").write_text("mine")
        folder = TokenStore.build(tmp_path, TEXT, NumberTokenizer()).folder
        assert {*os.listdir(tmp_path)} == {folder.name, "notes.txt"}


class TestBadInput:
    def test_folder_is_a_file(self, tmp_path):
        (tmp_path / "file").write_text("mine")
        with pytest.raises(OSError, match="could not be written, for '.*file': File exists"):
            TokenStore.build(tmp_path / "file", TEXT, NumberTokenizer())
        assert (tmp_path / "file").read_text() == "mine"

    @pytest.mark.parametrize("pairs", [[], [("", "3"), ("4", " ")]])
    def test_no_pair_left(self, tmp_path, pairs):
        with pytest.raises(ValueError, match="No pair of sentences is left"):
            TokenStore.build(tmp_path, NumberText(pairs), NumberTokenizer())
        assert os.listdir(tmp_path) == []

    def test_wrong_values(self, tmp_path):
        store = TokenStore.build(tmp_path, TEXT, NumberTokenizer())
        with pytest.raises(ValueError, match="`index` must be an int"):
            store.source(1.0)
        with pytest.raises(ValueError, match="`side` must be one of"):
            store.padded("middle", np.array([0]), 9)
        with pytest.raises(ValueError, match="`folder` must be a path"):
            TokenStore.open(None)
        with pytest.raises(ValueError, match="`tokenizer` must be a Tokenizer"):
            TokenStore.build(tmp_path, TEXT, None)
        with pytest.raises(
            ValueError, match=r"`text` must be a ParallelText.*Received: text=\[\('3 4 5'"
        ):
            TokenStore.build(tmp_path, PAIRS, NumberTokenizer())
