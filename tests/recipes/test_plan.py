"""The data plan: its figures are those of iterating the batches, and of the model that is built."""

import collections
import dataclasses
import json
import time

import keras
import numpy as np
import pytest

from keras_attention.data.filters import Filters
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.recipes import plan as module
from keras_attention.recipes import probe_step as probe_step_module
from keras_attention.recipes.plan import plan_training
from keras_attention.recipes.prepare import Resolved
from keras_attention.recipes.probe_step import StepProbe, probe_step, worth_trying
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
    assert plan.epochs == pytest.approx(45 / len(batches))
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


def test_cost(planned, model):
    """Matrix products counted by hand, three passes; the parameters of the model that is built."""
    plan, _ = planned
    d, f, v = 16, 24, plan.vocabulary_size
    assert plan.parameters == model.count_params()
    flops, flops_of_shapes = 0, set()
    for shape in plan.shapes:
        rows, s, t = shape["shape"]
        encoder = 4 * s * d * d + 2 * s * s * d + 2 * s * d * f
        decoder = 4 * t * d * d + 2 * t * t * d + 2 * t * d * f
        decoder += 2 * t * d * d + 2 * s * d * d + 2 * t * s * d  # cross-attention
        flops_of_shapes.add(rows * 3 * 2 * (encoder + decoder + t * d * v))
        flops += shape["batches"] * rows * 3 * 2 * (encoder + decoder + t * d * v)
    assert plan.flops == flops
    assert plan.total_flops == pytest.approx(flops * 45 / plan.batches)
    assert plan.paper_cost is None  # the paper timed no such model
    rows = {shape["shape"][0] for shape in plan.shapes}
    assert plan.largest_part[0] * 8 in rows
    assert plan.part_flops * 8 in flops_of_shapes
    assert plan.memory.total > 4 * 4 * plan.parameters


def test_the_papers_cost_figure(corpus, planned, monkeypatch, tmp_path):
    config = dataclasses.replace(CONFIG, preset="big", steps=300_000)
    _, batches = planned
    monkeypatch.setattr(Resolved, "tokenizer", lambda *_: _Sized(37_000))
    monkeypatch.setattr(Resolved, "batches", lambda *_: (batches, batches))
    plan = plan_training(corpus, config, tmp_path, try_longest=False)
    assert plan.paper_cost == pytest.approx(2.28e19)  # section 6 of the facts: 300,000 times 1.0 s


def test_json_and_text(planned):
    plan, _ = planned
    figures = json.loads(json.dumps(plan.as_dict()))
    assert figures["batches"] == plan.batches
    assert figures["trial"] is None and figures["updates_in_time"] is None
    assert figures["memory"]["total"] == plan.memory.total
    assert figures["shapes"][0]["shape"] == list(plan.shapes[0]["shape"])
    text = str(plan)
    for words in (
        f"Batch shapes: {len(plan.shapes)}; {plan.padding:.1%} padding", "2 replica(s), in 4 step(s)",
        "Budget: 45 updates", "not tried",
        "known after the first of them. To know it now, try a step with --plan-try",
    ):  # fmt: skip
        assert words in text


def test_how_many_updates_the_minutes_give(planned):
    """An update is 300 FLOPs, 150 on a replica: three times the part that took half a second."""
    trial = StepProbe(first_seconds=9.0, seconds=0.5, peak_bytes=None, device="process")
    figures = {"flops": 1200, "batches": 4, "replicas": 2, "part_flops": 50}
    plan = dataclasses.replace(planned[0], steps=None, minutes=31.0, trial=trial, **figures)
    assert plan.updates_in_time == plan.as_dict()["updates_in_time"] == 31 * 60 / 1.5
    speed = "at 1.50 s an update (as a step that was tried)."
    assert f"Budget: 31 minutes of training, about 1,200 updates, 310.0 epochs, {speed}" in str(
        plan
    )
    assert plan.epochs is None and plan.total_flops is None
    few = dataclasses.replace(plan, advised=12_000)
    assert "This budget is 310.0 of the 3,000.0 epochs that the recipe advises" in str(few)
    assert "recipe advises" not in str(dataclasses.replace(plan, advised=1000))


def test_the_trial_says_what_it_does(corpus, tmp_path, monkeypatch, capsys):
    """Building the model, compiling it and two steps take more than ten seconds."""
    for name in ("SILENT_SECONDS", "TERMINAL_SECONDS", "PIPE_SECONDS"):
        monkeypatch.setattr(progress, name, 0.02)

    def slow(model, *part):
        time.sleep(1.0)
        return StepProbe(1.0, 1.0, None, "process")

    monkeypatch.setattr(module, "probe_step", slow)
    plan_training(corpus, SMALL, tmp_path, try_longest=True)
    assert "trying a step on the largest batch ... " in capsys.readouterr().err


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
    assert "s per step" in str(trial)


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


def test_worth_trying(planned, monkeypatch):
    memory = planned[0].memory
    for accelerator, flops, expected in (
        (True, 1e15, True),
        (False, 1e9, True),
        (False, 1e15, False),
    ):
        monkeypatch.setattr(probe_step_module, "has_accelerator", lambda found=accelerator: found)
        assert worth_trying(flops, memory) is expected
