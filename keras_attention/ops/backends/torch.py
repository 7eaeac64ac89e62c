"""Fast kernels for PyTorch: gradients written out, so that little is kept and few passes are made.

PyTorch runs each element-wise operation as a pass over memory of its own. Here passes are saved: a
scale and a bias go into the product of matrices beside them. A mask of bytes that multiplies is five
times as fast as `where`.

How long an update takes without a kernel, as a multiple of the time with all, by `KERAS_BACKEND=torch python
benchmarks/each_kernel.py small`, and `tiny` (28 November 2026, AVX2; medians of 7 pairs, spread by a fifth):

    kernel                 small  tiny
    linear                  1.24  1.04
    joined_linear           1.21  1.03
    dot_product_attention   1.12  1.02
    dropout_add_norm        1.06  1.09
    smoothed_crossentropy   1.00  1.09
    reshape                 1.05  0.98
    global_norm             0.92  1.03  PyTorch's own, for GPUs: not measured there
    dropout                 0.94  0.99  with attention dropout, too, 1.00; each process drops other units

Products of bfloat16 made for AMX went: without them base took 0.81 to 1.06 of the time (dev/LOG.md).
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import torch
from keras import ops
from torch.autograd.function import once_differentiable

from keras_attention.ops import reference
from keras_attention.ops.backends.torch_crossentropy import is_fast, smoothed_crossentropy
from keras_attention.ops.backends.torch_dropout import keep_mask
from keras_attention.ops.backends.torch_known import tensor_of

# With AVX512-BF16, attention to so few positions takes half to a quarter of the fused kernel's time.
# The weights, which the backward pass keeps, would take much memory for longer texts (dev/LOG.md).
LONGEST_BY_PARTS = 256


@functools.cache
def has_amx() -> bool:
    """Whether oneDNN multiplies bfloat16 in the tiles of a CPU."""
    is_supported = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    return torch.backends.mkldnn.is_available() and is_supported()


def as_tensor(given: Any) -> Any:
    """`keras.ops.convert_to_tensor`, without its questions to what is a tensor already."""
    if isinstance(given, torch.Tensor):
        return given
    return tensor_of(given) if isinstance(given, keras.Variable) else ops.convert_to_tensor(given)


def reshape(x: Any, newshape: Sequence[Any]) -> Any:
    """`keras.ops.reshape`, without its bookkeeping."""
    return x.reshape(newshape) if isinstance(x, torch.Tensor) else ops.reshape(x, newshape)


def linear(
    inputs: Any, kernel: Any, bias: Any = None, relu: bool = False, input_axes: int = 1
) -> Any:
    """See `keras_attention.ops.reference.linear`; the product itself adds the bias."""
    inputs, kernel = as_tensor(inputs), as_tensor(kernel)
    bias = None if bias is None else as_tensor(bias)
    is_mixed = inputs.dtype != kernel.dtype or (bias is not None and bias.dtype != kernel.dtype)
    if is_mixed or not is_fast(math.prod(kernel.shape[input_axes:])):
        return reference.linear(inputs, kernel, bias, relu, input_axes)
    matrix = _flat(kernel, input_axes)
    bias = bias if bias is None or bias.ndim == 1 else bias.reshape(-1)
    outputs = _product(_flat(inputs, inputs.ndim - input_axes), matrix, bias, relu)
    if inputs.ndim == 2 and kernel.ndim == 2:
        return outputs
    return outputs.view(*inputs.shape[:-input_axes], *kernel.shape[input_axes:])


def _flat(tensor: Any, axes: int) -> Any:
    """Return the matrix of a tensor whose first axes become rows, and the others columns."""
    return tensor if tensor.ndim == 2 else tensor.reshape(-1, math.prod(tensor.shape[axes:]))


def _product(rows: Any, matrix: Any, bias: Any, relu: bool = False) -> Any:
    outputs = rows @ matrix if bias is None else torch.addmm(bias, rows, matrix)
    return outputs.relu_() if relu else outputs


def joined_linear(
    inputs: Any, kernels: Sequence[Any], biases: Sequence[Any] | None = None
) -> list[Any]:
    """See `keras_attention.ops.reference.joined_linear`."""
    kernels = [as_tensor(kernel) for kernel in kernels]
    sizes = [math.prod(kernel.shape[1:]) for kernel in kernels]
    if not is_fast(sum(sizes)) or inputs.dtype != kernels[0].dtype:
        return reference.joined_linear(inputs, kernels, biases)
    biases = None if biases is None else [as_tensor(bias) for bias in biases]
    width, leading = inputs.shape[-1], inputs.shape[:-1]
    matrix = torch.cat([_flat(kernel, 1) for kernel in kernels], -1)
    bias = None if biases is None else torch.cat([part.reshape(-1) for part in biases])
    outputs = _product(inputs.reshape(-1, width), matrix, bias)
    shapes = {tuple(kernel.shape[1:]) for kernel in kernels}
    if len(shapes) == 1 and kernels[0].ndim == 3:
        # In this order PyTorch's backward pass joins the parts without copying each before.
        heads, depth = kernels[0].shape[1:]
        outputs = outputs.reshape(*leading, heads * len(kernels), depth)
        return list(outputs.split(heads, dim=-2))
    return [
        part.reshape(*leading, *kernel.shape[1:])
        for part, kernel in zip(outputs.split(sizes, dim=-1), kernels, strict=True)
    ]


def dropout(inputs: Any, rate: float, noise_shape: Any = None, seed: Any = None) -> Any:
    """`keras.random.dropout` with a seed that is a `SeedGenerator`."""
    if noise_shape is not None:
        return keras.random.dropout(inputs, rate, noise_shape, seed)
    return (inputs * keep_mask(inputs, rate, seed)).mul_(1.0 / (1.0 - rate))


def dropout_add_norm(
    inputs: Any, update: Any, gamma: Any, beta: Any, epsilon: float, rate: float, seed: Any
) -> Any:
    """See `keras_attention.ops.reference.dropout_add_norm`."""
    keep = keep_mask(update, rate, seed)
    gamma, beta = as_tensor(gamma), as_tensor(beta)
    if inputs.device.type != "cpu":
        # Only on a CPU does PyTorch normalise half precision with parameters of full precision.
        gamma, beta = gamma.to(inputs.dtype), beta.to(inputs.dtype)
    # The backward pass keeps the bytes of the mask and the sum.
    total = torch.add(inputs, update * keep, alpha=1.0 / (1.0 - rate))
    return torch.native_layer_norm(total, total.shape[-1:], gamma, beta, epsilon)[0]


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    scale: float = 1.0,
    dropout: Callable[[Any], Any] | None = None,
    flash: bool | None = False,
) -> tuple[Any, Any]:
    """See `keras_attention.ops.reference.dot_product_attention`."""
    is_fused = dropout is None and (flash or (flash is None and not _is_slow_fused(key)))
    can_look = is_fast(query.shape[-2] * query.shape[-1])
    if not (is_fused or can_look):
        return reference.dot_product_attention(query, key, value, mask, scale, dropout)
    blind = None
    if mask is not None:
        # Rows that may attend to nothing attend to all, and lose what they got.
        mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        blind = ~mask.any(-1, keepdim=True)
        blind = None if can_look and blind.is_cpu and not bool(blind.any()) else blind
        mask = mask if blind is None else mask | blind
    if is_fused:
        outputs = _fused(query, key, value, mask, scale)
        return outputs if blind is None else outputs.masked_fill(blind.transpose(1, 2), 0.0), None
    batch, length, heads, _ = query.shape
    query, key, value = (_heads_first(tensor) for tensor in (query, key, value))
    weights = _Weights.apply(query, key, mask, scale, heads)
    weights = weights.view(batch, heads, length, key.shape[1])
    if blind is not None:
        weights = weights * ~blind
    applied = weights if dropout is None else dropout(weights)
    outputs = torch.bmm(applied.flatten(0, 1), value)
    return outputs.view(batch, heads, length, -1).transpose(1, 2), weights


@functools.cache
def has_dot_products() -> bool:
    """Whether a CPU multiplies bfloat16 with AVX512-BF16, and has no AMX."""
    return getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)() and not has_amx()


def _is_slow_fused(key: Any) -> bool:
    """Whether the parts of attention to `(B, S, N, K)` take less time than PyTorch's fused kernel."""
    is_bfloat16 = key.dtype == torch.bfloat16 and key.device.type == "cpu"
    return is_bfloat16 and key.shape[1] <= LONGEST_BY_PARTS and has_dot_products()


