"""Training in several processes over loopback, on PyTorch and JAX: the same numbers as in one process."""

import dataclasses
import os

import keras
import numpy as np
import pytest

from tests.recipes.process_jobs import CONFIG, SIZES, in_parts, jobs_in_processes, reported, train
from tests.recipes.process_parts import parts_of
from tests.recipes.small_runs import small_corpus

pytestmark = pytest.mark.backends("jax", "torch")
# The whole list of what is promised, in some minutes; without it the part that costs little.
LONG = "KERAS_ATTENTION_LONG_PROCESSES" in os.environ
IS_TORCH = keras.backend.backend() == "torch"
torch_only = pytest.mark.skipif(not IS_TORCH, reason="XLA compiles another program")
long = pytest.mark.skipif(not LONG, reason="set KERAS_ATTENTION_LONG_PROCESSES=1")
DROPOUT = {"model_arguments": {**SIZES, "dropout": 0.2}}
ROWS = {"row_multiple": 5}  # which two processes cannot share


def job(changed=None, **more):
    return {"changed": changed or {}, **more}


# Options of a run that have something to do when the training is over, in as few runs as may be.
OPTIONS = {
    "guided": {
        "ema": 0.8,
        "best_by": "perplexity",
        "final_model": "best",
        "accumulation_steps": 3,
        "guided_alignment": "gold",
        "guided_alignment_weight": 2.0,
    },
    "mixed": {"mixture": ["clean:3", "web:1"], "best_by": "chrf", "accumulation_steps": 2},
}

JOBS = {
    "whole": job(),
    "slices": job({"accumulation_steps": 3}),
    "dropout": job(DROPOUT),
    "dropout_again": job(DROPOUT),
    # At the end of an epoch; the other one within, where the update that begins is made.
    "sigterm": job(stop={"process": 1, "update": 4, "signal": "SIGTERM"}),
    "ctrl_c": job(OPTIONS["mixed"], stop={"process": 0, "update": 4, "signal": "SIGINT"}),
    "mixed": job(OPTIONS["mixed"], run="ctrl_c", reports=True),
    "guided": job(OPTIONS["guided"], reports=True),
    "minutes": job({"steps": None, "minutes": 0.02}),
    "seed": job(own={"seed": 2}),
    "version": job(other_version=True),
    "text": job(other_text=True),
    "disk": job(elsewhere=True),
    "rows": job(run="five"),
    "continued": job({"steps": 4}),
}


if not IS_TORCH:
    # Each costs XLA's time twice. What all must agree on and what stops them is the same code, and so is what
    # is mixed; test_parallelism.py has slices.
    OPTIONS = {"guided": OPTIONS["guided"]}
    JOBS = {
        "ctrl_c": job(OPTIONS["guided"], stop={"process": 0, "update": 5, "signal": "SIGINT"}),
        "guided": job(OPTIONS["guided"], run="ctrl_c", reports=True),
        "seed": JOBS["seed"],
    }


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    return folder, in_parts(small_corpus(folder))


@pytest.fixture(scope="module")
def alone(corpus):
    """What one process shows, and its weights."""
    folder, text = corpus
    told = train(text, folder / "alone", {})
    return told, weights(folder / "alone")


@pytest.fixture(scope="module")
def pair(corpus):
    """What two processes say of all jobs."""
    folder, text = corpus
    if "rows" in JOBS:
        train(text, folder / "two" / "five", {"steps": 1, **ROWS})
    return folder / "two", jobs_in_processes(folder / "two", JOBS, 2)


