"""A model without some of its attention heads, as a spec, so that every engine runs it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

from keras_attention.spec.parts import AttentionSpec, BlockSpec, as_array
from keras_attention.spec.transformer import TransformerSpec

# Kind of attention, as `Transformer.attention_scores` names it -> the stack, and the part of its blocks.
PARTS = {
    "encoder": ("encoder", "self_attention"),
    "decoder": ("decoder", "self_attention"),
    "cross": ("decoder", "cross_attention"),
}


class Head(NamedTuple):
    """The place of an attention head; layer and head count from 0.

    Attributes:
        kind: `"encoder"`, `"decoder"` or `"cross"`.
        layer: The layer of its stack.
        head: The head in that layer.
    """

    kind: str
    layer: int
    head: int


def without_heads(spec: TransformerSpec, heads: Iterable[Head]) -> TransformerSpec:
    """Return a copy of a spec in which some heads pass on nothing of what they read.

    Their rows of the output projection W^O are zero: so the heads' outputs are multiplied by zero, as when a
    head is masked (Michel et al. 2019, [Are Sixteen Heads Really Better than
    One?](https://arxiv.org/abs/1905.10650), section 2.3). They still have attention weights. All other
    weights are those of `spec`, not copies.

    Args:
        spec: The whole model.
        heads: The heads to switch off.

    Raises:
        ValueError: If there is no such head.

    Example:

    >>> from keras_attention.models.transformer import Transformer
    >>> model = Transformer(11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2)
    >>> spec = without_heads(model.spec(), [Head("cross", 0, 1)])
    >>> kernel = spec.decoder.blocks[0].cross_attention.output.kernel
    >>> [bool(rows.any()) for rows in kernel]
    [True, False]
    """
    for (kind, layer), chosen in _by_attention(spec, heads).items():
        name, part = PARTS[kind]
        stack: Any = getattr(spec, name)
        blocks = list(stack.blocks)
        attention: Any = getattr(blocks[layer], part)
        kernel = as_array(attention.output.kernel).copy()
        kernel[chosen] = 0.0
        output = dataclasses.replace(attention.output, kernel=kernel)
        attention = dataclasses.replace(attention, output=output)
        blocks[layer] = dataclasses.replace(blocks[layer], **{part: attention})
        stack = dataclasses.replace(stack, blocks=tuple(blocks))
        spec = dataclasses.replace(spec, **{name: stack})
    return spec


def _by_attention(spec: TransformerSpec, heads: Iterable[Head]) -> dict[tuple[str, int], list[int]]:
    """Return the heads of each layer of each kind, checked."""
    found: dict[tuple[str, int], list[int]] = {}
    for kind, layer, head in heads:
        if kind not in PARTS:
            raise ValueError(f"A kind of attention is one of {', '.join(PARTS)}. Received: {kind}")
        stack, part = PARTS[kind]
        blocks: tuple[BlockSpec, ...] = getattr(spec, stack).blocks
        attention = getattr(blocks[layer], part) if 0 <= layer < len(blocks) else None
        most = attention.query.kernel.shape[1] if isinstance(attention, AttentionSpec) else 0
        if not 0 <= head < most:
            raise ValueError(
                f"The model has no {kind} head {head + 1} in layer {layer + 1}: it has {len(blocks)} layers"
                + (f" with {most} heads there." if most else ", and no such attention there.")
            )
        found.setdefault((kind, layer), []).append(head)
    return found
