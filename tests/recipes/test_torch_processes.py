"""A run of two processes on PyTorch, one of which is killed, gives the results of one process."""

import concurrent.futures
import dataclasses
import datetime
import json
import os
import random
import socket
import sys
import threading
import time

import keras
import numpy as np
import pytest

from keras_attention.callbacks import StopOnSignal, signals
from keras_attention.data import ParallelText
from keras_attention.recipes import train_translation
from keras_attention.training import agreement, processes
from keras_attention.training.agreement import check_agreement, check_same_texts, chief_says
from tests.helpers import python
from tests.recipes.process_jobs import SIZES, environment_of, started
from tests.recipes.small_runs import SMALL, small_corpus

pytestmark = pytest.mark.backends("torch")

# No dropout: each process would draw other masks.
CONFIG = dataclasses.replace(
    SMALL,
    model_arguments=SIZES,
    steps=13,
    beam_size=1,
    bleu_every=100,
    checkpoint_updates=4,
    row_multiple=4,
)
# Updates before which process 1 is killed, once each.
KILLED_AT = (7,)
LONG = "KERAS_ATTENTION_LONG_PROCESSES" in os.environ
KILLED_OFTEN = tuple(sorted(random.Random(27).sample(range(2, 40), 10)))
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
import keras
from keras_attention.callbacks.signals import StopTogether
from keras_attention.recipes import train_translation
from tests.recipes.process_jobs import corpus_in
from tests.recipes.test_torch_processes import CONFIG, dataclasses

folder, kills, steps = Path(sys.argv[1]), list(map(int, sys.argv[2].split(","))), int(sys.argv[3])
start = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
agree = StopTogether._agree

def agree_or_die(self):
    updates = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
    if os.environ["RANK"] == "1" and [updates] == kills[start : start + 1]:
        os.kill(os.getpid(), signal.SIGKILL)
    agree(self)

