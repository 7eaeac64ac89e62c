"""Compiles an inference function of a model, on the backend that runs.

The one place that knows how: decoding and evaluation hand in plain `keras.ops` functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from keras_attention.ops.dispatch import backend_choice


def compile_for_inference(
    function: Callable[..., Any], model: keras.layers.Layer, any_shape: bool = False
) -> Callable[..., Any]:
    """Return `function`, compiled once for every combination of input shapes.

    `function` calls the built `model` on arrays, and pytrees of them, for inference. TensorFlow runs it as a
    `tf.function`, JAX as a `jax.jit` of the function and the weights, PyTorch eagerly without gradients. The
    weights are read anew at each call: a model that was trained on computes with its new weights. If
    `function` can do without static shapes, TensorFlow compiles it once for `any_shape`.
    """
    if not model.built:
        raise ValueError(
            f"The model {model.name!r} is not built, so it has no weights yet. Call it once on a "
            "batch, or load weights, before it is compiled for inference."
        )
    compile_here = backend_choice(
        "Compiled inference", tensorflow=_tensorflow, jax=_jax, torch=_torch
    )
    run = compile_here(function, model, any_shape)

    def call(*arguments):
        return run(*keras.tree.map_structure(keras.ops.convert_to_tensor, arguments))

    return call


def compile_without_weights(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays that uses no weights, for many small calls.

    JAX compiles it for every combination of input shapes; TensorFlow and PyTorch run it as it is.
    """
    compile_here = backend_choice(
        "Compiling", tensorflow=lambda run: run, jax=_jax_without_weights, torch=lambda run: run
    )
    run = compile_here(function)
    return lambda *arguments: run(*keras.tree.map_structure(keras.ops.convert_to_tensor, arguments))


def _jax_without_weights(function):
    import jax

    return jax.jit(function)


def _tensorflow(function, model, any_shape):
    import tensorflow as tf

    if any_shape:
        return tf.function(function, reduce_retracing=True, autograph=False)
    programs = {}

    def run(*arguments):
        # Shapes are told apart here because a tf.function warns of the tracing that is meant.
        key = tuple((tuple(x.shape), x.dtype) for x in keras.tree.flatten(arguments))
        if key not in programs:
            programs[key] = tf.function(function, autograph=False).get_concrete_function(*arguments)
        return programs[key](*arguments)

    return run


def _jax(function, model, any_shape):
    import jax

    @jax.jit
    def run(values, arguments):
        # Without the scope the weights would be baked in when tracing.
        with keras.StatelessScope(state_mapping=list(zip(model.weights, values, strict=True))):
            return function(*arguments)

    return lambda *arguments: run([weight.value for weight in model.weights], arguments)


def _torch(function, model, any_shape):
    import torch

    # Not inference_mode: what a layer keeps of such a call could never be trained with.
    return torch.no_grad()(function)
