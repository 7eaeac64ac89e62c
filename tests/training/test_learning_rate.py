"""The learning rate against the values of equation 3, and one that falls with a budget."""

import shutil

import keras
import numpy as np
import pytest

from keras_attention import LearningRateSchedule
from keras_attention.callbacks import Budget, Checkpoints, StopWithoutGain, TrainingMonitor
from keras_attention.callbacks import budget as callbacks
from keras_attention.training import Adam, CooldownToBudget, CosineToBudget

# (step counted from 1, width) -> rate
VALUES = {
    (1, 512): 1.7469281074e-07,
    (100, 512): 1.7469281074e-05,
    (4000, 512): 6.9877124297e-04,
    (10000, 512): 4.4194173824e-04,
    (100000, 512): 1.3975424859e-04,
    (300000, 512): 8.0687153046e-05,
    (1, 1024): 1.2352647110e-07,
    (100, 1024): 1.2352647110e-05,
    (4000, 1024): 4.9410588440e-04,
    (10000, 1024): 3.1250000000e-04,
    (100000, 1024): 9.8821176880e-05,
    (300000, 1024): 5.7054433073e-05,
}


def test_values():
    for (step, width), expected in VALUES.items():
        rate = LearningRateSchedule(width)(step - 1)  # Keras counts updates done.
        assert float(rate) == pytest.approx(expected, rel=2e-6), (step, width)


@pytest.mark.backends("torch")
def test_factor_and_warmup_of_later_tensor2tensor():
    assert float(LearningRateSchedule(512, 8000, 2.0)(7999)) == pytest.approx(9.8821176880e-04)
    # Parsing, 2017-06: warmup 16000 and five times the formula.
    assert float(LearningRateSchedule(1024, 16000, 5.0)(15999)) == pytest.approx(1.2352647110e-03)


@pytest.mark.backends("torch")
def test_the_optimizer_starts_at_step_one():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.SGD(LearningRateSchedule(4, warmup_steps=3)), "mae")
    before = model.get_weights()[0].item()
    model.fit(np.array([[1.0]]), np.array([[100.0]]), epochs=1, verbose=0)
    assert model.get_weights()[0].item() - before == pytest.approx(4**-0.5 * 3**-1.5, rel=1e-5)


@pytest.mark.backends("torch")
def test_round_trip():
    schedule = LearningRateSchedule(8, 9, 0.5, name="mine")
    config = keras.optimizers.schedules.serialize(schedule)
    copy = keras.optimizers.schedules.deserialize(config)
    assert isinstance(copy, LearningRateSchedule)
    assert copy.get_config() == {"hidden_dim": 8, "warmup_steps": 9, "factor": 0.5, "name": "mine"}


def one_weight(schedule, wrapped=lambda optimizer: optimizer):
    """A model whose weight moves by the learning rate in every update of Adam: its gradient is always -1."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(wrapped(Adam(schedule)), "mae")
    model.set_weights([np.zeros((1, 1))])
    return model


class Weights(keras.callbacks.Callback):
    """The weight after every update."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(self.model.get_weights()[0].item())


def rates_of(model, *more, epochs=9, **arguments):
    weights = Weights()
    data = np.ones((4, 1)), np.full((4, 1), 1e6)
    model.fit(
        *data, batch_size=1, epochs=epochs, verbose=0, callbacks=[*more, weights], **arguments
    )
    return np.diff([0.0, *weights.seen])


class Clock(keras.callbacks.Callback):
    """The budget's clock, which goes on by so many seconds in each batch, and between epochs."""

    def __init__(self, monkeypatch, took, between=0.0):
        super().__init__()
        self.now, self.took, self.between = 0.0, iter(took), between
        monkeypatch.setattr(callbacks.time, "monotonic", lambda: self.now)

    def on_train_batch_end(self, batch, logs=None):
        self.now += next(self.took)

    def on_epoch_end(self, epoch, logs=None):
        self.now += self.between


@pytest.mark.parametrize("wrapped", [lambda it: it, keras.optimizers.LossScaleOptimizer])
def test_the_rate_of_every_update_falls_with_the_budget(wrapped):
    rates = rates_of(one_weight(CosineToBudget(0.5, warmup_steps=3), wrapped), Budget(steps=11))
    done = np.arange(11)
    expected = 0.5 * np.minimum((done + 1) / 3, 1) * (1 + np.cos(np.pi * done / 11)) / 2
    np.testing.assert_allclose(rates, expected, rtol=1e-4)


