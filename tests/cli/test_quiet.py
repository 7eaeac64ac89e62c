"""A command that starts TensorFlow leaves no notes of its libraries beside its own words."""

import contextlib
import importlib.util
import os
import re
import sys
import types
from pathlib import Path

import pytest

from keras_attention.cli import quiet
from keras_attention.cli.quiet import _held_back, _keep_compiled
from keras_attention.utils.backend import check_backend
from tests.helpers import python

NOTES = "oneDNN absl XLA cuda cuInit cpu_feature_guard WARNING TF_ENABLE I0000".split()


@pytest.mark.backends("tensorflow")
def test_planning_a_run_prints_nothing_from_other_libraries(tmp_path):
    """It looks for devices, compiles and trains two updates, as a run does."""
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"line {i}\tZeile {i}\n" for i in range(60)))
    command = (
        f"-m keras_attention_light train --tsv {pairs} --target-language de --vocabulary-size 300 "
        "--plan --plan-try --num-layers 1 --hidden-dim 16 --intermediate-dim 24 --num-heads 2"
    )
    loud = {"TF_CPP_MIN_LOG_LEVEL", "TF_CPP_MAX_VLOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS"}
    environment = {name: value for name, value in os.environ.items() if name not in loud}
    environment |= {"KERAS_BACKEND": "tensorflow", "KERAS_ATTENTION_CACHE": str(tmp_path)}
    done = python(*command.split(), env=environment)
    assert "s per update" in done.stdout
    assert [line for line in done.stderr.splitlines() if any(note in line for note in NOTES)] == []
    assert "Tokenizer: " in done.stderr


@pytest.mark.parametrize(
    "backend, settings, message",
    [
        ("tensorflwo", None, "must be one of tensorflow, jax, torch. Did you mean 'tensorflow'?"),
        ("torch", None, "the package 'torch' is not installed. Install it: pip install torch"),
        # Or Keras' own settings say it.
        (None, '{"backend": "torch"}', "Keras' backend is 'torch', and the package 'torch' is not"),
        (None, '{"backend": "tensorflwo"}', "must be one of tensorflow, jax, torch. Did you mean"),
        (
            None,
            "[]",
            "Keras' backend is 'tensorflow', and the package 'tensorflow' is not installed",
        ),
    ],
)
def test_a_backend_that_is_not_there(backend, settings, message, monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    if backend is None:
        (tmp_path / "keras.json").write_text(settings)
    else:
        monkeypatch.setenv("KERAS_BACKEND", backend)
    monkeypatch.delitem(sys.modules, "keras")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=re.escape(message)):
        check_backend()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ImportError])
def test_what_libraries_wrote_is_shown_to_explain_an_error_alone(error, capfd):
    with pytest.raises(error), _held_back():
        os.write(2, b"a note of a C library\n")
        raise error
    assert ("a note" in capfd.readouterr().err) == (error is ImportError)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("loaded", [(), ("keras",), ("keras", "tensorflow")])
def test_what_is_going_on_is_shown_while_notes_are_held_back(loaded, monkeypatch, capfd):
    """Also where Keras was imported before, and TensorFlow, which it imports later, was not."""
    streams = []

    @contextlib.contextmanager
    def activity(text):
        streams.append(quiet.sys.stderr)
        yield

    def running_backend():
        streams[-1].write("starting\n")
        os.write(2, b"a note of a C library\n")
        return "torch"

    with open(2, "w", buffering=1, closefd=False) as stderr:
        loaded = dict.fromkeys(loaded)
        monkeypatch.setattr(quiet, "sys", types.SimpleNamespace(modules=loaded, stderr=stderr))
        monkeypatch.setattr(quiet, "activity", activity)
        monkeypatch.setattr(quiet, "running_backend", running_backend)
        quiet.start_backend()
    assert {*capfd.readouterr().err.splitlines()} == (set() if len(loaded) == 2 else {"starting"})


@pytest.mark.backends("jax")
def test_jax_keeps_what_it_compiles_unless_told_otherwise(monkeypatch, tmp_path):
    import jax

    monkeypatch.setenv("KERAS_ATTENTION_CACHE", str(tmp_path))
    names = ("jax_compilation_cache_dir", "jax_compilation_cache_max_size")
    before = {name: getattr(jax.config, name) for name in names}
    try:
        for own, parent in ((None, tmp_path / "jax"), ("elsewhere/mine", Path("elsewhere"))):
            jax.config.update(names[0], own)
            _keep_compiled()
            assert Path(jax.config.jax_compilation_cache_dir).parent == parent
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
