"""The checks that the layers' `spec()` methods share.

A spec must describe everything that its layer computes. So a subclass needs its own `spec()`, and a layer
that a spec cannot describe raises a `SpecError` with its name.
"""

from typing import Any

import keras

from keras_attention.layers.arguments import activation_config
from keras_attention.layers.lora import MergedKernel
from keras_attention.spec.parts import ACTIVATIONS, DenseSpec, SpecError


def declared(owner: keras.layers.Layer, layer: Any) -> Any:
    """Return the spec of a layer that `owner` uses; a SpecError names both."""
    if not hasattr(layer, "spec"):
        raise SpecError(
            f"{owner.name}: {layer.name!r} is a {type(layer).__name__}, which has no `spec()` that "
            "says what it computes."
        )
    try:
        return layer.spec()
    except SpecError as error:
        raise SpecError(f"{owner.name}: {error}") from None


def check_declares_itself(layer: keras.layers.Layer) -> None:
    """Raise a `SpecError` for a subclass that inherits its `spec`: it may compute something else."""
    if "spec" not in vars(type(layer)):
        raise SpecError(
            f"{layer.name!r} is a {type(layer).__name__}, a subclass that may compute something else. "
            "Define `spec()` in it if a spec can describe what it computes."
        )


def check_has_plain_weights(layer: keras.layers.Layer) -> None:
    """Raise a `SpecError` for quantized layers and for embeddings with LoRA."""
    if layer.quantization_mode is not None or layer.lora_enabled:
        raise SpecError(
            f"{layer.name!r} has weights that are quantized ({layer.quantization_mode}) or changed by "
            f"LoRA ({layer.lora_enabled}): a spec holds plain weights."
        )


def dense_spec(layer: Any, any_activation: bool = False) -> DenseSpec:
    """Return the spec of a `Dense` or `EinsumDense` layer, without its activation."""
    if type(layer) not in (keras.layers.Dense, keras.layers.EinsumDense):
        raise SpecError(
            f"{layer.name!r} is a {type(layer).__name__}, not a plain Dense or EinsumDense layer."
        )
    adapted = layer.lora_enabled and layer.quantization_mode is None
    if not adapted:
        check_has_plain_weights(layer)
    if not any_activation and activation_name(layer) != "linear":
        raise SpecError(
            f"{layer.name!r} has the activation {activation_name(layer)!r}; a spec has none there."
        )
    return DenseSpec(MergedKernel(layer) if adapted else layer.kernel, layer.bias)


def activation_name(layer: Any) -> str:
    """Return Keras' name of a layer's activation; raise a `SpecError` if a spec has no name for it."""
    name = activation_config(layer.activation)
    if name not in ACTIVATIONS:
        raise SpecError(
            f"{layer.name!r} has the activation {name!r}; a spec knows {', '.join(ACTIVATIONS)}."
        )
    return name
