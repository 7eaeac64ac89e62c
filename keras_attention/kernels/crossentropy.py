"""Cross-entropy over a vocabulary, from logits of any float dtype, without a one-hot."""

from typing import Any

from keras import backend, ops


def token_nll(logits: Any, labels: Any) -> tuple[Any, Any]:
    """Negative log-likelihood of the labels, and of the average token, in float32.

    Args:
        logits: Tensor of shape `(rows, V)`.
        labels: Integers of shape `(rows,)`.

    Returns:
        Two tensors of shape `(rows,)`: `-log p(label)` and `-mean_v log p(v)`, both in nats.
    """
    logits = ops.cast(logits, "float32")
    log_normalizer = ops.logsumexp(logits, axis=-1)
    label_logits = ops.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return log_normalizer - label_logits, log_normalizer - ops.mean(logits, axis=-1)


def smoothed_crossentropy_reference(
    logits: Any, labels: Any, on_value: float, off_value: float
) -> Any:
    """`-sum_v q(v) log p(v)`, with q = `on_value` for the label and `off_value` for every other token.

    Args:
        logits: Tensor of shape `(rows, V)`.
        labels: Integers of shape `(rows,)`.
        on_value: Probability of the label in the target distribution.
        off_value: Probability of each other token.

    Returns:
        Tensor of shape `(rows,)`, float32, nats.
    """
    nll, mean_nll = token_nll(logits, labels)
    return (on_value - off_value) * nll + off_value * logits.shape[-1] * mean_nll


def smoothed_crossentropy(logits: Any, labels: Any, on_value: float, off_value: float) -> Any:
    """`smoothed_crossentropy_reference` with its gradient written out.

    The gradient `p - q` is formed in one pass from the saved normaliser, in the dtype of the logits,
    instead of by differentiating each operation of the forward pass.
    """
    labels = ops.cast(labels, "int32")
    vocabulary_size = logits.shape[-1]
    total = on_value + (vocabulary_size - 1) * off_value

    @ops.custom_gradient
    def loss_of(logits: Any) -> Any:
        scores = ops.cast(logits, "float32")
        log_normalizer = ops.logsumexp(scores, axis=-1)
        label_score = ops.take_along_axis(scores, labels[:, None], axis=-1)[:, 0]
        loss = total * log_normalizer - (on_value - off_value) * label_score
        if off_value:
            loss = loss - off_value * ops.sum(scores, axis=-1)

        def gradient(*arguments: Any, upstream: Any = None) -> Any:
            upstream = arguments[-1] if upstream is None else upstream
            scores = ops.cast(logits, "float32")
            expected = total * ops.exp(scores - log_normalizer[:, None]) - off_value
            is_label = ops.equal(ops.arange(vocabulary_size, dtype="int32"), labels[:, None])
            grads = expected - ops.where(is_label, on_value - off_value, 0.0)
            return ops.cast(grads * upstream[:, None], backend.standardize_dtype(logits.dtype))

        return loss, gradient

    return loss_of(logits)
