"""Products of 8-bit integers on PyTorch, by FBGEMM, on CPUs."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from keras_attention.engine.torch import TorchOperations

LEVELS = 127
SMALLEST = 1e-30  # as the largest entry of a row, so that zeros stay zeros


def weight_levels() -> int:
    """Largest integer of weights: 127, or 63 where 16 bits hold the sum of two products.

    Without the VNNI instructions a processor adds pairs of products in 16 bits, which 8 bits times
    8 bits would overflow. Weights bear a bit less better than activations, which have outliers.
    """
    has_vnni = getattr(torch.cpu, "_is_vnni_supported", lambda: False)()
    return LEVELS if has_vnni else 63


class Int8Matrix:
    """`x W^T + b` with dynamically quantized rows; see `ops.int8.int8_linear`.

    Args:
        weight: Float32 tensor (F, D).
        bias: Optional tensor (F,).
    """

    def __init__(self, weight: Any, bias: Any = None):
        if weight.device.type != "cpu":
            raise ValueError(
                "precision='int8' decodes on a CPU only; the model is on "
                f"{weight.device}. Decode in 'bfloat16' there."
            )
        scale = weight.abs().amax(1) / weight_levels()
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        zeros = torch.zeros(len(scale), dtype=torch.int64)
        with _fbgemm(), warnings.catch_warnings():
            # PyTorch may drop its quantized tensors one day; nothing else that it has is as fast.
            warnings.simplefilter("ignore")
            quantized = torch.quantize_per_channel(weight, scale.double(), zeros, 0, torch.qint8)
            self._packed = torch.ops.quantized.linear_prepack(quantized, None)
        self._bias = bias
        product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
        # What is around it looks at each argument, in Python, for what only `torch.export` has.
        self._product = getattr(product, "_op", product)

    def __call__(self, x: Any) -> Any:
        # Two passes, and yet faster than the norm that does it in one.
        largest = x.abs().amax(-1, keepdim=True).clamp_min_(SMALLEST)
        outputs = self._product(x / largest, 1.0 / LEVELS, LEVELS + 1, self._packed)
        if self._bias is None:
            return outputs.mul_(largest)
        return torch.addcmul(self._bias, outputs, largest)


class Int8Operations(TorchOperations):
    """PyTorch's operations, float32 but for the products with weights."""

    def prepared_matrix(self, matrix: Any) -> Any:
        return Int8Matrix(
            self._cast(matrix["kernel"]).t().contiguous(), self._cast(matrix.get("bias"))
        )

    def prepared_table(self, table: Any) -> Any:
        rows = self._cast(table)
        return rows, Int8Matrix(rows)


@contextlib.contextmanager
def _fbgemm() -> Iterator[None]:
    """FBGEMM's packing, whose product takes the scale of its input as an argument."""
    before = torch.backends.quantized.engine
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        raise ValueError(
            "precision='int8' needs FBGEMM, which this build of PyTorch lacks "
            f"({torch.backends.quantized.supported_engines}). Decode in 'bfloat16' or 'float32'."
        )
    torch.backends.quantized.engine = "fbgemm"
    try:
        yield
    finally:
        torch.backends.quantized.engine = before
