"""The folder of a run for the commands to work on, what they read, and what they say."""

import functools
import io
import shutil
import sys

import keras
import pytest

from keras_attention import Tokenizer, Translator
from keras_attention.cli.main import main
from tests.interop.conftest import SOURCES, TARGETS, sentence_pieces, write_marian_mt
from tests.recipes.small_runs import untrained_run


@pytest.fixture(scope="session")
def made_run(tmp_path_factory):
    """A run's folder with three checkpoints of a model that has learned nothing."""
    return untrained_run(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def run(made_run, tmp_path_factory):
    """A copy of it for the tests of a file, which may change it."""
    return shutil.copytree(made_run, tmp_path_factory.mktemp("own") / "run")


@pytest.fixture(scope="module")
def translator(run):
    """The run's model with the settings of the run's search."""
    model = keras.saving.load_model(run / "model.keras", compile=False)
    tokenizer = Tokenizer.load(run / "tokenizer")
    return Translator(model, tokenizer, beam_size=2, length_penalty=0.6)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A folder with models of MarianMT, of a vocabulary for each side and of one vocabulary, and a text."""
    pytest.importorskip("transformers", reason="not installed: pip install transformers")
    folder = tmp_path_factory.mktemp("foreign")
    spm = sentence_pieces(SOURCES, 40), sentence_pieces(TARGETS, 44)
    for name, separate in (("separate", True), ("shared", False)):
        write_marian_mt(folder / name, spm, separate)
    for name, lines in (("new.en", SOURCES), ("new.de", TARGETS)):
        (folder / name).write_text(as_text(lines), "utf-8")
    return folder


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs a command, with lines or bytes as its standard input; returns what it prints."""

    def run_command(*arguments, typed=()):
        data = typed if isinstance(typed, bytes) else as_text(typed).encode()
        buffer = io.BufferedReader(io.BytesIO(data))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(buffer, "utf-8"))
        capsys.readouterr()
        main([str(argument) for argument in arguments])
        return capsys.readouterr()

    return run_command


@pytest.fixture
def refused(command, refused_by):
    """Runs a command that ends with 2; returns the error that it shows."""
    return functools.partial(refused_by, command)


def as_text(lines):
    return "".join(f"{line}\n" for line in lines)


def as_lines(texts):
    """What a command writes of translations, which may hold breaks of lines."""
    return [" ".join(text.splitlines()) for text in texts]
