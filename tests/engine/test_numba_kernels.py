"""Numba's operations against NumPy, in float64 where they are not integers."""

import math
import platform
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("numba")

import numba

from keras_attention.engine.base import Draws, TokenRules
from keras_attention.engine.numba.attention import PREFETCHED_SLOTS, attend, exponentials
from keras_attention.engine.numba.choice import choose
from keras_attention.engine.numba.compiling import has_features
from keras_attention.engine.numba.engine import choice_of
from keras_attention.engine.numba.layers import ACTIVATIONS, activate, normalize, top_log_probs
from keras_attention.engine.numba.packing import Packing, eight_bit_scales, pack_rows
from keras_attention.engine.numba.threads import pass_barrier
from keras_attention.engine.numba.tiles import multiply
from tests.helpers import ROOT, python

pytestmark = pytest.mark.backends("torch")

PRECISIONS = ("float32", "bfloat16", "int8")
# What a processor may have beside what all have; what it has not is passed over.
NATIVE = [("amx", "avx512", "avx2"), ("avx512",), ("avx2",), ()]
# Fewer rows than a tile has and more, a group and a rest; no whole panel, no whole step.
SIZES = [(1, 12, 13), (4, 64, 32), (5, 37, 45), (13, 33, 31), (17, 96, 64), (43, 70, 100)]


def numbers(*shape, seed=3):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def rounded(x):
    return x.astype(ml_dtypes.bfloat16).astype("float64")


def quantized(x, axis=1):
    """Integers of 8 bits and their scales, for each row."""
    scale = np.abs(x).max(axis=axis, keepdims=True) / np.float32(127)
    return np.rint(x / scale).astype("int64"), scale.astype("float64")


@numba.njit
def packed_product(layout, x, begin, depth, workspace, matrix, floor, threads, outputs):
    """All threads' parts, one after the other, of some columns of `x`."""
    pack_rows(layout, workspace, x, begin, depth, (0, len(x)))
    for rank in range(threads):
        multiply(layout, len(x), workspace, matrix, floor, rank, threads, outputs)


def product(packing, x, weight, bias, relu=False, threads=2):
    outputs = np.full((len(x), len(weight)), np.nan, "float32")
    packed = packing.pack_weight(weight, bias)
    matrix = np.array(packing.matrix(packed, *weight.shape))
    floor = np.float32(0.0 if relu else -np.inf)
    depth, begin = weight.shape[1], 3
    workspace = packing.workspace(len(x), depth)
    x = np.pad(x, [(0, 0), (begin, 2)], constant_values=np.nan)
    packed_product(packing.layout, x, begin, depth, workspace, matrix, floor, threads, outputs)
    return outputs


def wanted_product(packing, x, weight, bias):
    if packing.precision == "int8":
        (q_x, s_x), (q_w, s_w) = quantized(x), quantized(weight)
        return (q_x @ q_w.T) * s_x * s_w.T + bias
    if packing.precision == "bfloat16":
        weight = rounded(weight)
        x = x if packing.kernel == "bfloat16" else rounded(x)
    return x.astype("float64") @ weight.astype("float64").T + bias


@pytest.mark.parametrize("native", NATIVE)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("rows, depth, width", SIZES)
def test_product(rows, depth, width, precision, native):
    packing = Packing(precision, native)
    x, weight, bias = numbers(rows, depth), numbers(width, depth, seed=4), numbers(width, seed=5)
    wanted = wanted_product(packing, x, weight, bias)
    # A number in the middle of two integers may be rounded to either.
    tolerance = {"atol": 0.05, "rtol": 0} if precision == "int8" else {"atol": 2e-5, "rtol": 1e-5}
    got = product(packing, x, weight, bias)
    np.testing.assert_allclose(got, wanted, **tolerance)
    if precision == "int8":
        assert np.median(np.abs(got - wanted)) < 1e-5
    np.testing.assert_array_equal(product(packing, x, weight, bias, relu=True), np.maximum(got, 0))
    alone = [product(packing, x[r : r + 1], weight, bias)[0] for r in (0, rows - 1)]
    np.testing.assert_array_equal(alone, got[[0, -1]], "a row is the same whatever is beside it")
    np.testing.assert_array_equal(product(packing, x, weight, bias, threads=3), got)


