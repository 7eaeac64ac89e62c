"""The label-smoothed loss (section 5.4 of the paper)."""

import math
from typing import Any

import keras
from keras import ops

from keras_attention.ops.crossentropy import smoothed_crossentropy
from keras_attention.training.distribution import sum_over_replicas


@keras.saving.register_keras_serializable("keras_attention")
class LabelSmoothedCrossentropy(keras.losses.Loss):
    """Cross-entropy with smoothed labels, averaged over the real tokens of the whole update.

    The label gets probability `1 - label_smoothing`, each other token `label_smoothing / (V - 1)`, as
    in the authors' code. Padding counts for nothing. The sum over tokens is divided by the number of
    tokens of all replicas together, so every token of an update weighs the same; Keras' default, the
    mean of the replicas' means, would give tokens of short sentences more weight.

    Args:
        label_smoothing: The paper's epsilon_ls, 0.1.
        pad_token_id: Label that counts for nothing. Defaults to 0.
        subtract_minimum: Whether to subtract the entropy of the smoothed labels, the least value the
            loss can take, as the authors' code does. It does not change the gradient.
        name: Name of the loss.
        **kwargs: `dtype`.

    Call arguments:
        y_true: Integer labels `(B, T)`.
        y_pred: Logits `(B, T, V)`.
        sample_weight: Optional weights broadcastable to `(B, T)`.

    Returns:
        A scalar, nats per token.

    Example (section 2 of the authors' settings: logits 1 to 4, label 2):

    >>> import numpy as np
    >>> loss = LabelSmoothedCrossentropy(pad_token_id=0)
    >>> y_true, y_pred = np.array([[2, 0]]), np.array([[[1.0, 2, 3, 4], [9.0, 0, 0, 0]]])
    >>> round(float(loss(y_true, y_pred)), 4)
    1.5069
    """

    def __init__(
        self,
        label_smoothing: float = 0.1,
        pad_token_id: int = 0,
        subtract_minimum: bool = False,
        name: str = "label_smoothed_crossentropy",
        **kwargs: Any,
    ):
        kwargs.pop(
            "reduction", None
        )  # Saved by Keras; the reduction of this loss is its definition.
        super().__init__(name=name, reduction="sum", **kwargs)
        if not 0.0 <= label_smoothing < 1.0:
            raise ValueError(
                "`label_smoothing` must be at least 0 and below 1. "
                f"Received: label_smoothing={label_smoothing!r}"
            )
        self.label_smoothing = label_smoothing
        self.pad_token_id = pad_token_id
        self.subtract_minimum = subtract_minimum

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        total = self.token_sum(y_true, y_pred, sample_weight)
        return ops.divide(total, self.token_count(y_true, sample_weight))

    def token_sum(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """The sum of the losses of the real tokens at hand, of this replica or slice of rows.

        Gradients are summed over replicas and slices, so `token_sum` of each, divided by the one
        `token_count` of all, adds its share to the mean over all tokens of the update.

        Args:
            y_true: Integer labels `(B, T)`.
            y_pred: Logits `(B, T, V)`.
            sample_weight: Optional weights broadcastable to `(B, T)`.

        Returns:
            A scalar, nats.
        """
        y_true, y_pred = check_labels(y_true, y_pred)
        losses = self.call(y_true, y_pred)
        return ops.sum(ops.multiply(losses, self._weights(y_true, sample_weight, losses.dtype)))

    def token_count(self, y_true: Any, sample_weight: Any = None) -> Any:
        """The number of real tokens of the whole update, all replicas together; at least 1.

        Args:
            y_true: Integer labels `(B, T)`: all rows of this replica.
            sample_weight: Optional weights broadcastable to `(B, T)`; tokens count by their weight.

        Returns:
            A scalar, float32.
        """
        y_true = ops.convert_to_tensor(y_true)
        weights = self._weights(y_true, sample_weight, "float32")
        return ops.maximum(sum_over_replicas(ops.sum(weights)), 1.0)

    def _weights(self, y_true: Any, sample_weight: Any, dtype: Any) -> Any:
        weights = ops.cast(ops.not_equal(y_true, self.pad_token_id), dtype)
        if sample_weight is None:
            return weights
        return ops.multiply(weights, _token_weights(sample_weight, dtype))

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The loss of every token, `(B, T)`, padding included."""
        vocabulary_size = y_pred.shape[-1]
        on_value = 1.0 - self.label_smoothing
        off_value = self.label_smoothing / (vocabulary_size - 1)
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
        """The least value of the loss: the entropy of the smoothed labels, in nats."""
        on_value = 1.0 - self.label_smoothing
        off_value = self.label_smoothing / (vocabulary_size - 1)
        entropy = -on_value * math.log(on_value)
        if off_value:
            entropy -= (vocabulary_size - 1) * off_value * math.log(off_value)
        return entropy

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "label_smoothing": self.label_smoothing,
            "pad_token_id": self.pad_token_id,
            "subtract_minimum": self.subtract_minimum,
        }


def check_labels(y_true: Any, y_pred: Any) -> tuple[Any, Any]:
    """Return labels `(B, T)` as int32 and logits `(B, T, V)` as tensors, or say why they do not fit."""
    y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
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
    return ops.cast(y_true, "int32"), y_pred


def _token_weights(sample_weight: Any, dtype: Any) -> Any:
    sample_weight = ops.cast(sample_weight, dtype)
    return sample_weight[:, None] if len(sample_weight.shape) == 1 else sample_weight
