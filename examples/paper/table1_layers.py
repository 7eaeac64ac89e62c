"""The layers of the paper's Table 1 for `table1_layer_complexity.py`: FLOPs, and paths through them.

Letters as in the table: n positions, d width, k kernel, r neighbourhood (2 window - 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops
from windowed_attention import saves_by_blocks, windowed_attention

from keras_attention.layers import MultiHeadAttention
from keras_attention.ops.operations import dot_product_attention

ATTENTIONS = ("self_attention", "restricted_self_attention")


class AttentionCore(keras.layers.Layer):
    """Attention of one head without projections: explicit scores, softmax and weighted sums.

    Args:
        window: Positions see each other if they are less than this far apart; None for all.
    """

    def __init__(self, window: int | None = None):
        super().__init__()
        self.window = window
        self.built = True

    def call(self, inputs: Any) -> Any:
        heads = inputs[:, :, None]
        if self.window is None:
            outputs = attend(heads, heads, heads)
        else:
            outputs = windowed_attention(heads, heads, heads, attend, self.window)
        return outputs[:, :, 0]


def attend(query: Any, key: Any, value: Any, mask: Any = None) -> Any:
    """Return attention with explicit scores, `(B, T, N, V)`."""
    scale = query.shape[-1] ** -0.5
    return dot_product_attention(query, key, value, mask=mask, scale=scale, flash=False)[0]


def make_layer(
    kind: str,
    d: int,
    k: int = 3,
    window: int = 128,
    *,
    core: bool = False,
    dilation: int = 1,
    causal: bool = False,
) -> keras.layers.Layer:
    """Make a layer of Table 1, from width d to width d.

    Args:
        kind: The type of layer, such as `"recurrent"`.
        d: Width.
        k: Width of a convolution's kernel.
        window: Window of restricted self-attention; its r is 2 window - 1.
        core: Whether an attention has no projections.
        dilation: Dilation of a dilated convolution.
        causal: Whether a convolution sees only earlier positions; else it is centred.
    """
    padding = "causal" if causal else "same"
    if kind in ATTENTIONS:
        width = window if kind == "restricted_self_attention" else None
        if core:
            return AttentionCore(width)
        return WholeSelfAttention(d) if width is None else RestrictedSelfAttention(d, width)
    if kind == "recurrent":
        return keras.layers.LSTM(d, return_sequences=True)
    if kind == "separable":
        return keras.layers.SeparableConv1D(d, k, padding="same")
    return keras.layers.Conv1D(
        d, k, padding=padding, dilation_rate=dilation if kind == "dilated" else 1
    )


class WholeSelfAttention(keras.layers.Layer):
    """`MultiHeadAttention` with one input and 64 dimensions per head."""

    def __init__(self, d: int):
        super().__init__()
        heads = max(1, d // 64)
        self.attention = MultiHeadAttention(
            heads, d // heads, use_bias=False, flash_attention=False
        )

    def build(self, input_shape: Any) -> None:
        self.attention.build(input_shape, input_shape)

    def call(self, inputs: Any) -> Any:
        return self.attention(inputs, inputs)


class RestrictedSelfAttention(keras.layers.Layer):
    """The same within a window, in blocks; the projections of q, k and v are one product, as there."""

    def __init__(self, d: int, window: int):
        super().__init__()
        self.window, self.heads = window, max(1, d // 64)
        self.inner = keras.layers.Dense(3 * d, use_bias=False)
        self.outer = keras.layers.Dense(d, use_bias=False)

    def build(self, input_shape: Any) -> None:
        self.inner.build(input_shape)
        self.outer.build(input_shape)

    def call(self, inputs: Any) -> Any:
        batch, length, d = ops.shape(inputs)
        heads = ops.reshape(self.inner(inputs), (batch, length, 3, self.heads, d // self.heads))
        query, key, value = (heads[:, :, part] for part in range(3))
        if saves_by_blocks(length, self.window):
            outputs = windowed_attention(query, key, value, attend, self.window)
        else:
            places = ops.arange(length)
            near = ops.abs(places[:, None] - places) < self.window
            outputs = attend(query, key, value, near)
        return self.outer(ops.reshape(outputs, (batch, length, d)))


def layer_flops(
    kind: str, n: int, d: int, k: int = 3, window: int = 128, *, core: bool = False
) -> int:
    """Count the FLOPs of a layer for one sequence as Table 1 does: 2 m n k of each matrix product.

    For restricted attention this counts the pairs of positions that see each other, not the masked pairs
    that its blocks also compute.
    """
    if kind in ATTENTIONS:
        reach = n if kind == "self_attention" else min(window, n)
        pairs = n * (2 * reach - 1) - reach * (reach - 1)
        return 4 * pairs * d + (0 if core else 8 * n * d * d)
    if kind == "recurrent":
        return 16 * n * d * d
    if kind == "separable":
        return 2 * k * n * d + 2 * n * d * d
    return 2 * k * n * d * d


def sequential_operations(kind: str, n: int) -> int:
    """Count the steps of a layer that must follow one another."""
    return n if kind == "recurrent" else 1


def path_length_formula(
    kind: str, n: int, k: int = 3, window: int = 4, causal: bool = False
) -> int:
    """Compute the exact maximum path length between two positions; Table 1 gives its order of growth.

    A centred convolution reaches (k - 1) / 2 positions per layer, a causal one k - 1. Dilated convolutions,
    whose dilation grows k-fold from layer to layer, reach k^layers.
    """
    if kind == "self_attention":
        return 1
    if kind == "recurrent":
        return n
    if kind == "dilated":
        layers, reach = 0, 1
        while reach < n:
            layers, reach = layers + 1, reach * k
        return layers
    reach = window - 1 if kind == "restricted_self_attention" else (k - 1 if causal else k // 2)
    return math.ceil((n - 1) / reach)


def path_length(kind: str, n: int, k: int = 3, window: int = 4, causal: bool = False) -> int:
    """Find the maximum path length from Jacobians: layers until the last position reaches the first.

    The Jacobian of a layer with random weights shows which outputs depend on which inputs. For a recurrent
    layer its steps count, because the path runs through the cell.
    """
    if kind == "recurrent":
        cell = keras.layers.LSTMCell(2)
        state = [ops.ones((1, 2))] * 2
        cell.build((1, 2))
        one = dependence(lambda x: cell(x[:, 0], [x[:, 1], state[1]])[0][:, None], 2, 2)
        # Each step joins only its input and the previous state: n steps from end to end.
        return n if one.all() else 0
    reached = np.eye(n, dtype=bool)
    for layers in range(1, n + 1):
        # Dilated convolutions are causal, as ByteNet's and WaveNet's.
        is_dilated = kind == "dilated"
        layer = make_layer(
            kind,
            2,
            k,
            window,
            dilation=k ** (layers - 1) if is_dilated else 1,
            causal=causal or is_dilated,
        )
        layer.build((1, n, 2))
        if layers == 1 or is_dilated:
            pattern = dependence(layer, n, 2)
        reached = (pattern.astype(int) @ reached.astype(int)) > 0
        if reached[n - 1, 0]:
            return layers
    raise ValueError(f"{kind!r} never joins the ends of {n} positions (k={k}, window={window}).")


def dependence(function: Callable[[Any], Any], n: int, d: int) -> np.ndarray:
    """Return which outputs (T) depend on which inputs (n): the Jacobian is not 0; shape (T, n)."""
    x = np.random.default_rng(0).normal(size=(1, n, d)).astype("float32")
    backend = keras.backend.backend()
    jacobian: Any
    if backend == "tensorflow":
        import tensorflow as tf

        inputs = tf.constant(x)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(inputs)
            outputs = function(inputs)
        jacobian = tape.jacobian(outputs, inputs, experimental_use_pfor=False)
    elif backend == "jax":
        import jax

        jacobian = jax.jacrev(function)(x)
    else:
        import torch

        jacobian = torch.autograd.functional.jacobian(function, torch.tensor(x))
    array = np.abs(ops.convert_to_numpy(jacobian))[0, :, :, 0]  # (T, d, n, d)
    return array.sum(axis=(1, 3)) > 0
