"""Cross-entropy over a vocabulary, from logits of any float dtype, without a one-hot."""

from typing import Any

from keras_attention.ops.dispatch import operation


def token_nll(logits: Any, labels: Any) -> Any:
    """Negative log-likelihood of the labels, in float32, of float64 logits in float64.

    Args:
        logits: Tensor of shape `(rows, V)`.
        labels: Integers of shape `(rows,)`.

    Returns:
        Tensor of shape `(rows,)`, nats.
    """
    return smoothed_crossentropy(logits, labels, on_value=1.0, off_value=0.0)


@operation
def smoothed_crossentropy(logits: Any, labels: Any, on_value: float, off_value: float) -> Any:
    """`-sum_v q(v) log p(v)`, with q = `on_value` for the label and `off_value` for every other token.

    Args:
        logits: Tensor of shape `(rows, V)`.
        labels: Integers of shape `(rows,)`.
        on_value: Probability of the label in the target distribution.
        off_value: Probability of each other token.

    Returns:
        Tensor of shape `(rows,)`, float32, of float64 logits float64, nats.
    """
