"""Accuracy and perplexity over tokens, padding excluded."""

from typing import Any

import keras
from keras import ops

from keras_attention.ops.operations import token_nll
from keras_attention.training.losses import check_labels, label_weights
from keras_attention.utils.arguments import checked


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
        labels, y_pred = check_labels(y_true, y_pred, self.pad_token_id)
        values = self.token_values(labels, y_pred)
        weights = label_weights(
            y_true, self.pad_token_id, sample_weight, y_pred.shape[-1], values.dtype
        )
        # Not only a product: at padding, 0 times NaN would be NaN.
        values = ops.where(ops.equal(weights, 0), 0.0, ops.multiply(values, weights))
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
        pad_token_id: Label of padding, which is excluded. Defaults to 0.
        **kwargs: `dtype`.

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
        rows = ops.reshape(y_pred, (-1, y_pred.shape[-1]))
        return ops.reshape(token_nll(rows, ops.reshape(y_true, (-1,))), ops.shape(y_true))

    def result(self) -> Any:
        return ops.exp(super().result())
