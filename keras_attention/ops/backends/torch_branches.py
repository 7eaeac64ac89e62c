"""The branches of the Weighted Transformer for PyTorch: some rows at a time, hidden layers computed twice."""

from typing import Any

import keras
import torch
from torch.autograd.function import once_differentiable

from keras_attention.ops import reference
from keras_attention.ops.backends.torch_crossentropy import is_fast

# On a CPU so many hidden layers of float32 rows stay in its cache.
ROWS_AT_ONCE = 128


def sum_of_branches(
    inputs: Any, kernels: Any, biases: Any, weights: Any, activation: Any = None
) -> Any:
    """See `keras_attention.ops.reference.sum_of_branches`."""
    is_relu = activation in (None, keras.activations.relu)
    if not is_relu or not is_fast(kernels.shape[-1]):
        return reference.sum_of_branches(inputs, kernels, biases, weights, activation)
    is_in_cache = inputs.device.type == "cpu" and inputs.dtype == torch.float32
    form = _SumInCache if is_in_cache else _SumOfBranches
    return form.apply(inputs, kernels, biases, weights)


def _blocks_of_rows(inputs: Any) -> list[slice]:
    size = ROWS_AT_ONCE if inputs.device.type == "cpu" else len(inputs)
    return [slice(start, start + size) for start in range(0, len(inputs), max(size, 1))]


class _SumInCache(torch.autograd.Function):
    """In float32 on a CPU: what is done to a block's hidden layer is done in place, in the cache.

    An input of ones brings the biases into the products, forward and backward: no pass of their own.
    """

    @staticmethod
    def forward(ctx, inputs, kernels, biases, weights):
        ctx.save_for_backward(inputs, kernels, biases, weights)
        outputs = inputs.new_empty(len(inputs), kernels.shape[-1])
        rows_of, matrices = _with_ones(inputs, kernels, biases)
        scales, room = weights.tolist(), _room(outputs)
        for rows in _blocks_of_rows(inputs):
            total = outputs[rows].zero_()
            hidden = room[: len(total)]
            for index, scale in enumerate(scales):
                torch.mm(rows_of[index, rows], matrices[index], out=hidden)
                total.add_(hidden.relu_(), alpha=scale)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream):
        inputs, kernels, biases, weights = ctx.saved_tensors
        upstream = upstream.contiguous()
        rows_of, matrices = _with_ones(inputs, kernels, biases)
        transposed = kernels.transpose(1, 2).contiguous()
        to_rows = inputs.new_empty(len(kernels), len(inputs), inputs.shape[-1])
        # Of hidden layers with weight 1: the weights are multiplied in at the end, where they may be 0.
        to_matrices, room = torch.zeros_like(matrices), _room(upstream)
        for rows in _blocks_of_rows(inputs):
            gradient = upstream[rows]
            slope = room[: len(gradient)]
            for index in range(len(kernels)):
                part = rows_of[index, rows]
                torch.mm(part, matrices[index], out=slope)
                torch.ops.aten.threshold_backward(gradient, slope, 0, grad_input=slope)
                torch.mm(slope, transposed[index], out=to_rows[index, rows])
                to_matrices[index].addmm_(part.t(), slope)
        # relu(z) = [z > 0] z, and z is linear in kernel and bias.
        to_weights = (to_matrices * matrices).sum((1, 2))
        to_matrices *= weights[:, None, None]
        to_inputs = torch.mul(to_rows.transpose(0, 1), weights[:, None])
        return to_inputs, to_matrices[:, :-1], to_matrices[:, -1], to_weights


def _with_ones(inputs: Any, kernels: Any, biases: Any) -> tuple[Any, Any]:
    """Rows (M, R, V + 1) that end with 1, and matrices (M, V + 1, F) that end with the bias."""
    ones = inputs.new_ones(1, 1, 1).expand(kernels.shape[0], len(inputs), 1)
    return torch.cat([inputs.transpose(0, 1), ones], -1), torch.cat([kernels, biases[:, None]], 1)


def _room(rows: Any) -> Any:
    """For one block of rows."""
    return torch.empty(ROWS_AT_ONCE, rows.shape[-1])


class _SumOfBranches(torch.autograd.Function):
    """In half precision, and on other devices."""

    @staticmethod
    def forward(ctx, inputs, kernels, biases, weights):
        ctx.save_for_backward(inputs, kernels, biases, weights)
        outputs = inputs.new_empty(len(inputs), kernels.shape[-1])
        on_cpu = inputs.device.type == "cpu"
        scales = weights.tolist() if on_cpu else weights.unbind()
        for rows in _blocks_of_rows(inputs):
            part = inputs[rows]
            total = torch.zeros(len(part), kernels.shape[-1], device=inputs.device)
            for index, scale in enumerate(scales):
                hidden = torch.addmm(biases[index], part[:, index], kernels[index]).relu_()
                if on_cpu:
                    total.add_(hidden, alpha=scale)
                else:
                    total.addcmul_(hidden, scale)
            outputs[rows] = total
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream):
        inputs, kernels, biases, weights = ctx.saved_tensors
        upstream = upstream.contiguous()
        to_inputs = torch.empty_like(inputs)
        # Of hidden layers with weight 1: the weights are multiplied in at the end, where they may be 0.
        to_kernels = torch.zeros(kernels.shape, device=inputs.device)
        to_biases = torch.zeros(biases.shape, device=inputs.device)
        is_single = inputs.dtype == torch.float32
        for rows in _blocks_of_rows(inputs):
            part, gradient = inputs[rows], upstream[rows]
            for index in range(len(kernels)):
                hidden = torch.addmm(biases[index], part[:, index], kernels[index])
                slope = torch.ops.aten.threshold_backward(gradient, hidden, 0)
                to_inputs[rows, index] = slope @ kernels[index].t()
                if is_single:
                    to_kernels[index].addmm_(part[:, index].t(), slope)
                else:
                    to_kernels[index] += part[:, index].t() @ slope
                to_biases[index] += slope.sum(0, dtype=torch.float32)
        # relu(z) = [z > 0] z, and z is linear in kernel and bias.
        to_weights = (to_kernels * kernels).sum((1, 2)) + (to_biases * biases).sum(1)
        to_inputs *= weights.to(inputs.dtype)[:, None]
        return (
            to_inputs,
            to_kernels.mul_(weights[:, None, None]).to(kernels.dtype),
            to_biases.mul_(weights[:, None]).to(biases.dtype),
            to_weights,
        )
