"""Costs against sums over the model's own kernels and over a run's batches, and against the paper."""

import numpy as np
import pytest

from keras_attention import matmul_peak, training_cost, training_flops
from keras_attention.evaluation import cost, transformer_flops
from keras_attention.models import PRESETS, Transformer

pytestmark = pytest.mark.backends("torch")

SIZES = {
    "vocabulary_size": 211,
    "num_layers": 2,
    "hidden_dim": 30,
    "intermediate_dim": 72,
    "num_heads": 3,
    "key_dim": 5,
    "value_dim": 7,
}
B, S, T = 4, 11, 13


def flops_of_kernels(model, source, target):
    """Every kernel of the model times the positions that meet it, and the attention products."""
    total = 0
    for variable in model.trainable_variables:
        path, numbers = variable.path, int(np.prod(variable.shape))
        if "norm" in path or "bias" in path:
            continue
        if "embedding" in path:  # the look-ups are free, the projection to the vocabulary is not
            is_read_only = "token" in path and model.target_embedding is not None
            is_read_only |= path.endswith("/embeddings") and not model.output_embedding.tie_weights
            positions = 0 if is_read_only else target
        elif "encoder_block" in path:
            positions = source
        elif "cross" in path and ("key" in path or "value" in path):
            positions = source
        else:
            positions = target
        total += 2 * positions * numbers
    per_pair = 2 * 3 * (5 + 7)  # of a query and a key, over the heads
    encoder, cross = model.attention_layers["encoder"], model.attention_layers["cross"]
    own = model.attention_layers.get("decoder", 0)
    pairs = encoder * source * source + own * target * target + cross * target * source
    return total + per_pair * pairs


# Without other widths of heads, which `flops_of_kernels` does not know.
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_layers": (3, 1)},
        {"num_layers": [1, 2], "decoder_cell": "ssru", "gated_feed_forward": True},
        {"target_vocabulary_size": 97, "use_logits_bias": True, "final_normalization": True},
        {"target_vocabulary_size": 97, "tie_weights": False, "decoder_cell": "ssru"},
    ],
    ids=str,
)
def test_flops_equal_sums_over_the_model(changes):
    arguments = {**SIZES, **changes}
    model = Transformer(**arguments)
    expected, other = flops_of_kernels(model, S, T), flops_of_kernels(model, 3, 5)
    assert transformer_flops(model, S, T) == transformer_flops(arguments, S, T) == expected
    assert training_flops(model, [(B, S, T), (2, 3, 5)]) == 3 * (B * expected + 2 * other)


def test_heads_share_the_cost_of_one_of_full_width():
    """Section 3.2.2, by rows (A) of Table 3."""
    rows = ["base", *(f"table3_a_heads_{heads}" for heads in (1, 4, 16, 32))]
    sizes = [{**PRESETS[row], "vocabulary_size": 37_000} for row in rows]
    assert sorted(each["num_heads"] for each in sizes) == [1, 4, 8, 16, 32]
    assert len({transformer_flops(each, S, T) for each in sizes}) == 1


def test_flops_of_many_rows_and_without_overflow():
    lengths = np.array([3, S]), np.array([T, 5])
    rows = transformer_flops(SIZES, *lengths)
    assert rows.tolist() == [transformer_flops(SIZES, 3, T), transformer_flops(SIZES, S, 5)]
    small = transformer_flops(SIZES, np.array([200], "uint16"), np.array([201], "int32"))
    assert small.tolist() == [transformer_flops(SIZES, 200, 201)]


def test_peak_takes_the_best_rate(monkeypatch):
    """On a device that does 3e9 FLOP/s at size 512 and 2e9 elsewhere."""
    now = [0.0]

    def products(matrix, count):
        size = matrix.shape[0]
        seconds = count * 2 * size**3 / (3e9 if size == 512 else 2e9)
        now[0] += seconds
        return seconds

    monkeypatch.setattr(cost, "_seconds_of_products", products)
    monkeypatch.setattr(cost.time, "perf_counter", lambda: now[0])
    assert matmul_peak(seconds=2.0) == pytest.approx(3e9)


def test_peak_of_this_machine():
    assert 1e6 < matmul_peak("mixed_bfloat16", seconds=0.02) < 1e17


def test_a_size_that_is_missing_is_named():
    with pytest.raises(ValueError, match="Absent: vocabulary_size"):
        transformer_flops(PRESETS["base"], 3, 4)


SMALL = {**SIZES, "vocabulary_size": 50, "num_layers": 1}


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
    cost = training_cost(SMALL, Batches(), updates=5)
    epoch = 3 * (2 * transformer_flops(SMALL, 3, 6) + transformer_flops(SMALL, 5, 7))
    assert cost["flops"] == pytest.approx(epoch * 2.5)
    assert cost["flops_per_update"] == pytest.approx(epoch / 2)
    tokens = sum(transformer_flops(SMALL, s, t) for s, t in ((3, 4), (5, 4), (2, 6)))
    assert cost["flops_of_tokens"] == pytest.approx(3 * tokens * 2.5)
    assert cost["padding"] == pytest.approx(1 - 24 / (2 * 9 + 12))
    assert "seconds" not in cost


def test_the_share_of_a_measured_peak():
    cost = training_cost(SMALL, Batches(), 5, seconds=10, peak=2e9)
    assert (cost["seconds"], cost["peak"]) == (10, 2e9)
    assert cost["mfu"] == pytest.approx(cost["flops"] / 2e10)
    assert "mfu" not in training_cost(SMALL, Batches(), 5, seconds=10)
