"""Fast kernels for PyTorch: gradients written out, so that little is kept and few passes are made.

PyTorch runs each element-wise operation as a pass over memory of its own. Here passes are saved: a
scale goes into the product of matrices beside it, a bias into the product, the loss stays in the cache
from its first pass to its last. A mask of bytes that multiplies is five times as fast as `where`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from keras import ops
from torch.autograd.function import once_differentiable
from torch.utils.weak import WeakTensorKeyDictionary

from keras_attention.ops.backends.torch_dropout import keep_mask
from keras_attention.ops.linear import linear_reference

# Logits are read in chunks of rows of about so many elements: as float32 these stay in the cache of a
# CPU, and are few kernels to launch on another device.
CHUNK_ON_CPU, CHUNK_ON_DEVICE = 2**18, 2**26
# Whether oneDNN computes with tiles of bfloat16.
HAS_AMX = torch.backends.mkldnn.is_available() and (
    getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)()
)
# Products with the softmax matrix have so many columns, or a multiple of them; then come the others.
ROUND_COLUMNS = 4096
# A matrix is narrow beside one that is so many times as wide.
NARROW = 3
# Rows that are turned into columns at once.
TURNED_ROWS = 64
# The tables of embeddings that are alive, whose gradients a hook makes dense.
_DENSE_GRADIENTS: Any = WeakTensorKeyDictionary()
# For each tensor of logits alive, its version and the logarithms of its rows' normalizers.
_NORMALIZERS: Any = WeakTensorKeyDictionary()


def smoothed_crossentropy(logits: Any, labels: Any, on_value: float, off_value: float) -> Any:
    """See `keras_attention.ops.crossentropy.smoothed_crossentropy`.

    Keeps nothing but the logits, and no more than a chunk of them is ever float32. The normalizers of
    the last loss are remembered for as long as its logits live: a metric need not form them again.
    """
    return _Crossentropy.apply(logits, labels.long(), on_value, off_value)


class _Crossentropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels, on_value, off_value):
        ctx.values = on_value, off_value
        label_scores = logits.gather(1, labels[:, None])[:, 0].float()
        normalizers = _remembered(logits)
        if normalizers is None or off_value:
            sums = torch.empty_like(label_scores) if off_value else None
            normalizers = log_normalizers(logits, sums)
            _remember(logits, normalizers)
        ctx.save_for_backward(logits, labels, normalizers)
        total = on_value + (logits.shape[-1] - 1) * off_value
        losses = torch.sub(total * normalizers, label_scores, alpha=on_value - off_value)
        return losses.sub_(sums, alpha=off_value) if off_value else losses

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


def log_normalizers(logits: Any, sums: Any = None) -> Any:
    """`log sum_v exp(z_v)` of each row of logits `(rows, V)`, float32, formed where the cache holds it.

    Also writes the sums of the rows if there is a tensor `(rows,)` for them.
    """
    normalizers = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    for rows, room in _chunks(logits):
        scores = _in_float32(logits[rows], room)
        torch.logsumexp(scores, -1, out=normalizers[rows])
        if sums is not None:
            torch.sum(scores, -1, out=sums[rows])
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
    """The tensor whose memory a view shows: other views of it show the same numbers."""
    return tensor if tensor._base is None else tensor._base


def _remember(logits: Any, normalizers: Any) -> None:
    root = _root(logits)
    if root.numel() == logits.numel():
        _NORMALIZERS[root] = (root._version, logits.shape, normalizers)


def _remembered(logits: Any) -> Any:
    """The normalizers of the rows of `logits`, if a loss has formed them from these very numbers."""
    root = _root(logits)
    version, shape, normalizers = _NORMALIZERS.get(root, (None, None, None))
    is_same = version == root._version and shape == logits.shape and logits.is_contiguous()
    return normalizers if is_same else None


def linear(inputs: Any, kernel: Any, bias: Any = None, relu: bool = False) -> Any:
    """See `keras_attention.ops.linear.linear`; the product itself adds the bias."""
    inputs, kernel = ops.convert_to_tensor(inputs), ops.convert_to_tensor(kernel)
    bias = None if bias is None else ops.convert_to_tensor(bias)
    if inputs.dtype != kernel.dtype or (bias is not None and bias.dtype != kernel.dtype):
        return linear_reference(inputs, kernel, bias, relu)
    if _has_tiles(inputs):
        return _Linear.apply(inputs, kernel, bias, relu)
    outputs = inputs @ kernel if bias is None else torch.addmm(bias, inputs, kernel)
    return outputs.relu_() if relu else outputs


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, kernel, bias, relu):
        if bias is None and not relu:
            outputs = inputs @ kernel
        else:
            activation = "relu" if relu else "none"
            # One pass, where `addmm` copies the bias to every row before, and ReLU is a pass after.
            outputs = torch.ops.mkldnn._linear_pointwise(
                inputs, kernel.t(), bias, activation, [], ""
            )
        ctx.save_for_backward(inputs, kernel, outputs if relu else None)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream):
        inputs, kernel, outputs = ctx.saved_tensors
        needs_inputs, needs_kernel, needs_bias, _ = ctx.needs_input_grad
        if outputs is not None:
            upstream = torch.ops.aten.threshold_backward(upstream, outputs, 0)
        return (
            upstream @ kernel.t() if needs_inputs else None,
            _product_over_rows(inputs, upstream) if needs_kernel else None,
            upstream.sum(0) if needs_bias else None,
            None,
        )


def _has_tiles(inputs: Any) -> bool:
    """Whether oneDNN multiplies these numbers with a CPU's AMX."""
    return inputs.dtype == torch.bfloat16 and inputs.device.type == "cpu" and HAS_AMX