def _fused(query, key, value, mask, scale):
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    outputs = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale
    )
    return outputs.transpose(1, 2)


def _heads_first(tensor: Any) -> Any:
    """`(B, T, N, K)` as a batch of matrices `(B N, T, K)`."""
    return tensor.transpose(1, 2).reshape(-1, tensor.shape[1], tensor.shape[3])


class _Weights(torch.autograd.Function):
    """`softmax(scale * Q K^T)` of `(B N, T, K)` and `(B N, S, K)`, of the allowed positions."""

    @staticmethod
    def forward(ctx, query, key, mask, scale, heads):
        shape = (query.shape[0] // heads, heads, query.shape[1], key.shape[1])
        scores = query.new_empty(shape)
        if mask is not None:
            # The product is added to zeros and minus infinities: no pass of its own for the mask.
            low = torch.zeros(mask.shape, dtype=query.dtype, device=query.device)
            scores.copy_(low.masked_fill_(~mask, -torch.inf))
        scores = scores.flatten(0, 1)
        beta = 0 if mask is None else 1
        scores.baddbmm_(query, key.transpose(1, 2), beta=beta, alpha=scale)
        weights = torch.softmax(scores, -1)
        ctx.save_for_backward(query, key, weights)
        ctx.scale = scale
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream):
        query, key, weights = ctx.saved_tensors
        slope = torch._softmax_backward_data(upstream, weights, -1, weights.dtype)
        none = query.new_empty(1, 1, 1)
        to_query = torch.baddbmm(none, slope, key, beta=0, alpha=ctx.scale)
        to_key = torch.baddbmm(none, slope.transpose(1, 2), query, beta=0, alpha=ctx.scale)
        return to_query, to_key, None, None, None


def global_norm(gradients: Sequence[Any]) -> torch.Tensor:
    """See `keras_attention.ops.reference.global_norm`. On a GPU the definition starts a program for each."""
    gradients = [reference.at_least_float32(torch.as_tensor(each)) for each in gradients]
    return torch.nn.utils.get_total_norm(gradients)


_ALL = (
    *(dot_product_attention, dropout, dropout_add_norm, global_norm, joined_linear, linear),
    *(reshape, smoothed_crossentropy),
)
KERNELS: dict[str, Callable[..., Any]] = {one.__name__: one for one in _ALL}