StopTogether._agree = agree_or_die
say = sys.excepthook
# Longer than torchrun waits before it sends SIGTERM to the processes that live.
sys.excepthook = lambda *error: (time.sleep(2), say(*error))
config = dataclasses.replace(CONFIG, steps=steps, strategy="data_parallel", accumulation_steps=2)
report = train_translation(corpus_in(folder), config, folder / sys.argv[4])
print("process", os.environ["RANK"], "reports", bool(report))
"""


def final_weights(folder):
    model = keras.saving.load_model(folder / "model.keras", compile=False)
    return model.get_weights()


def in_two_processes(folder, kills, steps, name):
    """A training of two processes, of which one is killed before these updates; it ends well."""
    starter = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    starter.append(f"--max-restarts={len(kills)}")
    program = [folder / "program.py", folder, ",".join(map(str, kills)), steps, name]
    one_thread = {"OMP_NUM_THREADS": "1"}
    return python("-m", *starter, *program, environment=one_thread, timeout=300 * len(kills))


@pytest.mark.parametrize(
    "kills, steps",
    [
        (KILLED_AT, 13),
        pytest.param(
            KILLED_OFTEN,
            41,
            marks=pytest.mark.skipif(not LONG, reason="set KERAS_ATTENTION_LONG_PROCESSES=1"),
        ),
    ],
    ids=["once", "ten_times"],
)
def test_two_processes_are_as_one_also_when_one_is_killed(kills, steps, tmp_path):
    corpus = small_corpus(tmp_path)
    one = train_translation(corpus, dataclasses.replace(CONFIG, steps=steps), tmp_path / "one")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = in_two_processes(tmp_path, kills, steps, "shared")
    lines = done.stdout.splitlines()
    assert {"process 0 reports True", "process 1 reports False"} <= {*lines}
    assert sum("BLEU" in line for line in lines) > 0
    assert done.stderr.count("Process 0 of 2 lost process 1: it died") >= len(kills)
    assert done.stderr.count("Continuing in epoch") == sum(update >= 4 for update in kills)
    shared = json.loads((tmp_path / "shared" / "report.json").read_text())
    histories = one["training"]["history"], shared["training"]["history"]
    assert [row["updates"] for row in histories[0]] == [row["updates"] for row in histories[1]]
    assert histories[0][-1]["updates"] == steps > max(kills)
    for name in ("loss", "val_perplexity"):
        expected = [row[name] for row in histories[0]]
        assert [row[name] for row in histories[1]] == pytest.approx(expected, rel=1e-5), name
    weights = final_weights(tmp_path / "shared")
    if steps > 13:  # Rounding has grown by then: what kills do shows beside two that live.
        in_two_processes(tmp_path, (steps + 1,), steps, "undisturbed")
        for ours, theirs in zip(weights, final_weights(tmp_path / "undisturbed"), strict=True):
            assert ours.tobytes() == theirs.tobytes()
        return
    for ours, theirs in zip(weights, final_weights(tmp_path / "one"), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("late", range(3))
def test_entries_of_an_earlier_start_in_the_store_are_ignored(late):
    from torch.distributed import HashStore

    store, size, timeout = HashStore(), 3, datetime.timedelta(seconds=20)
    for start in range(2):  # again in the same store, with one process later than the others
        with concurrent.futures.ThreadPoolExecutor(size) as threads:
            found = []
            for rank in sorted(range(size), key=lambda rank: rank == late):
                if start and rank == late:
                    time.sleep(0.2)
                    assert not any(future.done() for future in found if late == 0)
                arguments = store, rank, size, timeout
                found.append(threads.submit(processes._store_of_this_start, *arguments))
            found = [future.result() for future in found]
        found[0].set("start", str(start))
        assert {own.get("start") for own in found} == {str(start).encode()}
    assert not store.check(["start"])


def test_a_missing_process_is_named():
    from torch.distributed import HashStore

    soon = datetime.timedelta(seconds=0.3)
    store = HashStore()
    store.set_timeout(soon)
    with pytest.raises(RuntimeError, match="process 1 did not come"):
        processes._store_of_this_start(store, 0, 2, soon)
    with pytest.raises(RuntimeError, match="process 0 did not answer"):
        processes._store_of_this_start(store, 1, 2, soon)


def test_processes_that_disagree_are_told_what_differs(monkeypatch):
    facts = {"seed": 3, "steps": 5}
    others = [facts, facts, {**facts, "seed": 4}]
    monkeypatch.setattr(agreement, "values_of_all", lambda value: others)
    with pytest.raises(ValueError, match="`seed` is 3 in process 0 and 4 in process 2"):
        check_agreement(facts)
    monkeypatch.setattr(agreement, "values_of_all", lambda value: others[:2])
    check_agreement(facts)
    monkeypatch.setattr(agreement, "_gathered", lambda value: [7.5, value])
    assert chief_says(2.5) == 7.5


def in_turn(count, function):
    """What `function(process, values_of_all)` raises in each of so many processes, here threads."""
    barrier, given = threading.Barrier(count), [None] * count

    def call(process):
        def values_of_all(value):
            given[process] = json.loads(json.dumps(value))
            barrier.wait(20)
            values = [*given]
            barrier.wait(20)
            return values

        try:
            function(process, values_of_all)
        except ValueError as error:
            return str(error)

    with concurrent.futures.ThreadPoolExecutor(count) as threads:
        return [*threads.map(call, range(count))]


@pytest.mark.parametrize(
    "change, told",
    [
        (lambda pairs: pairs, None),
        (lambda pairs: [*pairs[:137], ("x", "137"), *pairs[138:]], "200 in process 2. Pair 138 is"),
        (lambda pairs: [("x", "y"), *pairs[1:-1], ("x", "y")], "200 in process 2. Pair 1 is"),
        (lambda pairs: [*pairs, ("x", "y")], "201 in process 2. Pair 201 is"),
        (lambda pairs: pairs[:-3], "197 in process 2. Pair 198 is"),
        (lambda pairs: [*pairs[:150], *pairs[151:], pairs[150]], "200 in process 2. Pair 151 is"),
        (lambda pairs: [(a + b[0], b[1:]) for a, b in pairs], "200 in process 2. Pair 1 is"),
        (None, "0 in process 2. Pair 1 is"),  # which has no such text
    ],
)
def test_the_first_pair_that_differs_is_named_and_no_text_is_sent(monkeypatch, change, told):
    pairs = [(f"source {number}", f"target {number}") for number in range(200)]
    local, sent = threading.local(), []

    def values_of_all(value):
        sent.append(json.dumps(value))
        return local.values_of_all(value)

    monkeypatch.setattr(agreement, "values_of_all", values_of_all)

    def check(process, values_of_all):
        local.values_of_all = values_of_all
        texts = {"train": ParallelText("a", pairs), "test": ParallelText("b", pairs)}
        if process == 2 and change is None:
            del texts["test"]
        elif process == 2:
            texts["train"] = ParallelText("a", change(pairs))
        check_same_texts(texts)

    errors = in_turn(3, check)
    name = "test" if change is None else "train"
    wanted = told and f"The {name} text differs: 200 pairs in process 0, {told} the first"
    assert all(error == told if told is None else error.startswith(wanted) for error in errors)
    assert not any("source" in text or "target" in text for text in sent)
    assert max(map(len, sent)) < 20 * (2 * 200**0.5 + 2)


SILENT = """
from keras_attention.training import processes
with processes.joined():
    pass
"""


def test_a_listener_that_never_answers_ends_all_within_the_timeout():
    """PyTorch's client waits for its answer without any limit."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        told = {"MASTER_PORT": str(port), "KERAS_ATTENTION_TIMEOUT_MINUTES": "0.05"}
        outputs = started(
            lambda index: [sys.executable, "-c", SILENT],
            2,
            environment=lambda index, count, _: {**environment_of(index, count, port), **told},
            timeout=200,
        )
    for index, (code, text) in enumerate(outputs):
        message = f"Process {index} of 2 did not find the others at 127.0.0.1:{port} ("
        assert code == 1 and message in text and "and is its port free?" in text
    assert "no answer in 3 seconds" in outputs[1][1]


@pytest.mark.parametrize("stop, number", [(0, 0), (1, 0), (0, 15)])
def test_what_one_process_is_told_stops_all(monkeypatch, stop, number):
    """The other process says `stop` or got a signal; this one did not."""

    def with_another(values):
        return [max(own, other) for own, other in zip(values, (stop, number), strict=True)]

    monkeypatch.setattr(signals, "largest_of_all", with_another)
    own = StopOnSignal(at_once=False)
    together = signals.StopTogether(own)
    together.set_model(keras.Sequential([keras.layers.Dense(1)]))
    together.model.stop_training = False
    together.on_train_batch_begin(0)
    assert together.model.stop_training == bool(stop or number)
    assert own.stop.signal_name == ("SIGTERM" if number else None)
