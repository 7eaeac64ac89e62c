"""Trainings in several processes over loopback; what `test_processes.py` and `test_torch_processes.py` start.

`python -m tests.recipes.process_jobs FOLDER NUMBER` is one of the processes: it does the jobs of
`FOLDER/jobs.json`, one after the other, and writes what came of each.
"""

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attention import ParallelText, corpus_from_files, load_corpus
from keras_attention.callbacks import TrainingStopped
from keras_attention.callbacks.signals import StopTogether
from keras_attention.recipes import order, train_translation
from keras_attention.recipes import run as recipe
from keras_attention.training import (
    initialize_processes,
    list_checkpoints,
    load_checkpoint,
    processes,
)
from keras_attention.utils.agreed import is_told_here
from keras_attention.utils.run_folder import RunFolder
from tests.helpers import ROOT
from tests.recipes.process_parts import sums_in_order
from tests.recipes.small_runs import SMALL, small_corpus

BACKEND = keras.backend.backend()
# A width of 12 trained in two ways, 2e-5 apart in perplexity, by how a processor or its threads round.
SIZES = {"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 11, "num_heads": 2, "dropout": 0.0}
CONFIG = dataclasses.replace(
    SMALL,
    model_arguments=SIZES,
    strategy="data_parallel",
    steps=9,
    batch_tokens=900,
    max_shapes=2,
    beam_size=1,
    bleu_every=2,
    row_multiple=12,
)


def jobs_in_processes(folder, jobs, count, devices=1, timeout=500):
    """Do jobs in so many processes of one start; for each job a list of what each process says.

    On JAX each process has so many devices.
    """
    folder.mkdir(exist_ok=True)
    (folder / "jobs.json").write_text(json.dumps(jobs))
    program = [sys.executable, "-m", "tests.recipes.process_jobs", str(folder)]

    def environment(*place):
        return environment_of(*place, devices)

    outputs = started(
        lambda index: [*program, str(index)], count, environment=environment, timeout=timeout
    )
    for code, text in outputs:
        assert code == 0, text[-5000:]
    return {
        name: [json.loads((folder / f"{name}.{index}.json").read_text()) for index in range(count)]
        for name in jobs
    }


def started(command, count, folder=ROOT, environment=None, timeout=500):
    """Start `command(index)` as the processes of one training; each one's exit code and what it printed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    running = []
    try:
        for index in range(count):
            own = (environment or environment_of)(index, count, port)
            running.append(
                subprocess.Popen(
                    command(index),
                    env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **own},
                    cwd=folder,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        texts = [process.communicate(timeout=timeout)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    return [(process.returncode, text) for process, text in zip(running, texts, strict=True)]


def environment_of(index, count, port, devices=1):
    """What a process is told of the others: as `torchrun` does, or by Keras' variables."""
    if BACKEND == "torch":
        names = {"RANK": index, "LOCAL_RANK": index, "WORLD_SIZE": count, "MASTER_PORT": port}
        return {"MASTER_ADDR": "127.0.0.1", **{name: str(number) for name, number in names.items()}}
    return {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": compiler_flags(devices),
        # XLA splits sums by its number of threads, which otherwise is at least that of the devices.
        "PJRT_NPROC": str(count * devices),
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": f"127.0.0.1:{port}",
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(count),
        "KERAS_DISTRIBUTION_PROCESS_ID": str(index),
    }


def compiler_flags(devices):
    """XLA's flags of this process, with so many devices."""
    flags = os.environ.get("XLA_FLAGS", "").split()
    kept = [flag for flag in flags if "device_count" not in flag]
    return " ".join([*kept, f"--xla_force_host_platform_device_count={devices}"])


def corpus_in(folder):
    names = "train", "validation", "test"
    parts = {name: (folder / f"{name}.en", folder / f"{name}.de") for name in names}
    return corpus_from_files(**parts, name="sixty")


def in_parts(corpus):
    """The corpus with its training text in two parts, to be mixed, and with the demo's alignments."""
    pairs = list(corpus.train)
    parts = {"clean": ParallelText("clean", pairs[:35]), "web": ParallelText("web", pairs[35:])}
    return dataclasses.replace(corpus, parts=parts, alignments=load_corpus("demo").alignments)


def reported(corpus, folder, changed):
    """A whole run, to its report; in the chief's `weights.npz` are those of `model.keras`."""
    report = train_translation(corpus, dataclasses.replace(CONFIG, **changed), folder)
    if not report:
        return {}
    model = keras.saving.load_model(folder / "model.keras", compile=False)
    np.savez(folder / "weights.npz", *model.get_weights())
    training, systems = report["training"], report["evaluation"]["systems"]
    return {
        **{name: training[name] for name in ("history", "updates")},
        "best": training["best_checkpoint"],
        "systems": {title: system["perplexity"] for title, system in systems.items()},
        "error_rate": report["alignment"]["error_rate"],
    }


def train(corpus, folder, changed, index=0, stop=None, **_):
    """One job: what is shown, the updates, and in the chief's `weights.npz` the last checkpoint."""
    told = {"updates": 0}
    agree = StopTogether._agree

    def note(self):
        told["updates"] = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        if stop is not None and (stop["process"], stop["update"]) == (index, told["updates"]):
            signal.raise_signal(
                getattr(signal, stop["signal"])
            )  # in this thread, before it goes on
        agree(self)

    def keep(run):
        """Instead of the report, which has nothing to do with processes."""
        last = load_checkpoint(run.model, list_checkpoints(run.folder.checkpoints)[-1])
        np.savez(run.folder.path / "weights.npz", *run.model.get_weights())
        told["history"], told["updates"] = last["history"], last["updates"]
        return told

    patch = pytest.MonkeyPatch()
    patch.setattr(order, "evaluate", keep)
    patch.setattr(order, "results_text", lambda *_, **__: "")
    for step in ("average", "save"):
        patch.setattr(order, step, lambda run: None)
    patch.setattr(StopTogether, "_agree", note)
    try:
        train_translation(corpus, dataclasses.replace(CONFIG, **changed), folder)
    except (TrainingStopped, Exception) as error:
        told["error"] = f"{type(error).__name__}: {error}"
        told["is_told_here"] = is_told_here(error)
    finally:
        patch.undo()
    return told


@contextlib.contextmanager
def elsewhere(folder):
    """This process's disk is another one: the run's folder has the same name, and is not the same."""

    class Named(pathlib.PosixPath):
        def resolve(self, strict=False):
            return folder

    def run_folder(path):
        other = RunFolder(Path(f"{path}-elsewhere"))
        other.path = Named(other.path)
        return other

    original, recipe.RunFolder = recipe.RunFolder, run_folder
    try:
        yield
    finally:
        recipe.RunFolder = original


@contextlib.contextmanager
def other_version():
    """This process has another NumPy."""
    found = importlib.metadata.version
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            importlib.metadata, "version", lambda name: "1.2.3" if name == "numpy" else found(name)
        )
        yield


def main(folder, index):
    """Be process `index`."""
    folder = Path(folder)
    jobs = json.loads((folder / "jobs.json").read_text())
    whole = in_parts(corpus_in(folder.parent))
    with contextlib.ExitStack() as together:
        if BACKEND == "jax":
            initialize_processes()
        else:
            together.enter_context(processes.joined())
        for name, job in jobs.items():
            changed = {**job["changed"], **(job["own"] if "own" in job and index == 1 else {})}
            corpus = whole
            if job.get("other_text") and index == 1:
                (folder / "other").mkdir(exist_ok=True)
                corpus = small_corpus(folder / "other", first=7)
            run = folder / job.get("run", name)
            with contextlib.ExitStack() as changes:
                if job.get("elsewhere") and index == 1:
                    changes.enter_context(elsewhere(run.resolve()))
                if job.get("other_version") and index == 1:
                    changes.enter_context(other_version())
                if job.get("in_order"):
                    changes.enter_context(sums_in_order())
                if job.get("reports"):
                    told = reported(corpus, run, changed)
                else:
                    told = train(corpus, run, changed, index, job.get("stop"))
            (folder / f"{name}.{index}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