def eight_bit_weight(scales, depth, seed=4):
    """Integers times a scale for each row; each scale has a 127 in its first row."""
    integers = np.random.default_rng(seed).integers(-126, 127, (len(scales), depth))
    _, first = np.unique(scales, return_index=True)
    integers[first, 1] = 127
    return integers.astype("float32") * np.float32(scales)[:, None], integers


SCALES = {
    "one of a matrix": [0.013] * 45,
    "one of each row": 0.01 + 0.002 * np.arange(45) ** 1.5,
    "of three joined matrices": [0.013] * 20 + [0.11] * 12 + [0.0021] * 13,
}


@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
def test_weights_of_8_bits_are_known(scales):
    weight, integers = eight_bit_weight(scales, 37)
    weight[:, 5] = 0.0
    integers[:, 5] = 0
    found = eight_bit_scales(weight)
    np.testing.assert_allclose(found[:, None] * integers, weight, rtol=5e-7)
    np.testing.assert_array_equal(np.rint(weight / found[:, None]), integers)


def test_other_weights_are_not_taken_for_8_bits():
    weight, _ = eight_bit_weight(SCALES["one of a matrix"], 37)
    weight[3, 4] *= 1 + 2e-5
    assert eight_bit_scales(weight) is None
    assert eight_bit_scales(numbers(45, 37)) is None
    assert eight_bit_scales(np.full((2, 3), np.nan, "float32")) is None


@pytest.mark.parametrize("rows, depth, width", SIZES)
def test_product_of_float32_and_weights_of_8_bits(rows, depth, width):
    """What the weights lose is nothing, and the rows are not rounded."""
    packing = Packing("float32", stored="int8")
    weight, _ = eight_bit_weight(0.003 + 0.001 * np.arange(width), depth)
    x, bias = numbers(rows, depth), numbers(width, seed=5)
    got = product(packing, x, weight, bias)
    wanted = x.astype("float64") @ weight.astype("float64").T + bias
    np.testing.assert_allclose(got, wanted, atol=2e-5, rtol=1e-5)
    np.testing.assert_array_equal(product(packing, x, weight, bias, relu=True), np.maximum(got, 0))
    np.testing.assert_array_equal(product(packing, x[:1], weight, bias), got[:1])
    assert packing.pack_weight(weight, bias)[0].nbytes < weight.nbytes / 4 + 64 * (depth + width)


def test_int8_does_not_round_weights_of_8_bits_again():
    scales = [0.0131] * 45
    weight, integers = eight_bit_weight(scales, 37)
    integers[:, 0] = weight[:, 0] = 0
    packed, _, found, _ = Packing("int8", ()).pack_weight(weight, None)
    steps = packed.transpose(0, 2, 1, 3).reshape(64, -1)[:45, :37]
    np.testing.assert_array_equal(steps, integers)
    np.testing.assert_allclose(found.ravel()[:45], scales, rtol=1e-6)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names processors of x86")
def test_product_without_avx512():
    """For a processor of another kind, in a process that compiles for it."""
    program = (
        "from keras_attention.engine.numba import compiling, tiles;"
        "from tests.engine.test_numba_kernels import *;"
        "assert tiles.tile_rows('float32') == (2, 2) and not compiling.has_amx('int8');"
        "[test_product(*sizes, precision, NATIVE[0]) for sizes in SIZES for precision in PRECISIONS];"
        "test_bytes_do_not_overflow(NATIVE[0]);"
        "[test_product_of_float32_and_weights_of_8_bits(*sizes) for sizes in SIZES];"
        "test_product(*SIZES[2], 'int8', ());"
        "code = [(str(kind), text) for kind, text in packed_product.inspect_asm().items()];"
        "widened = [text for kind, text in code if 'Layout(array(int32, 1d, C), array(int8' in kind];"
        "bytes_ = [text for kind, text in code if 'Layout(array(int16, 1d, C), array(int8' in kind];"
        "assert widened and bytes_;"
        "assert all('vpmaddwd' in text and 'vpmaddubsw' not in text for text in widened);"
        "assert all('vpmaddubsw' in text for text in bytes_);"
        "print('the same')"
    )
    processor = {"CPU_NAME": "haswell", "CPU_FEATURES": "+sse4.2,+avx,+avx2,+fma"}
    environment = {f"NUMBA_{name}": value for name, value in processor.items()}
    assert python("-c", program, environment=environment).stdout.strip() == "the same"


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_is_not_finite_stays_so(precision):
    x = np.array([[1.0, np.nan], [0.0, 0.0], [np.inf, 1.0], [2.0, -3.0]], "float32")
    outputs = product(Packing(precision), x, np.eye(2, dtype="float32") + 1, np.zeros(2, "float32"))
    assert not np.isfinite(outputs[[0, 2]]).any()
    np.testing.assert_array_equal(outputs[1], 0.0)
    np.testing.assert_allclose(outputs[3], [1.0, -4.0], rtol=0.02)


