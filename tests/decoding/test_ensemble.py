"""Ensembles against a slow search over both training forwards; minimum Bayes risk against a plain sum."""

import dataclasses

import keras
import numpy as np
import pytest
import sacrebleu

from keras_attention import Restrictions, Sampling, Transformer, Translator
from keras_attention.decoding.translation import most_useful
from keras_attention.spec.parts import NonFiniteModel
from tests.decoding.letters import (
    END,
    CopyModel,
    LetterTokenizer,
    assert_alike,
    assert_found,
    forward_log_probabilities,
    random_texts,
    small_model,
)
from tests.decoding.oracle_search import slow_beam_search

BACKEND = keras.backend.backend()


@pytest.fixture(scope="module")
def models():
    """Two models of different sizes."""
    other = {"num_layers": 2, "hidden_dim": 15, "num_heads": 5, "position_layout": "halves"}
    return [small_model(seed=11), small_model(seed=4, **other)]


@pytest.mark.parametrize("engine", [BACKEND, "plain"])
def test_an_ensemble_scores_the_mean_of_log_probabilities(models, engine):
    translator = Translator(
        models, LetterTokenizer(), beam_size=3, max_extra_length=2, engine=engine
    )
    assert translator.engine_for(2).name == engine
    texts = ["cab", "gabelni", "m"]
    found = translator.translate(texts, n_best=3)
    for text, best in zip(texts, found, strict=True):
        limit = len(text) + 1 + 2
        rows = [forward_log_probabilities(model, text, limit) for model in models]

        def mean(prefix, rows=rows):
            return np.mean([row(prefix) for row in rows], axis=0)

        expected, _ = slow_beam_search(mean, 17, END, limit, 0.6, 3, "n_best")
        assert_found(best, expected)
        alone, _ = slow_beam_search(rows[0], 17, END, limit, 0.6, 3, "n_best")
        assert alone[0][1] != expected[0][1], "the second model counts"


@pytest.mark.backends("torch")
def test_an_ensemble_draws_samples_and_keeps_restrictions(models):
    options = {"sampling": Sampling(top_k=5), "restrictions": Restrictions(1, min_length=2)}
    plain = Translator(models, LetterTokenizer(), max_extra_length=4, engine="plain", **options)
    engine, texts = dataclasses.replace(plain, engine=BACKEND), random_texts(3, longest=6)
    assert_alike(engine.translate(texts, n_best=2), plain.translate(texts, n_best=2))


@pytest.mark.backends("torch")
def test_models_that_have_no_spec_are_searched_plainly():
    translator = Translator([CopyModel(), CopyModel()], LetterTokenizer(31), max_extra_length=2)
    assert translator.engine_for(1).name == "plain" and translator("ab") == "ab"


@pytest.mark.backends("torch")
@pytest.mark.parametrize("wrong", [0, 1])
def test_a_weight_that_is_not_finite_is_named_though_both_models_have_its_path(wrong):
    both = [small_model(seed=seed, name="transformer") for seed in (11, 4)]
    weight = both[wrong].weights[-1]
    assert weight.path == both[1 - wrong].weights[-1].path
    weight.assign(np.full(weight.shape, np.nan))
    translator = Translator(both, LetterTokenizer(), engine="plain", max_extra_length=2)
    with pytest.raises(NonFiniteModel, match=f"weight '{weight.path}' is infinite or NaN"):
        translator("ab")


@pytest.mark.backends("torch")
@pytest.mark.parametrize(
    ("others", "options", "message"),
    [
        ([], {}, "must be a model, or several. Received: 1 in a list"),
        ([Transformer(19, 1, 8, 12, 2)], {}, "model 1 with vocabulary_size 17, model 2 with 19"),
        ([small_model(), 3], {}, "`model` must be a built Transformer"),
        ([small_model()], {"engine": "numba"}, "'numba' searches with one model alone"),
    ],
)
def test_what_is_no_ensemble_is_refused(models, others, options, message):
    if options:
        pytest.importorskip("numba")
    with pytest.raises(ValueError, match=message):
        Translator([models[0], *others], LetterTokenizer(), **options)


TEXTS = [
    ["a cat", "the dog sleeps", "the dogs sleep", "the dog slept", "a cat"],
    ["one", "two three", "two three"],
    ["b", "a", "b", "a"],
    ["", "x"],
]


@pytest.mark.backends("torch")
@pytest.mark.parametrize("texts", TEXTS)
def test_the_most_useful_text_by_a_written_out_sum(texts):
    expected = []
    for text in texts:
        total = 0.0
        for other in texts:
            total += sacrebleu.sentence_chrf(text, [other]).score
        expected.append(total / len(texts))
    assert most_useful(texts) == int(np.argmax(np.round(expected, 6)))


@pytest.mark.backends("torch")
def test_mbr_of_samples_and_of_the_n_best():
    translator = Translator(CopyModel(), LetterTokenizer(31), beam_size=5, max_extra_length=2)
    texts = ["abcde", "fg", ""]
    sampler = dataclasses.replace(translator, sampling=Sampling(seed=2))
    for each, number in ((translator, 4), (sampler, 9)):
        candidates = each.translate(texts, number)
        wanted = [row[most_useful([one.text for one in row])] for row in candidates]
        assert each.translate_mbr(texts, number) == wanted
        assert each.translate_mbr("abcde", number) == wanted[0]
