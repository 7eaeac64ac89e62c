"""The data plan: its figures are those of iterating the batches, and of the model that is built."""

import collections
import dataclasses
import json
import time

import keras
import numpy as np
import pytest

from keras_attention import Tokenizer
from keras_attention.data import Filters
from keras_attention.recipes import plan as module
from keras_attention.recipes import plan_training
from keras_attention.recipes.plan import StepProbe, probe_step, worth_trying
from keras_attention.recipes.prepare import Resolved
from keras_attention.utils import progress
from tests.recipes.small_runs import SMALL, small_corpus

pytestmark = pytest.mark.backends("torch")

CONFIG = dataclasses.replace(
    SMALL, batch_tokens=900, max_shapes=4, strategy="mirrored", replicas=2, accumulation_steps=4
)


@dataclasses.dataclass
class _Sized:
    vocabulary_size: int
    target_vocabulary_size: int = 30


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return small_corpus(tmp_path_factory.mktemp("corpus")).filtered(Filters(max_words=10))


@pytest.fixture(scope="module")
def planned(corpus, tmp_path_factory):
    """A plan for two replicas and four accumulation steps, and the batches it is about."""
    folder = tmp_path_factory.mktemp("plan")
    plan = plan_training(corpus, CONFIG, folder, try_longest=False)
    tokenizer = Tokenizer.load(folder / "tokenizer")
    return plan, Resolved.of(CONFIG).batches(corpus, tokenizer, folder / "store")[0]


@pytest.fixture(scope="module")
def model(planned):
    return Resolved(SMALL).model(planned[0].vocabulary_size)


def test_its_numbers_are_those_of_iterating(planned, corpus):
    plan, batches = planned
    counted = collections.Counter()
    shapes = collections.defaultdict(collections.Counter)
    for index in range(len(batches)):
        inputs, labels = batches[index]
        source = inputs["encoder_token_ids"]
        assert len(source) % 8 == 0
        numbers = {
            "batches": 1,
            "pairs": int(source.any(axis=1).sum()),
            "source_tokens": np.count_nonzero(source),
            "target_tokens": np.count_nonzero(labels),
            "positions": source.size + labels.size,
        }
        counted.update(numbers)
        shapes[(*source.shape, labels.shape[1])].update(numbers)
    assert plan.pairs == counted["pairs"] == len(corpus.train)
    assert plan.batches == counted["batches"] == len(batches)
    for name in ("source_tokens", "target_tokens"):
        assert getattr(plan, name) == counted[name]
    tokens = counted["source_tokens"], counted["target_tokens"]
    assert plan.padding == pytest.approx(1 - sum(tokens) / counted["positions"])
    assert plan.tokens_per_update == pytest.approx([side / len(batches) for side in tokens])
    assert plan.tokens_per_replica == pytest.approx([side / len(batches) / 2 for side in tokens])
    assert len(plan.shapes) == len(shapes) > 1
    for shape in plan.shapes:
        expected = shapes[shape["shape"]]
        for name in ("batches", "pairs", "source_tokens", "target_tokens"):
            assert shape[name] == expected[name]
        tokens = expected["source_tokens"] + expected["target_tokens"]
        assert shape["padding"] == pytest.approx(1 - tokens / expected["positions"])


def test_filters_and_dropped_pairs(planned, corpus):
    plan, _ = planned
    words = [max(len(side.split()) for side in pair) for pair in corpus.train.unfiltered]
    long = sum(number > 10 for number in words)
    assert plan.filters["over_long"] == long > 0
    assert plan.pairs == 60 - long and plan.dropped_empty == plan.dropped_long == 0
    assert "60 pairs read" in str(plan) and f"{long} over-long" in str(plan)


