"""Averages of checkpoints, and runs that stop and go on.

What numbers are saved and read again is tested on each backend; folders and refusals once, where `fit`
compiles nothing.
"""

import errno
import os
import shutil
import signal
import types

import keras
import numpy as np
import pytest

from keras_attention.callbacks import (
    BestCheckpoint,
    Budget,
    Checkpoints,
    Stop,
    StopOnSignal,
    fit_resumably,
)
from keras_attention.training import (
    Adam,
    DamagedFile,
    average_checkpoints,
    checkpoint_store,
    load_checkpoint,
    save_average,
    select_checkpoints,
)
from keras_attention.utils.files import PARTIAL
from keras_attention.utils.run_folder import CHECKPOINT
from tests.helpers import assert_each

rng = np.random.default_rng(7)
X, Y = rng.normal(size=(12, 3)).astype("float32"), rng.normal(size=(12, 2)).astype("float32")


def model(*more):
    layers = [keras.Input((3,)), keras.layers.Dense(4), *more, keras.layers.Dense(2)]
    made = keras.Sequential(layers)
    made.compile(keras.optimizers.Adam(0.05), "mse")
    made.set_weights([np.full(w.shape, 0.1, "float32") for w in made.get_weights()])
    return made


def fit(made, epochs, callbacks, initial_epoch=0):
    made.fit(X, Y, batch_size=4, epochs=epochs, initial_epoch=initial_epoch, shuffle=False,
             callbacks=callbacks, verbose=0)  # fmt: skip


def updates_of(checkpoints):
    return [int(path.name.removeprefix("update-")) for path in checkpoints.paths]


def test_the_average_is_the_mean_in_float64(tmp_path):
    made, weights, paths = model(), [], []
    for i in range(3):
        weights.append(
            [rng.normal(size=w.shape).astype("float32") * 10**i for w in made.get_weights()]
        )
        made.set_weights(weights[-1])
        paths.append(tmp_path / f"{i}.weights.h5")
        made.save_weights(paths[-1])
    average_checkpoints(made, paths)
    means = [np.mean(np.float64(same), axis=0) for same in zip(*weights, strict=True)]
    assert_each(made.get_weights(), [mean.astype("float32") for mean in means])
    assert sorted(path.name for path in tmp_path.iterdir()) == [path.name for path in paths]


def test_a_run_in_two_parts_equals_one(tmp_path):
    """Also in what the dropout draws: not the first epochs' masks again."""
    whole = model(keras.layers.Dropout(0.4, seed=3))
    fit(whole, 4, [])
    first = model(keras.layers.Dropout(0.4, seed=3))
    fit(first, 2, [Checkpoints(tmp_path)])
    second = model(keras.layers.Dropout(0.4, seed=3))
    checkpoints = Checkpoints(tmp_path)
    done = checkpoints.restore(second)
    assert done == 2
    fit(second, 4, [checkpoints], initial_epoch=done)
    assert_each(second.get_weights(), whole.get_weights())
    assert [(entry["epoch"], entry["updates"]) for entry in checkpoints.history] == [
        (epoch, 3 * epoch) for epoch in (1, 2, 3, 4)
    ]
    assert updates_of(checkpoints) == [3, 6, 9, 12]


@pytest.mark.backends("torch")
def test_what_a_killed_process_had_still_to_delete_is_deleted(tmp_path):
    """After the last checkpoint no other one follows, so the next start is the last chance."""
    fit(model(), 4, [Checkpoints(tmp_path, keep=9)])  # as if killed before the first two went
    reader = Checkpoints(tmp_path, keep=2, write=False)
    assert reader.restore(model()) == 4
    assert updates_of(reader) == [3, 6, 9, 12]
    assert Checkpoints(tmp_path, keep=2).restore(model()) == 4
    assert updates_of(reader) == [9, 12]


