"""What a run says at its end: why it learned nothing, and commands that can be typed as they stand."""

import dataclasses
import shlex
import shutil
import sys
import types
from pathlib import Path

import keras
import pytest

from keras_attention import TranslationConfig
from keras_attention.data import corpus_from_files
from keras_attention.recipes import messages
from keras_attention.recipes.results import _examples
from keras_attention.utils.run_folder import RunFolder

pytestmark = pytest.mark.backends("tensorflow")


def report(bleu, updates=300, warmup_steps=60, perplexities=(50.0, 20.0, 19.0), **budget):
    history = [{"epoch": i + 1, "val_perplexity": value} for i, value in enumerate(perplexities)]
    test = {"bleu": bleu, "chrf": 17.0, "sentences": 7, "split": "test"}
    return {
        "synthetic": False,
        "validation_perplexity": 19.0,
        "last_validation_perplexity": 19.5,
        "test": {
            **test,
            "examples": [{"source": "It's late.", "translation": "Es", "reference": "Es"}],
        },
        "training": {
            "updates": updates,
            "minutes": 2,
            "training_minutes": 1.5,
            "averaged_checkpoints": 3,
            "history": history,
            "patience_is_over": "patience" in budget,
        },
        "config": {
            "warmup_steps": warmup_steps,
            "steps": 300,
            "minutes": None,
            **dict.fromkeys(("patience", "cooldown", "best_by", "ema")),
            **budget,
        },
        "batches": {"batches": 11},
    }


def test_it_says_why_nothing_was_learned():
    assert messages.why_nothing_was_learned(report(30.0)) == ""
    warming = messages.why_nothing_was_learned(report(0.0, updates=21))
    assert "warm-up of the learning rate (60 updates) is not over" in warming
    by_heart = messages.why_nothing_was_learned(report(1.6, perplexities=(90.0, 30.0, 33.0, 39.4)))
    assert (
        "after epoch 2" in by_heart and "from 30.0 to 39.4" in by_heart and "More text" in by_heart
    )
    assert "line by line." in messages.why_nothing_was_learned(report(0.5))


def test_the_next_commands_can_be_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = messages.results_text(RunFolder("runs/first one"), report(30.0)).splitlines()[-3:]
    words = [shlex.split(line.split(" | ")[-1]) for line in lines]
    assert words[0][-2:] == ["translate", "runs/first one"]
    assert words[1][-4:-2] == ["runs/first one", "It's late."]
    assert words[2][-2:] == ["--logdir", "runs/first one"]
    for program, *_ in words:
        found = shutil.which(program)
        assert found is not None and Path(found).parent == Path(sys.executable).parent
    # The page of a run that has one, as a browser takes it.
    (page := tmp_path / "runs/first one/attention.html").parent.mkdir(parents=True)
    page.touch()
    shown = messages.results_text(RunFolder("runs/first one"), report(30.0)).splitlines()[-1]
    assert shown == f"Where its heads look: {page.as_uri()}" and "first%20one" in shown
    # Without the script: the module, by the same Python.
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    lines = messages.results_text(RunFolder("mine"), report(30.0)).splitlines()[-3:]
    assert lines[1].startswith("  bin/python -m keras_attention_light attention mine ")
    assert lines[2] == "  bin/python -m tensorboard.main --logdir mine"


def test_the_examples_are_of_ordinary_length_and_from_all_of_the_set():
    words = [190, 3, 40, 1, 43, 2, 180, 38, 41, 170, 5, 39, 4, 44, 200]
    sources = [f"{i:02}" + "x" * (n - 2) if n > 2 else "y" * n for i, n in enumerate(words)]
    shown = _examples(sources, [s.upper() for s in sources], [s[::-1] for s in sources])
    # The median is 40; from each three in turn the nearest to it.
    assert [len(one["source"]) for one in shown] == [40, 43, 41, 39, 44]
    assert all(
        (one["translation"], one["reference"]) == (one["source"].upper(), one["source"][::-1])
        for one in shown
    )
    assert [one["source"] for one in _examples(["a", "b", "a"], "xyx", "uvu")] == ["a", "b"]
    assert len(_examples([f"{i}" for i in range(9)], "a" * 9, "b" * 9)) == 5


