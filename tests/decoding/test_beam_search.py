"""Beam search against the worked example of the facts, exhaustive search and a slow rewriting."""

import itertools
import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import Transformer, beam_search
from keras_attention.ops.compile import compile_for_inference
from tests.decoding.oracle_search import (
    LIMITS,
    SEARCHES,
    Tables,
    as_list,
    assert_same,
    every_hypothesis,
    greedy,
)

BACKEND = keras.backend.backend()
A, EOS, B = 0, 1, 2

# The search tree of the worked example: P(next | previous), in the order a, EOS, b.
#
#                     start
#        a .60        EOS .15        b .25
#   a .40 EOS .05 b .55        a .05 EOS .45 b .50
#
START = [0.60, 0.15, 0.25]
AFTER_A = [0.40, 0.05, 0.55]
AFTER_B = [0.05, 0.45, 0.50]
NEVER = [1 / 3, 1 / 3, 1 / 3]  # nothing follows EOS


def example_step(token_ids, index, cache):
    """The worked example as a step."""
    table = np.log([AFTER_A, NEVER, AFTER_B, START]).astype("float32")
    # As in tensor2tensor, the start token is the id of "a": only the position tells them apart.
    rows = ops.where(ops.equal(index, 0), 3, token_ids)
    return ops.take(ops.convert_to_tensor(table), rows, axis=0), cache


def search(step, cache, max_lengths, beam_size, end=EOS, **options):
    """`beam_search` as a list; compiled on JAX, which else compiles each operation."""
    max_lengths = np.array(max_lengths, "int32")
    options = {"max_length": max(1, int(max_lengths.max())), **options}

    def run(cache, max_lengths):
        return beam_search(
            step, cache, max_lengths, beam_size, start_token_id=0, end_token_id=end, **options
        )

    if BACKEND == "jax":
        run = compile_for_inference(run, built_layer())
    return as_list(run(cache, max_lengths))


def built_layer():
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    return layer


# --- the worked example -------------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["best", "n_best", "n_best_2017"])
def test_example_final_n_best(stop):
    (got,) = search(example_step, {}, [6], 2, stop=stop)
    assert_same(got, [(-1.6048196659, (A, B, EOS), True), (-1.8971199849, (EOS,), True)])


@pytest.mark.backends("torch")
def test_example_finished_after_each_step():
    """Five sentences, cut off after 1, 2, .. 5 steps."""
    last = [(-1.60481967, (A, B, EOS), True), (-1.89711998, (EOS,), True)]
    second = [(-1.89711998, (EOS,), True), (-1.99179218, (B, EOS), True)]
    got = search(example_step, {}, [1, 2, 3, 4, 5], 2, stop="n_best")
    for slots, expected in zip(got, [second[:1], second, last, last, last], strict=True):
        assert_same(slots, expected)


@pytest.mark.parametrize("stop, calls", [("best", 4), ("n_best", 5), ("n_best_2017", 5)])
@pytest.mark.backends("tensorflow", "torch")
def test_example_number_of_steps(stop, calls):
    assert positions_searched(example_step, [6], 2, stop) == list(range(calls))


def positions_searched(step, max_lengths, beam_size, stop="best"):
    positions = []

    def recording(token_ids, index, cache):
        positions.append(int(index))
        return step(token_ids, index, cache)

    search(recording, {}, max_lengths, beam_size, stop=stop)
    return positions


def test_length_penalty_values():
    """Six sentences that end after 1, 2, .. 6 tokens for sure, with probability 1/2 altogether."""
    values = [1, 1.0969026199, 1.1884016386, 1.2754245006, 1.3586551827, 1.4386159163]
    goes_on = np.log([1e-30, 1e-30, 1.0, 1e-30])
    last = np.log([1e-30, 0.5, 1e-30, 0.5])  # EOS, or a token after which the limit cuts
    rows = np.array([[goes_on] * n + [last] * (6 - n) for n in range(6)], "float32")

    def step(token_ids, index, cache):
        row = ops.take(ops.convert_to_tensor(rows), index, axis=1)
        return ops.repeat(row[:, None], token_ids.shape[1], axis=1), cache

    got = search(step, {}, [1, 2, 3, 4, 5, 6], 3)
    for length, (slots, value) in enumerate(zip(got, values, strict=True), start=1):
        expected = (math.log(0.5) / value, (*[2] * (length - 1), EOS), True)
        assert_same(slots[:1], [expected])


# --- random tables, in which everything before matters ------------------------------------------


