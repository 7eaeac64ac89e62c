"""Guided alignment: one head of the cross-attention learns given alignments of words (Garg et al. 2019)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Annotated, Any

from keras import ops
from keras.backend import standardize_dtype

from keras_attention.ops.reference import at_least_float32
from keras_attention.utils.checks import check_integer, depths_of

# A weight of the head may be 0 after rounding. In float16 its gradient must stay below 65,504.
LEAST_WEIGHT, LEAST_HALF_WEIGHT = 1e-9, 1e-4


def _check_pair(name: str, head: Any) -> Any:
    is_pair = isinstance(head, Sequence) and not isinstance(head, str) and len(head) == 2
    if not is_pair:
        raise ValueError(f"`{name}` must be a layer and a head of it, from 0. Received: {head!r}")
    return head


Head = Annotated[Sequence[int], _check_pair]


class Kept(threading.local):
    """A head's weights between a forward pass and its loss.

    They are those of this thread, for TensorFlow traces each replica in a thread of its own.
    """

    weights: Any = None


_read = Kept()


class Guided:
    """Mixin of a model with cross-attention, one head of which may be trained to align words.

    If the inputs of `fit` have `"alignments"`, float32 `(B, T, S)`, the loss of an update is the model's own
    plus `alignment_weight` times `-sum_tn a_tn log p_tn / tokens`: the cross-entropy between the alignment
    of a target token and the weights of the head, over the number of real target tokens of the whole
    update, each counted by its sample weight. A row that is 0 has no loss.

    Reference: [Jointly Learning to Align and Translate with Transformer Models (Garg et al.,
    2019)](https://arxiv.org/abs/1909.02074), equation 6.
    """

    alignment_head: tuple[int, int] | None = None
    alignment_weight = 0.05
    num_layers: Any
    num_heads: int

    def _checked_head(self, alignment_head: Sequence[int], loss: Any) -> tuple[int, int]:
        """Return a head, its layer and its number; raise a ValueError unless it can be guided."""
        (_, layers), (layer, head) = depths_of(self.num_layers), alignment_head
        for size, number, what in ((layers, layer, "layer"), (self.num_heads, head, "head")):
            if check_integer("alignment_head", number, least=0) >= size:
                raise ValueError(
                    f"`alignment_head` must be a layer from 0 to {layers - 1} and a head from 0 to "
                    f"{self.num_heads - 1}. Received: {what} {number}"
                )
        if not hasattr(loss, "token_count"):
            raise ValueError(
                "Guided alignment needs a loss with the method `token_count`: use keras_attention."
                f"LabelSmoothedCrossentropy, or leave out `alignment_head`. Received: loss={loss!r}"
            )
        return layer, head

    def guided_layer(self, inputs: Any, training: Any) -> int | None:
        """Return the number of the decoder block whose cross-attention is asked for its weights."""
        _read.weights = None
        head = self.alignment_head if training and "alignments" in inputs else None
        return None if head is None else head[0]

    def keep_weights(self, weights: Any) -> None:
        """Keep the guided head's weights, of those of its layer (B, N, T, S), for the loss that follows."""
        assert self.alignment_head is not None
        _read.weights = weights[:, self.alignment_head[1]]

    def added_sum(self, x: Any) -> Any:
        """Return the weighted sum of the losses of alignments; None if there are none."""
        weights, _read.weights = _read.weights, None
        if weights is None:
            return None
        is_half = standardize_dtype(weights.dtype) == "float16"
        least = LEAST_HALF_WEIGHT if is_half else LEAST_WEIGHT
        logs = ops.log(ops.add(at_least_float32(weights), least))
        losses = ops.multiply(ops.cast(x["alignments"], logs.dtype), logs)
        return ops.multiply(ops.sum(losses), -self.alignment_weight)
