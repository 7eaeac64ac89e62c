"""No two parts of a layer with a seed start with the same numbers or drop the same units."""

import itertools

import keras
import numpy as np
import pytest

from keras_attention import (
    FeedForward,
    MultiHeadAttention,
    Transformer,
    TransformerDecoderBlock,
    TransformerEncoderBlock,
)
from keras_attention.layers.seeds import part_initializer, part_seed
from tests.helpers import numpy


def kernels(layer):
    """The first numbers of every kernel, divided by their range, which depends on the shape."""
    found = [w for w in layer.weights if w.path.endswith("kernel")]
    return [
        keras.ops.convert_to_numpy(w).ravel()[:20] / np.sqrt(6 / np.sum(fans(w))) for w in found
    ]


def fans(kernel):
    rows, columns, *more = kernel.shape
    return (rows, columns) if not more else (rows * (columns if more[0] > columns else 1), more[0])


def seeds(layer):
    """The seed of every dropout inside a layer."""
    return [
        int(keras.ops.convert_to_numpy(w)[0])
        for w in layer.non_trainable_variables
        if "seed_generator" in w.path
    ]


def correlations(rows):
    return [abs(np.corrcoef(a, b)[0, 1]) for a, b in itertools.combinations(rows, 2)]


@pytest.mark.parametrize(
    "make,count",
    [
        (lambda **k: MultiHeadAttention(3, 4, **k), 4),
        (lambda **k: FeedForward(12, **k), 2),
        (lambda **k: TransformerEncoderBlock(3, 12, **k), 6),
        (lambda **k: TransformerDecoderBlock(3, 12, **k), 10),
    ],
    ids=["attention", "feed_forward", "encoder_block", "decoder_block"],
)
def test_kernels_start_with_numbers_of_their_own(make, count):
    layer = make(kernel_initializer=keras.initializers.GlorotUniform(5))
    shape = (None, 7, 12)
    layer.build(shape, *([shape] if count in (4, 10) else []))
    assert len(kernels(layer)) == count
    assert max(correlations(kernels(layer))) < 0.9
    same = make(kernel_initializer=keras.initializers.GlorotUniform(5))
    same.build(shape, *([shape] if count in (4, 10) else []))
    for one, another in zip(kernels(layer), kernels(same), strict=True):
        np.testing.assert_array_equal(one, another)


@pytest.mark.parametrize(
    "block,count", [(TransformerEncoderBlock, 4), (TransformerDecoderBlock, 6)]
)
def test_dropouts_have_seeds_of_their_own(block, count):
    layer = block(3, 12, dropout=0.1, attention_dropout=0.1, activation_dropout=0.1, seed=5)
    layer.build((None, 7, 12))
    assert len(seeds(layer)) == len(set(seeds(layer))) == count


def test_without_a_seed_nothing_is_fixed():
    assert part_seed(None, "query") is None
    unseeded = keras.initializers.GlorotUniform()
    values = [numpy(part_initializer(unseeded, "query")((3, 5))) for _ in range(2)]
    assert np.abs(values[0] - values[1]).max() > 0.01
    zeros = part_initializer(keras.initializers.Zeros(), "query")
    assert isinstance(zeros, keras.initializers.Zeros)


@pytest.mark.parametrize(
    "options",
    [
        {"position_layout": "learned", "max_length": 7},
        {"tie_weights": False},
        {"decoder_cell": "ssru"},
    ],
)
def test_a_models_seed_decides_all_initial_weights(options):
    first, same, other = (
        Transformer(11, 1, 8, 12, 2, seed=seed, **options).trainable_weights for seed in (3, 3, 4)
    )
    for weight, its, another in zip(first, same, other, strict=True):
        np.testing.assert_array_equal(numpy(weight), numpy(its))
        is_constant = np.ptp(numpy(weight)) == 0.0  # biases and scales
        assert is_constant or not np.array_equal(numpy(weight), numpy(another))
    positions = [numpy(weight) for weight in first if weight.path.endswith("positions")]
    assert not positions or np.abs(positions[0] - positions[1]).max() > 0.01
