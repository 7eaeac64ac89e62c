"""Layers whose intermediate results are computed again in the backward pass instead of being kept."""

from __future__ import annotations

import contextlib
from typing import Any

import keras
from keras import ops

from keras_attention.ops.dispatch import backend_choice
from keras_attention.ops.replay import replaying


def recomputed_call(layer: keras.layers.Layer, *inputs: Any, **arguments: Any) -> Any:
    """Return `layer(*inputs, **arguments)`, one tensor, but keep only the inputs for the backward pass.

    The backward pass calls the layer a second time to get its intermediate results: less memory, more
    time. Values and gradients are those of a plain call, dropout included: both calls draw from the same
    `SeedGenerator`s, the layer's and its sub-layers', which advance once, and only the first call assigns to
    variables. `keras.RematScope` alone, in Keras 3.15, advances them twice: with dropout its first update
    failed on PyTorch, and on JAX with mixed precision.

    Pass `training` explicitly: the second call runs outside the model's call, which would set it. Tensors in
    `arguments`, such as masks, get no gradients; those that are None are left out, as in `call_part`.

    Raises:
        NotImplementedError: On TensorFlow, if the layer adds a loss, which would have no gradient there.
    """
    arguments = {name: value for name, value in arguments.items() if value is not None}
    generators = _generators_of(layer)
    # Copies: the variables advance while the second call still needs the old states.
    states = [ops.multiply(generator.state, 1) for generator in generators]
    draws = [0] * len(generators)
    has_run = False

    def call(*inputs: Any) -> Any:
        nonlocal has_run
        scope = keras.StatelessScope() if has_run else contextlib.nullcontext()
        has_run = True
        with scope, replaying(generators, states) as replays:
            outputs = layer(*inputs, **arguments)
            draws[:] = [replay.draws for replay in replays]
        return outputs

    outputs = keras.remat(call)(*inputs)
    adds_loss = backend_choice("Recomputing", tensorflow=_adds_loss, default=lambda layer: False)
    if adds_loss(layer):
        raise NotImplementedError(
            f"recompute=True: the loss that {layer.name} adds, such as by an `activity_regularizer`, would "
            "have no gradient on TensorFlow. Leave out `recompute`, or the loss, or train on PyTorch."
        )
    for generator, count in zip(generators, draws, strict=True):
        for _ in range(count):
            generator.next()
    return outputs


def _adds_loss(layer: keras.layers.Layer) -> bool:
    """Whether a layer has added a loss; those of its weights' regularizers are the model's."""
    of_weights = sum(weight.regularizer is not None for weight in layer.trainable_weights)
    return len(layer.losses) > of_weights


def _generators_of(layer: keras.layers.Layer) -> list[keras.random.SeedGenerator]:
    """Return the seed generators of a layer and its sub-layers, each once."""
    found: dict[int, keras.random.SeedGenerator] = {}
    for part in layer._flatten_layers():
        found |= {id(generator): generator for generator in part._seed_generators}
    return list(found.values())
