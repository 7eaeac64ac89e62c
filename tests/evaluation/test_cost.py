"""Costs against sums over the model's own kernels, against XLA's count, and against the paper."""

import keras
import numpy as np
import pytest

from keras_attention.evaluation import cost
from keras_attention.evaluation.cost import (
    ModelSizes,
    flops_utilization,
    matmul_peak,
    paper_training_cost,
    training_flops,
    transformer_flops,
)
from keras_attention.evaluation.memory import training_memory
from keras_attention.models import PRESETS, Transformer

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
        if "token_embedding" in path:
            positions = target  # the look-ups are free, the projection to the vocabulary is not
        elif "encoder_block" in path:
            positions = source
        elif "cross" in path and ("key" in path or "value" in path):
            positions = source
        else:
            positions = target
        total += 2 * positions * numbers
    per_pair = 2 * 3 * (5 + 7)  # of a query and a key, over the heads
    return total + 2 * per_pair * (source * source + target * target + target * source)


def test_flops_equal_a_sum_over_the_kernels():
    model = Transformer(**SIZES)
    assert sum("cross" in v.path for v in model.trainable_variables) >= 8
    expected = flops_of_kernels(model, S, T)
    assert transformer_flops(model, S, T) == expected
    assert transformer_flops(SIZES, S, T) == expected
    assert training_flops(model, [(B, S, T), (2, 3, 5)]) == 3 * (
        B * expected + 2 * flops_of_kernels(model, 3, 5)
    )


def test_flops_of_many_rows_and_without_overflow():
    lengths = np.array([3, S]), np.array([T, 5])
    rows = transformer_flops(SIZES, *lengths)
    assert rows.tolist() == [transformer_flops(SIZES, 3, T), transformer_flops(SIZES, S, 5)]
    small = transformer_flops(SIZES, np.array([200], "uint16"), np.array([201], "int32"))
    assert small.tolist() == [transformer_flops(SIZES, 200, 201)]


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="XLA's count, read through JAX")
def test_flops_and_memory_agree_with_xla():
    import jax

    # Wide enough that the matrix products outweigh what is not counted.
    model = Transformer(600, num_layers=1, hidden_dim=96, intermediate_dim=384, num_heads=2)
    inputs = {
        "encoder_token_ids": np.full((B, S), 3),
        "decoder_token_ids": np.full((B, T), 3),
    }
    state = [v.value for v in model.non_trainable_variables]

    def total(weights, training):
        values = [*weights, *state]
        variables = [*model.trainable_variables, *model.non_trainable_variables]
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return keras.ops.sum(keras.ops.square(model(inputs, training=training)))

    weights = [v.value for v in model.trainable_variables]
    forward = jax.jit(lambda w: total(w, False)).lower(weights).compile()
    assert forward.cost_analysis()["flops"] == pytest.approx(
        B * transformer_flops(model, S, T), rel=0.04
    )
    gradient = jax.jit(jax.grad(lambda w: total(w, True))).lower(weights).compile()
    assert gradient.cost_analysis()["flops"] == pytest.approx(
        training_flops(model, [(B, S, T)]), rel=0.06
    )
    memory = training_memory(model, B, S, T)
    temporary = gradient.memory_analysis().temp_size_in_bytes
    assert 0.5 < temporary / (memory.activations + memory.logits) < 2


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"use_attention_bias": True},
        {"normalize_first": True},
        {"tie_weights": False},
        {"position_layout": "learned", "max_length": 17},
        {"key_dim": None, "value_dim": None},
    ],
    ids=str,
)
def test_parameters_equal_the_models(changes):
    arguments = {**SIZES, **changes}
    model = Transformer(**arguments)
    assert ModelSizes.of(arguments).parameters == model.count_params()
    assert ModelSizes.of(model) == ModelSizes.of(arguments)


@pytest.mark.parametrize(
    ("preset", "count"),
    [("base", 63_045_632), ("big", 214_171_648), ("table3_e_learned_positions", 63_307_776)],
)
def test_parameters_of_the_paper(preset, count):
    assert ModelSizes.of({**PRESETS[preset], "vocabulary_size": 37000}).parameters == count


def test_the_paper_figure():
    assert paper_training_cost(43_200) == pytest.approx(3.2832e18, rel=1e-12)
    assert paper_training_cost(302_400, 8, "P100") == pytest.approx(2.2982e19, rel=1e-4)
    assert paper_training_cost(10, 3, "K80") == pytest.approx(8.4e13)
    assert paper_training_cost(10, 1, "K40") + paper_training_cost(10, 1, "M40") == 9.7e13


def test_memory_adds_up():
    memory = training_memory(SIZES, B, S, T)
    parameters = ModelSizes.of(SIZES).parameters
    assert (memory.weights, memory.gradients, memory.moments) == (
        4 * parameters,
        4 * parameters,
        8 * parameters,
    )
    assert memory.logits == 2 * 4 * B * T * 211
    assert memory.total == 16 * parameters + memory.activations + memory.logits
    assert "an estimate" in str(memory)
    twice = training_memory(SIZES, 2 * B, S, T, "mixed_bfloat16", accumulate=True)
    assert (twice.weights, twice.gradients) == (4 * parameters, 8 * parameters)
    assert (twice.activations, twice.logits) == (memory.activations, memory.logits)


def test_recomputation_keeps_the_inputs_of_blocks_and_the_rest_of_one():
    plain, deeper, recomputed, deeper_recomputed = (
        training_memory({**SIZES, "num_layers": layers, "recompute": recompute}, B, S, T)
        for recompute in (False, True)
        for layers in (3, 7)
    )
    inputs = 4 * B * (S + T) * SIZES["hidden_dim"]
    assert deeper_recomputed.activations - recomputed.activations == 4 * inputs
    assert deeper.activations - plain.activations > 4 * 4 * inputs
    assert recomputed.activations < plain.activations
    assert (recomputed.weights, recomputed.logits) == (plain.weights, plain.logits)


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


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_peak_of_this_machine(dtype):
    assert 1e6 < matmul_peak(dtype, seconds=0.02) < 1e17


def test_share_of_the_peak():
    assert flops_utilization(6e9, seconds=3.0, peak=8e9) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: paper_training_cost(5, device="H100"), "K80, K40, M40, P100. Received: .*H100"),
        (lambda: paper_training_cost(-1), "`seconds` must not be negative"),
        (lambda: paper_training_cost(1, devices=0), "devices=0"),
        (lambda: transformer_flops(PRESETS["base"], 3, 4), "Absent: vocabulary_size"),
        (lambda: transformer_flops(SIZES, 3.5, 4), "`source_length` must hold integers"),
        (lambda: transformer_flops(SIZES, 3, -4), "`target_length` must hold integers"),
        (lambda: flops_utilization(1, 0, 1), "must be positive. Received: seconds=0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
