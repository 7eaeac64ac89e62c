"""Inference on PyTorch: eager, few operations, packed weights, buffers written in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import torch
import torch.nn.functional as F

from keras_attention.engine.forward import ForwardEngine, ForwardState
from keras_attention.engine.operations import Operations, present_weights, watched_weights
from keras_attention.engine.prepare import Matrix
from keras_attention.ops.backends.torch_crossentropy import log_normalizers
from keras_attention.ops.top_k import chunk_size
from keras_attention.spec import NormSpec, TransformerSpec
from keras_attention.spec.parts import present_value
from keras_attention.utils import forks

# Activations that PyTorch computes in one call.
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {"relu": torch.relu, "silu": F.silu}
# The layout of packed weights is chosen for products with about so many rows.
PACKED_FOR_ROWS = 128


class TorchOperations(Operations):
    """`Operations` in PyTorch's own.

    How long a search takes without one, for one sentence and for 32, by `KERAS_BACKEND=torch python
    benchmarks/engine_operations.py tiny`, and `base` (28 November 2026, AVX2, three to five pairs):

        operation          tiny        base
        linear         1.12  1.08  2.28  1.48
        heads          1.63  1.24  1.29  1.07
        attend         1.59  1.22  1.28  1.05
        top_log_probs  1.28  1.11  1.13  1.00
        norm           1.13  1.08  1.09  1.06
        embed          1.10  1.02  1.12  1.04
    """

    @property
    def torch_dtype(self) -> Any:
        return getattr(torch, self.dtype)

    def prepare_matrix(self, matrix: Matrix) -> Any:
        kernel, bias = map(self._cast, matrix)
        weight = kernel.t().contiguous()
        if PackedMatrix.can_hold(weight):
            return PackedMatrix(weight, bias)
        return lambda x: F.linear(x, weight, bias)

    def prepare_norm(self, norm: NormSpec) -> Any:
        gamma, beta = super().prepare_norm(norm)
        # On a GPU gains must have the dtype of the activations.
        dtype = torch.float32 if gamma.device.type == "cpu" else self.torch_dtype
        return gamma.detach().to(dtype), None if beta is None else beta.detach().to(dtype)

    def prepare_table(self, table: Any) -> Any:
        return self._cast(table)

    def prepare_softmax(self, table: Any, kernel: Any, bias: Any) -> Any:
        return super().prepare_softmax(table, table.t() if kernel is None else kernel, bias)

    def _cast(self, weight: Any) -> Any:
        return None if weight is None else weight.detach().to(self.torch_dtype)

    def embed(self, token_ids: Any, table: Any, positions: Any) -> Any:
        rows = F.embedding(token_ids, table)
        is_token = (token_ids != self.spec.pad_token_id).to(rows.dtype)
        x = rows * (is_token * self.spec.hidden_dim**0.5)[..., None] + positions.to(rows.dtype)
        return x.reshape(-1, self.spec.hidden_dim)

    def linear(self, x: Any, matrix: Any, activation: Callable[[Any], Any] | None = None) -> Any:
        if activation is None:
            return matrix(x)
        if activation is torch.relu and isinstance(matrix, PackedMatrix):
            return matrix(x, "relu")
        return activation(matrix(x))

    def activation(self, name: str) -> Callable[[Any], Any]:
        return ACTIVATIONS.get(name) or super().activation(name)

    def norm(self, x: Any, norm: Any, epsilon: float) -> Any:
        if norm[1] is None:
            return super().norm(x, norm, epsilon)
        return torch.layer_norm(x, x.shape[-1:], norm[0], norm[1], epsilon)

    def heads(self, x: Any, num_rows: Any, widths: Any) -> list[Any]:
        num_heads, width = self.spec.num_heads, widths[0]
        if all(other == width for other in widths):
            parts = x.view(num_rows, -1, len(widths), num_heads, width)
            return list(parts.permute(2, 0, 3, 1, 4).unbind())
        parts = x.view(num_rows, -1, x.shape[-1]).split([num_heads * w for w in widths], dim=-1)
        return [part.unflatten(-1, (num_heads, -1)).transpose(1, 2) for part in parts]

    def attend(self, query: Any, key: Any, value: Any, bias: Any) -> Any:
        outputs = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=1.0)
        return outputs.transpose(1, 2).reshape(-1, self.spec.num_heads * self.spec.value_dim)

    def append(self, buffer: Any, new: Any, start: Any) -> Any:
        end = start + new.shape[2]
        buffer[:, :, start:end].copy_(new)
        return buffer[:, :, :end]

    def top_log_probs(self, logits: Any, width: int) -> tuple[Any, Any]:
        size = chunk_size(logits.shape[-1], width)
        if size is None or logits.device.type != "cpu":
            values, ids = logits.topk(width)
        else:
            values, ids = _top_k(logits, width, size)
        return values.float() - log_normalizers(logits)[:, None], ids


def _top_k(values: Any, k: int, size: int) -> tuple[Any, Any]:
    """`keras_attention.ops.top_k.top_k`."""
    chunks = values.unflatten(-1, (-1, size))
    chosen = chunks.amax(-1).topk(k, sorted=False)[1].sort(-1)[0]
    kept = chunks.gather(1, chosen[..., None].expand(-1, -1, size)).flatten(1)
    best, among = kept.topk(k)
    chunk = chosen.gather(1, among.div(size, rounding_mode="floor"))
    return best, chunk * size + among.remainder(size)


class PackedMatrix:
    """`x W^T + b` by oneDNN, the weight (F, D) laid out for it once instead of at each product."""

    def __init__(self, weight: Any, bias: Any = None):
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_FOR_ROWS)
        self._bias = bias
        self._product = torch.ops.mkldnn._linear_pointwise.default

    @staticmethod
    def can_hold(weight: Any) -> bool:
        """Whether oneDNN is there and computes in this dtype on this device."""
        if weight.device.type != "cpu" or not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
            return False
        is_supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
        return torch.backends.mkldnn.is_available() and (
            weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and is_supported())
        )

    def __call__(self, x: Any, activation: str = "none") -> Any:
        return self._product(x, self._weight, self._bias, activation, [], "")


class TorchState(ForwardState):
    """One search of a `TorchEngine`."""

    @torch.no_grad()
    def step(self, *given: Any) -> Any:
        return super().step(*given)

    @torch.no_grad()
    def select_rows(self, rows: np.ndarray) -> None:
        super().select_rows(rows)

    @torch.no_grad()
    def compact(self, slots: np.ndarray, room: int) -> None:
        free = np.zeros((len(slots), room), slots.dtype)  # what is there, no step reads
        slots = np.concatenate([slots, free], axis=1)
        self._buffers = [
            pair if i in self.engine.cells else tuple(self._moved(part, slots) for part in pair)
            for i, pair in enumerate(self._buffers)
        ]

    def _moved(self, buffer: Any, slots: np.ndarray) -> Any:
        """Return what is in the slots (B, P') of a buffer (B, N, P, d)."""
        rows, num_heads, number, width = buffer.shape
        if number == 0:
            return buffer.new_empty((rows, num_heads, slots.shape[1], width))
        starts = np.arange(rows * num_heads).reshape(rows, num_heads, 1) * number
        chosen = self.engine.as_tensor((starts + slots[:, None]).reshape(-1))
        moved = buffer.reshape(-1, width).index_select(0, chosen)
        return moved.view(rows, num_heads, -1, width)


class TorchEngine(ForwardEngine):
    """Runs a spec on PyTorch, in `"float32"`, `"bfloat16"` or `"float16"`."""

    name = "torch"
    kind_of_state = TorchState

    def __init__(self, spec: TransformerSpec, precision: str):
        super().__init__(spec, precision, TorchOperations(spec, precision))

    @torch.no_grad()
    def read_weights(self) -> None:
        self.weights = None  # the old ones may go before the new ones come
        super().read_weights()
        self._device = keras.ops.convert_to_tensor(self.spec.embedding.embeddings).device

    @torch.no_grad()
    def encode(self, token_ids: Any, positions: Any) -> tuple[Any, Any]:
        memory, bias = super().encode(token_ids, positions)
        # What every step reads again is worth being contiguous.
        return [(key.contiguous(), value.contiguous()) for key, value in memory], bias

    def as_tensor(self, array: np.ndarray) -> Any:
        return torch.from_numpy(array).to(self._device)

    def as_bias(self, array: np.ndarray) -> Any:
        return self.as_tensor(array).to(getattr(torch, self.precision))

    def as_array(self, tensor: Any) -> Any:
        return None if tensor is None else tensor.cpu().numpy()

    def take(self, part: Any, rows: Any) -> Any:
        return part.index_select(0, rows)


def is_on_cpu(spec: TransformerSpec) -> bool:
    """Whether the spec's weights are on a CPU."""
    return present_weights(spec)[0].device.type == "cpu"


def watch_weights(spec: TransformerSpec) -> Callable[[], Any]:
    """Return a function whose result stays equal as long as no weight of the spec changes."""
    weights = watched_weights(spec)

    def version() -> Any:
        if forks.is_forked:  # The other threads are the parent's.
            torch.set_num_threads(1)
        values = [*map(present_value, weights)]
        return [(value.data_ptr(), value._version) for value in values], _sample(values)

    return version


def _sample(values: list[Any]) -> list[float]:
    """Return a few numbers of every weight: PyTorch does not count what is written through `.data`."""
    heads = [value.detach().reshape(-1)[:8].float() for value in values if value.numel()]
    return torch.cat(heads).tolist() if heads else []


ENGINE = TorchEngine