@pytest.fixture
def one_thread():
    """As the processes have: with more, PyTorch adds in another order."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def weights(folder):
    with np.load(folder / "weights.npz") as arrays:
        return [arrays[name] for name in arrays.files]


def assert_as(alone, told, folder):
    """Losses and weights are those of one process."""
    expected, expected_weights = alone
    assert told["updates"] == expected["updates"] == CONFIG.steps
    assert len(expected["history"]) == len(told["history"]) > 1
    for name in ("loss", "val_perplexity", "val_bleu", "val_chrf"):
        rows = [entry for entry in expected["history"] if name in entry]
        shown = [entry[name] for entry in told["history"] if name in entry]
        assert rows and shown == pytest.approx([row[name] for row in rows], rel=1e-5), name
    for ours, theirs in zip(weights(folder), expected_weights, strict=True):
        # The smallest gradients are noise beside the largest of a tensor, and Adam scales them up.
        assert np.linalg.norm(ours - theirs) <= 1e-5 * np.linalg.norm(theirs)


def assert_same_bits(found, expected):
    for ours, theirs in zip(weights(found), weights(expected), strict=True):
        assert ours.tobytes() == theirs.tobytes()


@torch_only
@pytest.mark.parametrize("name", ["whole", "slices"])
def test_two_processes_show_what_one_does(name, alone, pair):
    folder, told = pair
    assert_as(alone, told[name][0], folder / name)
    assert "history" not in told[name][1]  # The chief alone reports.


@torch_only
@pytest.mark.parametrize("name, slices", [("whole", 1), ("slices", 3)])
def test_two_processes_compute_the_bits_of_their_parts(name, slices, corpus, pair, one_thread):
    folder, text = corpus
    with parts_of(2, slices):
        train(text, folder / f"parts{slices}", {})
    assert_same_bits(pair[0] / name, folder / f"parts{slices}")


@torch_only
def test_dropout_is_the_same_in_every_bit(pair):
    folder, told = pair
    first, again = told["dropout"][0]["history"], told["dropout_again"][0]["history"]
    assert [entry["loss"] for entry in first] == [entry["loss"] for entry in again]
    assert_same_bits(folder / "dropout", folder / "dropout_again")
    assert first[-1]["loss"] != told["whole"][0]["history"][-1]["loss"]


@pytest.mark.parametrize(
    "name, stopped, updates",
    [("ctrl_c", "SIGINT", 5), ("sigterm", "SIGTERM", 4)] if IS_TORCH else [("ctrl_c", "SIGINT", 6)],
)
def test_a_signal_to_one_stops_all_at_the_same_update(name, stopped, updates, pair):
    told = pair[1][name]
    assert [one["error"] for one in told] == [f"TrainingStopped: {stopped}"] * 2
    assert {one["updates"] for one in told} == {updates}


@pytest.mark.backends("torch")
def test_the_end_of_the_time_stops_all(pair):
    first, second = pair[1]["minutes"]
    assert "error" not in {**first, **second} and first["updates"] == second["updates"] > 0


@pytest.mark.parametrize(
    "name, message",
    [
        ("seed", "`seed` is 1 in process 0 and 2 in process 1"),
        ("version", f"`numpy` is '{np.__version__}' in process 0 and '1.2.3' in process 1"),
        (
            "text",
            "The train text differs: 60 pairs in process 0, 60 in process 1. Pair 1 is the first",
        ),
        ("disk", "this process does not see it. Choose an output folder that all machines share"),
        (
            "rows",
            "multiple of 5 sentences, which 2 device(s) with 1 part(s) each cannot share evenly. With "
            "row_multiple=5 it can continue on 1, 5 device(s) with 1 part(s).",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_by_all_and_told_by_one(name, message, pair):
    if name not in JOBS:
        pytest.skip("PyTorch has it: what all must agree on is the same code")
    folder, told = pair
    for one in told[name]:
        assert one["error"].startswith("ValueError: ") and message in one["error"]
        assert one["updates"] == 0
    assert sum(one["is_told_here"] for one in told[name]) == 1
    assert not list((folder / name).glob("checkpoints/*"))
    assert name == "rows" or not list(folder.glob(f"{name}*/"))  # Nothing at all is left.


@torch_only
def test_another_number_of_processes_goes_on(corpus, alone, pair):
    folder, text = corpus
    assert pair[1]["continued"][0]["updates"] == 4
    assert train(text, folder / "two" / "continued", {"steps": 7})["updates"] == 7
    if LONG:
        jobs = {"continued": job()}
        (told, *_) = jobs_in_processes(folder / "two", jobs, 3)["continued"]
    else:
        told = train(text, folder / "two" / "continued", {})
    assert_as(alone, told, folder / "two" / "continued")


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_ends_with_the_report_of_one_process(name, corpus, pair):
    """Also after a stop: the mixed run, and on JAX the guided one, has been stopped."""
    folder, text = corpus
    expected = reported(text, folder / name, OPTIONS[name])
    (told, other), found = pair[1][name], pair[0] / JOBS[name].get("run", name)
    assert other == {}  # The chief alone reports.
    assert told["systems"] == pytest.approx(expected["systems"]) and len(told["systems"]) > 2
    assert told["best"] == pytest.approx(expected["best"])
    assert told["error_rate"] == pytest.approx(expected["error_rate"])
    assert_as((expected, weights(folder / name)), told, found)


def alone_in_parts(folder, text, jobs, count):
    """What one process shows of these jobs that adds as so many processes do."""
    if not IS_TORCH:
        told = jobs_in_processes(folder, jobs, 1, devices=count, timeout=3000)
        return {name: told[name][0] for name in jobs}
    told = {}
    for name, one in jobs.items():
        with parts_of(count, one["changed"]["accumulation_steps"]):
            told[name] = train(text, folder / name, one["changed"])
    return told


@long
@pytest.mark.parametrize("count", [2, 4])
def test_two_hundred_updates_of_the_tiny_preset(count, corpus, request):
    """With slices too; the demo's rate, at which it learns; the plain text of 60 pairs serves."""
    folder, text = corpus
    if IS_TORCH:
        request.getfixturevalue("one_thread")
    changed = {"model_arguments": {"dropout": 0.0}, "steps": 200, "bleu_every": 100}
    changed |= {"learning_rate_factor": 1.0, "warmup_steps": 400}
    assert dataclasses.replace(CONFIG, **changed).preset == "tiny"
    jobs = {
        name: job({**changed, "accumulation_steps": slices}, in_order=IS_TORCH and count > 2)
        for name, slices in (("plain", 1), ("sliced", 3))
    }
    alone = folder / f"tiny{count}alone"
    expected = alone_in_parts(alone, text, jobs, count)
    told = jobs_in_processes(folder / f"tiny{count}", jobs, count, timeout=3000)
    for name in jobs:
        for number in ("loss", "val_perplexity"):
            wanted = [entry[number] for entry in expected[name]["history"]]
            shown = [entry[number] for entry in told[name][0]["history"]]
            largest = max(abs(a - b) / b for a, b in zip(shown, wanted, strict=True))
            print(count, name, number, "to", wanted[-1], "largest relative difference", largest)
            assert largest < 1e-5
        pairs = zip(weights(folder / f"tiny{count}" / name), weights(alone / name), strict=True)
        far = max(np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in pairs)
        print(count, name, "weights", far)
        assert far == 0
