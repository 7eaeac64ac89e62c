"""What the monitor writes besides the curves: the log, its resume, padding, FLOPs."""

import json

import keras
import numpy as np
import pytest

from keras_attention import Adam, MetricsLog, SummaryWriter, TrainingMonitor
from keras_attention.callbacks import Budget, Checkpoints, fit_resumably
from keras_attention.callbacks import monitor as monitor_module
from keras_attention.callbacks.metrics_log import WALL_CLOCK_FIELDS
from tests.training import resumed_run
from tests.visualization.event_files import read_values

pytestmark = pytest.mark.backends("torch")

STEPS = 7


class Batches:
    """Batch i of epoch e: i + 2 rows of 3 source and 5 target positions, e + i + 4 tokens in all."""

    def __init__(self):
        self.epoch = 0

    def tokens_in_batch(self, epoch, index):
        return epoch + index, 4

    def batch_shape(self, epoch, index):
        return index + 2, 3, 5


class Model:
    """What the monitor sees of a model that fits two equal weights to a label."""

    def __init__(self):
        self.weights = keras.Variable(np.zeros(2, "float32"))
        self.loss = keras.metrics.Mean("loss")
        self.metrics = [self.loss]
        self.optimizer = Adam(0.01)
        self.optimizer.build([self.weights])

    def train(self, label):
        error = float(as_numpy(self.weights).sum()) - label
        self.loss.update_state(error**2)
        self.optimizer.apply([keras.ops.full((2,), 2 * error)])

    @property
    def state(self):
        return [self.weights, *self.optimizer.variables, *self.loss.variables]


def as_numpy(variable):
    return keras.ops.convert_to_numpy(variable)


class Driver:
    """Calls a callback as `fit` does, and can stop before any batch as if it were killed."""

    def __init__(self, monitor):
        self.model = Model()
        self.monitor = monitor
        monitor.set_model(self.model)
        monitor.set_params({"steps": STEPS})

    def run(self, start, end, on_batch=lambda done: None):
        """From batch `start` of the run up to, not including, batch `end`."""
        self.monitor.on_train_begin()
        for done in range(start, end):
            epoch, index = divmod(done, STEPS)
            if index == 0 or done == start:
                self.monitor.batches.epoch = epoch
                if index == 0:
                    self.model.loss.reset_state()
                # After a resume, `fit` may count epochs from 0 again; the batches know better.
                self.monitor.on_epoch_begin(0)
            self.monitor.on_train_batch_begin(index)
            on_batch(done)
            self.model.train(1.0 + done)
            if index == STEPS - 1:
                self.monitor.on_epoch_end(epoch, {"val_perplexity": 5.0 + epoch})


def monitor_of(path, **options):
    return TrainingMonitor(None, Batches(), every=2, log=MetricsLog(path), **options)


