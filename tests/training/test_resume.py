"""Runs that are killed at any moment end in the same bits as an undisturbed run."""

import multiprocessing
import multiprocessing.forkserver
import os
import random
import signal
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attention.utils.files import PARTIAL
from tests.training import resumed_run

# Starting a process takes longest. What a write leaves knows no backend; what is computed anew does.
KILLS = 3 if keras.backend.backend() == "torch" else 1


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return resumed_run.make_store(tmp_path_factory.mktemp("store")).folder


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """Makes processes from one that has imported everything and started no backend."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.training.resumed_run"])
    with pytest.MonkeyPatch.context() as patch:
        root = str(Path(__file__).parents[2])
        patch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
        multiprocessing.forkserver.ensure_running()
    return context


def start(processes, function, *arguments, **named):
    process = processes.Process(target=function, args=arguments, kwargs=named)
    process.start()
    process.join(300)
    if process.exitcode is None:
        process.kill()
        pytest.fail(f"The process hangs: {named}")
    return process.exitcode


def test_killed_at_any_instant_it_ends_in_the_same_bits(store, processes, tmp_path):
    folders = [tmp_path / "killed", tmp_path / "whole"]
    kills = [
        {"after": 4, "delay": random.Random(20170612).uniform(0, 0.02)},
        {"within": "weights", "after": 2},
        {"within": "rename", "after": 1},
    ]
    for kill in kills[:KILLS]:
        code = start(processes, resumed_run.killed, folders[0], store, **kill)
        assert code == -signal.SIGKILL, kill
        left = list(folders[0].glob(f"{PARTIAL}*"))
        assert left or "within" not in kill
    assert start(processes, resumed_run.finished, folders, store) == 0
    states = [np.load(folder / "state.npz") for folder in folders]
    assert states[0].files == states[1].files
    for name in states[0].files:
        assert states[0][name] == states[1][name]
    assert not list(folders[0].glob(f"{PARTIAL}*"))
    losses = [(folder / "losses").read_text() for folder in folders]
    assert losses[0] == losses[1]