def history_step(tables, limit):
    """A step that knows its prefix only from the cache, which has leaves of two ranks."""
    size = tables.vocabulary_size
    codes = size ** (limit - 1)
    rows = np.zeros((tables.num_sentences, limit, codes, size), "float32")
    for sentence in range(tables.num_sentences):
        for length in range(limit):
            for prefix in itertools.product(range(size), repeat=length):
                code = sum(token * size**i for i, token in enumerate(prefix))
                rows[sentence, length, code] = tables.log_probabilities(sentence, prefix)
    flat = rows.reshape(-1, size)
    sentences = np.arange(tables.num_sentences, dtype="int32")[:, None]
    weights = size ** np.arange(limit, dtype="int32")

    def step(token_ids, index, cache):
        # Position 0 feeds the start token, which is no part of the prefix.
        weight = ops.where(index > 0, ops.take(ops.convert_to_tensor(weights), index - 1), 0)
        code = cache["code"] + token_ids * weight
        here = ops.equal(ops.arange(limit, dtype="int32"), index - 1)
        history = ops.where(here, token_ids[:, :, None], cache["nested"]["history"])
        seen = ops.cast(ops.sum(history * ops.convert_to_tensor(weights), -1), "int32")
        # Half of the answer from either leaf: a wrong reorder of one of them shows.
        first = (ops.convert_to_tensor(sentences) * limit + index) * codes
        table = ops.convert_to_tensor(flat)
        logits = ops.take(table, first + code, axis=0) + ops.take(table, first + seen, axis=0)
        return logits / 2, {"code": code, "nested": {"history": history}}

    return step


def history_cache(batch_size, beam_size, limit):
    return {
        "code": ops.zeros((batch_size, beam_size), dtype="int32"),
        "nested": {"history": ops.zeros((batch_size, beam_size, limit), dtype="int32")},
    }


def search_tables(tables, limits, beam_size, end, **options):
    limit = max(limits)
    step = history_step(tables, limit)
    cache = history_cache(len(limits), beam_size, limit)
    return search(step, cache, limits, beam_size, end, **options)


@pytest.mark.parametrize(
    "vocabulary_size, limit, beam_size, alpha", [(4, 4, 54, 0.6), (3, 5, 31, 1.3)]
)
def test_wide_beam_finds_every_hypothesis(vocabulary_size, limit, beam_size, alpha):
    tables = Tables(seed=7, num_sentences=5, vocabulary_size=vocabulary_size)
    end = vocabulary_size - 2
    options = {"length_penalty": alpha}
    got = search_tables(tables, [limit] * 5, beam_size, end, stop="n_best", **options)
    best = search_tables(tables, [limit] * 5, beam_size, end, stop="best", **options)
    greedy_is_best = 0
    for sentence in range(5):

        def row(prefix, sentence=sentence):
            return tables.log_probabilities(sentence, prefix)

        every = every_hypothesis(row, vocabulary_size, end, limit, alpha)
        assert len(every) <= beam_size
        assert_same(got[sentence], [(score, tokens, True) for score, tokens in every])
        assert_same(best[sentence][:1], got[sentence][:1])
        greedy_is_best += greedy(row, end, limit)[1] == every[0][1]
    assert greedy_is_best < 5, "greedy search would pass"


@pytest.mark.parametrize("beam_size, alpha, stop", SEARCHES)
def test_same_as_slow_search(beam_size, alpha, stop):
    """Different limits in one batch; a beam of 7 is larger than the vocabulary of 5."""
    end, limits = 3, LIMITS
    tables = Tables(seed=11, num_sentences=len(limits), vocabulary_size=5)
    got = search_tables(tables, limits, beam_size, end, length_penalty=alpha, stop=stop)
    for sentence, limit in enumerate(limits):
        expected, _ = tables.slow_search(sentence, end, limit, alpha, beam_size, stop)
        assert_same(got[sentence], expected)


def test_slow_search_cases_differ():
    """The cases above are worth something: rules, limits and widths change the answers."""
    tables = Tables(seed=11, num_sentences=11, vocabulary_size=5)

    def answers(beam_size, alpha, stop, limit=5):
        return [
            tables.slow_search(sentence, 3, limit, alpha, beam_size, stop) for sentence in range(11)
        ]

    normal = answers(3, 0.6, "best")
    steps = {steps for _, steps in normal}
    assert len(steps) > 1, "sentences stop at different steps"
    assert any(not hypotheses[0][2] for hypotheses, _ in answers(2, 0.6, "best", 1)), "unfinished"
    for other in [answers(3, 0.6, "n_best"), answers(3, 0.0, "best"), answers(2, 0.6, "best")]:
        assert other != normal


