"""The label-smoothed loss (section 5.4 of the paper), and accuracy and perplexity over tokens."""

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention.ops.ids import comparable_ids, one_if_ids
from keras_attention.ops.operations import smoothed_crossentropy, token_nll
from keras_attention.training.distribution import sum_over_replicas
from keras_attention.training.processes import share_of_process
from keras_attention.utils.arguments import Rate, checked
from keras_attention.utils.checks import check_integer, check_numbers, static_shape


class OfThread(threading.local):
    """What the losses of a thread, such as a replica's, are divided by in place of their own tokens."""

    token_count: Any = None


_own = OfThread()


@contextlib.contextmanager
def divided_by(token_count: Any) -> Iterator[None]:
    """Within this context `LabelSmoothedCrossentropy.token_count` is this, unless it is None: of a slice."""
    before, _own.token_count = _own.token_count, token_count
    try:
        yield
    finally:
        _own.token_count = before


@keras.saving.register_keras_serializable("keras_attention")
class LabelSmoothedCrossentropy(keras.losses.Loss):
    """Cross-entropy with smoothed labels, averaged over the real tokens of the whole update.

    The label gets probability `1 - label_smoothing`, each other token `label_smoothing / (V - 1)`, as
    in the authors' code. Padding is excluded. The sum over tokens is divided by the number of tokens of
    all replicas together, so every token of an update has the same weight. Keras' default, the mean of
    the replicas' means, would give more weight to the tokens of a replica that has few of them. (In
    its logs, though, Keras weighs the losses of batches by their rows, and on TensorFlow the shares of
    replicas by theirs: with unequal rows, as in a last batch of 3 on 2 replicas, `loss` and `val_loss` are
    not those of one device. The mean over all tokens of several batches is `Perplexity`'s, everywhere.)

    Args:
        label_smoothing: The paper's epsilon_ls. Defaults to 0.1, as in the paper.
        pad_token_id: Label of padding, which is excluded. Defaults to 0.
        subtract_minimum: Whether to subtract the smallest possible loss, the entropy of the smoothed
            labels, as the authors' code does. The gradient stays the same. Defaults to False.
        name: Name of the loss. Defaults to `"label_smoothed_crossentropy"`.
        **kwargs: `dtype`, as for every loss of Keras. It changes nothing: see what is returned.

    Call arguments:
        y_true: Integer labels `(B, T)`.
        y_pred: Logits `(B, T, V)`.
        sample_weight: Optional weights broadcastable to `(B, T)`.

    Returns:
        A scalar, nats per token, in float32, of float64 logits in float64.

    Raises:
        ValueError: If an argument is out of range, shapes do not fit together, or a NumPy array of labels
            holds one outside the vocabulary. (In a tensor, such a label makes the loss NaN.)

    Example (logits 1 to 4, label 2):

    >>> import numpy as np
    >>> loss = LabelSmoothedCrossentropy(pad_token_id=0)
    >>> y_true, y_pred = np.array([[2, 0]]), np.array([[[1.0, 2, 3, 4], [9.0, 0, 0, 0]]])
    >>> round(float(loss(y_true, y_pred)), 4)
    1.5069
    """

    @checked
    def __init__(
        self,
        label_smoothing: Rate = 0.1,
        pad_token_id: int = 0,
        subtract_minimum: bool = False,
        name: str = "label_smoothed_crossentropy",
        **kwargs: Any,
    ):
        # Keras saves a reduction; this loss defines its own.
        kwargs.pop("reduction", None)
        super().__init__(name=name, reduction="sum", **kwargs)
        self.label_smoothing = label_smoothing
        self.pad_token_id = pad_token_id
        self.subtract_minimum = subtract_minimum

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        total = self.token_sum(y_true, y_pred, sample_weight)
        return ops.divide(total, self.token_count(y_true, sample_weight, total.dtype))

    def token_sum(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Return the sum of the losses of the real tokens in these rows: of one replica or slice.

        Gradients are summed over replicas and slices. So each `token_sum`, divided by the `token_count`
        of the whole update, adds its share to the mean over all tokens.

        Args:
            y_true: Integer labels `(B, T)`.
            y_pred: Logits `(B, T, V)`.
            sample_weight: Optional weights broadcastable to `(B, T)`.

        Returns:
            A scalar, nats.
        """
        losses, _ = _weighted(self.call, y_true, y_pred, self.pad_token_id, sample_weight)
        return ops.sum(losses)

    def token_count(self, y_true: Any, sample_weight: Any = None, dtype: Any = "float32") -> Any:
        """Return the number of real tokens of the whole update, over all replicas; 1 if there is none.

        In an update of several processes on PyTorch, whose losses are averaged, it is an equal share of that.

        Args:
            y_true: Integer labels `(B, T)`: all rows of this replica.
            sample_weight: Optional weights broadcastable to `(B, T)`; tokens count by their weight.
            dtype: Of the result. Defaults to float32.

        Returns:
            A scalar.
        """
        if _own.token_count is not None:
            return ops.cast(_own.token_count, dtype)
        weights = label_weights(y_true, self.pad_token_id, sample_weight, dtype=dtype)
        count = sum_over_replicas(ops.sum(weights))
        # Not `ops.maximum`, which is float32 for float64 on PyTorch.
        return share_of_process(ops.where(ops.equal(count, 0.0), ops.ones_like(count), count))

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Return the loss of every token, `(B, T)`, padding included."""
        vocabulary_size = y_pred.shape[-1]
        on_value, off_value = self._values(vocabulary_size)
        losses = smoothed_crossentropy(
            ops.reshape(y_pred, (-1, vocabulary_size)),
            ops.reshape(y_true, (-1,)),
            on_value,
            off_value,
        )
        if self.subtract_minimum:
            losses = ops.subtract(losses, self.minimum(vocabulary_size))
        return ops.reshape(losses, ops.shape(y_true))

    def minimum(self, vocabulary_size: int) -> float:
        """Return the smallest possible loss: the entropy of the smoothed labels, in nats."""
        on_value, off_value = self._values(vocabulary_size)
        entropy = -on_value * math.log(on_value)
        if off_value:
            entropy -= (vocabulary_size - 1) * off_value * math.log(off_value)
        return entropy

    def _values(self, vocabulary_size: int) -> tuple[float, float]:
        """Return the probabilities of the label and of each other token."""
        check_integer("vocabulary_size", vocabulary_size, least=2)
        return 1.0 - self.label_smoothing, self.label_smoothing / (vocabulary_size - 1)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "label_smoothing": self.label_smoothing,
            "pad_token_id": self.pad_token_id,
            "subtract_minimum": self.subtract_minimum,
        }


