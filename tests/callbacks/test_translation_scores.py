"""Scores of translations while a model trains: when, of which weights, and that none is lost."""

import contextlib

import keras
import numpy as np
import pytest

from keras_attention import TranslationScores, corpus_bleu, corpus_chrf
from keras_attention.callbacks import Stop

pytestmark = pytest.mark.backends("torch")

STEPS = 5
SOURCES = ["eins", "zwei", "drei"]
REFERENCES = ["the dog runs home fast", "two women read a book", "a red car is parked there"]


class Monitor:
    is_paused = False

    @contextlib.contextmanager
    def paused(self):
        self.is_paused = True
        yield
        self.is_paused = False


def make_model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
    model.compile("sgd", "mse")
    return model


def fit(model, callback, epochs=4):
    x, y = np.ones((STEPS, 2)), np.ones((STEPS, 1))
    return model.fit(
        x, y, batch_size=1, epochs=epochs, callbacks=[callback], shuffle=False, verbose=0
    )


def test_scores_of_the_present_weights_go_into_the_logs_of_the_epoch():
    model, seen, monitor = make_model(), [], Monitor()

    def translate(sources):
        assert sources == SOURCES and monitor.is_paused
        seen.append(float(keras.ops.convert_to_numpy(model.layers[0].kernel)[0, 0]))
        return [*REFERENCES[: len(seen)], "something else", "and more"][:3]

    scores = TranslationScores(translate, SOURCES, REFERENCES, every_epochs=2, monitor=monitor)
    history = fit(model, scores).history
    for call, (bleu, chrf) in enumerate(
        zip(history["val_bleu"], history["val_chrf"], strict=True), start=1
    ):
        found = [*REFERENCES[:call], "something else", "and more"][:3]
        assert bleu == pytest.approx(corpus_bleu(found, REFERENCES).score)
        assert chrf == pytest.approx(corpus_chrf(found, REFERENCES).score)
    assert len(seen) == 2
    assert seen[0] != seen[1]
    assert seen[1] == pytest.approx(float(keras.ops.convert_to_numpy(model.layers[0].kernel)[0, 0]))


def test_an_epoch_that_was_cut_short_has_no_scores():
    stop = Stop(signal_name="SIGINT")
    scores = TranslationScores(pytest.fail, SOURCES, REFERENCES, stop=stop)
    scores.set_params({"steps": 3})
    logs = {"loss": 1.0}
    scores.on_epoch_end(0, logs)
    assert logs == {"loss": 1.0}


def test_logits_that_are_not_finite_do_not_end_the_training():
    def translate(sources):
        raise FloatingPointError("The model's logits for text 0 are not finite.")

    monitor = Monitor()
    scores = TranslationScores(translate, SOURCES, REFERENCES, monitor=monitor)
    with pytest.warns(UserWarning, match="no scores of translations.*not finite"):
        history = fit(make_model(), scores).history
    assert list(history) == ["loss"] and len(history["loss"]) == 4


def test_a_model_that_has_diverged_has_no_scores():
    model = make_model()
    model.layers[0].kernel.assign(np.full(model.layers[0].kernel.shape, np.nan))
    scores = TranslationScores(pytest.fail, SOURCES, REFERENCES, monitor=Monitor())
    assert list(fit(model, scores).history) == ["loss"]


def test_bad_input():
    with pytest.raises(ValueError, match="needs its reference"):
        TranslationScores(list, SOURCES, ["a"])
