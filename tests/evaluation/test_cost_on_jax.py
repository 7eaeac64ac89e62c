"""Costs against JAX' programs, and against what XLA counts of them."""

import functools
import math

import keras
import numpy as np
import pytest

from keras_attention import training_flops
from keras_attention.models import Transformer

pytestmark = pytest.mark.backends("jax")

B, S, T = 4, 11, 13


def products(jaxpr):
    """FLOPs of every product of matrices in a JAX program, and of its parts; loops as often as they run."""
    total = 0
    for step in jaxpr.eqns:
        if step.primitive.name == "dot_general":
            (axes, _), _ = step.params["dimension_numbers"]
            inner = math.prod(step.invars[0].aval.shape[axis] for axis in axes)
            total += 2 * inner * math.prod(step.outvars[0].aval.shape)
        times = step.params["length"] if step.primitive.name == "scan" else 1
        for part in jax_parts(step.params):
            total += times * products(part)
    return total


def jax_parts(parameters):
    for value in parameters.values():
        value = getattr(value, "jaxpr", value)
        if hasattr(value, "eqns"):
            yield value


def test_flops_agree_with_jax():
    import jax

    # Wide enough that the matrix products outweigh what XLA counts besides.
    model = Transformer(600, num_layers=2, hidden_dim=96, intermediate_dim=384, num_heads=2)
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
    counted = training_flops(model, [(B, S, T)])
    forward = functools.partial(total, training=False)
    assert 3 * products(jax.make_jaxpr(forward)(weights).jaxpr) == counted
    gradient = jax.grad(functools.partial(total, training=True))
    assert products(jax.make_jaxpr(gradient)(weights).jaxpr) == counted
    compiled = jax.jit(gradient).lower(weights).compile()
    assert compiled.cost_analysis()["flops"] == pytest.approx(counted, rel=0.06)
