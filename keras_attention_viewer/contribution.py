"""What each token contributes to a head's output, from the weights and norms of an entry."""

from __future__ import annotations

import numpy as np

from keras_attention_viewer.codec import Entry, dequantize
from keras_attention_viewer.thoughts import decode_norms


def contributions(entry: Entry, kind: str) -> list[np.ndarray]:
    """Return the contributions of one kind of attention: weight times norm, as shares of a row.

    Args:
        entry: An entry with norms of values.
        kind: `"encoder"`, `"decoder"` or `"cross"`.

    Returns:
        For each layer an array (N, T, S). Rows sum to 1, or are 0 where nothing contributes.

    Raises:
        ValueError: If the entry has no norms of this kind.

    Reference: Kobayashi et al. 2020, [Attention is Not Only a Weight: Analyzing Transformers with Vector
    Norms](https://arxiv.org/abs/2004.10102).
    """
    text = (entry.header.get("value_norms") or {}).get(kind)
    if text is None:
        raise ValueError(f"The entry has no norms of values of {kind!r} attention.")
    layers = entry.weights[kind]
    heads, _, columns = layers[0].shape
    norms = decode_norms(text, (len(layers), heads, columns))
    products = [
        dequantize([layer]).astype("float64") * of_layer[:, None]
        for layer, of_layer in zip(layers, norms, strict=True)
    ]
    sums = [each.sum(axis=-1, keepdims=True) for each in products]
    return [
        each / np.where(total > 0, total, 1) for each, total in zip(products, sums, strict=True)
    ]
