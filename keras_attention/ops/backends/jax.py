"""Fast kernels for JAX: a loss that keeps nothing but the logits, cheap random bits, cuDNN's attention."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from keras import ops

from keras_attention.ops import reference


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _crossentropy(logits, labels, on_value, off_value):
    return _crossentropy_forward(logits, labels, on_value, off_value)[0]


def _crossentropy_forward(logits, labels, on_value, off_value):
    total = on_value + (logits.shape[-1] - 1) * off_value
    scores = logits.astype("float32")
    log_normalizer = jax.nn.logsumexp(scores, axis=-1)
    label_scores = jnp.take_along_axis(scores, labels[:, None], axis=-1)[:, 0]
    loss = total * log_normalizer - (on_value - off_value) * label_scores
    if off_value:
        loss = loss - (off_value * scores).sum(axis=-1)
    return loss, (logits, labels, log_normalizer)


def _crossentropy_backward(on_value, off_value, kept, upstream):
    logits, labels, log_normalizer = kept
    total = on_value + (logits.shape[-1] - 1) * off_value
    probabilities = jnp.exp(logits.astype("float32") - log_normalizer[:, None])
    is_label = jnp.arange(logits.shape[-1])[None] == labels[:, None]
    gradient = total * probabilities - jnp.where(is_label, on_value, off_value)
    return (gradient * upstream[:, None]).astype(logits.dtype), None


_crossentropy.defvjp(_crossentropy_forward, _crossentropy_backward)


def smoothed_crossentropy(logits: Any, labels: Any, on_value: float, off_value: float) -> Any:
    """See `keras_attention.ops.reference.smoothed_crossentropy`.

    Its gradient is written out: one pass over the logits, which are all that it keeps.
    """
    if logits.shape[-1] < reference.SMALLEST_WIDTH:
        return reference.smoothed_crossentropy(logits, labels, on_value, off_value)
    labels = ops.cast(labels, "int32")
    return _crossentropy(logits, labels, on_value, off_value)


def dropout_add_norm(
    inputs: Any, update: Any, gamma: Any, beta: Any, epsilon: float, rate: float, seed: Any
) -> Any:
    """See `keras_attention.ops.reference.dropout_add_norm`."""
    if inputs.shape[-1] < reference.SMALLEST_WIDTH:
        return reference.dropout_add_norm(inputs, update, gamma, beta, epsilon, rate, seed)
    if rate > 0.0:
        keep = _keep(update.shape, rate, seed.next())
        update = jnp.where(keep, update / (1.0 - rate), jnp.zeros((), update.dtype))
    return ops.layer_normalization(ops.add(inputs, update), gamma, beta, -1, epsilon)


def _keep(shape, rate, seed):
    """Return a dropout mask: every position's number, hashed with two random words of the seed.

    JAX' own bits cost ten times as much, on a CPU a tenth of an update.
    """
    words = jax.random.bits(seed, (2,), "uint32")
    positions = jax.lax.iota("uint32", functools.reduce(lambda a, b: a * b, shape, 1))
    bits = _mixed(_mixed(positions + words[0]) ^ words[1])
    return (bits >= jnp.uint32(rate * 2**32)).reshape(shape)


def _mixed(bits):
    """Return the finalizer of MurmurHash3: every bit of the result depends on every bit of the argument."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    scale: float = 1.0,
    dropout: Callable[[Any], Any] | None = None,
    flash: bool | None = False,
) -> tuple[Any, Any]:
    """See `keras_attention.ops.reference.dot_product_attention`; fused on GPUs."""
    if flash is False or dropout is not None or not _suits_cudnn(query, key, value):
        return reference.dot_product_attention(query, key, value, mask, scale, dropout, flash)
    return reference.attend_without_blind_rows(_fused, query, key, value, mask, scale), None


def _suits_cudnn(query, key, value):
    # Keras' own operation tries cuDNN, logs a traceback for each shape that it refuses, and falls back on a
    # function that needs values as wide as keys.
    width, lengths = query.shape[-1], (query.shape[1], key.shape[1])
    return (
        jax.default_backend() == "gpu"
        and all(tensor.dtype in (jnp.bfloat16, jnp.float16) for tensor in (query, key, value))
        and value.shape[-1] == width <= 128
        and width % 8 == 0
        and all(length % 2 == 0 for length in lengths)
    )


def _fused(query, key, value, mask, scale):
    if mask is not None:
        # Heads and sentences may share a mask; cuDNN wants all its rows and columns.
        shape = (*mask.shape[:2], query.shape[1], key.shape[1])
        mask = jnp.broadcast_to(mask, shape)
    return jax.nn.dot_product_attention(
        query, key, value, mask=mask, scale=scale, implementation="cudnn"
    )


KERNELS: dict[str, Callable[..., Any]] = {
    "dot_product_attention": dot_product_attention,
    "dropout_add_norm": dropout_add_norm,
    "smoothed_crossentropy": smoothed_crossentropy,
}
