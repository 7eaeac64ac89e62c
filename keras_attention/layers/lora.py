"""The kernel of a layer with LoRA, merged whenever it is read (Hu et al. 2021, equation 3)."""

from typing import Any

import keras
import numpy as np
from keras import ops


class MergedKernel:
    """The weight of a spec that a layer's kernel W and its low-rank matrices come to: `W + alpha / r A B`.

    Each reader gets its current value, in the precision of W, where Keras' `layer.kernel` is in that of the
    computation.

    Args:
        layer: A `Dense` or `EinsumDense` with LoRA.

    Attributes:
        sources: W, A and B: the variables that change when the value does.
        shape: Shape of the kernel.
    """

    def __init__(self, layer: Any):
        kernel = next(weight for weight in layer.variables if weight.name == "kernel")
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
