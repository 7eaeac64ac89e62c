"""The console output of a training, word by word, with a fake clock."""

import io
import re
import time
import types

import numpy as np
import pytest
import tqdm.std

from keras_attention.callbacks import Budget, ConsoleProgress
from keras_attention.callbacks import budget as budget_module
from keras_attention.utils import progress

pytestmark = pytest.mark.backends("tensorflow")


LOGS = {"loss": 2.5, "interval_mae": 0.5, "val_loss": 1.75, "val_bleu": 5.7546}


class Shapes(list):
    """Three batches an epoch: the second one has a shape of its own."""

    def batch_shape(self, epoch, index):
        return (8, 5, 7) if index == 1 else (8, 3, 4)


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when the test says so; and no thread that writes meanwhile."""
    now = [0.0]
    clock = types.SimpleNamespace(time=lambda: now[0], monotonic=lambda: now[0], sleep=time.sleep)
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setattr(budget_module, "time", clock)
    monkeypatch.setattr(tqdm.std, "time", clock.time)
    monkeypatch.setattr(progress, "_start_ticker", lambda: None)
    return now


def said(clock, epochs=1, batches=3, announce=None, beside=None, **limits):
    """The lines of a training of three updates an epoch, each of 20 seconds; `batches` of the last epoch."""
    stream, entry = io.StringIO(), {}
    budget = Budget(batches=Shapes(), **limits)
    console = ConsoleProgress(budget, types.SimpleNamespace(last=entry), stream, announce, beside)
    console.set_params({"steps": 3, "epochs": epochs})
    model = types.SimpleNamespace(optimizer=types.SimpleNamespace(iterations=np.array(0)))
    for callback in (budget, console):
        callback.set_model(model)
        callback.on_train_begin()
    for epoch in range(epochs):
        budget.on_epoch_begin(epoch)
        for batch in range(3 if epoch + 1 < epochs else batches):
            for callback in (budget, console):
                callback.on_train_batch_begin(batch)
            clock[0] += 20.0
            entry.update(loss=2.34567, tokens_per_second=1234.4)
        for callback in (budget, console):
            callback.on_epoch_end(epoch, dict(LOGS))
    console.on_train_end()
    return stream.getvalue().splitlines()


def test_a_run_that_ends_by_updates(clock):
    numbers = "loss 2.346, 1,234 tokens/s"
    assert said(clock, steps=6) == [
        f"training: 1 of 6 updates, 17%, {numbers}; the first batch of 8 x 7 tokens takes longer",
        f"training: 2 of 6 updates, 33%, {numbers}",
        "epoch 1, update 3: loss 2.500, interval mae 0.500; validation loss 1.750, BLEU 5.755",
        f"training: 3 of 6 updates, 50%, {numbers}",
    ]


def test_the_time_left_is_shown_when_it_is_known(clock):
    """Of nine updates two compile; five that are counted must be done, each of 20 seconds."""
    known = []
    lines = said(clock, epochs=3, steps=11, announce=lambda: known.append(clock[0]))
    left = [re.search(r"(\d+) of 11 updates.*?(\d\d:\d\d) left", line) for line in lines]
    assert [found.groups() for found in left if found] == [
        ("7", "01:20"),
        ("8", "01:00"),
        ("9", "00:40"),
    ]
    assert known == [7 * 20.0]


def test_other_work_to_come_is_part_of_what_is_left(clock):
    lines = said(clock, epochs=3, steps=11, beside=lambda forecast: 100.0 * (9 - forecast.updates))
    left = [found[0] for line in lines if (found := re.search(r"\d+:\d\d left", line))]
    assert left == ["04:40 left", "02:40 left", "00:40 left"]


def test_what_a_busy_machine_took_is_forgotten(clock):
    """Two hundred updates of 9 seconds, then as many of one: the time left follows the new pace."""
    budget = Budget(steps=1000)
    budget.set_model(types.SimpleNamespace(optimizer=types.SimpleNamespace(iterations=np.array(0))))
    budget.on_train_begin()
    for batch in range(401):
        budget.on_train_batch_begin(batch)
        clock[0] += 9.0 if batch < 200 else 1.0
    assert budget.seconds_per_update == pytest.approx(1.0, abs=0.5)
    assert budget.seconds == 199 * 9.0 + 200.0  # The first one compiled.


def test_a_part_of_an_epoch_is_called_so(clock):
    """As after Ctrl-C."""
    ends = [line for line in said(clock, epochs=2, batches=2, steps=9) if line.startswith("epoch")]
    assert [line.partition(": l")[0] for line in ends] == [
        "epoch 1, update 3", "epoch 2 (part of it: 2 of 3 batches), update 5",
    ]  # fmt: skip


def test_a_run_that_ends_by_the_clock(clock):
    """The first batch of each shape compiles, which does not count as training."""
    lines = said(clock, epochs=2, minutes=2)
    ends = [line for line in lines if line.startswith("epoch")]
    assert [line.partition(":")[0] for line in ends] == ["epoch 1, update 3", "epoch 2, update 6"]
    numbers = "loss 2.346, 1,234 tokens/s"
    moving = dict.fromkeys(line for line in lines if line not in ends)
    assert list(moving) == [
        f"training: 20 of 120 seconds, 17%, 01:40 left, update 4, {numbers}",
        f"training: 40 of 120 seconds, 33%, 01:20 left, update 5, {numbers}",
        f"training: 60 of 120 seconds, 50%, 01:00 left, update 6, {numbers}",
        f"training: 80 of 120 seconds, 67%, 00:40 left, update 6, {numbers}",
    ]
