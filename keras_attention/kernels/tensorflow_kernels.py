"""Fast kernels for TensorFlow graphs: element-wise work as XLA islands between oneDNN's products.

TensorFlow runs each element-wise operation as a pass over memory of its own; XLA fuses them and uses
the widest vector instructions. Products of matrices stay outside: there TensorFlow's oneDNN is faster.
Gradients are written out, so that a backward pass reads what it needs and keeps nothing else.
"""

from typing import Any

import tensorflow as tf


@tf.function(jit_compile=True, reduce_retracing=True)
def _crossentropy_forward(logits, labels, on_value, off_value):
    total = on_value + (tf.cast(tf.shape(logits)[-1], "float32") - 1.0) * off_value
    scores = tf.cast(logits, "float32")
    log_normalizer = tf.reduce_logsumexp(scores, axis=-1)
    label_scores = tf.gather(scores, labels, batch_dims=1)
    loss = total * log_normalizer - (on_value - off_value) * label_scores
    return loss - off_value * tf.reduce_sum(scores, axis=-1), log_normalizer


@tf.function(jit_compile=True, reduce_retracing=True)
def _crossentropy_backward(logits, labels, log_normalizer, on_value, off_value, upstream):
    total = on_value + (tf.cast(tf.shape(logits)[-1], "float32") - 1.0) * off_value
    probabilities = tf.exp(tf.cast(logits, "float32") - log_normalizer[:, None])
    is_label = tf.equal(tf.range(tf.shape(logits)[-1])[None], labels[:, None])
    gradient = total * probabilities - tf.where(is_label, on_value, off_value)
    return tf.cast(gradient * upstream[:, None], logits.dtype)


def smoothed_crossentropy(logits: Any, labels: Any, on_value: float, off_value: float) -> Any:
    """See `keras_attention.kernels.crossentropy.smoothed_crossentropy`."""
    on, off = tf.constant(on_value, "float32"), tf.constant(off_value, "float32")

    @tf.custom_gradient
    def loss_of(logits):
        loss, log_normalizer = _crossentropy_forward(logits, labels, on, off)

        def gradient(upstream):
            return _crossentropy_backward(logits, labels, log_normalizer, on, off, upstream)

        return loss, gradient

    return loss_of(logits)


def _keep(shape, rate, seed):
    """The dropout mask of a seed, drawn again in the backward pass instead of kept.

    XLA on a CPU takes 200 times as long for the algorithm that TensorFlow would select.
    """
    return tf.random.stateless_uniform(shape, seed, alg="threefry") >= rate


@tf.function(jit_compile=True, reduce_retracing=True)
def _norm_forward(inputs, update, gamma, beta, epsilon, rate, seed):
    update = tf.cast(update, "float32") / (1.0 - rate)
    update = tf.where(_keep(tf.shape(update), rate, seed), update, 0.0)
    total = tf.cast(inputs, "float32") + update
    centered = total - tf.reduce_mean(total, axis=-1, keepdims=True)
    scale = tf.math.rsqrt(tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True) + epsilon)
    normalized = tf.cast(centered * scale, inputs.dtype)
    outputs = tf.cast(normalized, "float32") * gamma + beta
    return tf.cast(outputs, inputs.dtype), normalized, scale


@tf.function(jit_compile=True, reduce_retracing=True)
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
    """See `keras_attention.kernels.residual.dropout_add_norm`."""
    shape = tf.shape(inputs)
    # Keras keeps its seeds as int64; XLA draws from int32.
    seed = tf.cast(tf.math.floormod(seed.next(), tf.int32.max - 1), "int32")
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
