"""A run that is killed at any file operation goes on by the same command, and leaves nothing over.

The operations are found by tracing, not by a list. Before each of them the disk is copied: that is what a
process killed there leaves. The same command then goes on with each copy.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import sys
import zipfile

import keras
import pytest

from keras_attention import corpus_from_files
from keras_attention.callbacks.metrics_log import WALL_CLOCK_FIELDS
from keras_attention.recipes import run as recipe
from keras_attention.recipes import train_translation
from keras_attention.recipes.prepare import Resolved
from tests.helpers import contents
from tests.recipes.small_runs import SMALL, small_corpus, write_files

pytestmark = pytest.mark.backends("torch")  # files know no backend, and this one compiles nothing

CONFIG = dataclasses.replace(
    SMALL,
    model_arguments={"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 12, "num_heads": 2},
    steps=3,
    checkpoint_updates=1,
    beam_size=1,
    bleu_every=100,
)
# Each state costs the rest of a run. These are tried, another choice each time the states change;
# KERAS_ATTENTION_ALL_KILLS=1 tries all of them, in about a quarter of an hour.
TRIED = 4
ALL = "KERAS_ATTENTION_ALL_KILLS" in os.environ


class Tracer:
    """Copies a folder before each file operation below it, each state once.

    Counted is what Python's audit events say: opening, renaming, deleting, making folders, ...

    Args:
        folder: What is watched.
        copies: Where the copies go.
    """

    def __init__(self, folder, copies):
        self.folder, self.copies = folder, copies
        self.states = {}  # checksum of a state -> its copy and the operation before which it was
        self.operations = 0
        self.watches = False
        sys.addaudithook(self._watch)  # It cannot be taken away again, but it sleeps.

    @contextlib.contextmanager
    def watching(self):
        self.watches = True
        try:
            yield self
        finally:
            self.watches = False

    def _watch(self, event, arguments):
        if not self.watches:
            return
        paths = [path for path in arguments if isinstance(path, str | bytes | os.PathLike)]
        if not any(os.fsdecode(path).startswith(str(self.folder)) for path in paths):
            return
        self.watches = False  # Copying is no operation of the run.
        self.operations += 1
        state = hashlib.sha256(repr(sorted(contents(self.folder, True).items())).encode()).digest()
        if state not in self.states:
            copy = self.copies / f"{len(self.states):03d}"
            shutil.copytree(self.folder, copy)
            self.states[state] = copy, f"{event} {paths}"
        self.watches = True


class Begins(Exception):
    """Training begins."""


def traced(start, tmp_path):
    """Starts a run in a new home; returns this, and what a kill before each operation would leave."""
    home = tmp_path / "home"
    home.mkdir()
    tracer = Tracer(home, tmp_path / "killed")
    with tracer.watching():
        start(home)
    return home, tracer


def test_killed_before_it_trains(tmp_path, monkeypatch):
    """Settings, tokenizer and token stores."""

    def begin(*_):
        raise Begins

    monkeypatch.setattr(Resolved, "model", begin)
    monkeypatch.setattr(Resolved, "check_model", lambda resolved: None)  # It writes nothing.
    (tmp_path / "corpus").mkdir()
    corpus = small_corpus(tmp_path / "corpus")

    def start(home):
        with pytest.raises(Begins):
            train_translation(corpus, CONFIG, home / "run")

    home, tracer = traced(start, tmp_path)
    expected = contents(home, folders=True)
    assert len(expected) > 8
    assert tracer.operations > 80
    assert len(tracer.states) > 40
    for copy, operation in tracer.states.values():
        start(copy)
        assert contents(copy, folders=True) == expected, operation


# Besides: lengths of the log, in which times are written, and checksums of what has times in it.
TIMES = (
    *WALL_CLOCK_FIELDS,
    *("minutes", "training_minutes", "measured", "compiling", "log_size", "checksum"),
)


def timeless(value):
    """Without times, and without how long things took."""
    if isinstance(value, list):
        return [timeless(part) for part in value]
    if isinstance(value, dict):
        return {name: timeless(part) for name, part in value.items() if name not in TIMES}
    return value


def meaning(name, content):
    """What a file says, whenever it was written."""
    if content is None or name.endswith("report.txt"):
        return None
    if name.endswith("manifest.json"):
        manifest = timeless(json.loads(content))
        if "averaged_from" in manifest:
            del manifest["metrics"]  # running ones, of what the process did before
        return manifest
    if name.endswith("report.json"):
        report = json.loads(content)
        scored = {n: system["scores"] for n, system in report["evaluation"]["systems"].items()}
        return report["config"], report["training"]["averaged_from"], scored
    if name.endswith("metrics.jsonl"):
        return [timeless(json.loads(line)) for line in content.splitlines()]
    return content


def result(home):
    """All that a run leaves, weights in every bit; event files have names of their own."""
    found = {}
    for name, content in contents(home, folders=True).items():
        if name.startswith("run/logs/") and "/events.out.tfevents." in name:
            continue
        found[name] = meaning(name, content)
        if name.endswith("model.keras"):
            with zipfile.ZipFile(home / name) as archive:
                found[name] = {
                    part: archive.read(part)
                    for part in archive.namelist()
                    if part != "metadata.json"  # the date
                }
    return found


def test_killed_anywhere(tmp_path, monkeypatch):
    """Tokenizer, stores, checkpoints, average, model, translations and report."""
    monkeypatch.setattr(recipe, "matmul_peak", lambda dtype: 1e9)  # measured; takes a second
    (tmp_path / "corpus").mkdir()
    parts = {"train": (0, 30), "validation": (60, 2), "test": (69, 2)}
    files = {name: write_files(tmp_path / "corpus", name, *part) for name, part in parts.items()}
    corpus = corpus_from_files(**files, name="thirty")

    def start(home):
        keras.utils.clear_session()  # Layers are numbered as in a process of their own.
        train_translation(corpus, CONFIG, home / "run")

    home, tracer = traced(start, tmp_path)
    expected = result(home)
    assert {"run/model.keras", "run/translations.txt", "run/report.json"} < expected.keys()
    assert tracer.operations > 150
    killed = list(tracer.states.values())
    assert len(killed) > 80
    sample = killed[:: len(killed) // TRIED] + killed[-4:]  # The last ones, finished, cost nothing.
    for copy, operation in killed if ALL else sample:
        start(copy)
        found = result(copy)
        assert found.keys() == expected.keys(), operation
        for name, value in expected.items():
            assert found[name] == value, (operation, name)
