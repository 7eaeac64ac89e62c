"""A small run that can be killed and started again; what `test_resume.py` starts in processes."""

import os
import signal
import threading

import keras
import numpy as np

from keras_attention import (
    Adam,
    LabelSmoothedCrossentropy,
    LearningRateSchedule,
    TokenBatches,
    TokenStore,
    Transformer,
)
from keras_attention.callbacks import Budget, Checkpoints, Stop, StopOnSignal, fit_resumably
from keras_attention.training import checkpoint_store
from keras_attention.utils import files
from tests.data.counting_text import NumberText, NumberTokenizer

UPDATES = 20
EVERY = 2


def make_store(folder):
    """44 pairs of 2 to 8 tokens."""
    random = np.random.default_rng(3)

    def sentence():
        return " ".join(map(str, random.integers(2, 30, random.integers(1, 8))))

    pairs = NumberText((sentence(), sentence()) for _ in range(44))
    return TokenStore.build(folder, pairs, NumberTokenizer(30), verbose=False)


def make_model(metrics=()):
    sizes = {"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 12, "num_heads": 2}
    model = Transformer(vocabulary_size=30, seed=3, dropout=0.2, **sizes)
    rate = LearningRateSchedule(8, warmup_steps=20, factor=2.0)
    model.compile(Adam(rate), LabelSmoothedCrossentropy(0.1), metrics=list(metrics))
    return model


def make_batches(store_folder):
    shapes = 3 if keras.backend.backend() == "torch" else 2  # Elsewhere each process compiles each.
    return TokenBatches(TokenStore(store_folder), 44, seed=5, max_shapes=shapes)


class EveryUpdate(keras.callbacks.Callback):
    """Calls a function with the number of updates that this process has begun."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.begun = 0

    def on_train_batch_begin(self, batch, logs=None):
        self.begun += 1
        self.function(self.begun)


def train(folder, store_folder, updates=UPDATES, metrics=(), each=(), make=make_model):
    """Trains, or trains on, and returns the model and its checkpoints."""
    keras.utils.set_random_seed(0)
    model = make(metrics)
    batches = make_batches(store_folder)
    stop = Stop()
    signals, budget = StopOnSignal(stop), Budget(steps=updates)
    checkpoints = Checkpoints(folder, 3, stop, every_updates=EVERY)
    checkpoints.restore(model)
    callbacks = [signals, budget, checkpoints, *(EveryUpdate(function) for function in each)]
    fit_resumably(model, batches, checkpoints, callbacks)
    return model, checkpoints


def state_of(model):
    """All numbers that a run leaves behind, as bytes, so that equal means equal in every bit."""
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return [keras.ops.convert_to_numpy(v).tobytes() for v in variables]


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def killed(folder, store_folder, after=None, delay=0.0, within=None):
    """Trains until this process is killed: some time after an update, or within a write."""

    def kill_soon(begun):
        if begun == after:
            threading.Timer(delay, die).start()

    if within is not None:
        _die_within(within, after)
        after = None
    train(folder, store_folder, each=[kill_soon])


def finished(folders, store_folder):
    """Trains to the end in each of these folders, and leaves all numbers there."""
    for folder in folders:
        model, checkpoints = train(folder, store_folder)
        np.savez(folder / "state.npz", *state_of(model))
        (folder / "losses").write_text(repr([entry["loss"] for entry in checkpoints.history]))


def _die_within(within, count):
    """Kill at the given place of the write number `count`."""
    writes = []
    original = files.flush

    def flush(path):
        if path.name == checkpoint_store.WEIGHTS:
            writes.append(path)
            if len(writes) == count and within == "weights":
                os.truncate(path, path.stat().st_size // 2)
                die()
        elif path.name.startswith(f"{files.PARTIAL}update-") and len(writes) == count:
            if within == "rename":
                die()  # All is there, but for the name.
        original(path)

    files.flush = flush
