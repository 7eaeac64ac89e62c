"""Runs that are stopped, resumed and prolonged end in the same bits as an undisturbed run."""

import contextlib
import dataclasses
import io
import json
import os
import signal

import h5py
import pytest

from keras_attention.callbacks import ConsoleProgress
from keras_attention.cli.train import run
from keras_attention.recipes import run as recipe
from keras_attention.utils.files import read_json
from tests.recipes.small_runs import SMALL, write_files

TINY = dataclasses.replace(
    SMALL,
    model_arguments={"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 12, "num_heads": 2},
    beam_size=1,
    bleu_every=100,
)
STEPS, MORE_STEPS = 10, 16

# Every start compiles: once is enough. test_translation.py and test_resume.py stop runs on each backend.
pytestmark = pytest.mark.tensorflow_only


def train(files, folder, steps=STEPS):
    """What an example does with these arguments."""
    own = ["--source-file", str(files[0]), "--target-file", str(files[1])]
    arguments = [*own, "--steps", str(steps), "--output-dir", str(folder)]
    return run("Trains.", arguments=arguments, recipes={"files": TINY})


def stopped(files, folder, number, update, steps=STEPS):
    """Train until a signal comes at the beginning of an update; return the code of exit."""
    original = ConsoleProgress.on_train_batch_begin

    def on_train_batch_begin(self, batch, logs=None):
        if self.budget.updates == update:
            os.kill(os.getpid(), number)
        original(self, batch, logs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConsoleProgress, "on_train_batch_begin", on_train_batch_begin)
        with pytest.raises(SystemExit) as left:
            train(files, folder, steps)
    return left.value.code


def numbers_of(checkpoint):
    """Weights and optimizer, as bytes; the draws of dropout; the running metrics; the place."""
    with h5py.File(checkpoint / "model.weights.h5") as file:
        arrays = {}
        file.visititems(
            lambda name, item: (
                arrays.update({name: item[()].tobytes()})
                if isinstance(item, h5py.Dataset)
                else None
            )
        )
    manifest = json.loads((checkpoint / "manifest.json").read_text("utf-8"))
    return arrays, {name: manifest[name] for name in ("epoch", "batch", "random_states", "metrics")}


def train_alone(files, folder, steps):
    """Train, without the scores that come after it; return the history of the epochs."""

    class Trained(Exception):
        pass

    def leave(model, checkpoints, *_):
        raise Trained(checkpoints.history)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "average_last", leave)
        with pytest.raises(Trained) as trained:
            train(files, folder, steps)
    return trained.value.args[0]


def bytes_below(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("text"), "mine", 0, 60)


@pytest.fixture(scope="module")
def disturbed(files, tmp_path_factory):
    """The folder of a run that two signals stopped on its way, what happened then, its first report."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    happened = []
    for number, update in ((signal.SIGINT, 3), (signal.SIGTERM, 6)):
        with contextlib.redirect_stderr(io.StringIO()) as output:
            code = stopped(files, folder, number, update)
        last = max(path.name for path in (folder / "checkpoints").iterdir())
        happened.append((code, last, (folder / "report.json").exists(), output.getvalue()))
    return folder, happened, train(files, folder)


def test_a_signal_saves_and_says_how_to_go_on(disturbed):
    _, happened, report = disturbed
    codes, checkpoints, reports, outputs = zip(*happened, strict=True)
    assert codes == (130, 143)  # 128 + the numbers of SIGINT and SIGTERM
    assert checkpoints == ("update-00000003", "update-00000006")
    assert reports == (False, False)
    for name, checkpoint, output in zip(("SIGINT", "SIGTERM"), checkpoints, outputs, strict=True):
        assert f"Stopped by {name} and saved as " in output and checkpoint in output
        assert "The same command continues this run." in output
    assert "Continuing in epoch" not in outputs[0] and "Continuing in epoch" in outputs[1]
    assert report["training"]["updates"] == STEPS


def test_a_changed_text_is_refused_and_nothing_is_overwritten(files, disturbed, tmp_path, capsys):
    folder, _, _ = disturbed
    before = bytes_below(folder)
    source, target = (tmp_path / file.name for file in files)
    source.write_bytes(files[0].read_bytes())
    lines = files[1].read_text("utf-8").splitlines()
    target.write_text("\n".join([*lines[:-1], "Etwas anderes.", ""]), "utf-8")
    with pytest.raises(SystemExit) as left:
        train((source, target), folder)
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert f"'{folder}' has another configuration" in error and "_fingerprint: " in error
    assert "Nothing was changed there" in error
    assert bytes_below(folder) == before


def test_stopped_and_prolonged_it_ends_as_in_one_go(files, disturbed, tmp_path):
    folder, _, first = disturbed
    report = train(files, folder, MORE_STEPS)
    history = train_alone(files, tmp_path / "whole", MORE_STEPS)
    assert (first["training"]["updates"], report["training"]["updates"]) == (STEPS, MORE_STEPS)
    assert read_json(folder / "report.json") == report
    (arrays, rest), (whole_arrays, whole_rest) = (
        numbers_of(path / "checkpoints" / f"update-{MORE_STEPS:08d}")
        for path in (folder, tmp_path / "whole")
    )
    assert len(arrays) > 60 and arrays.keys() == whole_arrays.keys()
    assert [name for name in arrays if arrays[name] != whole_arrays[name]] == []
    assert rest == whole_rest
    losses = [[epoch["loss"] for epoch in h] for h in (report["training"]["history"], history)]
    assert losses[0] == losses[1] and len(losses[0]) > 1
