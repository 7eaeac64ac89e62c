"""Samples against exact distributions, written out in NumPy; engines draw what the plain search draws."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_attention import Sampling, Translator
from keras_attention.decoding.sampled_tokens import sampled_tokens
from tests.decoding.letters import (
    END,
    CopyModel,
    LetterTokenizer,
    assert_alike,
    forward_log_probabilities,
    random_texts,
    small_model,
)
from tests.decoding.oracle_search import penalty

BACKEND = keras.backend.backend()
ENGINES = (BACKEND, *(("numba",) if BACKEND == "torch" else ()))
KINDS = [
    Sampling(),
    Sampling(temperature=0.6, seed=4),
    Sampling(temperature=1.5, top_k=3, seed=2),
    Sampling(temperature=1.2, top_p=0.7),
    Sampling(temperature=2.0, top_k=5, top_p=0.8, seed=9),
]
# 99.9 % of chi-square with 1 .. 39 degrees of freedom lie below, by Wilson and Hilferty's formula.
DEGREES = np.arange(1, 40)
LIMITS = DEGREES * (1 - 2 / (9 * DEGREES) + 3.09 * np.sqrt(2 / (9 * DEGREES))) ** 3


def exact(logits, sampling):
    """P(token) of logits (V,), in float64, token by token."""
    powers = np.exp((logits - logits.max()) / sampling.temperature)
    order = sorted(range(len(logits)), key=lambda token: -powers[token])
    kept = set(order[: sampling.top_k])
    if sampling.top_p is not None:
        total, wanted = 0.0, sampling.top_p * sum(powers[token] for token in kept)
        for token in order:
            if total >= wanted:
                kept.discard(token)
            total += powers[token]
    powers = [power if token in kept else 0.0 for token, power in enumerate(powers)]
    return np.array(powers) / sum(powers)


def assert_drawn_from(counts, probabilities):
    """Chi-square: counts of independent draws, where each is expected at least five times."""
    counts, expected = np.asarray(counts), np.asarray(probabilities) * np.sum(counts)
    assert not counts[expected == 0].any()
    rare = (expected > 0) & (expected < 5)
    keep = expected >= 5
    counts = np.append(counts[keep], counts[rare].sum())
    expected = np.append(expected[keep], expected[rare].sum())
    counts, expected = counts[expected > 0], expected[expected > 0]
    distance = np.sum((counts - expected) ** 2 / expected)
    assert len(counts) > 2 and distance < LIMITS[len(counts) - 2]


def drawn_tokens(logits, uniforms, sampling):
    logits, uniforms = map(keras.ops.convert_to_tensor, (logits, uniforms))
    return keras.ops.convert_to_numpy(sampled_tokens(logits, uniforms, sampling))[:, 0]


@pytest.mark.parametrize("sampling", KINDS)
def test_large_vocabularies_in_chunks(sampling):
    """Token for token what a single cumulative sum in float64 says; most tokens are very unlikely."""
    random = np.random.default_rng(8)
    logits = (4 * random.standard_normal((60, 1003))).astype("float32")
    uniforms = np.minimum(random.random(60, "float32"), 1 - 2**-22)
    tokens = drawn_tokens(logits, uniforms, sampling)
    sums = np.cumsum([exact(row, sampling) for row in logits.astype("float64")], axis=1)
    wanted = [np.searchsorted(row, u, side="right") for row, u in zip(sums, uniforms, strict=True)]
    # A number within rounding of a border may fall on either side.
    near = np.abs(sums - uniforms[:, None]).min(axis=1) < 1e-6
    np.testing.assert_array_equal(tokens[~near], np.array(wanted)[~near])
    assert near.sum() < 4


@pytest.mark.backends("torch")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("sampling", [KINDS[0], KINDS[4]])
def test_whole_translations_are_drawn_from_the_exact_distribution(seven, sampling, engine):
    """All hypotheses of at most 2 tokens are enumerated; the scores are the model's own."""
    number = 20_000 if engine == "numba" else 4_000
    translator = Translator(
        seven, LetterTokenizer(7), sampling=sampling, engine=engine, max_extra_length=0
    )
    drawn = translator.translate("b", n_best=number)
    assert len(drawn) == number
    log_probabilities = forward_log_probabilities(seven, "b", 2)
    chances, scores = {}, {}
    for first in range(7):
        own = log_probabilities(())
        chance = exact(own, sampling)[first]
        if first == END:
            chances[()], scores[()] = chance, own[END] / penalty(1, 0.6)
            continue
        after = log_probabilities((first,))
        for second in range(7):
            key = (first,) if second == END else (first, second)
            chances[key] = chance * exact(after, sampling)[second]
            scores[key] = own[first] + after[second]
            if second == END:
                scores[key] /= penalty(2, 0.6)
    keys = list(chances)
    counts = dict.fromkeys(keys, 0)
    for one in drawn:
        counts[one.token_ids] += 1
        assert one.is_finished == (len(one.token_ids) < 2)
        assert abs(one.score - scores[one.token_ids]) < 1e-4
    assert_drawn_from([counts[key] for key in keys], [chances[key] for key in keys])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("sampling", KINDS[2:] if BACKEND == "torch" else KINDS[4:])