def entries(path):
    """The log without what a clock decides."""
    return [
        {name: value for name, value in entry.items() if name not in WALL_CLOCK_FIELDS}
        for entry in MetricsLog(path).read()
    ]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The entries of a run of two epochs."""
    path = tmp_path_factory.mktemp("undisturbed") / "metrics.jsonl"
    Driver(monitor_of(path)).run(0, 2 * STEPS)
    assert [entry["update"] for entry in entries(path)] == [3, 5, 6, 7, 9, 11, 13, 14]
    assert [entry["epoch"] for entry in entries(path)] == [0] * 4 + [1] * 4
    return entries(path)


@pytest.mark.parametrize("killed_at", [1, 4, 5, "end of epoch", 7, 8, 13])
def test_a_resumed_log_equals_an_undisturbed_one(tmp_path, undisturbed, killed_at):
    path = tmp_path / "killed.jsonl"
    first = Driver(monitor_of(path))
    saved = {}

    def save(done):
        if done == killed_at:
            saved["monitor"] = json.loads(json.dumps(first.monitor.get_state()))
            saved["model"] = [as_numpy(variable).copy() for variable in first.model.state]

    if killed_at == "end of epoch":
        first.run(0, STEPS)
        save(killed_at)
        killed_at = STEPS
    else:
        first.run(0, min(killed_at + 4, 2 * STEPS), save)  # goes on a little, then is killed
    with open(path, "a") as file:
        file.write('{"kind": "tra')  # within a line

    second = Driver(monitor_of(path))
    for variable, value in zip(second.model.state, saved["model"], strict=True):
        variable.assign(value)
    second.monitor.set_state(saved["monitor"])
    second.run(killed_at, 2 * STEPS)
    assert entries(path) == undisturbed


def test_without_a_state_entries_of_later_updates_go(tmp_path):
    path = tmp_path / "metrics.jsonl"
    Driver(monitor_of(path)).run(0, STEPS)
    assert [entry["update"] for entry in entries(path)] == [3, 5, 6, 7]
    Driver(monitor_of(path)).run(0, 4)  # starts from scratch: nothing had been saved
    assert [entry["update"] for entry in entries(path)] == [3]


def test_an_epoch_that_was_cut_short_is_written_again(tmp_path):
    path = tmp_path / "metrics.jsonl"
    first = Driver(monitor_of(path))
    first.run(0, 4)
    first.monitor.on_epoch_end(0, {"loss": 1.0})  # a signal came
    state = first.monitor.get_state()
    assert [entry["kind"] for entry in entries(path)] == ["train", "epoch"]
    second = Driver(monitor_of(path))
    second.monitor.set_state(state)
    second.monitor.on_train_begin()
    assert [entry["kind"] for entry in entries(path)] == ["train"]


@pytest.fixture
def clock(monkeypatch):
    """Half a second passes whenever it is read."""
    now = iter(np.arange(1000) / 2)
    monkeypatch.setattr(monitor_module.time, "perf_counter", lambda: next(now))


@pytest.mark.usefixtures("clock")
def test_what_an_entry_holds(tmp_path):
    with SummaryWriter(tmp_path / "logs") as writer:
        monitor = TrainingMonitor(
            writer,
            Batches(),
            every=3,
            log=MetricsLog(tmp_path / "metrics.jsonl"),
            flops=lambda rows, source, target: 10.0 * rows * source + target,
            peak=1000.0,
        )
        Driver(monitor).run(0, STEPS)
    entry = MetricsLog(tmp_path / "metrics.jsonl").read()[0]
    assert (entry["kind"], entry["update"], entry["epoch"]) == ("train", 4, 0)
    # Batches 1, 2 and 3: 3, 4 and 5 rows of 8 positions; 5, 6 and 7 tokens.
    assert entry["padding"] == pytest.approx(1 - 18 / 96)
    assert entry["seconds"] == 0.5 and entry["batches_per_second"] == 6
    assert entry["tokens_per_second"] == 36
    assert entry["flops_per_second"] == 2 * (10 * 12 * 3 + 15)
    assert entry["mfu"] == pytest.approx(0.75)
    # The gradient of both weights is 2 (prediction - 4); a weight moves by about 0.01 an update.
    assert entry["learning_rate"] == pytest.approx(0.01)
    assert entry["gradient_norm"] == pytest.approx(2 * 2**0.5 * (4 - 2 * 0.03), rel=0.01)
    # The mean over all batches so far: about that of the squares of 1 to 4.
    assert entry["loss"] == pytest.approx(30 / 4, rel=0.05)
    curves = read_values(tmp_path / "logs")
    for tag in ("work/mfu", "work/padding", "rate/gradient_norm", "work/flops_per_second"):
        assert curves[tag][0] == (4, pytest.approx(entry[tag.split("/")[1]], rel=1e-5))
    assert curves["quality/perplexity"] == [(7, 5.0)]


@pytest.mark.usefixtures("clock")
def test_speed_after_a_resume_leaves_out_the_batch_that_compiles(tmp_path):
    state = {"begun": True, "first_batch": 2, "loss_sums": [0, 0], "log_size": 0}
    path = tmp_path / "metrics.jsonl"
    driver = Driver(TrainingMonitor(None, Batches(), every=4, log=MetricsLog(path)))
    driver.monitor.set_state({**state, "within_epoch": True})
    driver.run(3, STEPS)
    entry = MetricsLog(path).read()[0]
    # Batches 2 to 5 are in the window, 4 and 5 on the clock: 3 compiled, 2 was before.
    assert entry["batches_per_second"] == 4
    assert entry["tokens_per_second"] == 2 * (4 + 4 + 5 + 4)
    assert entry["padding"] == pytest.approx(1 - (6 + 7 + 8 + 9) / (8 * (4 + 5 + 6 + 7)))


@pytest.mark.usefixtures("clock")
def test_others_can_stop_the_clock(tmp_path):
    path = tmp_path / "metrics.jsonl"
    driver = Driver(monitor_of(path))

    def score(done):
        if done == 2:
            with driver.monitor.paused():  # reads the clock twice: half a second
                pass

    driver.run(0, STEPS, on_batch=score)
    window = MetricsLog(path).read()[0]
    assert window["seconds"] == 1.0  # from its begin to its end 1.5, without the pause


class Clock:
    """A budget that does not count batch 2, which takes a quarter of a second."""

    untimed, untimed_seconds = {2}, 0.0

    def pause(self, seconds):
        raise AssertionError


@pytest.mark.usefixtures("clock")
def test_a_batch_whose_time_the_budget_does_not_count_is_no_part_of_the_speed(tmp_path):
    path, budget = tmp_path / "metrics.jsonl", Clock()

    def compiled(done):
        budget.untimed_seconds += 0.25 if done == 2 else 0.0

    monitor = TrainingMonitor(None, Batches(), every=3, log=MetricsLog(path), budget=budget)
    Driver(monitor).run(0, STEPS, on_batch=compiled)
    first, second = [entry for entry in MetricsLog(path).read() if entry["kind"] == "train"][:2]
    # Batches 1 and 3 of 1 to 3, of 5 and 7 tokens, in a quarter of the half second of all.
    assert (first["seconds"], first["batches_per_second"]) == (0.25, 8)
    assert first["tokens_per_second"] == 48
    assert (second["seconds"], second["batches_per_second"]) == (0.5, 4)


class CountedBatches(Batches):
    """Three batches in a pass over the data."""

    def __len__(self):
        return 3


def test_short_epochs_read_on_in_the_data(tmp_path):
    """Keras' epochs of two batches each: the second begins with the last batch of the first pass."""
    monitor = TrainingMonitor(None, CountedBatches(), every=1, log=MetricsLog(tmp_path / "log"))
    monitor.set_model(Model())
    monitor.set_params({"steps": 2})
    monitor.on_train_begin()
    for epoch in range(4):
        monitor.on_epoch_begin(epoch)
        for batch in range(2):
            monitor.on_train_batch_begin(batch)
    read = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]
    padding = [1 - (epoch + index + 4) / (8 * (index + 2)) for epoch, index in read]
    # After the very first batch, which compiles, an epoch has one entry, of its first batch.
    shown = [entry["padding"] for entry in MetricsLog(tmp_path / "log").read()]
    assert shown == pytest.approx(padding[2::2])


