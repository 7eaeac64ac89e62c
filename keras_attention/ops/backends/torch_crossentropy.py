"""The loss on PyTorch: its logits stay in the cache from its first pass to its last."""

from collections.abc import Iterator
from typing import Any

import torch
from keras import ops
from torch.autograd.function import once_differentiable
from torch.utils.weak import WeakTensorKeyDictionary

from keras_attention.ops import reference
from keras_attention.ops.backends.torch_dropout import are_given

# Logits are read in chunks of rows of about so many elements: as float32 these stay in the cache of a
# CPU, and are few kernels to launch on another device.
CHUNK_ON_CPU, CHUNK_ON_DEVICE = 2**18, 2**26
# The version and the rows' log normalizers of the last loss's logits; forgotten with the logits.
_NORMALIZERS: Any = WeakTensorKeyDictionary()


def is_fast(width: int) -> bool:
    """Whether a kernel is worth it; traced programs are made fast by a compiler."""
    is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing() or are_given()
    return width >= reference.SMALLEST_WIDTH and not is_traced


def smoothed_crossentropy(logits: Any, labels: Any, on_value: float, off_value: float) -> Any:
    """See `keras_attention.ops.reference.smoothed_crossentropy`.

    Keeps nothing but the logits, and no more than a chunk of them is ever float32. The normalizers of
    the last loss are remembered for as long as its logits live: a metric need not form them again.
    """
    if not is_fast(logits.shape[-1]) or logits.dtype == torch.float64:
        return reference.smoothed_crossentropy(logits, labels, on_value, off_value)
    labels = ops.convert_to_tensor(labels).long()
    return _Crossentropy.apply(logits, labels, on_value, off_value)


class _Crossentropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels, on_value, off_value):
        ctx.values = on_value, off_value
        label_scores = logits.gather(1, labels[:, None])[:, 0].float()
        normalizers = _remembered(logits)
        if normalizers is None or off_value:
            sums = torch.empty_like(label_scores) if off_value else None
            normalizers = log_normalizers(logits, sums, off_value)
            _remember(logits, normalizers)
        ctx.save_for_backward(logits, labels, normalizers)
        total = on_value + (logits.shape[-1] - 1) * off_value
        losses = torch.sub(total * normalizers, label_scores, alpha=on_value - off_value)
        return losses.sub_(sums) if off_value else losses

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream):
        logits, labels, normalizers = ctx.saved_tensors
        on_value, off_value = ctx.values
        total = on_value + (logits.shape[-1] - 1) * off_value
        gradient = torch.empty_like(logits)
        # Two operations: with numbers of a row PyTorch's `addcmul` takes ten times as long.
        factors, offsets = total * upstream[:, None], off_value * upstream[:, None]
        at_label = (off_value - on_value) * upstream[:, None]
        for rows, room in _chunks(logits):
            into = gradient[rows] if gradient.dtype == room.dtype else room
            scores = _in_float32(logits[rows], room)
            torch.sub(scores, normalizers[rows, None], out=into).exp_().mul_(factors[rows])
            if off_value:
                into.sub_(offsets[rows])
            into.scatter_add_(1, labels[rows, None], at_label[rows])
            if into is room:
                gradient[rows] = room
        return gradient, None, None, None


def log_normalizers(logits: Any, sums: Any = None, factor: float = 1.0) -> Any:
    """`log sum_v exp(z_v)` of each row of logits `(rows, V)`, float32, formed where the cache holds it.

    Also writes the sums of the rows times a factor if there is a tensor `(rows,)` for them.
    """
    normalizers = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    for rows, room in _chunks(logits):
        scores = _in_float32(logits[rows], room)
        torch.logsumexp(scores, -1, out=normalizers[rows])
        if sums is not None:
            # Not the factor times the sum, which may be above float32's range.
            torch.sum(torch.mul(scores, factor, out=room), -1, out=sums[rows])
    return normalizers


def _in_float32(rows: Any, room: Any) -> Any:
    # What an operation casts by itself it casts into memory that is new each time.
    return rows if rows.dtype == room.dtype else room.copy_(rows)


def _chunks(logits: Any) -> Iterator[tuple[slice, Any]]:
    """Slices of rows, each with room for its float32 numbers; all share the same memory."""
    rows, width = logits.shape
    size = CHUNK_ON_CPU if logits.device.type == "cpu" else CHUNK_ON_DEVICE
    step = max(1, min(rows, size // width))
    if logits.device.type == "cpu":
        step += -step % torch.get_num_threads()  # so that all threads have as many rows
    room = torch.empty(step, width, dtype=torch.float32, device=logits.device)
    for start in range(0, rows, step):
        chunk = slice(start, min(start + step, rows))
        yield chunk, room[: chunk.stop - start]


def _root(tensor: Any) -> Any:
    """Return the tensor whose memory a view shows: other views of it show the same numbers."""
    return tensor if tensor._base is None else tensor._base


def _remember(logits: Any, normalizers: Any) -> None:
    root = _root(logits)
    if root.numel() == logits.numel():
        _NORMALIZERS[root] = (root._version, logits.shape, normalizers)


def _remembered(logits: Any) -> Any:
    """Return the normalizers of the rows of `logits`, if a loss has formed them from these very numbers."""
    root = _root(logits)
    version, shape, normalizers = _NORMALIZERS.get(root, (None, None, None))
    is_same = version == root._version and shape == logits.shape and logits.is_contiguous()
    return normalizers if is_same else None