def _product_over_rows(one: Any, other: Any) -> Any:
    """`one^T other` of `(rows, D)` and `(rows, F)`.

    oneDNN is slow to turn a matrix around for AMX: if one is much narrower than the other that one is
    turned around before, else there are two products of half the rows each.
    """
    rows, depth, width = len(one), one.shape[1], other.shape[1]
    if width >= NARROW * depth:
        return _transposed(one) @ other
    if depth >= NARROW * width:
        return _transposed(_transposed(other) @ one)
    if rows % 2 or not rows:
        return one.t() @ other
    halves = torch.bmm(one.view(2, rows // 2, -1).transpose(1, 2), other.view(2, rows // 2, -1))
    return halves[0].add_(halves[1])


def _transposed(matrix: Any) -> Any:
    """A copy, row by row in memory: PyTorch's own takes up to ten times as long in bfloat16."""
    outputs = matrix.new_empty(matrix.shape[1], len(matrix))
    for start in range(0, len(matrix), TURNED_ROWS):
        rows = slice(start, start + TURNED_ROWS)
        outputs[:, rows] = matrix[rows].t()
    return outputs


def tied_projection(inputs: Any, table: Any) -> Any:
    """See `keras_attention.ops.linear.tied_projection`."""
    if _has_tiles(inputs):
        return _TiedProjection.apply(inputs, table)
    return inputs @ table.t()


class _TiedProjection(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, table):
        ctx.save_for_backward(inputs, table)
        # With AMX oneDNN is slow for a number of columns that has few factors of 2.
        length = len(table)
        columns = length - length % ROUND_COLUMNS
        outputs = inputs.new_empty(len(inputs), length)
        for part in (slice(0, columns), slice(columns, length)):
            if part.start < part.stop:
                torch.mm(inputs, table[part].t(), out=outputs[:, part])
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream):
        inputs, table = ctx.saved_tensors
        needs_inputs, needs_table = ctx.needs_input_grad
        return (
            upstream @ table if needs_inputs else None,
            _product_over_rows(upstream, inputs) if needs_table else None,
        )


def lookup(table: Any, token_ids: Any) -> Any:
    """See `keras_attention.ops.lookup.lookup`.

    The gradient has as many rows as there are tokens: PyTorch adds it to that of the softmax with the
    same table, and need not make one of V rows, most of them zero, of it first. `backward` leaves a
    dense gradient of the table in any case; `torch.autograd.grad` gives what there is.
    """
    table, ids = ops.convert_to_tensor(table), ops.convert_to_tensor(token_ids).long()
    ids = torch.where(ids < 0, ids + len(table), ids)
    is_trained = table.is_leaf and table.requires_grad and torch.is_grad_enabled()
    is_sparse = is_trained and table.device.type == "cpu"
    if is_sparse and table not in _DENSE_GRADIENTS:
        table.register_post_accumulate_grad_hook(_make_dense)
        _DENSE_GRADIENTS[table] = True
    return torch.nn.functional.embedding(ids, table, sparse=is_sparse)


def _make_dense(table: Any) -> None:
    # Where nothing but lookups uses the table: optimizers want all rows.
    if table.grad.is_sparse:
        table.grad = table.grad.to_dense()


def dropout(inputs: Any, rate: float, seed: Any) -> Any:
    """See `keras_attention.ops.residual.dropout`."""
    return _Dropout.apply(inputs, keep_mask(inputs, rate, seed), 1.0 / (1.0 - rate))


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, keep, scale):
        ctx.save_for_backward(keep)
        ctx.scale = scale
        return torch.mul(inputs, keep).mul_(scale)

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream):
        (keep,) = ctx.saved_tensors
        return torch.mul(upstream, keep).mul_(ctx.scale), None, None


