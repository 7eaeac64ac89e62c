"""The cost of a run against sums over its batches, one by one."""

import numpy as np
import pytest

from keras_attention import training_cost
from keras_attention.evaluation import transformer_flops

pytestmark = pytest.mark.backends("tensorflow")

MODEL = {
    "vocabulary_size": 50,
    "num_layers": 1,
    "hidden_dim": 6,
    "intermediate_dim": 10,
    "num_heads": 2,
}


class Store:
    source_lengths = np.array([3, 5, 2, 90], "int32")
    target_lengths = np.array([4, 4, 6, 3], "int32")


class Batches:
    """Two batches of the first three pairs, and a row of padding; the fourth is too long."""

    store, max_length = Store(), 60

    def __len__(self):
        return 2

    def pairs(self, epoch, index):
        return np.array([[0, 2], [1, -1]][index])

    def shape_statistics(self):
        return [
            {"shape": (2, 3, 6), "batches": 1},  # pairs 0 and 2
            {"shape": (1, 5, 7), "batches": 1},  # pair 1
        ]


def test_flops_tokens_and_padding_are_counted():
    cost = training_cost(MODEL, Batches(), updates=5)
    epoch = 3 * (2 * transformer_flops(MODEL, 3, 6) + transformer_flops(MODEL, 5, 7))
    assert cost["flops"] == pytest.approx(epoch * 2.5)
    assert cost["flops_per_update"] == pytest.approx(epoch / 2)
    tokens = sum(transformer_flops(MODEL, s, t) for s, t in ((3, 4), (5, 4), (2, 6)))
    assert cost["flops_of_tokens"] == pytest.approx(3 * tokens * 2.5)
    assert cost["padding"] == pytest.approx(1 - 24 / (2 * 9 + 12))
    assert "seconds" not in cost


def test_the_share_of_a_measured_peak():
    cost = training_cost(MODEL, Batches(), 5, seconds=10, peak=2e9)
    assert (cost["seconds"], cost["peak"]) == (10, 2e9)
    assert cost["mfu"] == pytest.approx(cost["flops"] / 2e10)
    assert "mfu" not in training_cost(MODEL, Batches(), 5, seconds=10)
