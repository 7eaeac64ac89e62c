"""Beam search with a model: over an engine's state where one runs the model, plain else.

Shape letters: B sentences, S source length, K beams, L longest output.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_attention.decoding.beam_search import beam_search
from keras_attention.decoding.constraints import TextConstraint
from keras_attention.decoding.hypotheses import (
    BeamSearchResult,
    decisive_slot,
    penalty,
    result,
)
from keras_attention.decoding.incremental_search import incremental_search
from keras_attention.engine.base import SearchingEngine, SteppingEngine
from keras_attention.engine.select import ENGINES, EngineChoice, EngineSelector
from keras_attention.ops.compile import compile_for_inference
from keras_attention.spec import SpecError

PRECISIONS = ("float32", "bfloat16", "float16", "int8")


class ModelSearch:
    """Searches the translations of batches of source ids.

    The plain search runs `beam_search` over the model's `decode_step`, compiled for each shape of
    batches. An engine finds the same faster; one is taken where the model has a `spec()` that it runs.

    Args:
        model: The model, as `Translator` takes it.
        beam_size: K.
        length_penalty: alpha.
        max_extra_length: Tokens that a translation may have more than its source.
        precision: Precision of the engine, None for the model's.
        engine: `"auto"`, `"plain"`, or the name of an engine.
        constraint: What translations may be, for the plain search.

    Raises:
        ValueError: A precision or an engine that is unknown, or that cannot be had.
    """

    def __init__(
        self,
        model: Any,
        beam_size: int,
        length_penalty: float,
        max_extra_length: int,
        precision: str | None = None,
        engine: str = "auto",
        constraint: TextConstraint | None = None,
    ):
        if precision not in (None, *PRECISIONS):
            raise ValueError(
                f"`precision` must be one of {PRECISIONS}, or None. Received: {precision!r}"
            )
        if engine not in ENGINES:
            raise ValueError(f"`engine` must be one of {ENGINES}. Received: {engine!r}")
        self._model = model
        self._max_extra_length = max_extra_length
        self._options = {
            "beam_size": beam_size,
            "start_token_id": model.start_token_id,
            "end_token_id": model.end_token_id,
            "pad_token_id": model.pad_token_id,
            "length_penalty": length_penalty,
        }
        self._constraint = constraint
        self._engines, self._plain_reason = self._selector(precision, engine)
        self._compiled_shapes: set[tuple[tuple[int, int], bool]] = set()

    def _selector(self, precision: str | None, engine: str) -> tuple[EngineSelector | None, str]:
        """The model's engines; or None, and why the plain search is taken."""
        try:
            if engine == "plain":
                raise SpecError("The plain search computes in the model's own dtype.")
            if self._constraint is not None:
                raise SpecError("Only the plain search has constraints.")
            if not hasattr(self._model, "spec"):
                raise SpecError(f"{type(self._model).__name__} has no `spec()`.")
            spec = self._model.spec()
            return EngineSelector(spec, precision or spec.dtype, engine), ""
        except SpecError as error:
            reason = str(error)
        if engine not in ("auto", "plain") or precision is not None:
            raise ValueError(
                f"engine={engine!r} cannot decode this model with precision={precision!r}: {reason} "
                "Leave both arguments out to decode by whatever can."
            )
        return None, reason

    def choice(self, batch_size: int) -> EngineChoice:
        """What searches a batch of this many sentences, and why."""
        if self._engines is None:
            return EngineChoice("plain", self._plain_reason)
        return self._engines.choice(batch_size * self._options["beam_size"])

    @property
    def fixed_shapes(self) -> bool:
        """Whether each shape (B, S) of a batch is compiled, so that there should be few."""
        return self._engines is None or self._engines.fixed_shapes

    def refresh(self) -> None:
        """Has the model's present weights read."""
        if self._engines is not None:
            self._engines.refresh()

    def needs_compiling(self, shape: tuple[int, int], n_best: int) -> bool:
        """Whether the next search of this shape is the first."""
        if self._engines is not None:
            return self._engines.needs_compiling(shape[0], self._options["beam_size"], shape[1])
        is_compiled = keras.backend.backend() != "torch"
        return is_compiled and (shape, n_best == 1) not in self._compiled_shapes

    def __call__(
        self,
        sources: Sequence[Sequence[int]],
        shape: tuple[int, int],
        n_best: int = 1,
        texts: Sequence[str] = (),
    ) -> BeamSearchResult:
        """Searches the translations of at most B sources.

        Args:
            sources: Source ids, the end token included, at most S each.
            shape: (B, S), to which they are padded.
            n_best: How many hypotheses must be certain.
            texts: The text of each source; a constraint needs it.

        Returns:
            A `BeamSearchResult` of NumPy arrays, with empty slots for dummy rows.
        """
        encoder_token_ids = np.full(shape, self._model.pad_token_id, "int32")
        max_lengths = np.zeros(shape[0], "int32")  # 0 ends the search of a dummy row at once
        for row, source in enumerate(sources):
            encoder_token_ids[row, : len(source)] = source
            max_lengths[row] = len(source) + self._max_extra_length
        if self._engines is not None:
            return self._search_by_engine(encoder_token_ids, max_lengths, _stop(n_best))
        self._compiled_shapes.add((shape, n_best == 1))
        search = self._search_best if n_best == 1 else self._search_n_best
        state = self._constraint_state(texts, max_lengths, shape[1])
        return keras.tree.map_structure(
            keras.ops.convert_to_numpy, search(encoder_token_ids, max_lengths, state)
        )

    def _constraint_state(
        self, texts: Sequence[str], max_lengths: np.ndarray, source_length: int
    ) -> Any:
        if self._constraint is None:
            return {}
        limits = np.minimum(max_lengths, self._longest(source_length))
        texts = [*texts, *[""] * (len(limits) - len(texts))]  # of dummy rows
        return self._constraint.start(texts, limits, self._options["beam_size"])

    def _search_by_engine(
        self, encoder_token_ids: np.ndarray, max_lengths: np.ndarray, stop: str
    ) -> BeamSearchResult:
        assert self._engines is not None
        max_length = self._longest(encoder_token_ids.shape[1])
        beam_size: int = self._options["beam_size"]
        engine = self._engines.engine_for(len(encoder_token_ids) * beam_size)
        if isinstance(engine, SearchingEngine):
            lengths = np.arange(max_length + 1, dtype="float32")
            limits = np.clip(max_lengths, 0, max_length)
            found = engine.search(
                encoder_token_ids,
                limits,
                beam_size,
                max_length,
                penalty(lengths, self._options["length_penalty"], np),
                decisive_slot(stop, beam_size),
            )
            end, pad = self._model.end_token_id, self._model.pad_token_id
            return result(**found, max_lengths=limits, end_token_id=end, pad_token_id=pad, xp=np)
        assert isinstance(engine, SteppingEngine)
        return incremental_search(
            engine.start(encoder_token_ids, beam_size, max_length),
            max_lengths,
            stop=stop,
            max_length=max_length,
            **self._options,
        )

    # Two programs: only who wants the n best must pay for the certainty of the others.
    @functools.cached_property
    def _search_best(self) -> Callable[..., Any]:
        return compile_for_inference(
            lambda *batch: self._search_plain(_stop(1), *batch), self._model
        )

    @functools.cached_property
    def _search_n_best(self) -> Callable[..., Any]:
        return compile_for_inference(
            lambda *batch: self._search_plain(_stop(2), *batch), self._model
        )

    def _search_plain(self, stop: str, encoder_token_ids: Any, max_lengths: Any, state: Any) -> Any:
        """Encoder and beam search of one batch: (B, S) and (B,) to a `BeamSearchResult`."""
        rows, source_length = encoder_token_ids.shape
        max_length = self._longest(source_length)
        memory = self._model.encode(encoder_token_ids)

        def step(token_ids, index, cache):
            return self._model.decode_step(token_ids, index, memory, cache)

        return beam_search(
            step,
            self._model.initial_cache(rows, self._options["beam_size"], max_length),
            max_lengths,
            stop=stop,
            max_length=max_length,
            constraint=None if self._constraint is None else self._constraint.constraint,
            constraint_state=state,
            **self._options,
        )

    def _longest(self, source_length: int) -> int:
        """L, the most tokens of any translation of sources of a padded length."""
        longest = source_length + self._max_extra_length
        return longest if self._model.max_length is None else min(longest, self._model.max_length)


def _stop(n_best: int) -> str:
    return "best" if n_best == 1 else "n_best"