def dropout_add_norm(
    inputs: Any, update: Any, gamma: Any, beta: Any, epsilon: float, rate: float, seed: Any
) -> Any:
    """See `keras_attention.ops.residual.dropout_add_norm`."""
    keep = keep_mask(update, rate, seed) if rate > 0.0 else None
    gamma, beta = (ops.convert_to_tensor(x) for x in (gamma, beta))
    if inputs.device.type != "cpu":
        # Only on a CPU does PyTorch normalise half precision with parameters of full precision.
        gamma, beta = gamma.to(inputs.dtype), beta.to(inputs.dtype)
    return _DropoutAddNorm.apply(inputs, update, gamma, beta, epsilon, keep, 1.0 / (1.0 - rate))


class _DropoutAddNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, update, gamma, beta, epsilon, keep, scale):
        if keep is None:
            total = torch.add(inputs, update)
        else:
            total = torch.mul(update, keep)
            torch.add(inputs, total, alpha=scale, out=total)
        shape = total.shape[-1:]
        outputs, mean, rstd = torch.native_layer_norm(total, shape, gamma, beta, epsilon)
        ctx.save_for_backward(total, gamma, beta, mean, rstd, keep)
        ctx.scale = scale
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream):
        total, gamma, beta, mean, rstd, keep = ctx.saved_tensors
        to_total, to_gamma, to_beta = torch.ops.aten.native_layer_norm_backward(
            upstream.contiguous(), total, total.shape[-1:], mean, rstd, gamma, beta, [True] * 3
        )
        to_update = to_total if keep is None else torch.mul(to_total, keep).mul_(ctx.scale)
        return to_total, to_update, to_gamma, to_beta, None, None, None


def attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    scale: float = 1.0,
    dropout: Callable[[Any], Any] | None = None,
) -> tuple[Any, Any]:
    """See `keras_attention.ops.attention.dot_product_attention`."""
    batch, length, heads, _ = query.shape
    query, key, value = (_heads_first(tensor) for tensor in (query, key, value))
    blind = None
    if mask is not None:
        # Rows that may attend to nothing attend to all, and lose what they got.
        blind = ~mask.any(-1, keepdim=True)
        blind = None if blind.device.type == "cpu" and not bool(blind.any()) else blind
        mask = mask if blind is None else mask | blind
    weights = _Weights.apply(query, key, mask, scale, heads)
    weights = weights.view(batch, heads, length, key.shape[1])
    if blind is not None:
        weights = weights * ~blind
    applied = weights if dropout is None else dropout(weights)
    outputs = torch.bmm(applied.flatten(0, 1), value)
    return outputs.view(batch, heads, length, -1).transpose(1, 2), weights


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