def test_own_text_says_what_was_held_out(tmp_path):
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("".join(f"{name} {i}\n" for i in range(60)))
    files = tmp_path / "a.en", tmp_path / "a.de"
    said = messages.corpus_text(corpus_from_files(files, name="a")).splitlines()
    assert said[0] == "Corpus a: your own text; validation and test held out of it"


def test_a_finished_run_says_how_it_goes_on(tmp_path):
    folder = RunFolder(tmp_path / "run")

    def said(updates, can_go_on=True, **budget):
        budget = {"steps": None, "minutes": None, **budget}
        return messages.finished_text(folder, report(30.0, updates=updates, **budget), can_go_on)

    more = "To continue it, run the same command with a higher --steps (it had 300)."
    assert f"after 300 updates; its report is {folder.report_text}. {more}" in said(300, steps=300)
    assert more in messages.results_text(folder, report(30.0))
    cooled = said(300, steps=300, cooldown=0.2)
    assert f"{more} It goes on from where the learning rate began to fall." in cooled
    both = said(300, steps=1300, minutes=1.5, patience=2)  # the minutes were over
    assert "a higher --steps (it had 1,300) or --minutes (it had 1.5)" in both
    for can_go_on in (True, False):
        early = said(300, can_go_on, steps=1300, patience=2)
        assert "the same command with a higher --patience." in early
    new = said(300, can_go_on=False, steps=300)
    assert "it cannot continue" in new and "another --output-dir, with a higher --steps" in new
    assert "--cooldown 0.2, which can continue" in new
    assert "it cannot continue" in messages.results_text(folder, report(30.0), can_go_on=False)


def test_it_says_when_the_average_is_worse_than_the_last_checkpoint(tmp_path):
    folder, helped = RunFolder(tmp_path / "run"), report(30.0)
    assert "Averaging did not help" not in messages.results_text(folder, helped)
    hurt = {**helped, "last_validation_perplexity": 17.25}
    assert "a validation perplexity of 17.250. In a run" in messages.results_text(folder, hurt)
    shared = {**hurt, "config": {**hurt["config"], "start_share": 0.3}}  # that has no part in it
    said = messages.results_text(folder, shared)
    assert "Averaging" not in said and "3 checkpoints, with 30% of the pretrained weights\n" in said


class Counted:
    """Four batches an epoch, of two shapes; a model of 2.5 million parameters."""

    max_length, dropout = 70, 0.25

    def __init__(self, dropped_empty=0):
        self.store = types.SimpleNamespace(metadata={"dropped_empty": dropped_empty})

    def __len__(self):
        return 4

    slow_batches = 1

    def count_params(self):
        return 2_500_000

    def shape_statistics(self):
        return [{"shape": (8, 3, 5), "batches": 3}, {"shape": (8, 7, 9), "batches": 1}]

    def statistics(self):
        return {
            "pairs": 1234, "dropped_long": 0, "batches": 4, "shapes": [1, 2], "padding": 0.25,
            "source_tokens_per_batch": 1000.4, "target_tokens_per_batch": 1100.0,
        }  # fmt: skip


def test_the_model_says_what_it_is_trained_on(monkeypatch):
    pairs = "Model tiny, float32: 2.5 M parameters, trained on 1,234 pairs an epoch."
    first = "The first batch of each of the 2 shapes"
    arguments = Counted(), TranslationConfig(steps=1, preset="tiny"), Counted()
    wanted = f"{pairs} {first} compiles first, which does not count as training."
    assert messages.model_text(*arguments) == wanted
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")  # It compiles nothing.
    assert messages.model_text(*arguments) == f"{pairs} {first} does not count as training."
    monkeypatch.setattr(Counted, "slow_batches", 2)  # But with `jit_compile=True`.
    two = first.replace("first batch", "first two batches")
    assert messages.model_text(*arguments) == f"{pairs} {two} do not count as training."


