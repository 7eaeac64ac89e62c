"""Numba's search: its scores are those of the training forward, its rows do not know each other."""

import dataclasses
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

pytest.importorskip("numba")

from keras_attention.decoding.hypotheses import penalty
from keras_attention.engine.base import SearchOptions
from keras_attention.engine.numba import engine as numba_engine
from keras_attention.engine.numba.engine import NumbaEngine
from tests.engine.test_engines import OPTIONS, SOURCE, expected, model_with

pytestmark = pytest.mark.backends("torch")

WIDE = {
    "key_dim": 5,
    "value_dim": 7,
    "activation": "gelu",
    "use_attention_bias": True,
    "normalize_first": True,
    "num_layers": 2,
}
K, L = 3, 9  # as many beams as `expected` knows
PENALTIES = penalty(np.arange(L + 1, dtype="float32"), 0.0, np)


def engine_of(model, precision="float32"):
    # No token ends a sentence, so that all are searched to their limits.
    engine = NumbaEngine(dataclasses.replace(model.spec(), end_token_id=-1), precision)
    engine.read_weights()
    return engine


def searched(engine, source=SOURCE, limits=(6, 6)):
    return engine.search(source, np.array(limits), SearchOptions(K, L, 0.0, PENALTIES, K - 1))


def forward_scores(model, sequences):
    """Log-probabilities (B, K) of sequences (B, K, n), by the training forward."""
    total = np.zeros(sequences.shape[:2])
    for length in range(sequences.shape[2]):
        start = np.zeros((*sequences.shape[:2], 1), "int32")
        table = expected(model, np.concatenate([start, sequences[:, :, :length]], axis=2))
        total += np.take_along_axis(table, sequences[:, :, length, None], axis=2)[..., 0]
    return total


def assert_scores(model, found, tolerance=4e-4):
    """The scores are those of the training forward; return those."""
    wanted = forward_scores(model, found.alive_sequences[:, :, :6])
    np.testing.assert_allclose(found.alive_scores, wanted, atol=tolerance)
    return wanted


@pytest.mark.parametrize("options", [*OPTIONS, WIDE])
def test_scores_are_those_of_the_training_forward(options):
    model = model_with(**options)
    wanted = assert_scores(model, searched(engine_of(model)))
    assert np.abs(wanted[:, 0] - wanted[:, -1]).min() > 1e-3, "the beams differ"


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_precisions_are_near(precision):
    model = model_with(**WIDE)
    found = searched(engine_of(model, precision))
    wanted = forward_scores(model, found.alive_sequences[:, :, :6])
    error = np.abs(found.alive_scores - wanted).max()
    assert 0.0 < error < 0.1 * np.abs(wanted).max()


@pytest.mark.parametrize("options", [{}, {"decoder_cell": "ssru", "num_layers": 2}])
def test_weights_of_8_bits_are_searched_in_float32(options):
    """As they are, and again as floats once they are trained further."""
    model = model_with(**options)
    for weight in model.weights:
        if len(weight.shape) > 1:
            array = keras.ops.convert_to_numpy(weight)
            scale = np.abs(array).max() / 127
            weight.assign(np.rint(array / scale) * scale)
    engine = engine_of(model)
    assert engine.weights.packing.kernel == "float32 int8"
    for _ in range(2):
        assert_scores(model, searched(engine))
        # Of a matrix whose table stays 8 bits.
        weight = next(w for w in reversed(model.weights) if w.path.endswith("outer/kernel"))
        array = keras.ops.convert_to_numpy(weight)
        weight.assign(array * np.random.default_rng(3).uniform(0.8, 1.2, weight.shape))
        engine.read_weights()
        assert engine.weights.packing.kernel == "float32"


