"""Keras callbacks that log training to TensorBoard: curves, and the attention of a sentence."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_attention.visualization.heatmaps import attention_figures
from keras_attention.visualization.summary_writer import SummaryWriter

__all__ = ["AttentionHeatmaps", "SummaryWriter", "TrainingMonitor"]


class TrainingMonitor(keras.callbacks.Callback):
    """Logs loss, metrics, learning rate and speed every few batches, and the results of an epoch.

    Between entries it reads nothing from the device, so it does not hold training up. After each
    entry it flushes, so an interrupted run loses nothing. The horizontal axis counts the
    optimizer's updates over the whole run, also after a resume.

    | tag | value |
    |---|---|
    | `train/loss` | mean since the last entry |
    | `train/<metric>` | compiled metrics as in the progress bar: since the epoch began |
    | `train/learning_rate` | rate of the next update |
    | `speed/batches_per_second` | validation and the first batch, which compiles, left out |
    | `speed/tokens_per_second` | likewise, in source plus target tokens, padding left out |
    | `epoch/<metric>` | Keras' logs at the end of an epoch |
    | `validation/<metric>` | those that Keras calls `val_<metric>` |

    Args:
        writer: Where to write; stays open, its owner closes it.
        batches: The training data, if it has a method `tokens_in_batch(epoch, index)` that returns
            the numbers of source and of target tokens in a batch. Without it there is no
            tokens-per-second curve.
        every: Number of batches between two entries. A shorter epoch has one, before its end.

    Raises:
        ValueError: If `every` is not positive.

    Example:

    >>> import tempfile
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x, y = np.ones((12, 3)), np.ones((12, 1))
    >>> with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
    ...     monitor = TrainingMonitor(writer, every=2)
    ...     history = model.fit(x, y, batch_size=2, callbacks=[monitor], verbose=0)
    """

    def __init__(self, writer: SummaryWriter, batches: Any = None, every: int = 100):
        super().__init__()
        if every < 1:
            raise ValueError(f"`every` must be at least 1 batch. Received: {every}")
        self.writer = writer
        self.batches = batches
        self.every = every
        self._compiled = False
        self._epoch = 0
        self._loss_sums = (0.0, 0.0)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Restarts the clock: validation between epochs is not training time."""
        self._epoch = getattr(self.batches, "epoch", epoch)
        self._loss_sums = (0.0, 0.0)  # Keras resets its metrics now
        self._start_window(0)

    # Not on_train_batch_end: for that, Keras would read the metrics from the device in every step.
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Logs when enough batches are complete; `batch` is their number in this epoch."""
        complete = batch - self._first_batch
        if complete and not self._compiled:
            self._compiled = True
            self._start_window(batch)
        elif complete >= self.every or (complete and batch + 1 == self.params.get("steps")):
            self._log_window(range(self._first_batch, batch))
            self._start_window(batch)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Logs Keras' results of the epoch."""
        step = _updates(self.model)
        for name, value in (logs or {}).items():
            tag = f"validation/{name[4:]}" if name.startswith("val_") else f"epoch/{name}"
            self.writer.scalar(tag, value, step)
        self.writer.flush()

    def _start_window(self, batch: int) -> None:
        self._first_batch, self._start = batch, time.perf_counter()

    def _log_window(self, batches: range) -> None:
        model = self.model
        step = _updates(model)  # waits for the device, so comes before the clock
        seconds = time.perf_counter() - self._start
        values = {f"train/{name}": value for name, value in model.get_metrics_result().items()}
        values.update(self._window_loss(model))
        values["train/learning_rate"] = model.optimizer.learning_rate
        values["speed/batches_per_second"] = len(batches) / seconds
        if hasattr(self.batches, "tokens_in_batch"):
            tokens = sum(sum(self.batches.tokens_in_batch(self._epoch, index)) for index in batches)
            values["speed/tokens_per_second"] = tokens / seconds
        for tag, value in values.items():
            self.writer.scalar(tag, _number(value), step)
        self.writer.flush()

    def _window_loss(self, model: keras.Model) -> dict[str, float]:
        """Mean loss since the last entry, from the running sums of Keras' loss metric."""
        for metric in model.metrics:
            if metric.name == "loss" and isinstance(metric, keras.metrics.Mean):
                (total, count), before = (
                    self._loss_sums,
                    (_number(metric.total), _number(metric.count)),
                )
                self._loss_sums = before
                return {"train/loss": (before[0] - total) / (before[1] - count)}
        return {}


