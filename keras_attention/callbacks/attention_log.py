"""A Keras callback that logs attention while a model trains, for the attention viewer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from keras_attention.callbacks.base import RunCallback, Stop, updates_of
from keras_attention.callbacks.nonfinite import warning_if_diverged
from keras_attention.evaluation.head_importance import head_importance
from keras_attention.training.checkpoint_store import first_nonfinite
from keras_attention.training.distribution import computing_alone
from keras_attention.utils.arguments import Count, Has, checked
from keras_attention.utils.progress import activity
from keras_attention.utils.sides import encode_side
from keras_attention.visualization.attention_entries import (
    Links,
    attention_entries,
    check_ranks,
    padded_pairs,
)
from keras_attention.visualization.event_files import SummaryWriter
from keras_attention_viewer.codec import PLUGIN_NAME, Entry, entry_tag
from keras_attention_viewer.measures import measured

MOST_TOKENS = 128
# The ten entries of each decade of steps, in about equal proportions and at round numbers.
_DECADE = (12, 15, 20, 25, 30, 40, 50, 60, 80, 100)


class AttentionLog(RunCallback):
    """Logs the attention of all layers and heads on a few sentence pairs, for TensorBoard.

    `tensorboard --logdir FOLDER` shows it in the tab *Attention*: how each head developed, what it does,
    and which head aligns the words. The decoder reads the given translations, so that steps can be
    compared. Entries are written after 0, 1, 2, 5, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, ...
    updates, because heads form early, and at the end: 60 in a million updates. Between entries, nothing
    is computed and nothing is read from the device. A model that has diverged is not logged. Of a
    `Transformer`, an entry also has the probability of each word with its runners-up, and what each word
    contributes to what a head passes on.

    Args:
        writer: A `SummaryWriter`. It stays open; the caller closes it.
        tokenizer: The model's `Tokenizer`.
        pairs: Source texts and their translations, of at most 128 tokens each.
        shown: Number of pairs to show, from the first on. The others only improve the measures of the
            heads, which need more than a hundred tokens. Defaults to 5.
        alignments: For each pair its true alignment, or None; see `attention_entries`.
        token_ranks: Rank of each token by frequency; see `attention_entries`.
        translate: A function from source texts to lists of `Translation`, best first, such as
            `lambda texts: translator.translate(texts, n_best=4)`. The model's own translations of the shown
            pairs are then logged as well, with all that the beam search found, at the ends of epochs 1, 2,
            5, 10, 12, ... and at the end. Defaults to None.
        importance: Whether to measure the importance of the heads at the end, on all pairs; see
            `keras_attention.evaluation.head_importance`. Defaults to False.
        monitor: A `TrainingMonitor`; its clock stops while attention is logged.
        stop: The `Stop` of the training. If a signal ends it, the process that continues it writes the
            last entry.

    Raises:
        ValueError: If there are no pairs, or one is empty or too long.

    Reference: "Attention Visualizations" in
    [Attention Is All You Need](https://arxiv.org/abs/1706.03762).
    """

    @checked
    def __init__(
        self,
        writer: Annotated[SummaryWriter, Has("a SummaryWriter", "flush")],
        tokenizer: Annotated[Any, Has("a Tokenizer", "encode", "id_to_token")],
        pairs: Sequence[tuple[str, str]],
        *,
        shown: Count = 5,
        alignments: Sequence[Links | None] | None = None,
        token_ranks: Any = None,
        translate: Callable[[list[str]], Sequence[Sequence[Any]]] | None = None,
        importance: bool = False,
        monitor: Annotated[Any, Has("a TrainingMonitor", "paused")] | None = None,
        stop: Stop | None = None,
    ):
        super().__init__(stop)
        self.tokenizer = tokenizer
        _check_pairs(pairs, tokenizer)
        self.pairs = [(source, target) for source, target in pairs]
        self.shown = shown
        self.importance = importance
        self.translate = translate
        self.monitor = monitor
        if alignments is not None and len(alignments) != len(pairs):
            raise ValueError(
                f"`alignments` must be a list with an entry for each of {len(pairs)} pairs. "
                f"Received: {alignments!r}"
            )
        check_ranks(token_ranks, tokenizer)
        self.writer = writer
        self.alignments = alignments
        self.token_ranks = token_ranks
        self._resumed = False
        self._logged = self._logged_output = -1  # the last steps that are in the log
        self._next = 0
        self._updates = 0  # when the epoch began
        self._first_batch: int | None = None  # of the epoch: a resumed run may begin in its middle

    def get_state(self) -> dict[str, Any]:
        return {"logged": self._logged, "logged_output": self._logged_output}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._logged, self._logged_output = state["logged"], state["logged_output"]
        self._resumed = True

    def on_train_begin(self, logs: Any = None) -> None:
        """Log the initial model, unless the run is resumed."""
        step = updates_of(self.model)
        if not self._resumed:
            self._logged = self._logged_output = -1
            self._log(step)
        self._resumed = False
        self._next = next_entry(step)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Read the number of updates, which are counted from here."""
        self._updates, self._first_batch = updates_of(self.model), None

    def before_update(self, batch: int) -> None:
        """Log when the next entry is due."""
        # Counted here: asking the optimizer would wait for the device at every batch.
        if self._first_batch is None:
            self._first_batch = batch
        # By the number of the batch: Keras may run several updates between two calls.
        if self._updates + batch - self._first_batch < self._next:
            return
        step = updates_of(self.model)
        if step >= self._next:  # an update may have been skipped
            self._log(step)
            self._next = next_entry(step)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Log the model's own translations."""
        if next_entry(epoch) == epoch + 1 and not self.model.stop_training:
            self._log_output(updates_of(self.model))

    def on_train_end(self, logs: Any = None) -> None:
        """Log the trained model, and the importance of its heads."""
        if self.stop.interrupts:
            return
        step = updates_of(self.model)
        self._log(step, self.importance)
        self._log_output(step)

    def _log(self, step: int, with_importance: bool = False) -> None:
        """Add an entry of the current model, once per step."""
        if step <= self._logged or first_nonfinite(self.model):
            return
        self._logged = step
        with self._paused(), warning_if_diverged(f"No attention was logged at step {step}."):
            options = {"alignments": self.alignments, "predicted": self.shown}
            entries = self._entries(self.pairs, step=step, **options)
            shown = measured(entries[: self.shown], entries[self.shown :])
            self._write(shown, {"importance": self._importance() if with_importance else None})

    def _log_output(self, step: int) -> None:
        """Add the attention on the model's own translations, once per step."""
        if self.translate is None or step <= self._logged_output or first_nonfinite(self.model):
            return
        self._logged_output = step
        with self._paused(), warning_if_diverged(f"No translation was logged at step {step}."):
            sources = [source for source, _ in self.pairs[: self.shown]]
            beams = self.translate(sources)
            found = [best[0] for best in beams]
            pairs = [(source, best.text) for source, best in zip(sources, found, strict=True)]
            ids = [best.token_ids for best in found]
            options = {"target": "output", "target_ids": ids, "alternatives": beams}
            with warning_if_diverged(f"No attention was logged at step {step}."):
                self._write(measured(self._entries(pairs, step=step, **options)), {})

    def _importance(self) -> dict[str, list[list[float]]] | None:
        """Return the importance of all heads, or None if a loss is not finite."""
        importance = head_importance(self.model, *padded_pairs(self.tokenizer, self.pairs))
        is_finite = all(np.isfinite(layers).all() for layers in importance.values())
        return importance if is_finite else None

    def _entries(self, pairs: Sequence[tuple[str, str]], **options: Any) -> list[Entry]:
        ranks = self.token_ranks
        return attention_entries(self.model, self.tokenizer, pairs, token_ranks=ranks, **options)

    def _write(self, entries: Sequence[Entry], fields: Mapping[str, Any]) -> None:
        for number, entry in enumerate(entries):
            entry.header.update(fields)
            tag = entry_tag(number, entry.header["target"])
            self.writer.blobs(tag, entry.to_blobs(), entry.header["step"], PLUGIN_NAME)
        self.writer.flush()

    @contextlib.contextmanager
    def _paused(self) -> Iterator[None]:
        paused = contextlib.nullcontext() if self.monitor is None else self.monitor.paused()
        with paused, activity("looking at the attention"), computing_alone(self.model):
            yield


def next_entry(step: int) -> int:
    """Return the first step after this one that has an entry.

    >>> [next_entry(step) for step in (0, 1, 2, 5, 10, 11, 12, 99, 100, 7000)]
    [1, 2, 5, 10, 12, 12, 15, 100, 120, 8000]
    """
    if step < 10:
        return next(entry for entry in (1, 2, 5, 10) if entry > step)
    scale = 10 ** (len(str(step)) - 2)
    return next(entry * scale for entry in _DECADE if entry * scale > step)


def _check_pairs(pairs: Sequence[tuple[str, str]], tokenizer: Any) -> None:
    if not pairs:
        raise ValueError(f"`pairs` must be pairs of texts, at least one. Received: {pairs!r}")
    for pair in pairs:
        lengths = [
            len(encode_side(tokenizer, [text], side)[0]) if text.strip() else 0
            for text, side in zip(pair, ("source", "target"), strict=True)
        ]
        if 0 in lengths:  # of a text with invisible characters alone, too
            raise ValueError(
                f"Each of `pairs` must be a source text and its translation. Received: {pair!r}"
            )
        longest = 1 + max(lengths)
        if longest > MOST_TOKENS:
            raise ValueError(
                f"Each of `pairs` may have at most {MOST_TOKENS} tokens on a side. Received: "
                f"{longest} tokens in {pair!r}"
            )
