"""A Keras callback that draws the attention of a sentence into TensorBoard."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_attention.callbacks.monitor import updates_of
from keras_attention.callbacks.nonfinite import has_diverged
from keras_attention.training.distribution import computing_alone
from keras_attention.utils.checks import check_callable, check_has, check_integer, check_text
from keras_attention.visualization.heatmaps import attention_figures
from keras_attention.visualization.summary_writer import SummaryWriter


class AttentionHeatmaps(keras.callbacks.Callback):
    """Draws the attention of one sentence pair into TensorBoard while the model trains.

    An entry has one picture per layer and kind, with a panel per head: `attention/encoder/layer_1`,
    `attention/decoder/layer_1`, `attention/cross/layer_1`, and so on. There is one entry before the first
    update, one every few batches, and one after training. A model that has diverged is not drawn.

    Args:
        model: The model in training. It has `attention_scores(encoder_token_ids, decoder_token_ids)`,
            with results as `attention_figures` takes them.
        tokenizer: The model's `Tokenizer`.
        sentence_pair: A source text and its translation.
        writer: A `SummaryWriter`. It stays open; the caller closes it.
        every: Number of batches between two entries; 0 for only the first and the last. Defaults to
            1000.
        note: Small print in each picture, such as `"synthetic data"`. Defaults to none.
        interrupted: A function, called at the end of training: whether a signal cut it short. The
            process that continues the training then draws the last entry.

    Raises:
        ValueError: If `every` is negative, or `sentence_pair` is not a pair of texts.

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
        interrupted: Callable[[], bool] = lambda: False,
    ):
        super().__init__()
        check_has("tokenizer", tokenizer, "a Tokenizer", "encode", "id_to_token")
        check_has("writer", writer, "a SummaryWriter", "image", "flush")
        check_integer("every", every, 0)
        check_text("note", note)
        check_callable("interrupted", interrupted)
        is_list = isinstance(sentence_pair, Sequence) and not isinstance(sentence_pair, str)
        texts = list(sentence_pair) if is_list else [sentence_pair]
        if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
            raise ValueError(
                "`sentence_pair` must be a source text and a target text. "
                f"Received: {sentence_pair!r}"
            )
        check_has("model", model, "a model that gives its attention", "attention_scores")
        source, target = ([*tokenizer.encode(text), tokenizer.end_token_id] for text in texts)
        self.writer = writer
        self.every = every
        self.note = note
        self.interrupted = interrupted
        self._attention_model = model
        self._source_ids = np.array([source], "int32")
        self._decoder_ids = np.array([[tokenizer.start_token_id, *target[:-1]]], "int32")
        self._source_tokens = [tokenizer.id_to_token(token) for token in source]
        self._target_tokens = [tokenizer.id_to_token(token) for token in target]
        self._complete = -1

    def on_train_begin(self, logs: Any = None) -> None:
        """Draws the untrained model."""
        self._complete = -1
        if updates_of(self.model) == 0:
            self._draw_now()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Counts the batches of all epochs, and draws after every `every` of them."""
        self._complete += 1
        if self.every and self._complete and self._complete % self.every == 0:
            self._draw_now()

    def on_train_end(self, logs: Any = None) -> None:
        """Draws the trained model."""
        if not self.interrupted():
            self._draw_now()

    def draw(self, step: int) -> None:
        """Adds the pictures of the current model, at `step`."""
        scores = self._attention_model.attention_scores(self._source_ids, self._decoder_ids)
        layers = [keras.ops.convert_to_numpy(layer) for kind in scores.values() for layer in kind]
        if not all(np.isfinite(layer).all() for layer in layers):
            warnings.warn(
                f"No attention was drawn at step {step}: it is not finite. Has the training diverged?",
                stacklevel=2,
            )
            return
        figures = attention_figures(
            scores, self._source_tokens, self._target_tokens, note=self.note
        )
        for name, figure in figures.items():
            self.writer.image(f"attention/{name}", figure, step)
        self.writer.flush()

    def _draw_now(self) -> None:
        # First, because `self.model` restores the weights that `fit` keeps elsewhere on JAX.
        step = updates_of(self.model)
        if has_diverged(self.model):
            return
        with computing_alone(self._attention_model):
            self.draw(step)
