"""Tokenizer, token store, corpus, archive: killed at any change of files, whole after the next try."""

import os

import pytest

from keras_attention import load_corpus, write_corpus
from keras_attention.data.archives import extract
from tests.data.archive_server import write_archive
from tests.helpers import contents
from tests.killing import CAN_FORK, killed_at

pytestmark = [
    pytest.mark.backends("tensorflow"),
    pytest.mark.skipif(not CAN_FORK, reason="needs fork"),
]


@pytest.fixture(autouse=True)
def without_flushing(monkeypatch):
    """It takes most of the time; the disk goes on."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def check_every_kill(tmp_path, work, at_least):
    """After a kill at any change the same work ends with the same files, and nothing else."""
    work(tmp_path / "whole")
    expected = contents(tmp_path / "whole")
    for change in range(1, 1000):
        folder = tmp_path / f"killed-{change}"
        was_killed = killed_at(change, folder, lambda folder=folder: work(folder))
        work(folder)
        assert contents(folder) == expected, change
        if not was_killed:
            break
    assert at_least < change < 999


def test_members_of_an_archive(tmp_path):
    archive = write_archive(tmp_path / "archive.tgz", {"a.en": b"one\n", "a.de": b"eins\n"})

    def work(folder):
        extract(archive, {name: folder / name for name in ("a.en", "a.de")})

    check_every_kill(tmp_path, work, at_least=20)


def test_corpus_files(tmp_path):
    """Each file is whole or not there; those that are there are not written again."""
    corpus = load_corpus("demo")
    folder = tmp_path / "text"
    for operation in (3, 9, 20):
        assert killed_at(operation, folder, lambda: write_corpus(corpus, folder))
        for path in folder.glob("[!.]*.*"):
            split, language = path.name.split(".")
            assert path.read_text("utf-8").count("\n") == len(corpus.splits[split])
            assert language in ("en", "de")
            path.unlink()
    write_corpus(corpus, folder)
    assert len(list(folder.iterdir())) == 6