@pytest.mark.backends("torch")
def test_the_rate_falls_with_the_minutes(monkeypatch):
    """A machine that becomes five times slower after the fourth update."""
    # The first compiles, which does not count; nor does what is done between epochs.
    clock = Clock(monkeypatch, [77.0] + [2.0] * 3 + [10.0] * 9, between=55.0)
    model = one_weight(CosineToBudget(0.5, warmup_steps=1))
    rates = rates_of(model, Budget(minutes=0.8, seconds_before=10.0), clock)
    seconds = np.array([10, 10, 12, 14, 16, 26, 36, 46, 56])  # Of 48 that the budget has.
    used = np.minimum(seconds / 48, 1)
    np.testing.assert_allclose(rates, 0.25 * (1 + np.cos(np.pi * used)), rtol=1e-4, atol=1e-6)


class Shapes(list):
    """Batches of which the second one of an epoch has a shape of its own."""

    def batch_shape(self, epoch, index):
        return (1, 3, 4) if index == 1 else (1, 5, 7)


@pytest.mark.backends("torch")
def test_the_first_batch_of_each_shape_compiles_which_does_not_count(monkeypatch):
    # The first of each shape compiles.
    clock = Clock(monkeypatch, [77.0, 99.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0])
    budget, counted = Budget(minutes=17 / 60, batches=Shapes()), []
    look = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: counted.append((budget.seconds, budget.is_timed))
    )
    rates_of(one_weight(1.0), budget, look, clock)
    timed = [(seconds, True) for seconds in (0, 2, 5, 9, 14, 20)]  # Of 17 that the budget has.
    assert counted == [(0, False), (0, False), *timed]
    assert budget.seconds == 28


@pytest.mark.backends("torch")
def test_where_the_second_batch_compiles_neither_counts(monkeypatch):
    clock = Clock(monkeypatch, [77.0, 99.0, 50.0, 3.0, 4.0, 60.0, 6.0])
    budget, model = Budget(steps=7, batches=Shapes()), one_weight(1.0)
    model.slow_batches = 2
    rates_of(model, budget, clock, epochs=2)
    assert budget.seconds == 3 + 4 + 6


