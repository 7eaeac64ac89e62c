"""Beam search with a model: by an engine if one can run the model, else by the plain search.

Shape letters: B sentences, S source length, W beams, L longest output.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_attention.decoding.batching import Batching
from keras_attention.decoding.hypotheses import (
    BeamSearchResult,
    SearchRules,
    num_candidates,
    result,
    search_options,
)
from keras_attention.decoding.incremental_search import incremental_search
from keras_attention.engine.base import Engine, SearchingEngine, SteppingEngine
from keras_attention.engine.select import EngineChoice, EngineSelector, check_engine
from keras_attention.spec import SpecError, TransformerSpec
from keras_attention.spec.parts import check_finite
from keras_attention.utils.backend import BACKENDS
from keras_attention.utils.forks import check_process, note_process
from keras_attention.utils.progress import Progress

if TYPE_CHECKING:
    from keras_attention.decoding.compiled_search import CompiledSearch
    from keras_attention.decoding.constrained_steps import ConstrainedSteps
    from keras_attention.decoding.constraints import TextConstraint

# A longer source is named while it is translated: the time grows with the square of its length.
LONG_TOKENS = 1000
SHOWN_LETTERS = 30


class ModelSearch:
    """Searches the translations of source ids.

    The plain search runs `beam_search` over the model's `decode_step`, compiled for each batch shape. An
    engine finds the same results faster; one is used if it can run the model's `spec()`.

    Args:
        model: The model, or its spec, as `Translator` takes it.
        beam_size: Number of beams W.
        length_penalty: The paper's alpha.
        max_extra_length: Largest number of tokens that a translation may have more than its source.
        precision: Precision of the engine; None for the model's.
        engine: `"auto"`, `"plain"`, or the name of an engine.
        constraint: A `TextConstraint` on the translations, or None.

    Raises:
        ValueError: If the precision or the engine is unknown, or cannot decode this model.
        SpecError: If `model` is a spec that no engine can run. (The plain search needs a Keras model.)
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
        check_engine(engine, precision)
        if not isinstance(model, TransformerSpec):
            note_process()
        self._model = model
        self._max_extra_length = max_extra_length
        self._rules = SearchRules(
            beam_size,
            model.start_token_id,
            model.end_token_id,
            model.pad_token_id,
            length_penalty,
        )
        self._constraint = constraint
        self._engines, self._plain_reason = self._selector(precision, engine)
        self._plain = self._plain_search() if self._engines is None else None
        if self._engines is not None and constraint is not None:
            from keras_attention.decoding.constrained_steps import ConstraintPrograms

            self._programs = ConstraintPrograms(constraint.constraint, num_candidates(beam_size))

    def _selector(self, precision: str | None, engine: str) -> tuple[EngineSelector | None, str]:
        """Return the engines for the model, or None and the reason for using the plain search."""
        model = self._model
        is_spec = isinstance(model, TransformerSpec)
        try:
            if engine == "plain":
                raise SpecError("The plain search computes in the model's own dtype.")
            if not is_spec and not hasattr(model, "spec"):
                raise SpecError(f"{type(model).__name__} has no `spec()`.")
            spec = model if is_spec else model.spec()
            by_steps = self._constraint is not None
            return EngineSelector(spec, precision or spec.dtype, engine, by_steps), ""
        except SpecError as error:
            reason = str(error)
        if is_spec:
            raise SpecError(
                f"engine={engine!r} cannot decode a spec, which is no Keras model: {reason} "
                "`Translator.from_run`, or `Transformer.from_preset`, makes a Keras model of it."
            )
        if engine not in ("auto", "plain") or precision is not None:
            raise ValueError(
                f"engine={engine!r} cannot decode this model with precision={precision!r}: {reason} "
                "Leave both arguments out to decode by whatever can."
            )
        return None, reason

    def _plain_search(self) -> CompiledSearch:
        # Imported here, because it needs Keras, which a process that runs a spec may lack.
        from keras_attention.decoding.compiled_search import CompiledSearch

        return CompiledSearch(self._model, self._rules, self._constraint)

    def check_weights(self) -> None:
        """Raise a `NonFiniteModel` that names the first weight that is infinite or NaN, if one is."""
        if self._engines is None:  # Engines look when they read the weights.
            check_finite({weight.path: weight for weight in self._model.weights})

    def choice(self, batch_size: int) -> EngineChoice:
        """Return which engine searches a batch of this many sentences, and why."""
        if self._engines is None:
            return EngineChoice("plain", self._plain_reason)
        return self._engines.choice_for(batch_size * self._rules.beam_size)

    def __call__(
        self,
        sources: Sequence[Sequence[int]],
        texts: Sequence[str],
        batching: Batching,
        progress: Progress,
        n_best: int = 1,
    ) -> Iterator[tuple[list[int], BeamSearchResult]]:
        """Search the translations of sources, batch by batch, with the model's current weights.

        Args:
            sources: Source ids with the end token; empty sources are skipped.
            texts: The text of each source, for a constraint.
            batching: Decides which sources are searched together.
            progress: Shows when a batch compiles first.
            n_best: Number of hypotheses that must be certain.

        Yields:
            The indices of a batch's sources, and a `BeamSearchResult` of NumPy arrays. It may have
            further rows, with empty slots.

        Raises:
            NonFiniteModel: If a weight of the model is infinite or NaN.
        """
        few_shapes = self._engines is None or self._engines.fixed_shapes
        lengths = [len(source) for source in sources]
        batches = (batching.of_few_shapes if few_shapes else batching.of_like_length)(lengths)
        if batches:
            check_process(self._engines is None or self._engines.choice.name in BACKENDS)
        search: Callable[..., BeamSearchResult] = self._search_plainly
        if batches and self._engines is not None:
            search = functools.partial(self._search_by_engine, self._engines.engine())
        stop = "best" if n_best == 1 else "n_best"
        for lines, shape in batches:
            encoder_token_ids = np.full(shape, self._model.pad_token_id, "int32")
            max_lengths = np.zeros(shape[0], "int32")  # 0 ends the search of a dummy row at once
            for row, line in enumerate(lines):
                encoder_token_ids[row, : lengths[line]] = sources[line]
                max_lengths[row] = lengths[line] + self._max_extra_length
            yield (
                lines,
                search(
                    encoder_token_ids, max_lengths, stop, [texts[line] for line in lines], progress
                ),
            )

    def _search_plainly(
        self,
        encoder_token_ids: np.ndarray,
        max_lengths: np.ndarray,
        stop: str,
        texts: Sequence[str],
        progress: Progress,
    ) -> BeamSearchResult:
        assert self._plain is not None
        shape = encoder_token_ids.shape
        needs_compiling = self._plain.needs_compiling(shape, stop)
        longest = self._longest(shape[1])
        with _noted(progress, needs_compiling, encoder_token_ids, longest, texts) as made:
            if needs_compiling and made is not None:
                # The limits 0 end the search at once, and so the note when all is compiled.
                self._plain(encoder_token_ids, np.zeros_like(max_lengths), longest, stop)
                made(0)
            return self._plain(encoder_token_ids, max_lengths, longest, stop, texts)

    def _search_by_engine(
        self,
        engine: Engine,
        encoder_token_ids: np.ndarray,
        max_lengths: np.ndarray,
        stop: str,
        texts: Sequence[str],
        progress: Progress,
    ) -> BeamSearchResult:
        rules = self._rules
        shape = encoder_token_ids.shape
        max_length = self._longest(shape[1])
        needs_compiling = engine.needs_compiling(*shape)
        with _noted(progress, needs_compiling, encoder_token_ids, max_length, texts) as made:
            if isinstance(engine, SearchingEngine):
                limits = np.clip(max_lengths, 0, max_length)
                options = search_options(stop, rules.beam_size, rules.length_penalty, max_length)
                found = engine.search(encoder_token_ids, limits, options, made)
                return result(found, limits, rules, np)
            assert isinstance(engine, SteppingEngine)
            return incremental_search(
                engine.start(encoder_token_ids, rules.beam_size, max_length),
                max_lengths,
                rules,
                stop,
                max_length,
                self._constrained(texts, np.clip(max_lengths, 0, max_length)),
                made,
            )

    def _constrained(self, texts: Sequence[str], limits: Any) -> ConstrainedSteps | None:
        if self._constraint is None:
            return None
        from keras_attention.decoding.constrained_steps import ConstrainedSteps

        state = self._constraint.of_batch(texts, limits, self._rules.beam_size)
        return ConstrainedSteps(self._programs, state)

    def _longest(self, source_length: int) -> int:
        """Return L, the largest length of a translation of sources of this padded length."""
        longest = source_length + self._max_extra_length
        return longest if self._model.max_length is None else min(longest, self._model.max_length)


@contextlib.contextmanager
def _noted(
    progress: Progress,
    needs_compiling: bool,
    encoder_token_ids: np.ndarray,
    max_length: int,
    texts: Sequence[str],
) -> Iterator[Callable[[int], None] | None]:
    """Show on the progress line why a batch takes long: it compiles first, or has a very long text.

    Gives None, or a function to call when all is compiled, and then with the number of tokens made so far.
    """
    rows, length = encoder_token_ids.shape
    long = ""
    if length > LONG_TOKENS:  # Batches come longest first.
        long = f"a line of up to {length:,} tokens takes long: '{texts[0][:SHOWN_LETTERS]}...'"
    notes = [long, f"compiling for {rows} x {length} tokens" if needs_compiling else ""]
    if not any(notes):
        yield None
        return

    def made(tokens: int) -> None:
        progress.note(f"{long}; {tokens:,} of at most {max_length:,} tokens made" if long else "")

    with progress.during("; ".join(filter(None, notes))):
        yield made