def test_larger_buffers_change_nothing():
    tables = Tables(seed=23, num_sentences=4, vocabulary_size=4)
    step = history_step(tables, 6)
    small, large = (
        search(step, history_cache(4, 3, 6), [2, 3, 4, 1], 3, max_length=size) for size in (4, 6)
    )
    assert small == large


@pytest.mark.backends("tensorflow")
def test_xla_is_eager():
    import tensorflow as tf

    tables = Tables(seed=31, num_sentences=3, vocabulary_size=4)
    step = history_step(tables, 4)

    @tf.function(jit_compile=True)
    def search(limits):
        return beam_search(
            step, history_cache(3, 2, 4), limits, 2,
            start_token_id=0, end_token_id=1, max_length=4,
        )  # fmt: skip

    limits = tf.constant([4, 3, 4])
    expected = search_tables(tables, [4, 3, 4], 2, end=1)
    for got, slots in zip(as_list(search(limits)), expected, strict=True):
        assert_same(got, slots)


@pytest.mark.backends("tensorflow")
def test_one_graph_for_any_number_of_sentences():
    """A model's search in a graph that knows neither the number of sentences nor their lengths."""
    import tensorflow as tf

    beam_size = 3
    model = Transformer(11, num_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2, seed=5)
    model.build()
    # Larger than at the start, so that sentences and beams differ.
    model.set_weights([w if w.ndim == 1 else 3.0 * w for w in model.get_weights()])

    def search(source, limits):
        memory = model.encode(source)
        cache = model.initial_cache(ops.shape(source)[0], beam_size, 6)

        def step(token_ids, index, cache):
            return model.decode_step(token_ids, index, memory, cache)

        return beam_search(
            step, cache, limits, beam_size, start_token_id=0, end_token_id=1, max_length=6
        )

    sizes = [tf.TensorSpec([None, None], "int32"), tf.TensorSpec([None], "int32")]
    graph = tf.function(search, input_signature=sizes, jit_compile=False)
    found = set()
    for source, limits in [
        ([[5, 7, 1], [2, 1, 0]], [6, 4]),
        ([[9, 3, 8, 1]], [5]),
        ([[4, 1], [8, 1], [6, 1]], [6, 0, 6]),
    ]:
        given = tf.constant(source, "int32"), tf.constant(limits, "int32")
        for got, expected in zip(as_list(graph(*given)), as_list(search(*given)), strict=True):
            assert_same(got, expected)
            found.update(tuple(slot[1]) for slot in expected)
    assert len(found) > 4, "sentences differ"


# --- edges ---------------------------------------------------------------------------------------


def constant_step(logits):
    def step(token_ids, index, cache):
        row = ops.convert_to_tensor(np.array(logits, "float32"))
        return ops.broadcast_to(row, (*token_ids.shape, len(logits))), cache

    return step


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_a_certain_end_stops_at_once(beam_size):
    """Every other token is impossible: no hypothesis stays alive, and nothing becomes NaN."""
    step = constant_step([-np.inf, 2.0, -np.inf])
    assert search(step, {}, [4, 4], beam_size, stop="n_best") == [[(0.0, (1,), True)]] * 2
    if BACKEND != "jax":
        assert positions_searched(step, [4, 4], beam_size, "n_best") == [0]


def test_a_vocabulary_of_one_token():
    assert search(constant_step([0.3]), {}, [3], 4, end=0) == [[(0.0, (0,), True)]]
    with pytest.raises(ValueError, match="one of the 1 tokens that `step` gives logits for.*=1"):
        search(constant_step([0.3]), {}, [3], 4, end=1)


def test_nothing_to_search():
    assert search(constant_step([0.3, 1.0]), {}, [0, 0], 3) == [[], []]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_scores_of_low_precision_logits_are_float32(dtype):
    logits = [1.5, 0.25, -2.0, 0.75]

    def step(token_ids, index, cache):
        row = ops.cast(ops.convert_to_tensor(logits), dtype)
        return ops.broadcast_to(row, (*token_ids.shape, 4)), cache

    (got,) = search(step, {}, [1], 2, stop="n_best")
    expected = 0.25 - math.log(sum(math.exp(x) for x in logits))
    assert_same(got, [(expected, (1,), True)])


@pytest.mark.backends("tensorflow", "torch")
def test_padding_token_fills_the_rest():
    step = constant_step(np.log([0.1, 0.8, 0.1]))
    result = beam_search(step, {}, [4], 1, start_token_id=0, end_token_id=1, pad_token_id=9)
    assert ops.convert_to_numpy(result.sequences).tolist() == [[[1, 9, 9, 9]]]