class AttentionHeatmaps(keras.callbacks.Callback):
    """Draws the attention of one sentence pair into TensorBoard while the model trains.

    An entry has one picture per layer and kind, with a panel per head: `attention/encoder/layer_1`,
    `attention/decoder/layer_1`, `attention/cross/layer_1`, and so on. There is one before training,
    one after it, and one every few batches.

    Args:
        model: The model that is trained. Has `attention_scores(encoder_token_ids,
            decoder_token_ids)`; see `attention_figures` for its results.
        tokenizer: Has `encode`, `id_to_token`, `start_token_id` and `end_token_id`.
        sentence_pair: A source text and its translation.
        writer: Where to write; stays open, its owner closes it.
        every: Number of batches between two entries; 0 for none but the first and the last.
        note: Small print in every picture, such as `"synthetic data"`.

    Raises:
        ValueError: If `every` is negative or `sentence_pair` is no pair of texts.

    Reference: "Attention Visualizations" in
    [Attention Is All You Need](https://arxiv.org/abs/1706.03762).
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        sentence_pair: Sequence[str],
        writer: SummaryWriter,
        every: int = 1000,
        note: str = "",
    ):
        super().__init__()
        if every < 0:
            raise ValueError(f"`every` must be a number of batches, or 0. Received: {every}")
        texts = [sentence_pair] if isinstance(sentence_pair, str) else list(sentence_pair)
        if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
            raise ValueError(
                "`sentence_pair` must be a source text and a target text. "
                f"Received: {sentence_pair!r}"
            )
        source, target = ([*tokenizer.encode(text), tokenizer.end_token_id] for text in texts)
        self.writer = writer
        self.every = every
        self.note = note
        self._attention_model = model
        self._source_ids = np.array([source], "int32")
        self._decoder_ids = np.array([[tokenizer.start_token_id, *target[:-1]]], "int32")
        self._source_tokens = [tokenizer.id_to_token(token) for token in source]
        self._target_tokens = [tokenizer.id_to_token(token) for token in target]
        self._complete = -1

    def on_train_begin(self, logs: Any = None) -> None:
        """Draws the model as it comes."""
        self._complete = -1
        self._draw_now()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Counts the batches of all epochs, and draws every now and then."""
        self._complete += 1
        if self.every and self._complete and self._complete % self.every == 0:
            self._draw_now()

    def on_train_end(self, logs: Any = None) -> None:
        """Draws the trained model."""
        self._draw_now()

    def draw(self, step: int) -> None:
        """Adds the pictures of the model as it is, at `step`."""
        scores = self._attention_model.attention_scores(self._source_ids, self._decoder_ids)
        figures = attention_figures(
            scores, self._source_tokens, self._target_tokens, note=self.note
        )
        for name, figure in figures.items():
            self.writer.image(f"attention/{name}", figure, step)
        self.writer.flush()

    def _draw_now(self) -> None:
        # In this order: asking for `self.model` brings back the weights that JAX keeps elsewhere.
        step = _updates(self.model)
        self.draw(step)


def _updates(model: keras.Model) -> int:
    """Number of optimizer updates so far; waits for the device."""
    return int(_number(model.optimizer.iterations))


def _number(value: Any) -> float:
    return float(keras.ops.convert_to_numpy(value))