@pytest.mark.parametrize("native", NATIVE)
def test_bytes_do_not_overflow(native):
    """All products at their largest: what sums of 16 bits, or those of float32, would not hold."""
    x = np.ones((2, 4096), "float32")
    x[1] = -1.0
    weight, bias = np.ones((3, 4096), "float32"), np.zeros(3, "float32")
    outputs = product(Packing("int8", native), x, weight, bias)
    np.testing.assert_allclose(outputs, [[4096.0] * 3, [-4096.0] * 3], rtol=1e-6)


@numba.njit
def attend_all(kv, query, keys, values, slots, count, scores, outputs):
    """One head's queries (T, d) over slots of its keys (P, d) and values (P, d')."""
    head_keys = (keys.ctypes.data, keys.strides[0])
    head_values = (values.ctypes.data, values.strides[0])
    for t in range(len(query)):
        attend(
            kv, query[t].ctypes.data, query.shape[1], head_keys, head_values, outputs.shape[1],
            slots.ctypes.data, count, scores, outputs[t].ctypes.data,
        )  # fmt: skip


@pytest.mark.parametrize("key_dim, value_dim", [(64, 64), (5, 6), (64, 19)])
@pytest.mark.parametrize("kv", ["float32", "bfloat16"])
@pytest.mark.parametrize("count", [7, 0])
def test_attention(key_dim, value_dim, kv, count):
    length, room = 3, 11
    query = numbers(length, key_dim) / np.float32(key_dim**0.5)
    key, value = numbers(room, key_dim, seed=4), numbers(room, value_dim, seed=5)
    slots = np.concatenate([[9, 0, 3, 4, 10, 2, 7], np.zeros(PREFETCHED_SLOTS, "int64")])
    unseen = np.setdiff1d(np.arange(room), slots[:count])
    key[unseen] = value[unseen] = np.nan  # that nobody looks at
    given = [key, value]
    if kv == "bfloat16":
        given = [part.astype(ml_dtypes.bfloat16).view("uint16") for part in (key, value)]
        key, value = rounded(key), rounded(value)
    outputs = np.full((length, value_dim), np.nan, "float32")
    scores = np.empty(room, "float32")
    attend_all(given[0][:0], query, *given, slots.astype("int64"), count, scores, outputs)
    seen = slots[:count]
    powers = np.exp(query.astype("float64") @ key[seen].astype("float64").T)
    wanted = powers / np.maximum(powers.sum(axis=1, keepdims=True), 1e-30) @ value[seen]
    np.testing.assert_allclose(outputs, wanted, atol=2e-6)


def test_exponentials():
    x = np.linspace(-85.0, 0.0, 10_007, dtype="float32") + np.float32(3.0)
    found = x.copy()
    total = exponentials(found, np.float32(3.0))
    wanted = np.exp(x.astype("float64") - 3.0)
    np.testing.assert_allclose(found, wanted, rtol=4e-6)
    assert total == pytest.approx(wanted.sum(), rel=1e-5)
    hidden = np.array([-np.inf, 0.0], "float32")
    assert exponentials(hidden, np.float32(0.0)) == pytest.approx(1.0) and hidden[0] < 1e-37


