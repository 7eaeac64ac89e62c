"""Numba's search: its scores are those of the training forward, its rows do not know each other."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("numba")

from keras_attention.decoding.hypotheses import penalty
from keras_attention.engine.numba.engine import NumbaEngine
from tests.engine.test_engines import OPTIONS, SOURCE, expected, model_with

K, L = 3, 9  # as many beams as `expected` knows
PENALTIES = penalty(np.arange(L + 1, dtype="float32"), 0.0, np)


def engine_of(model, precision="float32"):
    # No token ends a sentence, so that all are searched to their limits.
    engine = NumbaEngine(dataclasses.replace(model.spec(), end_token_id=-1), precision)
    engine.read_weights()
    return engine


def searched(engine, source=SOURCE, limits=(6, 6)):
    return engine.search(source, np.array(limits), K, L, PENALTIES, K - 1)


def forward_scores(model, sequences):
    """Log-probabilities (B, K) of sequences (B, K, n), by the training forward."""
    total = np.zeros(sequences.shape[:2])
    for length in range(sequences.shape[2]):
        start = np.zeros((*sequences.shape[:2], 1), "int32")
        table = expected(model, np.concatenate([start, sequences[:, :, :length]], axis=2))
        total += np.take_along_axis(table, sequences[:, :, length, None], axis=2)[..., 0]
    return total


@pytest.mark.parametrize("options", OPTIONS)
def test_scores_are_those_of_the_training_forward(options):
    model = model_with(**options)
    found = searched(engine_of(model))
    assert np.isfinite(found["alive_scores"]).all()
    wanted = forward_scores(model, found["alive_sequences"][:, :, :6])
    np.testing.assert_allclose(found["alive_scores"], wanted, atol=4e-4)
    assert np.abs(wanted[:, 0] - wanted[:, -1]).min() > 1e-3, "the beams differ"


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_precisions_are_near(precision):
    model = model_with()
    found = searched(engine_of(model, precision))
    wanted = forward_scores(model, found["alive_sequences"][:, :, :6])
    error = np.abs(found["alive_scores"] - wanted).max()
    assert 0.0 < error < 0.1 * np.abs(wanted).max()


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_and_neighbours_change_nothing(threads, monkeypatch):
    """To the last bit: a sentence alone, and by several threads, whose parts are others."""
    engine = engine_of(model_with())
    source = np.concatenate([SOURCE] * 4)
    limits = [6, 9, 1, 6, 0, 8, 6, 7]
    wanted = searched(engine, source, limits)
    monkeypatch.setattr(engine, "_threads", lambda rows, tokens: threads)
    with ThreadPoolExecutor(threads - 1) as pool:
        monkeypatch.setattr("keras_attention.engine.numba.engine._pool", lambda: pool)
        together = searched(engine, source, limits)
        alone = searched(engine, source[5:6, :3], limits[5:6])
    for name, array in wanted.items():
        np.testing.assert_array_equal(array, together[name])
    for name, array in wanted.items():
        np.testing.assert_array_equal(array[5:6], alone[name])


def test_what_is_not_finite_ends_its_sentence_only():
    spec = model_with().spec().map_weights(np.array)
    table = spec.embedding.embeddings.copy()
    table[12] = np.nan  # a token of the first sentence alone
    broken = dataclasses.replace(
        spec,
        embedding=dataclasses.replace(
            spec.embedding, embeddings=table, reverse_embeddings=spec.embedding.embeddings.T.copy()
        ),
    )
    engine = NumbaEngine(broken, "float32")
    engine.read_weights()
    source = SOURCE.copy()
    source[1, source[1] == 12] = 3
    found = searched(engine, source, (2, 2))
    assert not np.isfinite(found["alive_scores"][0]).any()
    assert np.isfinite(found["alive_scores"][1]).all()
