"""When attention is logged, and what is logged."""

import gzip
import json
import sys

import keras
import numpy as np
import pytest

from keras_attention import (
    AttentionLog,
    LabelSmoothedCrossentropy,
    SummaryWriter,
    Tokenizer,
    Transformer,
    Translation,
)
from keras_attention.callbacks import Stop
from keras_attention.callbacks.attention_log import next_entry
from keras_attention.visualization.attention_entries import padded_pairs
from tests.visualization.event_files import read_values

pytestmark = pytest.mark.backends("torch")

PAIRS = [("the old dogs sleep.", "die alten Hunde schlafen."), ("a dog", "ein Hund"), ("a", "ein")]
HEADS = 2
OTHER = Translation("Hund", -2.0, (3,), True)


class Attending(keras.Sequential):
    """A model of one number, which knows how often it was asked for its attention.

    All its heads have equal weights on what they see; `diverged` makes them NaN.
    """

    asked = 0
    diverged = False

    def attention_scores(self, encoder_token_ids, decoder_token_ids):
        self.asked += 1
        (batch, s), t = encoder_token_ids.shape, decoder_token_ids.shape[1]
        shapes = {"encoder": (s, s), "decoder": (t, t), "cross": (t, s)}
        value = np.nan if self.diverged else 0.01
        return {
            kind: [np.full((batch, HEADS, *shape), value, "float32")]
            for kind, shape in shapes.items()
        }


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([text for pair in PAIRS for text in pair], vocabulary_size=290)


@pytest.fixture
def log(tmp_path, tokenizer):
    """Makes an `AttentionLog` of these options; its writer flushes after each entry."""
    with SummaryWriter(tmp_path) as writer:
        yield lambda **options: AttentionLog(writer, tokenizer, PAIRS, **options)


@pytest.fixture
def translate(tokenizer):
    """A search that finds the same two translations of each text; knows what it was asked."""

    def translate(sources):
        translate.asked.append(list(sources))
        ids = tuple(tokenizer.encode("ein Hund"))
        return [[Translation("ein Hund", -0.5, ids, True), OTHER] for _ in sources]

    translate.asked = []
    return translate


@pytest.fixture
def importance_is(monkeypatch):
    """Sets the importance of the heads; returns the list of what is asked."""

    def set_importance(value):
        asked, module = [], sys.modules[AttentionLog.__module__]
        monkeypatch.setattr(module, "head_importance", lambda *given: asked.append(given) or value)
        return asked

    return set_importance


