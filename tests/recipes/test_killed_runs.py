"""A run that is killed at any file operation goes on by the same command, and leaves nothing over.

The operations are found by tracing, not by a list. A killed process is played: from the chosen operation
on, nothing of what the process still tries (in `finally`, say) reaches the disk. Here it is everything
before the training; checkpoints are killed in test_resume.py.
"""

import builtins
import dataclasses
import os

import pytest

from keras_attention.recipes import run as recipe
from keras_attention.recipes import train_translation
from tests.recipes.small_runs import SMALL, small_corpus

pytestmark = pytest.mark.tensorflow_only  # Files know no backend: once is enough.

CONFIG = dataclasses.replace(
    SMALL,
    model_arguments={"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 12, "num_heads": 2},
    steps=3,
    checkpoint_updates=2,
    beam_size=1,
    bleu_every=100,
)
OPERATIONS = (
    "mkdir",
    "rename",
    "replace",
    "unlink",
    "remove",
    "rmdir",
    "fsync",
    "link",
    "truncate",
)


class Killed(BaseException):
    """The process is dead."""


class Disk:
    """Counts the operations that change files, and ends the process at one of them.

    Args:
        patch: pytest's monkeypatch.
        last: Number of the operation at which the process dies; None for never.
    """

    def __init__(self, patch, last=None):
        self.count, self.last, self.names = 0, last, []
        for name in OPERATIONS:
            patch.setattr(os, name, self._counted(name, getattr(os, name)))
        patch.setattr(builtins, "open", self._counted("open", builtins.open))

    def _counted(self, name, function):
        def operation(*arguments, **options):
            mode = options.get("mode", arguments[1] if len(arguments) > 1 else "r")
            if name == "open" and (not isinstance(mode, str) or not set("wax+") & set(mode)):
                return function(*arguments, **options)
            if self.last is not None and self.count >= self.last:
                raise Killed(f"{name}{arguments}")
            self.count += 1
            self.names.append(f"{name} {arguments[0]}")
            return function(*arguments, **options)

        return operation


class Begins(Exception):
    """Training begins."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return small_corpus(tmp_path_factory.mktemp("corpus"))


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def killed_at_every_operation(start, prepare, check):
    """Trace one start, then kill one at each of its operations and start again.

    Args:
        start: Called with a folder.
        prepare: Makes the folder of the next start.
        check: Called with the folder after a killed start and another one.
    """
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch)
        start(prepare())
    assert disk.count > 10
    for last in range(disk.count):
        folder = prepare()
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            Disk(patch, last)
            start(folder)
        start(folder)
        check(folder, disk.names[last])


def test_killed_before_it_trains(corpus, tmp_path, monkeypatch):
    """Settings, tokenizer and token stores."""

    def begin(*_):
        raise Begins

    monkeypatch.setattr(recipe, "compiled_model", begin)
    monkeypatch.setattr(recipe, "check_model", lambda config: None)  # It writes nothing.
    folders = iter(tmp_path / str(number) / "run" for number in range(10_000))

    def start(folder):
        with pytest.raises(Begins):
            train_translation(corpus, CONFIG, folder)

    undisturbed = next(folders)
    start(undisturbed)
    expected = contents(undisturbed)
    assert len(expected) > 8

    def check(folder, operation):
        assert contents(folder) == expected, operation
        assert [path.name for path in folder.parent.iterdir()] == ["run"], operation

    killed_at_every_operation(start, lambda: next(folders), check)