@pytest.mark.backends("torch")
def test_an_interrupted_epoch_is_saved_as_far_as_it_came(tmp_path):
    class Kill(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if self.model.optimizer.iterations == 4:  # The second batch of the second epoch.
                os.kill(os.getpid(), signal.SIGTERM)

    stop = Stop()
    before = signal.getsignal(signal.SIGTERM)
    made = model()
    checkpoints = Checkpoints(tmp_path, 3, stop)
    fit(made, 9, [StopOnSignal(stop), checkpoints, Kill()])
    assert stop == Stop("SIGTERM", within_epoch=True)
    assert signal.getsignal(signal.SIGTERM) is before
    last = CHECKPOINT.read(checkpoints.paths[-1])
    assert (last["kind"], last["epoch"], last["batch"], last["updates"]) == ("signal", 1, 2, 5)
    assert [entry["epoch"] for entry in last["history"]] == [1]
    assert not checkpoints.finished


def damage(path):
    """Change one byte in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("file", ["model.weights.h5", "manifest.json"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path, capsys, file):
    fit(model(), 3, [Checkpoints(tmp_path)])
    newest, before = tmp_path / "update-00000009", tmp_path / "update-00000006"
    damage(newest / file)
    made, checkpoints = model(), Checkpoints(tmp_path)
    assert checkpoints.restore(made) == 2
    shown = capsys.readouterr().err
    assert f"'{newest / file}' is damaged" in shown
    assert int(made.optimizer.iterations) == 6
    assert (tmp_path / "aside-1-update-00000009" / "model.weights.h5").exists()
    assert updates_of(checkpoints) == [3, 6]
    with pytest.raises(DamagedFile, match="damaged"):
        average_checkpoints(made, [before, tmp_path / "aside-1-update-00000009"])
    fit(made, 3, [checkpoints], initial_epoch=2)
    assert CHECKPOINT.read(newest)["epoch"] == 3


@pytest.mark.backends("torch")
def test_where_nothing_is_intact_nothing_is_overwritten(tmp_path):
    fit(model(), 1, [Checkpoints(tmp_path)])
    damage(tmp_path / "update-00000003" / "model.weights.h5")
    with pytest.raises(ValueError, match="None of the 1 checkpoints in .* is intact"):
        Checkpoints(tmp_path).restore(model())
    assert (tmp_path / "aside-1-update-00000003" / "manifest.json").exists()


@pytest.mark.backends("torch")
def test_what_a_killed_writer_left_is_cleaned_up(tmp_path):
    left = tmp_path / f"{PARTIAL}update-00000004"
    left.mkdir()
    (left / "model.weights.h5").write_bytes(b"half")
    checkpoints = Checkpoints(tmp_path)
    assert list(tmp_path.iterdir()) == [] and checkpoints.restore(model()) == 0


@pytest.mark.backends("torch")
def test_a_folder_that_is_deleted_meanwhile_ends_the_training(tmp_path):
    folder = tmp_path / "run" / "checkpoints"
    checkpoints = Checkpoints(folder)

    def delete(epoch, logs):
        if epoch == 1:
            shutil.rmtree(folder.parent)

    deletes = keras.callbacks.LambdaCallback(on_epoch_begin=delete)
    with pytest.raises(FileNotFoundError, match=r"checkpoints' was deleted or moved"):
        fit(model(), 3, [deletes, checkpoints])
    assert checkpoints.epoch == 2 and not list(tmp_path.iterdir())


@pytest.mark.backends("torch")
@pytest.mark.parametrize("place", ["save_weights", "rename", "disk_usage"])
def test_a_full_disk_ends_in_a_clear_error_and_loses_nothing(tmp_path, monkeypatch, place):
    made = model()
    fit(made, 1, [Checkpoints(tmp_path)])
    weights, checkpoints = made.get_weights(), Checkpoints(tmp_path)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        if place == "save_weights":
            patch.setattr(keras.Model, "save_weights", full)
        elif place == "rename":
            patch.setattr(os, "rename", full)
        else:
            none = types.SimpleNamespace(free=1000)
            patch.setattr(checkpoint_store.shutil, "disk_usage", lambda _: none)
        with pytest.raises(
            OSError, match=r"update-00000006.*No space left.*before it are"
        ) as error:
            fit(made, 3, [checkpoints], initial_epoch=checkpoints.restore(made))
    assert error.value.errno == errno.ENOSPC
    assert [path.name for path in tmp_path.iterdir()] == ["update-00000003"]
    restored = model()
    assert Checkpoints(tmp_path).restore(restored) == 1
    assert_each(restored.get_weights(), weights)


@pytest.mark.backends("torch")
def test_no_space_is_asked_for_where_the_disk_is_not_full(tmp_path, monkeypatch):
    made, folder = model(), tmp_path / "run"
    made.optimizer.build(made.trainable_variables)
    save = keras.Model.save_weights

    def gone(self, file):
        shutil.rmtree(folder)
        save(self, file)

    def forbidden(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    for place, error, message in (
        (gone, FileNotFoundError, f"'{folder}' was deleted or moved"),
        (forbidden, PermissionError, "Permission denied. .* unchanged. See to that, then run"),
    ):
        monkeypatch.setattr(keras.Model, "save_weights", place)
        with pytest.raises(error, match=message) as caught:
            checkpoint_store.write_checkpoint(folder / "update-00000001", made, {})
        assert "Free some" not in str(caught.value)


@pytest.mark.backends("torch")
@pytest.mark.parametrize(
    "change,message",
    [
        ("shape", r"'.*dense.*/kernel' \(4, 2\) there, '.*dense.*/kernel' \(4, 5\) in the model"),
        ("layers", "it has 4 variables of the model, the model 6"),
        ("optimizer", "'adam.*/iteration' .* there, 'adam_w.*/iteration' .* in the model"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(tmp_path, change, message):
    fit(model(), 1, [Checkpoints(tmp_path)])
    more = [keras.layers.Dense(4)] if change == "layers" else []
    layers = [keras.Input((3,)), keras.layers.Dense(4), *more]
    other = keras.Sequential([*layers, keras.layers.Dense(5 if change == "shape" else 2)])
    other.compile("adamw" if change == "optimizer" else keras.optimizers.Adam(0.05), "mse")
    before = other.get_weights()
    contents = (tmp_path / "update-00000003" / "manifest.json").read_bytes()
    with pytest.raises(ValueError, match=f"another model's: .*{message}.*Nothing was changed"):
        Checkpoints(tmp_path).restore(other)
    if change != "optimizer":
        with pytest.raises(ValueError, match="another model's"):
            average_checkpoints(other, [tmp_path / "update-00000003"])
    assert_each(other.get_weights(), before)
    assert (tmp_path / "update-00000003" / "manifest.json").read_bytes() == contents


@pytest.mark.backends("torch")
def test_what_is_not_finite_is_not_saved(tmp_path):
    class Spoil(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                variable = self.model.trainable_variables[0]
                variable.assign(np.full(variable.shape, np.nan))

    made, checkpoints = model(), Checkpoints(tmp_path)
    fit(made, 5, [Spoil(), checkpoints])
    assert "kernel" in checkpoints.nonfinite and not checkpoints.finished
    assert updates_of(checkpoints) == [3]


def test_averages_for_a_model_that_is_not_compiled(tmp_path):
    made, checkpoints = model(), Checkpoints(tmp_path / "run")
    fit(made, 2, [checkpoints])
    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(2)])
    average_checkpoints(made, checkpoints.paths)
    average_checkpoints(plain, checkpoints.paths)
    save_average(plain, tmp_path / "averaged", checkpoints.paths)
    load_checkpoint(plain, tmp_path / "averaged", allow_average=True)
    assert_each(plain.get_weights(), made.get_weights())


@pytest.mark.backends("torch")
def test_old_checkpoints_are_deleted_but_no_notes_in_them(tmp_path):
    made, checkpoints = model(), Checkpoints(tmp_path, keep=1)
    fit(made, 1, [checkpoints])
    (checkpoints.paths[-1] / "notes").write_text("mine")
    noted = checkpoints.paths[-1]
    fit(made, 5, [checkpoints])
    assert (noted / "notes").read_text() == "mine"
    assert len(checkpoints.paths) == 2  # the noted one and the last


def test_training_from_an_average_is_refused_unless_allowed(tmp_path):
    made, checkpoints = model(), Checkpoints(tmp_path / "run")
    fit(made, 2, [checkpoints])
    save_average(made, tmp_path / "averaged", checkpoints.paths)
    weights = made.get_weights()
    with pytest.raises(ValueError, match="average of update-00000003, update-00000006"):
        fit(made, 3, [checkpoints], initial_epoch=2)
    other = model()
    with pytest.raises(ValueError, match="average of update-00000003, update-00000006"):
        load_checkpoint(other, tmp_path / "averaged")
    load_checkpoint(other, tmp_path / "averaged", allow_average=True)
    assert_each(other.get_weights(), weights)
    checkpoints.restore(made)  # The last, which is none.
    fit(made, 3, [checkpoints], initial_epoch=2)


class NoBatches:
    """Batches that nobody may ask for."""

    def __len__(self):
        return 5

    signature = None

    def set_epoch(self, epoch):
        pass

    def batch(self, epoch, index):
        raise NotImplementedError


class Final(keras.optimizers.SGD):
    """Rounds the weights at the end, as an optimizer of the user's own may."""

    def finalize_variable_values(self, var_list):
        for variable in var_list:
            variable.assign(keras.ops.round(variable))


OPTIMIZERS = {
    r"Adam\(use_ema=True\)": lambda: Adam(use_ema=True),
    r"SGD\(use_ema=True\)": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(use_ema=True)
    ),
    r"AdamW\(use_ema=True\)": lambda: keras.optimizers.MultiOptimizer(
        keras.optimizers.OptimizerMap(
            keras.optimizers.SGD(), {".*bias": keras.optimizers.AdamW(use_ema=True)}
        )
    ),
    "Final": Final,
}