def check_labels(y_true: Any, y_pred: Any, pad_token_id: int = 0) -> tuple[Any, Any]:
    """Check labels `(B, T)` and logits `(B, T, V)`, and return them as tensors, the labels as int32.

    Labels of padding become 0. The values of labels are checked in NumPy arrays only: a tensor may have
    none yet (see `label_weights`).
    """
    given = y_true = check_numbers("y_true", y_true)
    y_pred = check_numbers("y_pred", y_pred)
    y_true, y_pred = comparable_ids(y_true), ops.convert_to_tensor(y_pred)
    fits = len(y_pred.shape) == len(y_true.shape) + 1 and all(
        a is None or b is None or a == b
        for a, b in zip(y_true.shape, y_pred.shape[:-1], strict=True)
    )
    if not fits:
        raise ValueError(
            "Labels must be integers of shape (batch, length) and predictions logits of shape "
            f"(batch, length, vocabulary). Received: labels {tuple(y_true.shape)}, predictions "
            f"{tuple(y_pred.shape)}"
        )
    if isinstance(given, np.ndarray):
        _check_label_values(given, y_pred.shape[-1], pad_token_id)
    # The padding label may be outside the vocabulary. Any id will do, since it is excluded.
    is_padding = ops.equal(y_true, pad_token_id)
    return ops.cast(ops.where(is_padding, 0, y_true), "int32"), y_pred


def _check_label_values(labels: np.ndarray, vocabulary_size: int, pad_token_id: int) -> None:
    is_label = (labels >= 0) & (labels < vocabulary_size) & (labels == np.floor(labels))
    wrong = labels[~is_label & (labels != pad_token_id)]
    if wrong.size:
        raise ValueError(
            f"Labels must be ids of the vocabulary, integers from 0 to {vocabulary_size - 1}, or "
            f"pad_token_id={pad_token_id}. Received: {wrong.ravel()[:5].tolist()}"
        )


def check_weights(sample_weight: Any, wanted: Any) -> Any:
    """Return sample weights; raise a ValueError unless they are one for each row, or broadcast to (B, T)."""
    if not isinstance(sample_weight, int | float):
        sample_weight = check_numbers("sample_weight", sample_weight)
    shape = static_shape(sample_weight) if hasattr(sample_weight, "shape") else ()
    if shape is None or wanted is None:
        return sample_weight
    pairs = zip(shape, wanted[: len(shape)], strict=False)
    fits = len(shape) <= len(wanted) and all(a in (1, None, b) or b is None for a, b in pairs)
    if not fits:
        raise ValueError(
            "`sample_weight` must have a weight for each row, of shape (batch,), or for each label, or sizes "
            f"of 1 in their place. Received: sample_weight {shape}, labels {wanted}"
        )
    return sample_weight


