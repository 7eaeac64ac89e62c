"""Callbacks of the user's own in a run: called as Keras calls them, and no part of what the run is."""

import contextlib
import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_attention.callbacks import RunCallback
from keras_attention.callbacks.metrics_log import WALL_CLOCK_FIELDS
from keras_attention.recipes import TranslationConfig, order, train_translation
from keras_attention.recipes.run import Run
from tests.recipes.small_runs import training_alone
from tests.recipes.test_resumed_runs import TINY as TINIEST
from tests.recipes.test_resumed_runs import same_state

pytestmark = pytest.mark.backends("torch")

TINY = dataclasses.replace(TINIEST, steps=11, bleu_every=1, attention_log=False)
HOOKS = "train_begin epoch_begin train_batch_begin train_batch_end epoch_end train_end".split()


class Recorder(keras.callbacks.Callback):
    """Writes down each call, and may end the training in one of them."""

    def __init__(self, ends_at=None):
        super().__init__()
        self.calls, self.logs = [], {}
        for hook in HOOKS:
            setattr(self, f"on_{hook}", self._recording(hook, ends_at))

    def _recording(self, hook, ends_at):
        def call(*arguments, logs=None):
            place = arguments[0] if arguments and not isinstance(arguments[0], dict) else None
            logs = logs if len(arguments) < 2 else arguments[1]
            self.calls.append((hook, place))
            if hook == "epoch_end":
                self.logs[place] = dict(logs)
                logs["nonsense"], logs["a word"] = 7.5, "x"
            if (hook, place) == ends_at:
                self.model.stop_training = True

        return call


class Counter(RunCallback):
    """Counts updates over all starts."""

    count = 0

    def before_update(self, batch):
        self.count += 1

    def get_state(self):
        return {"count": self.count}

    def set_state(self, state):
        self.count = state["count"]


@pytest.fixture(scope="module")
def plain(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "plain"
    return folder, train_translation(corpus, TINY, folder)


def logged(folder):
    lines = [
        json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    ]
    return [{k: v for k, v in line.items() if k not in WALL_CLOCK_FIELDS} for line in lines]


def test_they_are_called_as_fit_calls_them_and_change_nothing(corpus, plain, tmp_path):
    """The oracle: the calls of Keras' own `fit` for as many batches in an epoch, ended at the same place."""
    folder = tmp_path / "run"
    batches = Run(corpus, TINY, plain[0]).batches
    last_epoch, last = divmod(TINY.steps - 1, len(batches))
    assert last_epoch > 0
    mine, keras_own = Recorder(), Recorder(ends_at=None)
    report = train_translation(corpus, TINY, folder, callbacks=[mine])

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    ends = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: setattr(
            model,
            "stop_training",
            len([c for c in keras_own.calls if c[0] == "train_batch_begin"]) == TINY.steps,
        )
    )
    data = np.ones((len(batches), 1))
    model.fit(data, data, batch_size=1, epochs=99, verbose=0, callbacks=[keras_own, ends])
    assert mine.calls == keras_own.calls
    assert {"loss", "val_perplexity", "val_bleu", "val_chrf"} <= mine.logs[0].keys()

    assert same_state(folder, plain[0], TINY.steps)
    assert logged(folder) == logged(plain[0])
    assert report["test"]["bleu"] == plain[1]["test"]["bleu"]
    for own, other in zip(
        report["training"]["history"], plain[1]["training"]["history"], strict=True
    ):
        assert own["nonsense"] == 7.5 and "a word" not in own
        assert own["loss"] == other["loss"]
    assert translations(folder) == translations(plain[0])


def translations(folder):
    return (folder / "translations.txt").read_text("utf-8")


@pytest.mark.parametrize(
    "ends_at, updates", [(("train_batch_end", 2), 3), (("epoch_end", 0), None)]
)
def test_one_that_ends_the_training_ends_the_run(
    corpus, plain, tmp_path, monkeypatch, ends_at, updates, capsys
):
    folder = tmp_path / "run"
    updates = updates or len(Run(corpus, TINY, plain[0]).batches)
    config = dataclasses.replace(TINY, patience=9)
    with monkeypatch.context() as patch, contextlib.suppress(InterruptedError):
        patch.setattr(order, "average", killed)
        train_translation(corpus, config, folder, callbacks=[Recorder(ends_at)])
    assert not (folder / "report.json").exists()
    # Killed before its report: no update follows. A higher budget goes on.
    other = Recorder()
    report = train_translation(corpus, config, folder, callbacks=[other])
    assert report["training"]["updates"] == updates < TINY.steps and other.calls == []
    said = "".join(capsys.readouterr())
    assert "a higher --steps (it had 11)" in said and "did not improve" not in said
    config = dataclasses.replace(config, steps=TINY.steps + 1)
    with training_alone():
        longer = train_translation(corpus, config, folder)
    assert longer["training"]["updates"] == TINY.steps + 1


def killed(run):
    raise InterruptedError


def test_one_that_ends_it_with_the_last_batch_of_a_resumed_epoch_is_heard(corpus, plain, tmp_path):
    last = len(Run(corpus, TINY, plain[0]).batches) - 1
    with training_alone():
        for steps, batch in ((TINY.steps, 2), (TINY.steps + 1, last)):
            config = dataclasses.replace(TINY, steps=steps, bleu_every=99)
            ends = Recorder(("train_batch_end", batch))
            report = train_translation(corpus, config, tmp_path / "run", callbacks=[ends])
    assert report["training"]["updates"] == last + 1 < TINY.steps


def test_the_state_of_a_run_callback_is_in_the_checkpoints(corpus, tmp_path):
    first, second = Counter(), Counter()
    with training_alone():
        for steps, callbacks in ((4, [first]), (7, [Recorder(), second]), (8, None)):
            config = dataclasses.replace(TINY, steps=steps, bleu_every=99)
            train_translation(corpus, config, tmp_path / "run", callbacks=callbacks)
    assert (first.count, second.count) == (4, 7)


@pytest.mark.parametrize(
    "callbacks, message",
    [
        ([keras.callbacks.EarlyStopping("val_bleu")], "EarlyStopping cannot be resumed"),
        ([Counter(), Counter()], "one `RunCallback` of a class"),
    ],
)
def test_what_no_run_can_have_is_refused_before_anything_is_made(
    corpus, tmp_path, callbacks, message
):
    with pytest.raises(ValueError, match=message):
        train_translation(corpus, TranslationConfig(steps=3), tmp_path / "run", callbacks=callbacks)
    assert not list(tmp_path.iterdir())