@pytest.mark.backends("torch")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_whose_fit_ends_with_other_weights_is_refused(tmp_path, name):
    """With `fit`, too: no checkpoint holds what such a training ends with."""
    made = model()
    made.compile(OPTIMIZERS[name](), "mse")
    before, checkpoints = made.get_weights(), Checkpoints(tmp_path)
    told = f"the optimizer {name} cannot be resumed.*end of each `fit`.*moving_average=0.999.*"
    for train in (
        lambda: fit(made, 1, [checkpoints]),
        lambda: checkpoints.restore(made),
        lambda: fit_resumably(made, NoBatches(), checkpoints, [checkpoints]),
    ):
        with pytest.raises(ValueError, match=told):
            train()
    assert list(tmp_path.iterdir()) == []
    assert_each(made.get_weights(), before)


@pytest.mark.backends("torch")
def test_plain_optimizers_in_others_are_not_refused(tmp_path):
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))
    several = keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.1))
    for optimizer in (scaled, keras.optimizers.MultiOptimizer(several)):
        made, checkpoints = model(), Checkpoints(tmp_path / optimizer.name)
        made.compile(optimizer, "mse")
        fit(made, 1, [checkpoints])
        assert updates_of(checkpoints) == [3]
        other = model()
        other.compile(type(optimizer).from_config(optimizer.get_config()), "mse")
        for _ in range(2):  # the second time with an optimizer that is built
            assert Checkpoints(tmp_path / optimizer.name).restore(other) == 1
        assert_each(other.get_weights(), made.get_weights())


