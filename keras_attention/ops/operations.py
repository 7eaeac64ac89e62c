"""The operations: each is the running backend's kernel where there is one, else its definition."""

from typing import Any

from keras import ops

from keras_attention.ops.dispatch import operation

dot_product_attention = operation("dot_product_attention")
dropout = operation("dropout")
dropout_add_norm = operation("dropout_add_norm")
global_norm = operation("global_norm")
joined_linear = operation("joined_linear")
linear = operation("linear")
reshape = operation("reshape")
smoothed_crossentropy = operation("smoothed_crossentropy")


def token_nll(logits: Any, labels: Any) -> Any:
    """Negative log-likelihood `(rows,)` of labels `(rows,)`, from logits `(rows, V)`; in nats."""
    return smoothed_crossentropy(logits, labels, on_value=1.0, off_value=0.0)


def fold_leading_axes(inputs: Any) -> Any:
    """Reshape `(..., D)` to `(rows, D)`."""
    return inputs if len(inputs.shape) == 2 else reshape(inputs, (-1, inputs.shape[-1]))


def unfold_leading_axes(outputs: Any, like: Any) -> Any:
    """Reshape `(rows, F)` back to the leading axes of `like`, `(..., F)`."""
    if len(like.shape) == 2:
        return outputs
    return reshape(outputs, (*ops.shape(like)[:-1], outputs.shape[-1]))
