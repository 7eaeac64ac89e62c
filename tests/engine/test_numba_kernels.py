"""Numba's operations against NumPy, in float64 where they are not integers."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("numba")

from keras_attention.engine.numba import tiles as tiles
from keras_attention.engine.numba.attention import attend, exponentials
from keras_attention.engine.numba.kernels import Storage, best, normalize

PRECISIONS = ("float32", "bfloat16", "int8")
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


def product(storage, x, weight, bias, relu=False):
    outputs = np.full((len(x), len(weight)), np.nan, "float32")
    storage.product(x, storage.packed(weight, bias), relu, outputs[None])
    return outputs


def wanted_product(storage, x, weight, bias):
    if storage.precision == "int8":
        (q_x, s_x), (q_w, s_w) = quantized(x), quantized(weight)
        return (q_x @ q_w.T) * s_x * s_w.T + bias
    if storage.precision == "bfloat16":
        weight = rounded(weight)
        x = x if storage.kind == "bfloat16" else rounded(x)
    return x.astype("float64") @ weight.astype("float64").T + bias


@pytest.mark.parametrize("native", [("amx", "avx512"), ("avx512",), ()])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("rows, depth, width", SIZES)
def test_product(rows, depth, width, precision, native):
    storage = Storage(precision, native)
    x, weight, bias = numbers(rows, depth), numbers(width, depth, seed=4), numbers(width, seed=5)
    wanted = wanted_product(storage, x, weight, bias)
    # A number in the middle of two integers may be rounded to either.
    tolerance = {"atol": 0.05, "rtol": 0} if precision == "int8" else {"atol": 2e-5, "rtol": 1e-5}
    got = product(storage, x, weight, bias)
    np.testing.assert_allclose(got, wanted, **tolerance)
    if precision == "int8":
        assert np.median(np.abs(got - wanted)) < 1e-5
    np.testing.assert_array_equal(product(storage, x, weight, bias, relu=True), np.maximum(got, 0))
    alone = [product(storage, x[r : r + 1], weight, bias)[0] for r in (0, rows - 1)]
    np.testing.assert_array_equal(alone, got[[0, -1]], "a row is the same whatever is beside it")


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names processors of x86")
def test_product_without_avx512():
    """For a processor of another kind, in a process that compiles for it."""
    program = (
        "import numpy as np; from keras_attention.engine.numba import tiles;"
        "from tests.engine.test_numba_kernels import *;"
        "assert tiles.tile_rows('float32') == (2, 2) and not tiles.has_amx('int8');"
        "[test_product(*sizes, precision, ('amx', 'avx512')) for sizes in SIZES for precision in PRECISIONS];"
        "print('the same')"
    )
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+sse4.2,+avx,+avx2,+fma",
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stdout.strip() == "the same", done.stderr[-2000:]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_is_not_finite_stays_so(precision):
    x = np.array([[1.0, np.nan], [0.0, 0.0], [np.inf, 1.0], [2.0, -3.0]], "float32")
    outputs = product(Storage(precision), x, np.eye(2, dtype="float32") + 1, np.zeros(2, "float32"))
    assert not np.isfinite(outputs[[0, 2]]).any()
    np.testing.assert_array_equal(outputs[1], 0.0)
    np.testing.assert_allclose(outputs[3], [1.0, -4.0], rtol=0.02)


def test_bytes_do_not_overflow():
    """All products at their largest: what sums of 16 bits would not hold."""
    x = np.ones((2, 4096), "float32")
    x[1] = -1.0
    outputs = product(Storage("int8"), x, np.ones((3, 4096), "float32"), np.zeros(3, "float32"))
    np.testing.assert_allclose(outputs, [[4096.0] * 3, [-4096.0] * 3], rtol=1e-6)


@pytest.mark.parametrize("key_dim, value_dim", [(64, 64), (5, 6), (64, 19)])
@pytest.mark.parametrize("kept", ["float32", "bfloat16"])
@pytest.mark.parametrize("one_bias", [True, False])
def test_attention(key_dim, value_dim, kept, one_bias):
    rows, length, heads, places, room = 2, 3, 5, 9, 4
    lines = np.array([3, 1])  # of four
    query = numbers(rows, length, heads, key_dim) / key_dim**0.5
    key = numbers(4, places + room, heads, key_dim, seed=4)
    value = numbers(4, places + room, heads, value_dim, seed=5)
    key[:, places:] = value[:, places:] = np.nan  # room that nobody looks at
    given = [key, value]
    if kept == "bfloat16":
        given = [part.astype(ml_dtypes.bfloat16).view("uint16") for part in (key, value)]
        key, value = rounded(key), rounded(value)
    is_seen = np.random.default_rng(6).random((rows, 1 if one_bias else length, places)) < 0.5
    is_seen[..., 2] = True
    is_seen[0, 0] = False
    bias = np.where(is_seen, 0.0, -1e9).astype("float32")
    outputs = np.full((rows, length, heads, value_dim), np.nan, "float32")
    attend(query, *given, lines, bias, outputs)
    scores = np.einsum("btnd,bpnd->btnp", query, key[lines, :places].astype("float64"))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True)) * is_seen[:, :, None]
    weights /= np.maximum(weights.sum(axis=-1, keepdims=True), 1e-30)
    wanted = np.einsum("btnp,bpnd->btnd", weights, value[lines, :places])
    assert not wanted[0, 0].any() and np.abs(wanted[1]).min() > 0.0
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


def test_norm_of_a_sum():
    x, update = numbers(3, 37), numbers(3, 37, seed=4)
    gamma, beta = numbers(37, seed=5), numbers(37, seed=6)
    outputs = np.empty_like(x)
    normalize(x, update, gamma, beta, np.float32(1e-3), outputs)
    total = (x + update).astype("float64")
    centered = total - total.mean(axis=1, keepdims=True)
    scale = np.sqrt(centered.var(axis=1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(outputs, centered / scale * gamma + beta, atol=2e-6)


@pytest.mark.parametrize("vocabulary_size, width", [(700, 7), (6, 6), (3, 1)])
def test_best(vocabulary_size, width):
    logits = numbers(5, vocabulary_size)
    logits[2] = np.round(logits[2])  # ties
    wanted = logits - np.log(np.exp(logits.astype("float64")).sum(axis=1, keepdims=True))
    order = np.argsort(-logits, axis=1, kind="stable")[:, :width]
    values, ids = np.empty((5, width), "float32"), np.empty((5, width), "int32")
    best(logits, values, ids)
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_allclose(values, np.take_along_axis(wanted, order, axis=1), atol=2e-6)


def test_best_of_what_is_not_a_number():
    logits = numbers(2, 300)
    logits[1, 270] = np.nan
    values, ids = np.empty((2, 4), "float32"), np.empty((2, 4), "int32")
    best(logits, values, ids)
    assert np.isfinite(values[0]).all() and np.isnan(values[1]).all()
    assert ids.min() >= 0 and ids.max() < 300


def test_amx_is_asked_for_only_where_it_is():
    assert not tiles.has_features("no-such-feature")