def test_a_gpu_may_be_used_better(monkeypatch):
    config = TranslationConfig(steps=1)
    assert messages.device_text(1, "gpu", config) == "Device: 1 GPU."
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    assert "With --jit-compile updates take less" in messages.device_text(1, "gpu", config)
    compiled = dataclasses.replace(config, jit_compile=True)
    assert messages.device_text(2, "gpu", compiled) == "Device: 2 GPU."
    assert messages.device_text(1, "cpu", config) == "Device: 1 CPU."


def test_a_pretrained_model_says_how_it_is_trained():
    config = TranslationConfig(steps=1, start_from="a/b", freeze="encoder", label_smoothing=0.05)
    name = "of 'a/b', encoder frozen, dropout 0.25, label smoothing 0.05, float32"
    assert messages.model_text(Counted(), config, Counted()).startswith(
        f"Model {name}: 2.5 M parameters"
    )
    adapted = dataclasses.replace(config, freeze=None, lora=4)
    assert "'a/b', all frozen but LoRA of rank 4, dro" in messages.model_text(
        Counted(), adapted, Counted()
    )


@pytest.mark.parametrize(
    "first, last, best, said",
    [
        (None, 19.0, None, None),
        (20.0, 19.0, None, None),
        (17.0, 19.0, None, "harmed this model: the validation perplexity was 17.000 before the first "
         "update and is 19.000 now. With --best-by perplexity --final-model best"),
        (17.0, 19.0, ("perplexity", 7, 16.5, True), None),
        (17.0, 19.0, ("perplexity", 7, 16.5, False), "harmed this model"),
        (17.0, 19.0, ("perplexity", 0, 17.0, True), "no checkpoint has a better validation perplexity than "
         "the pretrained model (17.000), so this is the result, unchanged. The perplexity was 17.000 before "
         "the first update and 19.000 after the last one."),
        (20.0, 19.0, ("bleu", 0, 31.5, True), "a better validation BLEU than the pretrained model (31.500)"),
    ],
)  # fmt: skip
def test_it_says_whether_training_harmed_the_pretrained_model(tmp_path, first, last, best, said):
    found = {**report(30.0), "validation_perplexity": last, "last_validation_perplexity": last}
    if first is not None:
        found["first_validation_perplexity"] = first
    if best is not None:
        by, updates, value, is_final = best
        one = {"by": by, "name": f"update-{updates:08d}", "value": value, "is_final": is_final}
        found["training"] = {**found["training"], "best_checkpoint": one}
    text = messages.results_text(RunFolder(tmp_path), found)
    assert said in text if said else "Training has" not in text
    is_start = best is not None and best[1] == 0
    assert ("the pretrained model, unchanged\n" in text) == is_start


def test_the_batches_say_what_they_leave_out():
    assert messages.batches_text(Counted()) == (
        "Batches: 4 an epoch, on average 1,000 source and 1,100 target tokens, 25.0% padding, "
        "2 shapes; left out: no pair"
    )
    said = messages.batches_text(Counted(1500))
    assert said.endswith("left out: 1,500 pairs without tokens, 0 with over 70 on a side")


def test_the_first_line_says_how_long_it_took_and_what_the_result_is(tmp_path):
    folder, found = RunFolder(tmp_path / "run"), report(30.0)
    first = messages.results_text(folder, found).splitlines()[0]
    assert first.endswith(
        "300 updates in 1.5 minutes of training (2.0 with first batches and validation), the average of 3 "
        "checkpoints"
    )
    found["training"]["averaged_checkpoints"] = 1
    assert messages.results_text(folder, found).splitlines()[0].endswith(", the last checkpoint")