@pytest.mark.parametrize("share", [1, 0])
def test_norm(share):
    """Without a share of the mean, RMSNorm."""
    x, gamma, beta = numbers(37) + 0.5, numbers(37, seed=5), numbers(37, seed=6)
    outputs = x.copy()
    normalize(outputs, np.stack([gamma, beta, np.full_like(x, share)]), np.float32(1e-3))
    centered = x.astype("float64") - share * x.mean(dtype="float64")
    wanted = centered / np.sqrt((centered**2).mean() + 1e-3) * gamma + beta
    np.testing.assert_allclose(outputs, wanted, atol=2e-6)


@pytest.mark.parametrize("name", ACTIVATIONS[2:])
def test_activations(name):
    x = np.linspace(-90.0, 90.0, 361)
    sigmoid = np.where(x < 0, np.exp(np.minimum(x, 0)), 1.0) / (1.0 + np.exp(-np.abs(x)))
    wanted = {
        "gelu": [0.5 * v * (1.0 + math.erf(v / 2**0.5)) for v in x],
        "silu": x * sigmoid,
        "tanh": np.tanh(x),
        "sigmoid": sigmoid,
    }[name]
    outputs = x.astype("float32")
    activate(ACTIVATIONS.index(name), outputs)
    np.testing.assert_allclose(outputs, wanted, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("vocabulary_size, width", [(700, 7), (6, 6), (3, 1)])
def test_top_log_probs(vocabulary_size, width):
    logits = numbers(5, vocabulary_size)
    logits[2] = np.round(logits[2])  # ties
    wanted = logits - np.log(np.exp(logits.astype("float64")).sum(axis=1, keepdims=True))
    order = np.argsort(-logits, axis=1, kind="stable")[:, :width]
    for row in range(5):
        values, ids = np.empty(width, "float32"), np.empty(width, "int32")
        top_log_probs(logits[row], values, ids)
        np.testing.assert_array_equal(ids, order[row])
        np.testing.assert_allclose(values, wanted[row, order[row]], atol=2e-6)


def test_top_log_probs_of_what_is_not_a_number():
    logits = numbers(300)
    logits[270] = np.nan
    values, ids = np.empty(4, "float32"), np.empty(4, "int32")
    top_log_probs(logits, values, ids)
    assert np.isnan(values).all() and ids.min() >= 0 and ids.max() < 300


def choice_with(rules=None, draws=None):
    return choice_of(rules, draws, 1, slice(None))


def chosen(choice, logits, width=1, tokens=(), sentence=0):
    logits, hypothesis = logits.copy(), np.full(9, 5, "int32")
    hypothesis[: len(tokens)] = tokens
    values, ids = np.empty(width, "float32"), np.empty(width, "int32")
    choose(choice, sentence, hypothesis, len(tokens), logits, logits.copy(), values, ids)
    return values, ids


@pytest.mark.parametrize(
    "temperature, top_k, top_p", [(1.0, 0, 1.0), (0.7, 9, 1.0), (1.6, 0, 0.9), (1.3, 50, 0.6)]
)
def test_a_random_token_is_where_the_cumulative_distribution_says(temperature, top_k, top_p):
    logits = 3 * numbers(40, 700)
    uniforms = np.linspace(0.001, 0.999, 40, dtype="float32")[:, None]
    choice = choice_with(draws=Draws(uniforms, temperature, top_k, top_p))
    for row, logit in enumerate(logits.astype("float64")):
        powers = np.exp((logit - logit.max()) / temperature)
        order = np.argsort(-powers)
        powers[order[top_k or 700 :]] = 0.0
        before = np.cumsum(powers[order]) - powers[order]
        powers[order[before >= top_p * powers.sum()]] = 0.0
        wanted = np.searchsorted(np.cumsum(powers), uniforms[row, 0] * powers.sum(), side="right")
        values, ids = chosen(choice, logits[row], sentence=row)
        assert ids[0] == wanted and powers[wanted] > 0
        log_probability = logit[wanted] - np.log(np.exp(logit).sum())
        np.testing.assert_allclose(values[0], log_probability, atol=3e-6)


def test_what_may_not_follow_scores_nothing():
    """No bigram twice, no banned sequence, no end yet: the others score as they would."""
    logits = numbers(300)
    banned = np.array([[7, -1, -1], [8, 9, -1], [6, 8, 11], [9, 8, 12]], "int32")
    tokens = [4, 8, 5, 4, 6, 8]  # 8 was followed by 5; 6 8 by nothing
    values, ids = chosen(choice_with(TokenRules(2, 7, 0, banned)), logits, 300, tokens)
    wrong = {1, 5, 7, 9, 11}
    assert set(ids[np.isfinite(values)]) == {*range(300)} - wrong
    plain = logits - np.log(np.exp(logits.astype("float64")).sum())
    np.testing.assert_allclose(values[:295], plain[ids[:295]], atol=3e-6)
    prefixes = np.array([[3, -1]], "int32")
    for rules, start, only in [
        (TokenRules(1, 0, 2, banned), [4, 8], 1),
        (TokenRules(1, 0, 0, banned, prefixes), [], 3),
    ]:
        values, ids = chosen(choice_with(rules), logits, 2, start)
        assert ids[0] == only and np.isneginf(values[1])
        np.testing.assert_allclose(values[0], plain[only], atol=3e-6)


@numba.njit(nogil=True)
def count_rounds(barrier, thread, threads, rounds, counts):
    """Each round ends when all have counted; returns how many saw another's count too low."""
    wrong = 0
    for index in range(rounds):
        counts[thread] += 1
        pass_barrier(barrier, threads)
        for other in range(threads):
            wrong += counts[other] != index + 1
        pass_barrier(barrier, threads)
    return wrong


def test_all_wait_for_all():
    """More threads than most machines that test have processors: some must sleep."""
    threads, rounds = 5, 40
    barrier, counts = np.zeros(2, "int64"), np.zeros(threads, "int64")

    def run(thread):
        return count_rounds(barrier.ctypes.data, thread, threads, rounds, counts)

    with ThreadPoolExecutor(threads) as pool:
        assert list(pool.map(run, range(threads))) == [0] * threads
    assert counts.tolist() == [rounds] * threads


@pytest.mark.skipif(not hasattr(time, "CLOCK_THREAD_CPUTIME_ID"), reason="needs a clock a thread")
def test_who_waits_leaves_the_processor_to_others():
    barrier, counts = np.zeros(2, "int64"), np.zeros(2, "int64")
    count_rounds(barrier.ctypes.data, 0, 2, 0, counts)  # compiles

    def wait():
        before = time.thread_time()
        count_rounds(barrier.ctypes.data, 0, 2, 1, counts)
        return time.thread_time() - before

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        time.sleep(1.0)
        count_rounds(barrier.ctypes.data, 1, 2, 1, counts)
        # Seconds of processor time: one that spins takes the whole second.
        assert waiting.result() < 0.3


def test_amx_is_asked_for_only_where_it_is():
    assert not has_features("no-such-feature")


def test_compiled_code_is_not_kept_beyond_a_change_of_what_it_uses(tmp_path):
    """Numba itself looks at the file of a function alone, not at those of what it calls."""
    for name in ("keras_attention", "keras_attention_light"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    program = (
        "import keras_attention_light, numba, numpy\n"
        "from keras_attention.engine.numba.compiling import compiled\n"
        "from keras_attention.engine.numba.layers import store_kv\n"
        "arguments = numpy.array([1.005859375], 'float32'), numpy.zeros(1, 'uint16')\n"
        "run = compiled(store_kv.py_func, tuple(map(numba.typeof, arguments)))\n"
        "run(*arguments)\n"
        "print(hex(arguments[1][0]), sum(run.stats.cache_hits.values()))\n"
    )

    def printed():
        own = {"PYTHONPATH": str(tmp_path)}
        return python("-c", program, environment=own, cwd=tmp_path).stdout.split()

    assert [printed(), printed()] == [["0x3f81", "0"], ["0x3f81", "1"]]
    used = tmp_path / "keras_attention/engine/numba/packing.py"
    text = used.read_text()
    used.write_text(text.replace("np.uint32(0x7FFF)", "np.uint32(0)"))  # truncates
    assert printed() == ["0x3f80", "0"]
