"""Products of 8-bit integers: weights quantized for each output, activations for each row as they come.

`y = s_x s_w (q_x q_w) + b`, where `q_w = round(w / s_w)` with one scale for each output channel, and
`q_x = round(x / s_x)` with one for each row of activations (dynamic quantization). A row's scale is its
own: what a sentence becomes does not depend on the others of its batch.
"""

from __future__ import annotations

from typing import Any

from keras import ops

LEVELS = 127


def quantized_weight(kernel: Any, levels: int = LEVELS) -> tuple[Any, Any]:
    """Quantize a kernel for each output.

    Args:
        kernel: Float tensor (D, F).
        levels: The largest integer.

    Returns:
        Integers (D, F) from -levels to levels, as floats, and their scales (F,).
    """
    scale = ops.max(ops.abs(kernel), axis=0) / levels
    # A column of zeros stays one.
    scale = ops.where(scale > 0.0, scale, ops.ones_like(scale))
    return ops.round(kernel / scale), scale


def int8_linear(x: Any, kernel: Any, bias: Any = None, weight_levels: int = LEVELS) -> Any:
    """`x W + b` by quantized factors, in plain float arithmetic: the definition of the fast forms.

    Args:
        x: Float32 tensor (R, D).
        kernel: Float32 tensor (D, F).
        bias: Optional tensor (F,), not quantized.
        weight_levels: Largest integer of the weights; 63 where a processor adds products in 16 bits.

    Returns:
        Float32 tensor (R, F).

    Example:

    >>> x, kernel = ops.convert_to_tensor([[1.27, -0.5]]), ops.convert_to_tensor([[2.54], [0.0]])
    >>> round(float(int8_linear(x, kernel)[0, 0]), 4)
    3.2258
    """
    weight, weight_scale = quantized_weight(kernel, weight_levels)
    largest = ops.max(ops.abs(x), axis=-1, keepdims=True)
    row_scale = ops.where(largest > 0.0, largest, ops.ones_like(largest)) / LEVELS
    product = ops.matmul(ops.round(x / row_scale), weight)
    outputs = product * row_scale * weight_scale
    return outputs if bias is None else outputs + bias
