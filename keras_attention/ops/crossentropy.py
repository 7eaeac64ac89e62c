"""Cross-entropy over a vocabulary, from logits of any float dtype, without a one-hot."""

from typing import Any

from keras import ops

from keras_attention.ops.dispatch import fast_kernel


def token_nll(logits: Any, labels: Any) -> Any:
    """Negative log-likelihood of the labels, in float32.

    Args:
        logits: Tensor of shape `(rows, V)`.
        labels: Integers of shape `(rows,)`.

    Returns:
        Tensor of shape `(rows,)`, nats.
    """
    return smoothed_crossentropy(logits, labels, on_value=1.0, off_value=0.0)


def smoothed_crossentropy(logits: Any, labels: Any, on_value: float, off_value: float) -> Any:
    """`-sum_v q(v) log p(v)`, with q = `on_value` for the label and `off_value` for every other token.

    Args:
        logits: Tensor of shape `(rows, V)`.
        labels: Integers of shape `(rows,)`.
        on_value: Probability of the label in the target distribution.
        off_value: Probability of each other token.

    Returns:
        Tensor of shape `(rows,)`, float32, nats.
    """
    kernel = fast_kernel("smoothed_crossentropy", logits.shape[-1])
    kernel = kernel or smoothed_crossentropy_reference
    return kernel(logits, ops.cast(labels, "int32"), on_value, off_value)


def smoothed_crossentropy_reference(
    logits: Any, labels: Any, on_value: float, off_value: float
) -> Any:
    """The definition of `smoothed_crossentropy`, which the fast kernels must equal.

    `-sum_v q(v) log p(v) = total log sum_v exp(z_v) - (on - off) z_label - off sum_v z_v`.
    """
    total = on_value + (logits.shape[-1] - 1) * off_value
    logits = ops.cast(logits, "float32")
    log_normalizer = ops.logsumexp(logits, axis=-1)
    label_logits = ops.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    loss = total * log_normalizer - (on_value - off_value) * label_logits
    return loss - off_value * ops.sum(logits, axis=-1) if off_value else loss
