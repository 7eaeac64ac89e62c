"""The folder of a run for the commands to work on, what they read, and what they say when they refuse."""

import io
import sys

import keras
import pytest

from keras_attention import Tokenizer, Translator
from keras_attention.cli.main import main
from tests.recipes.small_runs import untrained_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run's folder with three checkpoints of a model that has learned nothing."""
    return untrained_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def translator(run):
    """The run's model with the settings of the run's search."""
    model = keras.saving.load_model(run / "model.keras", compile=False)
    tokenizer = Tokenizer.load(run / "tokenizer")
    return Translator(model, tokenizer, beam_size=2, length_penalty=0.6)


@pytest.fixture
def typed(monkeypatch):
    """Sets what comes from the standard input."""

    def set_input(data):
        buffer = io.BufferedReader(io.BytesIO(data))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(buffer, "utf-8"))

    return set_input


@pytest.fixture
def refused(capsys):
    """Runs a command that ends with 2; returns the error that it shows."""

    def run_command(*arguments):
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        assert left.value.code == 2
        return capsys.readouterr().err

    return run_command
