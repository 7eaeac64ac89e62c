"""Wrong values for every option of every command: exit code 2, the option's name, and no file made.

The options are read from the parsers, so that a new one is tested as it is added.
"""

import argparse
import importlib

import pytest

from keras_attention.cli.main import COMMANDS
from keras_attention.recipes import order as recipe
from keras_attention.recipes import plan as planning
from keras_attention.recipes.prepare import Resolved
from tests.recipes.small_runs import write_files

pytestmark = pytest.mark.backends("tensorflow")

# What argparse itself refuses, it refuses of every option of a type: one of each stands for all below.
WRONG = {
    "int": ["0", "-1"],
    "float": ["-1", "nan", "inf"],
    "str": ["no such thing"],
    "Path": ["no/such/folder/x"],
}
NO_NUMBERS = {
    ("train", "--steps"): ["x", "2.5", "", "nan"],
    ("train", "--num-layers"): ["x", "2.5", "", "nan"],
    ("translate", "--beam-size"): ["x", "2.5", "", "nan"],
    ("train", "--label-smoothing"): ["x", ""],
    ("translate", "--temperature"): ["x", ""],
}
# 0 means something here; and a path or a text that is made, or is anything.
ALLOWED = {
    ("--seed", "0"),
    ("--validation-size", "0"),
    ("--test-size", "0"),
    ("--bpe-dropout", "0"),
    ("--min-length", "0"),
    ("--max-extra-length", "0"),
    ("--port", "0"),
}
# Also free: a new folder, for pictures.
MADE = {("attention", "--output")}
FREE = {"--name", "--output-dir", "--source-language", "--target-language", "--data-dir"}
FREE |= {"--ban", "--source-prefix", "--license", "--text-license", "--description"}  # any text


class Parsed(Exception):
    """Carries a parser."""


def parser_of(command):
    def parse_args(self, *_, **__):
        raise Parsed(self)

    module = importlib.import_module(f"keras_attention.cli.{command}")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Parsed) as parsed:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
        module.main([], command)
    return parsed.value.args[0]


def cases():
    for command in COMMANDS:
        for action in parser_of(command)._actions:
            kind = getattr(action.type, "__name__", "str")
            names = {*action.option_strings}
            if action.nargs == 0 or not names or FREE & names:
                continue
            if any((command, name) in MADE for name in names):
                continue
            values = ["no such word"] if action.choices else WRONG[kind]
            for value in (*values, *NO_NUMBERS.get((command, action.option_strings[0]), ())):
                if (action.option_strings[0], value) not in ALLOWED:
                    yield command, action.option_strings, action.nargs, value


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("pairs"), "some", 0, 5)


@pytest.mark.parametrize(("program", "names", "count", "value"), list(cases()))
def test_a_wrong_value_is_refused(
    run, pairs, tmp_path, monkeypatch, refused, program, names, count, value
):
    def trains(corpus, config, *_, **__):
        Resolved(config).check_model()  # what it does first
        pytest.fail(f"{names[0]} {value!r} was accepted")

    def starts():
        pytest.fail(f"{names[0]} {value!r} was not refused before the backend started")

    if names[0] == "--host":  # The server itself refuses it.
        pytest.importorskip("uvicorn", reason="not installed: pip install uvicorn")
    module = importlib.import_module(f"keras_attention.cli.{program}")
    monkeypatch.setattr(
        importlib.import_module("keras_attention.cli.train"), "start_backend", starts
    )
    monkeypatch.setattr(module, "start_backend", starts, raising=False)
    monkeypatch.setattr(recipe, "train_translation", trains)
    monkeypatch.setattr(planning, "plan_training", trains)
    monkeypatch.chdir(tmp_path)
    source, target = map(str, pairs)
    right = {
        "train": ["--output-dir", "new"],
        "plan": [],
        "translate": [str(run), "--input", source, "--output", "new.txt"],
        "score": [str(run), "--source-file", source, "--target-file", target],
        "evaluate": [str(run), "--source-file", source, "--reference-file", target],
        "attention": [str(run), "A dog."],
        "average": [str(run), "--output", "new.keras"],
        "export": [str(run), "new", "--format", "ctranslate2"],
        "preset": [str(run), "new"],
        "models": [str(run)],
        "serve": [str(run)],
    }
    before = sorted(run.rglob("*"))
    values = [value] * (count if isinstance(count, int) else 1)
    error = refused(program, *right[program], names[0], *values)
    assert "Traceback" not in error
    parameter = names[0].removeprefix("--").replace("-", "_")
    assert any(name in error for name in (*names, parameter)) or value in error, error
    assert sorted(tmp_path.iterdir()) == []
    assert sorted(run.rglob("*")) == before