@pytest.mark.parametrize("least", ["min", "max"])
def test_updates_are_batches_also_where_an_optimizer_skips_or_gathers(tmp_path, least):
    """Both name the best checkpoint alike: else it would be deleted."""
    skipping = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1), initial_scale=2.0**127, dynamic_growth_steps=100
    )
    gathering = Adam(0.01, gradient_accumulation_steps=2)
    for optimizer in (skipping, gathering):
        made, budget = model(), Budget(steps=12)
        made.compile(optimizer, "mse", loss_weights=[64.0])  # The first scale is too large for it.
        best = BestCheckpoint("loss", least)
        checkpoints = Checkpoints(tmp_path / optimizer.name, keep=1, stateful=[best, budget])
        fit(made, 9, [budget, best, checkpoints])
        assert int(made.optimizer.iterations) < 12
        assert [entry["updates"] for entry in checkpoints.history] == [3, 6, 9, 12]
        assert best.best in [(entry["loss"], entry["updates"]) for entry in checkpoints.history]
        assert updates_of(checkpoints) == sorted({best.best[1], 12})


@pytest.mark.backends("torch")
@pytest.mark.parametrize("name", ["EarlyStopping", "ReduceLROnPlateau", "BackupAndRestore"])
def test_a_callback_that_would_forget_is_refused_by_name(tmp_path, name):
    class Saved(keras.callbacks.EarlyStopping):
        """Saves what it remembers."""

        def get_state(self):
            return [self.wait]

        def set_state(self, state):
            (self.wait,) = state

    given = [tmp_path / "backup"] if name == "BackupAndRestore" else ["loss"]
    forgetful, saved = getattr(keras.callbacks, name)(*given), Saved("loss")
    checkpoints = Checkpoints(tmp_path / "run", stateful=[saved])
    callbacks = [saved, forgetful, checkpoints]
    with pytest.raises(ValueError, match=f"the callback {name} cannot be resumed.*StopWithoutGain"):
        fit_resumably(model(), NoBatches(), checkpoints, callbacks)
    with pytest.raises(NotImplementedError):  # With the one that is saved, training begins.
        fit_resumably(model(), NoBatches(), checkpoints, [saved, checkpoints])