def test_the_largest_batch_and_the_parameters(planned, model):
    """Of all batches, it has the most matrix products, counted by hand; a replica computes half of it."""
    plan, _ = planned
    d, f, v = 16, 24, plan.vocabulary_size
    assert plan.parameters == model.count_params()

    def products(shape):
        rows, s, t = shape
        encoder = 4 * s * d * d + 2 * s * s * d + 2 * s * d * f
        decoder = 4 * t * d * d + 2 * t * t * d + 2 * t * d * f
        decoder += 2 * t * d * d + 2 * s * d * d + 2 * t * s * d  # cross-attention
        return rows * (encoder + decoder + t * d * v)

    rows, *lengths = max((shape["shape"] for shape in plan.shapes), key=products)
    assert plan.largest == (rows // 2, *lengths)


def test_json_and_text(planned):
    plan, _ = planned
    figures = json.loads(json.dumps(plan.as_dict()))
    assert figures["batches"] == plan.batches
    assert figures["trial"] is None and figures["updates_in_time"] is None
    assert figures["forecast"]["steps"] == 45
    assert figures["shapes"][0]["shape"] == list(plan.shapes[0]["shape"])
    text = str(plan)
    for words in (
        f"Batch shapes: {len(plan.shapes)}; {plan.padding:.1%} padding", "2 replica(s), in 4 step(s)",
        "Budget: 45 updates", "nothing was tried; --plan-try measures",
        "known after the first of them",
    ):  # fmt: skip
        assert words in text


def test_an_update_takes_as_the_tried_one_by_its_share_of_the_work(corpus, tmp_path, monkeypatch):
    """The largest batch on a replica, which cuts it into the parts; the budget is told at that speed."""
    tried = []

    def half_a_second(model, *part):
        tried.append((model.accumulation_steps, part))
        return StepProbe(first_seconds=9.0, seconds=0.5, peak_bytes=None, device="process")

    monkeypatch.setattr(module, "probe_step", half_a_second)
    monkeypatch.setattr(module, "training_flops", lambda _, shapes: np.prod(shapes[0]))
    config = dataclasses.replace(CONFIG, steps=None, minutes=31.0)
    plan = plan_training(corpus, config, tmp_path, try_longest=True)
    sizes = {shape["shape"]: np.prod(shape["shape"]) for shape in plan.shapes}
    largest = max(sizes, key=sizes.get)
    assert tried == [(4, (largest[0] // 2, *largest[1:]))]
    work = sum(shape["batches"] * sizes[shape["shape"]] for shape in plan.shapes)
    seconds = 0.5 * work / plan.batches / sizes[largest]
    assert 0 < seconds < 0.5
    assert plan.forecast.seconds == pytest.approx(seconds)
    assert plan.as_dict()["updates_in_time"] == pytest.approx(31 * 60 / seconds)
    assert "s an update (as an update that was tried)." in str(plan)


@pytest.mark.parametrize("steps", [1, 4])
def test_an_update_in_parts_is_tried(corpus, tmp_path, steps):
    config = dataclasses.replace(SMALL, batch_tokens=900, accumulation_steps=steps)
    plan = plan_training(corpus, config, tmp_path, try_longest=True)
    assert plan.largest in [shape["shape"] for shape in plan.shapes]
    assert plan.trial is not None and plan.forecast.seconds > 0


def test_the_trial_says_what_it_does(corpus, tmp_path, monkeypatch, capsys):
    """Building the model, compiling it and two steps take more than ten seconds."""
    for name in ("SILENT_SECONDS", "TERMINAL_SECONDS", "PIPE_SECONDS"):
        monkeypatch.setattr(progress, name, 0.02)

    def slow(model, *part):
        time.sleep(0.2)
        return StepProbe(1.0, 1.0, None, "process")

    monkeypatch.setattr(module, "probe_step", slow)
    plan_training(corpus, SMALL, tmp_path, try_longest=True)
    assert "trying an update on the largest batch ... " in capsys.readouterr().err


def test_the_longest_batch_is_trained_once(model):
    before = [
        np.array(value) for value in map(keras.ops.convert_to_numpy, model.trainable_variables)
    ]
    trial = probe_step(model, 3, 7, 5)
    assert int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == 2
    moved = [
        np.abs(keras.ops.convert_to_numpy(after) - value).max()
        for after, value in zip(model.trainable_variables, before, strict=True)
    ]
    assert max(moved) > 0
    assert 0 < trial.seconds and 0 < trial.first_seconds
    assert trial.peak_bytes is None or trial.peak_bytes > 10e6
    assert "s per update" in str(trial)


def test_where_the_second_update_compiles_the_third_is_timed(monkeypatch):
    clock = iter([0.0, 3.0, 3.0, 43.0, 43.0, 43.5])
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(clock))
    model = _Sized(40)
    model.slow_batches, model.train_on_batch = 2, lambda inputs, labels: None
    trial = probe_step(model, 3, 7, 5)
    assert (trial.first_seconds, trial.seconds) == (43.0, 0.5)


class _Failing(_Sized):
    error = RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")

    def train_on_batch(self, inputs, labels):
        assert inputs["encoder_token_ids"].shape == (3, 7) and labels.shape == (3, 5)
        raise self.error


def test_no_memory_left():
    model = _Failing(40)
    with pytest.raises(MemoryError, match=r"\(3, 7, 5\) ran out of memory. Lower --batch-tokens"):
        probe_step(model, 3, 7, 5)
    model.error = ZeroDivisionError("another")
    with pytest.raises(ZeroDivisionError):
        probe_step(model, 3, 7, 5)


@pytest.mark.parametrize(
    "accelerator, flops, expected", [(True, 1e15, True), (False, 1e9, True), (False, 1e15, False)]
)
def test_worth_trying(monkeypatch, accelerator, flops, expected):
    monkeypatch.setattr(module, "has_accelerator", lambda: accelerator)
    assert worth_trying(flops) is expected