def make_model():
    model = Attending([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def fit(model, *callbacks, updates, epochs=1):
    data = np.ones((updates, 2)), np.ones((updates, 1))
    model.fit(*data, batch_size=1, epochs=epochs, callbacks=list(callbacks), verbose=0)


def read(folder):
    """{tag: {step: entry}}; a step that is written twice fails."""
    found = read_values(folder)
    entries = {tag: dict(written) for tag, written in found.items()}
    assert all(len(entries[tag]) == len(written) for tag, written in found.items())
    return entries


def steps(folder):
    return {tag: sorted(entries) for tag, entries in read(folder).items()}


def test_of_the_shown_pairs_is_logged_what_a_model_with_cells_thought(tmp_path, tokenizer, log):
    """Its decoder has no attention of its own."""
    sizes = {"num_layers": (2, 1), "hidden_dim": 8, "intermediate_dim": 12, "num_heads": HEADS}
    model = Transformer(tokenizer.vocabulary_size, **sizes, decoder_cell="ssru", seed=1)
    model.compile("sgd", LabelSmoothedCrossentropy())
    source, decoder_input, target = padded_pairs(tokenizer, PAIRS)
    inputs = {"encoder_token_ids": source, "decoder_token_ids": decoder_input}
    model.fit(inputs, target, callbacks=[log(shown=2, importance=True)], verbose=0)
    for number, (_, text) in enumerate(PAIRS[:2]):
        header = read(tmp_path)[f"attention/{number}/reference"][1].header
        kinds = {kind["name"]: kind["layers"] for kind in header["kinds"]}
        assert kinds == {"encoder": 2, "cross": 1}
        assert header["value_norms"].keys() == kinds.keys()
        importance = {kind: np.shape(layers) for kind, layers in header["importance"].items()}
        assert importance == {"encoder": (2, HEADS), "cross": (1, HEADS)}
        assert len(header["predictions"]) == len(tokenizer.encode(text)) + 1
        parts = json.dumps([header["predictions"], header["alternatives"]])
        assert len(gzip.compress(parts.encode())) < 5000


def test_entries_grow_apart_and_the_last_step_has_one(tmp_path, tokenizer, log):
    model = make_model()
    fit(model, log(shown=2), updates=13, epochs=2)
    expected = [0, 1, 2, 5, 10, 12, 15, 20, 25, 26]
    assert steps(tmp_path) == {"attention/0/reference": expected, "attention/1/reference": expected}
    assert model.asked == len(expected)  # all sentences at once, and nothing in between
    # The measures rest on all pairs, also on the one that is not shown.
    measures = read(tmp_path)["attention/0/reference"][0].header["measures"]["encoder"]
    assert [len(layer) for layer in measures] == [HEADS]
    assert measures[0][0]["rows"] == sum(len(tokenizer.encode(source)) + 1 for source, _ in PAIRS)


def test_several_updates_between_two_calls_are_counted(tmp_path, log):
    """As with `compile(steps_per_execution=4)`."""
    model, callback = make_model(), log(shown=1)
    callback.set_model(model)
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    for batch in range(0, 24, 4):
        callback.before_update(batch)
        model.optimizer.iterations.assign_add(4)
    assert steps(tmp_path) == {"attention/0/reference": [0, 4, 8, 12, 16, 20]}


def test_a_million_updates_have_fewer_than_60_entries():
    step, count = 0, 1
    while step < 1_000_000:
        following = next_entry(step)
        assert following > step
        step, count = following, count + 1
    assert step == 1_000_000
    assert count < 60


def test_the_models_own_translations_at_the_ends_of_epochs(tmp_path, log, translate):
    fit(make_model(), log(shown=2, translate=translate), updates=3, epochs=7)
    # Ends of the epochs 1, 2, 5, and of the training.
    assert steps(tmp_path)["attention/1/output"] == [3, 6, 15, 21]
    assert translate.asked == [[source for source, _ in PAIRS[:2]]] * 4
    header = read(tmp_path)["attention/0/output"][21].header
    assert (header["target"], header["target_text"]) == ("output", "ein Hund")
    assert header["source_text"] == PAIRS[0][0]
    found = [(one["text"], one["score"]) for one in header["alternatives"]]
    assert found == [("ein Hund", -0.5), ("Hund", -2.0)]


def test_a_training_in_two_parts_logs_what_one_logs(tmp_path, log, translate, importance_is):
    asked = importance_is({"cross": [[0.5]]})
    model, stop = make_model(), Stop()
    first, second = (log(stop=stop, translate=translate, importance=True) for _ in range(2))

    class Signal(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 5:
                self.model.stop_training, stop.signal_name = True, "SIGTERM"

    fit(model, Signal(), first, updates=8)
    stop.signal_name = None
    second.set_state(first.get_state())
    fit(model, second, updates=5)
    found = steps(tmp_path)
    assert found["attention/0/reference"] == [0, 1, 2, 5, 10, 11]
    assert found["attention/0/output"] == [11]
    assert len(asked) == 1


def test_importance_stands_in_the_last_entry(tmp_path, tokenizer, log, importance_is):
    model, importance = make_model(), {"cross": [[0.5, -0.25]]}
    asked = importance_is(importance)
    fit(model, log(importance=True), updates=2)
    ((asked_model, source, read_ids, target),) = asked
    assert asked_model is model
    ids = [*tokenizer.encode(PAIRS[1][0]), tokenizer.end_token_id]
    assert source[1].tolist() == ids + [tokenizer.pad_token_id] * (source.shape[1] - len(ids))
    assert read_ids[0, 0] == tokenizer.start_token_id
    np.testing.assert_array_equal(read_ids[0, 1:], target[0, :-1])
    entries = read(tmp_path)["attention/2/reference"]
    assert [entries[step].header["importance"] for step in (0, 1, 2)] == [None, None, importance]


def test_an_importance_that_is_not_finite_is_left_out(tmp_path, log, importance_is):
    importance_is({"cross": [[0.5, np.inf]]})
    fit(make_model(), log(importance=True), updates=1)
    assert read(tmp_path)["attention/0/reference"][1].header["importance"] is None


def test_a_diverged_model_is_not_logged_and_training_goes_on(tmp_path, log):
    model = make_model()
    model.diverged = True
    with pytest.warns(UserWarning, match="No attention was logged at step 0.*diverged"):
        fit(model, log(), updates=1)
    assert read(tmp_path) == {}


def test_translations_that_are_not_finite_are_not_logged(tmp_path, log):
    def translate(sources):
        raise FloatingPointError("The logits are not finite.")

    with pytest.warns(UserWarning, match="No translation was logged at step 1. The logits"):
        fit(make_model(), log(translate=translate), updates=1)
    assert {tag: [*entries] for tag, entries in read(tmp_path).items()} == {
        f"attention/{number}/reference": [0, 1] for number in range(len(PAIRS))
    }


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "at least one"),
        ([("a dog", " ")], "a source text and its translation"),
        ([("a dog", "\u200b")], "a source text and its translation"),
        (["ab"], r"2 values. Received: pairs\[0\]='ab'"),
        ([("a dog " * 100, "ein Hund")], "128 tokens on a side"),
    ],
)
def test_pairs_that_cannot_be_logged_are_refused(tmp_path, tokenizer, pairs, message):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(ValueError, match=message):
            AttentionLog(writer, tokenizer, pairs)