@pytest.mark.backends("torch")
def test_a_place_within_other_batches_is_refused(tmp_path):
    made, checkpoints = model(), Checkpoints(tmp_path / "run")
    fit(made, 2, [checkpoints])
    with pytest.raises(ValueError, match="6 updates, at batch 0 of epoch 3, but.* has 5 batches"):
        fit_resumably(made, NoBatches(), checkpoints, [checkpoints])


def manifest(folder, updates, seconds, batch=0, kind="epoch"):
    """A checkpoint without weights, for the choice among them."""
    path = folder / f"update-{updates:08d}"
    path.mkdir()
    record = {"updates": updates, "seconds": seconds, "batch": batch, "kind": kind}
    CHECKPOINT.seal(path, {**record, "variables": {}})


@pytest.mark.backends("torch")
def test_which_checkpoints_are_averaged(tmp_path):
    manifest(tmp_path, 10, 599.0, batch=4, kind="interval")
    manifest(tmp_path, 20, 601.0, batch=5, kind="interval")
    manifest(tmp_path, 30, 900.0)
    manifest(tmp_path, 40, 1201.0, batch=1, kind="interval")
    manifest(tmp_path, 50, 1300.0)
    manifest(tmp_path, 60, 1801.0, batch=2, kind="interval")
    manifest(tmp_path, 70, 1900.0, batch=3, kind="signal")
    manifest(tmp_path, 80, 1950.0, batch=3, kind="end")

    def chosen(**arguments):
        return [int(path.name[7:]) for path in select_checkpoints(tmp_path, **arguments)]

    assert chosen() == [30, 50, 80]  # Ends of epochs, and of the training.
    assert chosen(last=2) == [50, 80]
    assert chosen(minutes=10) == [10, 20, 40, 80]
    assert chosen(minutes=10, last=3) == [20, 40, 80]
    assert chosen(minutes=20, last=3) == [10, 80]
    assert chosen(minutes=0, last=3) == [60, 70, 80]
    assert chosen(updates=20) == [20, 40, 60, 80]
    assert chosen(updates=30, last=2) == [60, 80]
    with pytest.raises(ValueError, match="updates=20, minutes=10"):
        chosen(updates=20, minutes=10)
    with pytest.raises(ValueError, match="no checkpoints in"):
        select_checkpoints(tmp_path / "update-00000010")
    shutil.rmtree(tmp_path / "update-00000080")  # Stopped by a signal, and finished there.
    assert chosen() == [30, 50, 70] and chosen(last=1) == [70]


@pytest.mark.backends("torch")
def test_a_budget_is_exact_and_counts_what_was_done_before():
    made = model()
    budgets = [{"steps": 1}, {"steps": 6}, {"minutes": 1.0, "seconds_before": 61.0}]
    for epoch, (budget, updates) in enumerate(zip(budgets, (1, 6, 7), strict=True)):
        fit(made, 9, [Budget(**budget)], initial_epoch=epoch)
        assert int(made.optimizer.iterations) == updates
