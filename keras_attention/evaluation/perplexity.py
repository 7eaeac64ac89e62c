"""Perplexity of a model on a corpus.

Shape letters: B sentences, S source length, T target length, V vocabulary.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import numpy as np
from keras import ops

from keras_attention.ops.compile import compile_for_inference
from keras_attention.training.losses import check_labels, label_weights, negative_log_likelihoods
from keras_attention.utils.arguments import Has, checked
from keras_attention.utils.checks import check_callable, check_has


@checked
def perplexity(model: Any, batches: Iterable[tuple[Any, Any]]) -> float:
    """exp of the mean negative log-likelihood of a target token, as in Table 3 of the paper.

    There is no label smoothing and no dropout. The mean is over all target tokens of the corpus, end tokens
    included and padding excluded. It is summed in float64 and does not depend on the batches. The
    perplexity is per token of the vocabulary, so do not compare models with different vocabularies.

    Args:
        model: A built `Transformer`, or any model from `x` to logits (B, T, V) that has a
            `pad_token_id`.
        batches: `TokenBatches`, any other `keras.utils.PyDataset`, or an iterable of `(x, labels)`, the
            labels int (B, T). To measure repeatedly, keep a `PerplexityMeter`: it is compiled once.

    Returns:
        The perplexity; `inf` if it is too large for a float, NaN if a label is outside the vocabulary.

    Raises:
        ValueError: If the batches hold no target token, or the labels do not fit the logits.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.layers.Dense(7, kernel_initializer="zeros")])
    >>> model.build((None, 3, 5))
    >>> model.pad_token_id = 0
    >>> labels = np.array([[4, 1, 0], [5, 6, 1]])
    >>> round(perplexity(model, [(np.ones((2, 3, 5), "float32"), labels)]), 4)
    7.0
    """
    meter = PerplexityMeter(model)
    return meter(batches)


class PerplexityMeter:
    """`perplexity` of one model, compiled once for all measurements; each uses the current weights.

    With a `loss`, `last_loss` is its mean per target token in the last measurement, without dropout.
    """

    @checked
    def __init__(
        self,
        model: Any,
        loss: Annotated[Any, Has("a LabelSmoothedCrossentropy", "call")] | None = None,
    ):
        check_has("model", check_callable("model", model), "a model", "pad_token_id")
        self.model = model
        self.loss = loss
        self.last_loss: float | None = None

        def measure(x: Any, labels: Any) -> list[Any]:
            logits, pad = model(x, training=False), model.pad_token_id
            weights = label_weights(labels, pad, vocabulary_size=logits.shape[-1])
            labels, logits = check_labels(labels, logits, pad)
            values = [negative_log_likelihoods(labels, logits)]
            if loss is not None:
                values.append(loss.call(labels, logits))
            return [ops.multiply(value, weights) for value in values]

        self._measure = compile_for_inference(measure, model, any_shape=True)

    def __call__(self, batches: Iterable[tuple[Any, Any]]) -> float:
        totals, count = np.zeros(1 if self.loss is None else 2), 0
        for batch in _one_epoch(batches):
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise ValueError(
                    f"`batches` must hold pairs of inputs and labels. Received: {reprlib.repr(batch)}"
                )
            x, labels = batch
            labels = np.asarray(labels)
            is_token = labels != self.model.pad_token_id
            measured = self._measure(x, labels.astype("int32"))
            totals += [
                np.sum(ops.convert_to_numpy(values)[is_token], dtype="float64")
                for values in measured
            ]
            count += int(np.sum(is_token))
        if not count:
            raise ValueError("The batches hold no target token: there is nothing to measure.")
        means = [float(total) / count for total in totals]
        self.last_loss = None if self.loss is None else means[1]
        try:
            return math.exp(means[0])
        except OverflowError:
            return math.inf


def _one_epoch(batches: Any) -> Iterable[tuple[Any, Any]]:
    is_mapping = isinstance(batches, Mapping)  # It has no first batch.
    if hasattr(batches, "__getitem__") and hasattr(batches, "__len__") and not is_mapping:
        # A plain `for` over a PyDataset may never end.
        return (batches[index] for index in range(len(batches)))
    return batches
