"""Fast kernels for TensorFlow graphs: element-wise work as XLA islands between oneDNN's products.

TensorFlow runs each element-wise operation as a pass over memory of its own; XLA fuses them and uses
the widest vector instructions. Products of matrices stay outside: there TensorFlow's oneDNN is faster.
Gradients are written out, so that a backward pass reads what it needs and keeps nothing else.

How long an update takes without a kernel, as a multiple of the time with all, by `KERAS_BACKEND=tensorflow
python benchmarks/each_kernel.py small`, `tiny` and `base` (28 November 2026, AVX2; medians of 5 to 7 pairs,
spread by a tenth):

    kernel                 small  tiny  base
    smoothed_crossentropy   1.05  1.11     -
    dropout_add_norm        1.06  1.05  1.06
    dot_product_attention   1.02  1.05  1.03
    global_norm             1.00  0.99  1.06

Kernels for dropout alone, a product with its bias, and the product with the tied table went: 0.99 to 1.03.
So did `joined_linear`: 1.04, 1.05, 1.00 then, and 0.96, 1.02, 0.99 on an AMX processor (30 November 2026).
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_attention.ops import reference


def _is_fast(width: int, dtype: Any) -> bool:
    """Whether a kernel is worth its compilation; float64 it would make float32.

    Eager calls keep to the definitions: they are for looking at, and XLA would compile for each shape.
    """
    is_graph = width >= reference.SMALLEST_WIDTH and not tf.executing_eagerly()
    is_graph &= dtype != tf.float64
    return is_graph and not tf.config.list_physical_devices("TPU") and not _is_watched()


def _is_watched() -> bool:
    """Whether `tf.debugging.enable_check_numerics` adds operations, which XLA does not know."""
    with tf.Graph().as_default() as graph:
        tf.constant(1.0)
    return len(graph.get_operations()) > 1


def _island(function: Callable[..., Any]) -> Any:
    """Compiled by XLA once for each combination of shapes."""
    return tf.function(function, jit_compile=True, reduce_retracing=True, autograph=False)


@_island
def _crossentropy_forward(logits, labels, on_value, off_value):
    total = on_value + (tf.cast(tf.shape(logits)[-1], "float32") - 1.0) * off_value
    # Gathered before the cast: the logits are never float32 all at once.
    label_scores = tf.cast(tf.gather(logits, labels, batch_dims=1), "float32")
    scores = tf.cast(logits, "float32")
    log_normalizer = tf.reduce_logsumexp(scores, axis=-1)
    loss = total * log_normalizer - (on_value - off_value) * label_scores
    return loss - tf.reduce_sum(off_value * scores, axis=-1), log_normalizer


@_island
def _crossentropy_backward(logits, labels, log_normalizer, on_value, off_value, upstream):
    total = on_value + (tf.cast(tf.shape(logits)[-1], "float32") - 1.0) * off_value
    probabilities = tf.exp(tf.cast(logits, "float32") - log_normalizer[:, None])
    is_label = tf.equal(tf.range(tf.shape(logits)[-1])[None], labels[:, None])
    gradient = total * probabilities - tf.where(is_label, on_value, off_value)
    return tf.cast(gradient * upstream[:, None], logits.dtype)


def smoothed_crossentropy(logits: Any, labels: Any, on_value: float, off_value: float) -> Any:
    """See `keras_attention.ops.reference.smoothed_crossentropy`."""
    if not _is_fast(logits.shape[-1], logits.dtype):
        return reference.smoothed_crossentropy(logits, labels, on_value, off_value)
    labels = tf.cast(labels, "int32")
    on, off = tf.constant(on_value, "float32"), tf.constant(off_value, "float32")

    @tf.custom_gradient
    def loss_of(logits):
        loss, log_normalizer = _crossentropy_forward(logits, labels, on, off)

        def gradient(upstream):
            return _crossentropy_backward(logits, labels, log_normalizer, on, off, upstream)

        return loss, gradient

    return loss_of(logits)


def _mixed(bits):
    """Return the finalizer of MurmurHash3: every bit of the result depends on every bit of the argument."""
    bits = (bits ^ tf.bitwise.right_shift(bits, tf.constant(16, "uint32"))) * 0x85EBCA6B
    bits = (bits ^ tf.bitwise.right_shift(bits, tf.constant(13, "uint32"))) * 0xC2B2AE35
    return bits ^ tf.bitwise.right_shift(bits, tf.constant(16, "uint32"))


def _keep(shape, rate, seed):
    """Return the dropout mask of a seed, drawn again in the backward pass instead of kept.

    Every position's number is hashed with two words of the seed. TensorFlow's own generators take
    ten to two hundred times as long in XLA on a CPU.
    """
    first, second = tf.unstack(tf.cast(seed, "uint32"))
    words = _mixed(second ^ _mixed(first)), _mixed(first ^ _mixed(second + 0x9E3779B9))
    positions = tf.cast(tf.range(tf.reduce_prod(shape)), "uint32")
    bits = _mixed(_mixed(positions + words[0]) ^ words[1])
    return tf.reshape(bits >= tf.cast(rate * 2.0**32, "uint32"), shape)


@_island
def _norm_forward(inputs, update, gamma, beta, epsilon, rate, seed):
    update = tf.cast(update, "float32") / (1.0 - rate)
    update = tf.where(_keep(tf.shape(update), rate, seed), update, 0.0)
    total = tf.cast(inputs, "float32") + update
    centered = total - tf.reduce_mean(total, axis=-1, keepdims=True)
    scale = tf.math.rsqrt(tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True) + epsilon)
    normalized = tf.cast(centered * scale, inputs.dtype)
    outputs = tf.cast(normalized, "float32") * gamma + beta
    return tf.cast(outputs, inputs.dtype), normalized, scale


@_island
def _norm_backward(upstream, normalized, scale, gamma, rate, seed):
    dtype = normalized.dtype
    upstream, normalized = tf.cast(upstream, "float32"), tf.cast(normalized, "float32")
    inner = upstream * gamma
    mean = tf.reduce_mean(inner, axis=-1, keepdims=True)
    slope = tf.reduce_mean(inner * normalized, axis=-1, keepdims=True)
    grad_total = scale * (inner - mean - normalized * slope)
    keep = _keep(tf.shape(grad_total), rate, seed)
    grad_update = tf.where(keep, grad_total / (1.0 - rate), 0.0)
    return (
        tf.cast(grad_total, dtype),
        tf.cast(grad_update, dtype),
        tf.reduce_sum(upstream * normalized, axis=0),
        tf.reduce_sum(upstream, axis=0),
    )


def dropout_add_norm(
    inputs: Any, update: Any, gamma: Any, beta: Any, epsilon: float, rate: float, seed: Any
) -> Any:
    """See `keras_attention.ops.reference.dropout_add_norm`."""
    if not _is_fast(inputs.shape[-1], inputs.dtype):
        return reference.dropout_add_norm(inputs, update, gamma, beta, epsilon, rate, seed)
    shape, seed = tf.shape(inputs), seed.next()
    epsilon, rate = tf.constant(epsilon, "float32"), tf.constant(rate, "float32")

    @tf.custom_gradient
    def normalize(inputs, update, gamma, beta):
        outputs, normalized, scale = _norm_forward(inputs, update, gamma, beta, epsilon, rate, seed)

        def gradient(upstream):
            return _norm_backward(upstream, normalized, scale, gamma, rate, seed)

        return outputs, gradient

    width = inputs.shape[-1]
    outputs = normalize(
        tf.reshape(inputs, (-1, width)),
        tf.reshape(update, (-1, width)),
        tf.cast(gamma, "float32"),
        tf.cast(beta, "float32"),
    )
    return tf.ensure_shape(tf.reshape(outputs, shape), inputs.shape)


def _softmax_backward(weights, upstream, scale):
    upstream, numbers = tf.cast(upstream, "float32"), tf.cast(weights, "float32")
    slope = tf.reduce_sum(numbers * upstream, axis=-1, keepdims=True)
    return tf.cast(scale * numbers * (upstream - slope), weights.dtype)


_softmax_backward_island = _island(_softmax_backward)


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    scale: float = 1.0,
    dropout: Callable[[Any], Any] | None = None,
    flash: bool | None = False,
) -> tuple[Any, Any]:
    """See `keras_attention.ops.reference.dot_product_attention`.

    Of the scores nothing is kept but the weights.
    """
    # In float16 products could be above the range before they are scaled.
    width, dtype = query.shape[-2] * query.shape[-1], query.dtype
    is_fast = _is_fast(width, dtype) and dtype != tf.float16
    if not is_fast or flash:
        return reference.dot_product_attention(query, key, value, mask, scale, dropout, flash)
    factor = tf.constant(scale, "float32")
    # Without casts an island is hardly faster, and would be compiled for every shape of batches.
    backward = _softmax_backward if query.dtype == tf.float32 else _softmax_backward_island

    @tf.custom_gradient
    def weights_of(scores):
        scaled = tf.cast(scores, "float32") * factor
        weights = tf.cast(reference.masked_softmax(scaled, mask), scores.dtype)
        return weights, lambda upstream: backward(weights, upstream, factor)

    query, key, value = (tf.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    weights = weights_of(tf.matmul(query, key, transpose_b=True))
    applied = weights if dropout is None else dropout(weights)
    return tf.transpose(tf.matmul(applied, value), (0, 2, 1, 3)), weights


def global_norm(gradients: Sequence[Any]) -> tf.Tensor:
    """See `keras_attention.ops.reference.global_norm`. The squares are never written to memory."""
    if gradients[0].dtype == tf.float64:
        return reference.global_norm(gradients)
    halves = [tf.nn.l2_loss(tf.cast(tf.convert_to_tensor(g), "float32")) for g in gradients]
    return tf.sqrt(2.0 * tf.add_n(halves))


_ALL = dot_product_attention, dropout_add_norm, global_norm, smoothed_crossentropy
KERNELS: dict[str, Callable[..., Any]] = {one.__name__: one for one in _ALL}