def label_weights(
    y_true: Any,
    pad_token_id: int,
    sample_weight: Any = None,
    vocabulary_size: int | None = None,
    dtype: Any = "float32",
) -> Any:
    """Return the weight of each token, `(B, T)`: 0 for padding, else 1 or its sample weight.

    A graph cannot raise an error. So with a `vocabulary_size`, a label outside the vocabulary has the
    weight NaN: the loss becomes NaN, and the model does not learn a wrong word.
    """
    y_true = comparable_ids(check_numbers("y_true", y_true))
    weights = ops.ones_like(y_true, dtype=dtype)
    if vocabulary_size is not None:
        weights = ops.multiply(weights, one_if_ids(y_true, vocabulary_size))
    if sample_weight is not None:
        sample_weight = check_weights(sample_weight, static_shape(y_true))
        sample_weight = ops.cast(sample_weight, dtype)
        while 0 < len(sample_weight.shape) < len(y_true.shape):  # one for each row
            sample_weight = sample_weight[..., None]
        weights = ops.multiply(weights, sample_weight)
    return ops.where(ops.equal(y_true, pad_token_id), 0.0, weights)


def _weighted(
    values_of: Callable[[Any, Any], Any],
    y_true: Any,
    y_pred: Any,
    pad_token_id: int,
    sample_weight: Any,
) -> tuple[Any, Any]:
    """Return the value of every token times its weight, and the weights."""
    labels, y_pred = check_labels(y_true, y_pred, pad_token_id)
    values = values_of(labels, y_pred)
    weights = label_weights(y_true, pad_token_id, sample_weight, y_pred.shape[-1], values.dtype)
    # Not only a product: at padding, 0 times NaN would be NaN.
    return ops.where(ops.equal(weights, 0), 0.0, ops.multiply(values, weights)), weights


def negative_log_likelihoods(labels: Any, logits: Any) -> Any:
    """Return -log P(label) of every token, `(B, T)`."""
    rows = ops.reshape(logits, (-1, logits.shape[-1]))
    return ops.reshape(token_nll(rows, ops.reshape(labels, (-1,))), ops.shape(labels))


class _TokenMean(keras.metrics.Metric):
    """A mean over all real tokens seen since the last reset."""

    @checked
    def __init__(self, name: str, pad_token_id: int = 0, **kwargs: Any):
        super().__init__(name=name, **kwargs)
        self.pad_token_id = pad_token_id
        number = {"shape": (), "initializer": "zeros", "dtype": self.dtype}
        self.total = self.add_variable(name="total", **number)
        self.count = self.add_variable(name="count", **number)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        values, weights = _weighted(
            self.token_values, y_true, y_pred, self.pad_token_id, sample_weight
        )
        self.total.assign_add(ops.cast(ops.sum(values), self.dtype))
        self.count.assign_add(ops.cast(ops.sum(weights), self.dtype))

    def token_values(self, y_true: Any, y_pred: Any) -> Any:
        """Return the value of every token, `(B, T)`."""
        raise NotImplementedError

    def result(self) -> Any:
        total, count = ops.convert_to_tensor(self.total), ops.convert_to_tensor(self.count)
        is_empty = ops.equal(count, 0)  # `ops.divide_no_nan` is float32 for float64 on PyTorch.
        return ops.where(
            is_empty,
            ops.zeros_like(total),
            total / ops.where(is_empty, ops.ones_like(count), count),
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "pad_token_id": self.pad_token_id}


@keras.saving.register_keras_serializable("keras_attention")
class TokenAccuracy(_TokenMean):
    """Share of the real target tokens that the model predicts as the most probable ones.

    Args:
        name: Name of the metric. Defaults to `"token_accuracy"`.
        pad_token_id: Label of padding, which is excluded. Defaults to 0.
        **kwargs: `dtype`.

    Example:

    >>> import numpy as np
    >>> metric = TokenAccuracy()
    >>> logits = np.array([[[0.0, 1, 2], [0.0, 2, 1], [9.0, 0, 0]]])
    >>> metric.update_state(np.array([[2, 2, 0]]), logits)
    >>> float(metric.result())
    0.5
    """

    def __init__(self, name: str = "token_accuracy", pad_token_id: int = 0, **kwargs: Any):
        super().__init__(name=name, pad_token_id=pad_token_id, **kwargs)

    def token_values(self, y_true: Any, y_pred: Any) -> Any:
        return ops.cast(
            ops.equal(ops.cast(ops.argmax(y_pred, axis=-1), "int32"), y_true), "float32"
        )


@keras.saving.register_keras_serializable("keras_attention")
class Perplexity(_TokenMean):
    """`exp` of the mean negative log-likelihood of real target tokens, without smoothing (Table 3).

    Args:
        name: Name of the metric. Defaults to `"perplexity"`.
        pad_token_id: As of `TokenAccuracy`.
        **kwargs: As of `TokenAccuracy`.

    Example:

    >>> import numpy as np
    >>> metric = Perplexity()
    >>> metric.update_state(np.array([[1, 0]]), np.zeros((1, 2, 7)))
    >>> round(float(metric.result()), 4)
    7.0
    """

    def __init__(self, name: str = "perplexity", pad_token_id: int = 0, **kwargs: Any):
        super().__init__(name=name, pad_token_id=pad_token_id, **kwargs)

    def token_values(self, y_true: Any, y_pred: Any) -> Any:
        return negative_log_likelihoods(y_true, y_pred)

    def result(self) -> Any:
        return ops.exp(super().result())