def test_a_run_is_measured_in_the_epochs_of_its_batches(tmp_path):
    """The padding before each last batch, of a run that was stopped in its second epoch."""
    store = resumed_run.make_store(tmp_path / "store").folder
    log, steps = MetricsLog(tmp_path / "log"), len(resumed_run.make_batches(store))
    for updates in (steps + 2, 3 * steps):
        model, batches = resumed_run.make_model(), resumed_run.make_batches(store)
        monitor = TrainingMonitor(None, batches, log=log)
        checkpoints = Checkpoints(tmp_path / "run", stateful=[monitor])
        checkpoints.restore(model)
        fit_resumably(model, batches, checkpoints, [Budget(updates), monitor, checkpoints])
    expected = []
    for epoch in range(3):
        first = 1 if epoch == 0 else 0  # The very first batch compiles.
        read = [batches.batch(epoch, index) for index in range(first, steps - 1)]
        ids = [side for inputs, labels in read for side in (inputs["encoder_token_ids"], labels)]
        padding = sum((part == 0).sum() for part in ids) / sum(part.size for part in ids)
        expected.append((epoch, pytest.approx(padding)))
    assert [(e["epoch"], e["padding"]) for e in log.read() if e["kind"] == "train"] == expected


def test_an_epoch_of_few_calls_of_the_compiled_step_has_its_entry(tmp_path):
    monitor = TrainingMonitor(None, every=9, log=MetricsLog(tmp_path / "log"))
    model = Model()
    model.steps_per_execution = 3
    monitor.set_model(model)
    monitor.set_params({"steps": 8})
    monitor.on_train_begin()
    for epoch in range(2):
        monitor.on_epoch_begin(epoch)
        for batch in (0, 3, 6):
            monitor.on_train_batch_begin(batch)
            monitor.model.train(1.0)
    assert [entry["update"] for entry in MetricsLog(tmp_path / "log").read()] == [2, 5]