@pytest.mark.backends("torch")
def test_what_stops_the_monitors_clock_stops_the_budgets(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(callbacks.time, "perf_counter", lambda: clock[0])
    budget = Budget(steps=5)
    monitor = TrainingMonitor(None, budget=budget)

    class Look(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            with monitor.paused():
                clock[0] += 30.0

        def on_train_batch_end(self, batch, logs=None):
            clock[0] += 2.0

    rates_of(one_weight(1.0), budget, monitor, Look())
    assert budget.seconds == 2.0 * 4  # all but the first, which compiles


def test_the_rate_goes_on_where_a_checkpoint_was(tmp_path):
    first = one_weight(CosineToBudget(0.5, warmup_steps=3))
    before = rates_of(first, Budget(steps=12), Checkpoints(tmp_path), epochs=1)
    second = one_weight(CosineToBudget(0.5, warmup_steps=3))
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.restore(second) == 1
    used = [float(model.optimizer._learning_rate.used) for model in (first, second)]
    assert used == pytest.approx([3 / 12, 3 / 12])
    assert float(second.optimizer.learning_rate) == pytest.approx(
        0.25 * (1 + np.cos(np.pi / 4)), rel=1e-5
    )
    weight = second.get_weights()[0].item()
    after = rates_of(second, Budget(steps=12), initial_epoch=1)
    whole = rates_of(one_weight(CosineToBudget(0.5, warmup_steps=3)), Budget(steps=12))
    np.testing.assert_allclose([*before, after[0] - weight, *after[1:]], whole, rtol=1e-4)


@pytest.mark.backends("torch")
def test_a_saved_model_keeps_the_schedule(tmp_path):
    model = one_weight(CosineToBudget(0.5, warmup_steps=3))
    rates_of(model, Budget(steps=12), epochs=1)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    schedule = loaded.optimizer._learning_rate
    assert isinstance(schedule, CosineToBudget) and schedule.warmup_steps == 3
    assert float(schedule.used) == pytest.approx(3 / 12)


COOLED = {"peak": 0.5, "warmup_steps": 3}


def test_a_cooldown_is_constant_and_then_a_line_to_0():
    """The last 0.3 of 12 updates: 4. The first of them still has the whole rate, the last a quarter."""
    rates = rates_of(one_weight(CooldownToBudget(**COOLED)), Budget(steps=12, cooldown=0.3))
    expected = 0.5 * np.array([1 / 3, 2 / 3, *[1] * 6, 1, 3 / 4, 2 / 4, 1 / 4])
    np.testing.assert_allclose(rates, expected, rtol=1e-4)


@pytest.mark.backends("torch")
def test_a_cooldown_follows_the_minutes(monkeypatch):
    """It begins when 0.25 of 40 seconds are left, and is as long as that, whatever the machine does."""
    clock = Clock(monkeypatch, [77.0] + [10.0] * 3 + [4.0] * 9)  # The first compiles: not counted.
    model = one_weight(CooldownToBudget(0.5, warmup_steps=1))
    rates = rates_of(model, Budget(minutes=40 / 60, cooldown=0.25), clock)
    left = np.array([1, 1, 1, 1, 1, 0.6, 0.2, 0])  # Seconds: 0, 0, 10, 20, 30, 34, 38, 42.
    np.testing.assert_allclose(rates, 0.5 * left, rtol=1e-4, atol=1e-6)


class Worse(keras.callbacks.Callback):
    """A validation perplexity that has its best value after the second epoch."""

    def on_epoch_end(self, epoch, logs=None):
        logs["val_perplexity"] = [5.0, 4.0, 4.5, 4.2][min(epoch, 3)]


def patient(folder, patience, **limits):
    """Train until the patience is over and the rate has fallen; of 4 updates an epoch."""
    model = one_weight(CooldownToBudget(**COOLED))
    budget = Budget(cooldown=0.2, patience=patience, **limits)
    stop = StopWithoutGain(patience, budget=budget)
    checkpoints = Checkpoints(folder, 2, stateful=[budget, stop])
    rewound = checkpoints.rewind(
        lambda manifest: (
            budget.is_outdated(manifest["callbacks"]["Budget"])
            and manifest["updates"] > manifest["callbacks"]["Budget"]["cooldown"]["updates"]
        )
    )
    start = checkpoints.restore(model)
    callbacks = [budget, Worse(), stop, checkpoints]
    rates = rates_of(model, *callbacks, epochs=50, initial_epoch=start)
    return rates, model, rewound


@pytest.mark.backends("torch")
def test_the_patience_begins_the_cooldown(tmp_path):
    """After 4 epochs of 4 updates: 4 more, as in a run of 20."""
    rates, model, _ = patient(tmp_path, 2, steps=100)
    whole = rates_of(one_weight(CooldownToBudget(**COOLED)), Budget(steps=20, cooldown=0.2))
    assert len(rates) == len(whole) == 20
    np.testing.assert_array_equal(rates, whole)
    assert {"update-00000016", "update-00000020"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.backends("torch")
def test_more_patience_goes_back_to_the_whole_rate(tmp_path):
    patient(tmp_path, 2, steps=100)
    rates, model, rewound = patient(tmp_path, 3, steps=100)  # After 5 epochs: 20 + 5 updates.
    assert rewound and int(model.optimizer.iterations) == 25
    np.testing.assert_allclose(rates[1:4], 0.5, rtol=1e-3)
    _, model, rewound = patient(tmp_path, 3, steps=200)  # The budget was not what ended it.
    assert not rewound


@pytest.mark.backends("torch")
def test_the_checkpoint_before_a_cooldown_is_needed_to_change_its_budget(tmp_path):
    patient(tmp_path, 2, steps=100)
    for path in tmp_path.iterdir():
        if path.name < "update-00000020":
            shutil.rmtree(path)
    with pytest.raises(ValueError, match="the checkpoint from before is gone"):
        patient(tmp_path, 3, steps=100)
    assert [path.name for path in tmp_path.iterdir()] == ["update-00000020"]
