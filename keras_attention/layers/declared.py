"""What the layers' `spec()` methods share: checks, and the kernel of a layer with LoRA.

A spec must describe everything that its layer computes. So a subclass needs its own `spec()`, and a layer
that a spec cannot describe raises a `SpecError` with its name.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention.layers.arguments import activation_config
from keras_attention.spec.parts import ACTIVATIONS, DenseSpec, SpecError


class MergedKernel:
    """The weight of a spec that a layer's kernel W and its low-rank matrices come to: `W + alpha / r A B`.

    Each reader gets its current value, in the precision of W, where Keras' `layer.kernel` is in that of the
    computation. The layer is a `Dense` or `EinsumDense` with LoRA.
    """

    def __init__(self, layer: Any):
        kernel = next(weight for weight in layer.variables if weight.name == "kernel")
        # W, A and B: the variables that change when the value does.
        self.sources = (kernel, layer.lora_kernel_a, layer.lora_kernel_b)
        self.shape = kernel.shape
        self._factor = layer.lora_alpha / layer.lora_rank

    @property
    def value(self) -> Any:
        """The merged matrix, a tensor."""
        kernel, a, b = map(ops.stop_gradient, map(ops.convert_to_tensor, self.sources))
        return ops.add(kernel, ops.cast(ops.multiply(ops.matmul(a, b), self._factor), kernel.dtype))

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(ops.convert_to_numpy(self.value), dtype)

    def assign(self, value: Any) -> None:
        """Make `value` the kernel; B begins with zeros again, so that nothing is added to it."""
        kernel, _, b = self.sources
        kernel.assign(value)
        b.assign(ops.zeros(b.shape, b.dtype))


def projections(owner: keras.layers.Layer, path: str = "") -> dict[str, Any]:
    """Return the `Dense` and `EinsumDense` layers within a layer by their path, such as `block.query`."""
    found: dict[str, Any] = {}
    for layer in owner._flatten_layers(include_self=False, recursive=False):
        if type(layer) in (keras.layers.Dense, keras.layers.EinsumDense):
            found[f"{path}{layer.name}"] = layer
        found |= projections(layer, f"{path}{layer.name}.")
    return found


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