@pytest.mark.parametrize("groups, threads", [(1, 3), (3, 1), (2, 2)])
def test_threads_and_neighbours_change_nothing(groups, threads, monkeypatch):
    """To the last bit: a sentence alone, and by several threads, whose parts are others."""
    engine = engine_of(model_with(**WIDE))
    source = np.concatenate([SOURCE] * 4)
    limits = [6, 9, 1, 6, 0, 8, 6, 7]
    wanted = searched(engine, source, limits)
    alone = searched(engine, source[5:6, :3], limits[5:6])
    monkeypatch.setattr(engine, "thread_groups", lambda *sizes: (groups, threads))
    with ThreadPoolExecutor(groups * threads - 1) as pool:
        monkeypatch.setattr("keras_attention.engine.numba.threads._pool", lambda process: pool)
        together = searched(engine, source, limits)
    for array, of_all, of_one in zip(wanted, together, alone, strict=True):
        np.testing.assert_array_equal(array, of_all)
        np.testing.assert_array_equal(array[5:6], of_one)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_who_works_together(precision, monkeypatch):
    """Sentences are shared out where weights are cached, or rows are many; else a product is."""
    engine = engine_of(model_with(), precision)
    at_once = engine.weights.packing.at_once
    assert at_once == 1 if precision == "float32" else at_once in (2, 4)

    def chosen(*batches):
        return [engine.thread_groups(engine.weights, count, 4) for count in batches]

    monkeypatch.setattr("numba.config.NUMBA_NUM_THREADS", 16)
    assert chosen(1, 5, 64) == [(1, 1), (5, 1), (16, 1)]
    monkeypatch.setattr("keras_attention.engine.numba.weights.CACHED_BYTES", 0)
    engine.read_weights()
    assert chosen(1, 64) == [(1, 1), (10, 1)]
    # The more numbers an instruction multiplies, the less a thread is worth.
    monkeypatch.setattr("keras_attention.engine.numba.engine.WORK_PER_THREAD", 1000 // at_once)
    assert chosen(1, 12, 32) == [(1, 6), (2, 8), (5, 3)]
    monkeypatch.setattr("keras_attention.engine.numba.engine.WORK_PER_THREAD", 1000)
    assert chosen(1) == [(1, max(1, 6 // at_once))]


def test_weights_that_are_read_meanwhile_are_for_the_next_search():
    """Another thread may read them, while arrays that were read before are in use."""
    engine, other = engine_of(model_with()), engine_of(model_with(seed=4))
    wanted, program = searched(engine), engine.program

    def after_reading(*arguments):
        engine.spec = other.spec
        engine.read_weights()
        return program(*arguments)

    engine.program = after_reading
    np.testing.assert_equal(searched(engine), wanted)
    engine.program = program
    np.testing.assert_equal(searched(engine), searched(other))


def test_more_positions_than_were_learned_are_refused():
    engine = engine_of(model_with(position_layout="learned", max_length=8))
    with pytest.raises(ValueError, match="at most 8, .*Received: 9"):
        searched(engine)


def test_nothing_but_padding():
    engine = engine_of(model_with())
    found = searched(engine, np.full_like(SOURCE, engine.spec.pad_token_id), (0, 0))
    assert (found.alive_sequences == engine.spec.pad_token_id).all()


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
    assert not np.isfinite(found.alive_scores[0]).any()
    assert np.isfinite(found.alive_scores[1]).all()


def test_interrupt_is_answered_amid_a_search(monkeypatch):
    """Ctrl-C while compiled code searches: the search ends before it is done."""
    engine = engine_of(model_with())
    wanted = searched(engine)
    length, begun, no_hypotheses = 300_000, [], numba_engine.no_hypotheses

    def watched(*sizes):
        begun.append(no_hypotheses(*sizes))
        return begun[0]

    def interrupt():
        while not begun or begun[0].alive_scores[0, 0] == 0.0:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(numba_engine, "no_hypotheses", watched)
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            penalties = np.ones(length + 1, "float32")
            options = SearchOptions(K, length, 0.0, penalties, K - 1)
            engine.search(SOURCE[:1], np.array([length]), options)
    again = searched(engine)
    assert (begun[0].alive_sequences[0, 0, length // 2 :] == 0).all()
    for array, other in zip(wanted, again, strict=True):
        np.testing.assert_array_equal(array, other)


def search_in_child(engine, connection):
    connection.send(searched(engine).alive_scores)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_process_searches(monkeypatch):
    """The child has none of its parent's threads."""
    engine = engine_of(model_with())
    monkeypatch.setattr(engine, "thread_groups", lambda *sizes: (1, 2))
    wanted = searched(engine).alive_scores
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(
        target=search_in_child, args=(engine, there), daemon=True
    )
    child.start()
    assert here.poll(60)
    np.testing.assert_array_equal(here.recv(), wanted)
    child.join()