def test_engines_draw_what_the_plain_search_draws(engine, sampling):
    model = small_model(seed=11)
    plain = Translator(
        model, LetterTokenizer(), sampling=sampling, engine="plain", max_extra_length=8
    )
    texts = random_texts(5, longest=9)
    found, wanted = (
        translator.translate(texts, n_best=3)
        for translator in (dataclasses.replace(plain, engine=engine), plain)
    )
    assert len({t.token_ids for best in wanted for t in best}) > 10
    assert_alike(found, wanted)


def sampler(**options):
    given = {"sampling": Sampling(seed=5), "max_extra_length": 5, "engine": BACKEND, **options}
    return Translator(small_model(seed=11), LetterTokenizer(), **given)


def test_a_sample_does_not_depend_on_its_batch():
    texts = random_texts(7, longest=12)
    wanted = sampler().translate(texts, n_best=2)
    others = sampler(batch_size=1).translate(texts[::-1], n_best=3)[::-1]
    for one, other in zip(wanted, others, strict=True):
        assert len({t.token_ids for t in other}) > 1
        assert [t.token_ids for t in one] == [t.token_ids for t in other[:2]]


@pytest.mark.backends("torch")
def test_the_seed_and_the_sentence_decide():
    translator = sampler()
    texts = ["gabel", "gabel", " ", "gabeln"]
    first, again, empty, other = (
        [t.text for t in best] for best in translator.translate(texts, n_best=3)
    )
    assert first == again != other and empty == [""]
    reseeded = sampler(sampling=Sampling(seed=6)).translate("gabel", n_best=3)
    assert [t.text for t in reseeded] != first


def test_a_low_temperature_is_greedy_search():
    texts = random_texts(6, longest=9)
    cold = sampler(sampling=Sampling(temperature=1e-4))
    greedy = sampler(sampling=None, beam_size=1)
    wanted = greedy.translate(texts)
    for found, best in zip(cold.translate(texts, n_best=2), wanted, strict=True):
        assert [t.token_ids for t in found] == [best[0].token_ids] * 2
        assert abs(found[1].score - best[0].score) < 1e-5


@pytest.mark.backends("torch")
def test_samples_that_are_equal_are_kept_unless_unique_ones_are_wanted():
    translator = Translator(
        CopyModel(), LetterTokenizer(31), sampling=Sampling(), max_extra_length=2
    )
    drawn = [t.text for t in translator.translate("ab", n_best=25)]
    assert len(drawn) == 25 > len(set(drawn)) > 1
    unique = [t.text for t in translator.translate("ab", n_best=25, unique=True)]
    assert unique == list(dict.fromkeys(drawn))


@pytest.mark.backends("torch")
def test_more_samples_than_memory_holds_are_refused():
    with pytest.raises(ValueError, match="`n_best` must be an int from 1 to 100,000. Received"):
        sampler().translate("ab", 10**9)
    with pytest.raises(ValueError, match="`candidates` must be an int from 1 to 1,000. Received"):
        sampler().translate_mbr("ab", 10**5)


@pytest.mark.backends("torch")
def test_another_library_draws_no_samples():
    pytest.importorskip("ctranslate2")
    with pytest.raises(ValueError, match="'ctranslate2' draws no samples"):
        sampler(engine="ctranslate2")
