"""How much a model needs each of its attention heads."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from keras import ops

from keras_attention.utils.arguments import Has, checked

Batch = tuple[np.ndarray, np.ndarray, np.ndarray]  # source, target shifted right, target

# Number of positions whose logits are computed at a time.
POSITIONS = 2048


@checked
def head_importance(
    model: Annotated[Any, Has("a Transformer", "num_heads", "attention_layers")],
    encoder_token_ids: Any,
    decoder_token_ids: Any,
    target_token_ids: Any,
) -> dict[str, list[list[float]]]:
    """Return the loss with each head switched off, minus the loss with all heads.

    A head that is switched off outputs zeros. All heads of a layer are tried in one batch, each in its own
    rows. This takes one pass per attention layer (three times `num_layers` of the paper's model), and one
    more.

    Args:
        model: A `Transformer`.
        encoder_token_ids: Source ids `(B, S)`.
        decoder_token_ids: Target ids shifted right, `(B, T)`.
        target_token_ids: Target ids `(B, T)`; padding does not count.

    Returns:
        A dict with `"encoder"`, `"decoder"` and `"cross"`: for each layer and head the difference in nats
        per target token. If it is below 0, the model is better without the head. A decoder with SSRUs has no
        heads of its own, and so no `"decoder"`.

    Raises:
        ValueError: If the shapes do not fit together, or there is no target token.

    Example:

    >>> from keras_attention.models.transformer import Transformer
    >>> model = Transformer(11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2)
    >>> source, target = np.array([[5, 6, 1]]), np.array([[7, 1]])
    >>> importance = head_importance(model, source, np.array([[0, 7]]), target)
    >>> {kind: [len(layer) for layer in layers] for kind, layers in importance.items()}
    {'encoder': [2], 'decoder': [2], 'cross': [2]}

    Reference: Michel et al. 2019, [Are Sixteen Heads Really Better than
    One?](https://arxiv.org/abs/1905.10650)
    """
    target_size = model.target_vocabulary_size
    source = _token_ids("encoder_token_ids", encoder_token_ids, model.vocabulary_size)
    read = _token_ids("decoder_token_ids", decoder_token_ids, target_size)
    target = _token_ids("target_token_ids", target_token_ids, target_size)
    _check(source, read, target, model.pad_token_id)
    heads = model.num_heads
    rows = max(1, POSITIONS // (heads * target.shape[1]))
    cuts = [slice(start, start + rows) for start in range(0, len(source), rows)]
    parts: list[Batch] = [(source[cut], read[cut], target[cut]) for cut in cuts]
    tokens = np.count_nonzero(target != model.pad_token_id)
    whole = sum(_losses(model, part, 1)[0] for part in parts)

    def of_layer(kind: str, layer: int) -> list[float]:
        losses = np.sum([_losses(model, part, heads, kind, layer) for part in parts], axis=0)
        return ((losses - whole) / tokens).tolist()

    return {
        kind: [of_layer(kind, layer) for layer in range(layers)]
        for kind, layers in model.attention_layers.items()
    }


def _losses(
    model: Any, batch: Batch, heads: int, kind: str | None = None, layer: int = 0
) -> np.ndarray:
    """Return summed losses `(heads,)`, each with one head of a layer switched off, or the full loss."""
    source, read, target = batch
    inputs = {
        "encoder_token_ids": np.tile(source, (heads, 1)),
        "decoder_token_ids": np.tile(read, (heads, 1)),
    }
    masks = None
    if kind is not None:
        mask = np.repeat(1 - np.eye(heads, dtype="float32"), len(source), axis=0)
        masks = {kind: [mask if i == layer else None for i in range(model.attention_layers[kind])]}
    logits = model(inputs, training=False, head_masks=masks)
    wanted = np.tile(target, (heads, 1))[..., None]
    scores = ops.take_along_axis(ops.log_softmax(ops.cast(logits, "float32")), wanted, axis=-1)
    losses = -ops.convert_to_numpy(scores)[..., 0]
    losses = np.where(wanted[..., 0] == model.pad_token_id, 0.0, losses)
    return losses.reshape(heads, -1).sum(axis=1, dtype="float64")


def _token_ids(name: str, ids: Any, vocabulary_size: int) -> np.ndarray:
    array = np.asarray(ids)
    is_right = array.ndim > 0 and array.dtype.kind in "iu" and array.size
    if not is_right or not 0 <= array.min() <= array.max() < vocabulary_size:
        raise ValueError(
            f"`{name}` must be integers (B, length) from 0 to {vocabulary_size - 1}. Received: {ids!r}"
        )
    return array


def _check(source: np.ndarray, read: np.ndarray, target: np.ndarray, pad_token_id: int) -> None:
    shapes = source.shape, read.shape, target.shape
    fits = source.ndim == read.ndim == 2 and len(source) == len(read) and read.shape == target.shape
    if not fits or not np.any(target != pad_token_id):
        raise ValueError(
            "Expected source ids (B, S), target ids shifted right (B, T) and target ids (B, T), at "
            f"least one of them no padding. Received: shapes {shapes}"
        )
