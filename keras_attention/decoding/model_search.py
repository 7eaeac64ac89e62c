"""Beam search with a model: by an engine if one can run the model, else by the plain search.

Shape letters: B sentences, S source length, W beams, L longest output.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from keras_attention.decoding.ensemble import Ensemble, EnsembleSelector
from keras_attention.decoding.hypotheses import (
    BeamSearchResult,
    SearchRules,
    result,
    search_options,
)
from keras_attention.decoding.incremental_search import incremental_search
from keras_attention.decoding.requests import (
    SHOWN_LETTERS,
    Batching,
    Request,
    RequestBatch,
    WrongText,
    joints_of,
)
from keras_attention.decoding.sampling import Sampling
from keras_attention.engine.base import Engine, SearchingEngine, SteppingEngine, TokenRules
from keras_attention.engine.onnx import OnnxSelector
from keras_attention.engine.select import EngineChoice, EngineSelector, check_engine
from keras_attention.interop.onnx_model import OnnxModel
from keras_attention.spec import SpecError, TransformerSpec
from keras_attention.spec.parts import NonFiniteModel, check_finite
from keras_attention.utils.backend import BACKENDS
from keras_attention.utils.forks import check_process, note_process
from keras_attention.utils.progress import activity, say, with_progress

if TYPE_CHECKING:
    from keras_attention.decoding.compiled_search import ChoicePrograms, ChosenSteps, CompiledSearch
    from keras_attention.decoding.constraints import TextConstraint
    from keras_attention.decoding.token_rules import SearchConstraint

Selector = EngineSelector | EnsembleSelector | OnnxSelector
# A longer source is named while it is translated: the time grows with the square of its length.
LONG_TOKENS = 1000
NOTHING = (False, False)  # neither phrases nor prefixes
NOTED_LETTERS = 30


class ModelSearch:
    """Searches the translations of source ids.

    The plain search runs `beam_search` over the model's `decode_step`, compiled for each batch shape. An
    engine finds the same results faster; one is used if it can run the model's `spec()`. The arguments are
    those of `Translator`, how sources are batched, a `sampling` for a beam of 1, and `rules` for the tokens
    of all translations.

    Raises:
        ValueError: If the precision or the engine is unknown, or cannot decode this model.
        SpecError: If `model` is a spec that no engine can run. (The plain search needs a Keras model.)
    """

    def __init__(
        self,
        model: Any,
        batching: Batching,
        length_penalty: float,
        precision: str | None = None,
        engine: str = "auto",
        constraint: TextConstraint | None = None,
        sampling: Sampling | None = None,
        rules: TokenRules | None = None,
        tokenizer: Any = None,
    ):
        check_engine(engine, precision)
        if not isinstance(model, TransformerSpec):
            note_process()
        self._model = model
        self._models = model.models if isinstance(model, Ensemble) else (model,)
        self.batching = batching
        self._rules = SearchRules(
            batching.beam_size,
            model.start_token_id,
            model.end_token_id,
            model.pad_token_id,
            length_penalty,
            sampling,
            are_scores=isinstance(model, Ensemble),
        )
        self._constraint = constraint
        self._token_rules = rules
        self._tokenizer = tokenizer
        self._asked = (precision, engine)
        needs = {"constraint": constraint, "sampling": sampling, "restrictions": rules}
        wanted = {name for name, value in needs.items() if value is not None}
        self._needs = frozenset(wanted | ({"ensemble"} if self._rules.are_scores else set()))
        self._made_of = self._kinds_of_weights()
        # By what a search must be able to do; the others by whether there are phrases and prefixes.
        self._selected = functools.cache(self._select)
        self._constraint_of = functools.cache(self._search_constraint)
        self._programs_of = functools.cache(self._choice_programs)
        self._plain_of = functools.cache(self._plain_search)
        if self._engines(NOTHING)[0] is None:
            self._plain_of(NOTHING)

    def _engines(self, asked: tuple[bool, bool]) -> tuple[Selector | None, str]:
        """Return the engines for the model, or None and the reason for using the plain search."""
        if (made_of := self._kinds_of_weights()) != self._made_of:
            self._made_of = made_of
            for made in (self._selected, self._programs_of, self._plain_of):
                made.cache_clear()
        names = ("constraint", "restrictions")  # what phrases and prefixes need
        return self._selected(self._needs | {*itertools.compress(names, asked)})

    def _kinds_of_weights(self) -> list[Any]:
        """Return what `enable_lora`, `merge_lora` and `quantize` change, which make new variables."""
        names = "lora_rank", "quantized"
        return [getattr(one, name, None) for one in self._models for name in names]

    def _select(self, needs: frozenset[str]) -> tuple[Selector | None, str]:
        precision, engine = self._asked
        try:
            found: list[Any] = []
            for one in self._models:
                if isinstance(one, OnnxModel):
                    found.append(OnnxSelector(one, precision, engine))
                    continue
                if engine == "plain":
                    raise SpecError("The plain search computes in the model's own dtype.")
                if not isinstance(one, TransformerSpec) and not hasattr(one, "spec"):
                    raise SpecError(f"{type(one).__name__} has no `spec()`.")
                spec = one if isinstance(one, TransformerSpec) else one.spec()
                found.append(EngineSelector(spec, precision or spec.dtype, engine, needs))
            return EnsembleSelector(found) if len(found) > 1 else found[0], ""
        except SpecError as error:
            reason = str(error)
        if any(isinstance(one, TransformerSpec) for one in self._models):
            raise SpecError(
                f"engine={engine!r} cannot decode a spec, which is no Keras model: {reason} "
                "`Translator.from_run`, or `Transformer.from_preset`, makes a Keras model of it."
            )
        if engine not in ("auto", "plain") or precision is not None:
            asked = "" if precision is None else f" with precision={precision!r}"
            raise ValueError(
                f"engine={engine!r} cannot decode this model{asked}: {reason} "
                "Leave the engine and the precision out to decode by whatever can."
            )
        return None, reason

    def _search_constraint(self, asked: tuple[bool, bool]) -> SearchConstraint | None:
        """Return all that is asked of hypotheses, with phrases and prefixes or without; None for nothing."""
        own = self._constraint, self._token_rules
        if own == (None, None) and not any(asked):
            return None
        # What needs Keras, which a process that runs a spec may lack, is imported when it is needed.
        from keras_attention.decoding.token_rules import SearchConstraint

        joints = joints_of(self._tokenizer) if asked[0] else None
        return SearchConstraint(self._model, *own, *asked, joints)

    def _plain_search(self, asked: tuple[bool, bool]) -> CompiledSearch:
        from keras_attention.decoding.compiled_search import CompiledSearch

        return CompiledSearch(self._model, self._rules, self._constraint_of(asked))

    def _choice_programs(self, asked: tuple[bool, bool]) -> ChoicePrograms:
        from keras_attention.decoding.compiled_search import ChoicePrograms

        own = self._constraint_of(asked)
        return ChoicePrograms(self._rules, None if own is None else own.constraint)

    def choice(self, batch_size: int, asked: tuple[bool, bool]) -> EngineChoice:
        """Return which engine searches a batch of this many sentences, with phrases and prefixes, and why."""
        engines, reason = self._engines(asked)
        if engines is None:
            return EngineChoice("plain", reason)
        return engines.choice_for(batch_size * self._rules.beam_size)

    def __call__(
        self, requests: Sequence[Request], n_best: int = 1, shows_progress: bool = True
    ) -> Iterator[tuple[list[int], BeamSearchResult]]:
        """Search the translations of sources, batch by batch, with the model's current weights.

        Yields the index of the request of each row, and a `BeamSearchResult` of NumPy arrays, which may have
        further rows, with empty slots. Requests with an empty source are skipped. `n_best` hypotheses are
        certain; of samples, each is in a row of its own.

        Raises:
            WrongText: If no translation keeps what is asked of it.
            NonFiniteModel: If a weight of the model, or its logits, are infinite or NaN.
        """
        copies = 1 if self._rules.sampling is None else n_best
        requests = [one._replace(sample=i) for one in requests for i in range(copies)]
        asked = any(r.phrases for r in requests), any(r.prefix for r in requests)
        engines, _ = self._engines(asked)
        few_shapes = engines is None or engines.fixed_shapes
        lengths = [len(request.source) for request in requests]
        batching = self.batching
        batches = (batching.of_few_shapes if few_shapes else batching.of_like_length)(lengths)
        numbers = [len(lines) for lines, _ in batches]
        if batches and (engines is None or engines.choice.name in BACKENDS):
            check_process()
        search: Callable[..., BeamSearchResult] = self._search_plainly
        if batches and engines is not None:
            # Translations are about as long as their texts.
            engine = engines.engine(sum(lengths) * self._rules.beam_size)
            if engines.needs_compiling and engine.name == "numpy" and shows_progress:
                _say_why_numpy()
            search = functools.partial(self._search_by_engine, engine)
        # Samples are certain.
        stop = "best" if n_best == 1 or self._rules.sampling is not None else "n_best"
        shown = sum(numbers), "translating", "sentences", shows_progress
        for lines, sizes in with_progress(batches, *shown, sizes=numbers):
            batch = self._batch([requests[line] for line in lines], *sizes)
            found = search(batch, stop, asked, shows_progress)
            for line, length in zip(lines, found.lengths[:, 0], strict=False):
                if not length:
                    self._refuse(line // copies, requests[line])
            yield [line // copies for line in lines], found

    def _refuse(self, index: int, request: Request) -> NoReturn:
        """Say why nothing was found for a text."""
        if self._engines(NOTHING)[0] is None:  # Engines look when they read the weights.
            for one in self._models:  # Those of an ensemble may have equal paths.
                check_finite({weight.path: weight for weight in one.weights})
        if self._needs & {"constraint", "restrictions"} or request.phrases or request.prefix:
            raise WrongText(
                index,
                "has no translation that keeps all restrictions and constraints within its maximum length, "
                f"or its logits are not finite. Ask for less: {request.text[:SHOWN_LETTERS]!r}",
            )
        raise NonFiniteModel(
            f"The model's logits for text {index} are not finite, so nothing could be chosen. Has its "
            "training diverged?"
        )

    def _batch(
        self, requests: Sequence[Request], rows: int, length: int, longest: int
    ) -> RequestBatch:
        token_ids = np.full((rows, length), self._model.pad_token_id, "int32")
        limits = np.zeros(rows, "int32")
        for row, request in enumerate(requests):
            token_ids[row, : len(request.source)] = request.source
            limits[row] = request.longest
        # Compiled code reads the rows of its table unchecked.
        size = self._model.vocabulary_size
        if token_ids.min() < 0 or token_ids.max() >= size:
            raise ValueError(
                f"Token ids must be at least 0 and less than {size}, the model's `vocabulary_size`. "
                f"Received ids from {token_ids.min()} to {token_ids.max()}. Do tokenizer and model "
                "belong together?"
            )
        uniforms = None
        if self._rules.sampling is not None:
            uniforms = np.zeros((rows, longest), "float32")
            for row, request in enumerate(requests):
                uniforms[row] = self._rules.sampling.uniforms(
                    request.source, request.sample, longest
                )
        return RequestBatch(requests, token_ids, limits, longest, uniforms)

    def _search_plainly(
        self, batch: RequestBatch, stop: str, asked: tuple[bool, bool], shows_progress: bool
    ) -> BeamSearchResult:
        plain = self._plain_of(asked)
        needs_compiling = plain.needs_compiling(batch.token_ids.shape, stop)
        with _noted(shows_progress, needs_compiling, batch) as made:
            if needs_compiling and made is not None:
                # The limits 0 end the search at once, and so the note when all is compiled.
                plain(batch._replace(requests=(), limits=np.zeros_like(batch.limits)), stop)
                made(0)
            return plain(batch, stop)

    def _search_by_engine(
        self,
        engine: Engine,
        batch: RequestBatch,
        stop: str,
        asked: tuple[bool, bool],
        shows_progress: bool,
    ) -> BeamSearchResult:
        rules, (rows, length) = self._rules, batch.token_ids.shape
        needs_compiling = engine.needs_compiling(rows, length)
        with _noted(shows_progress, needs_compiling, batch) as made:
            if isinstance(engine, SearchingEngine):
                options = search_options(stop, rules.beam_size, rules.length_penalty, batch.longest)
                draws = None if rules.sampling is None else rules.sampling.draws(batch.uniforms)
                options = options._replace(rules=self._rules_of(batch), draws=draws)
                found = engine.search(batch.token_ids, batch.limits, options, made)
                return result(found, batch.limits, rules, np)
            assert isinstance(engine, SteppingEngine)
            return incremental_search(
                engine.start(batch.token_ids, rules.beam_size, batch.longest),
                batch.limits,
                rules,
                stop,
                batch.longest,
                self._chosen(batch, asked),
                made,
            )

    def _chosen(self, batch: RequestBatch, asked: tuple[bool, bool]) -> ChosenSteps | None:
        """Return what chooses tokens between an engine's steps; None if the engine does."""
        constraint = self._constraint_of(asked)
        if constraint is None and batch.uniforms is None and not self._rules.are_scores:
            return None
        from keras_attention.decoding.compiled_search import ChosenSteps

        state = {}
        if constraint is not None:
            state = constraint.of_batch(batch.requests, batch.limits, self._rules.beam_size)
        return ChosenSteps(self._programs_of(asked), state, batch.uniforms)

    def _rules_of(self, batch: RequestBatch) -> TokenRules | None:
        longest = max(len(request.prefix) for request in batch.requests)
        if not longest:
            return self._token_rules
        prefixes = np.full((len(batch.limits), longest), -1, "int32")
        for row, request in enumerate(batch.requests):
            prefixes[row, : len(request.prefix)] = request.prefix
        return (self._token_rules or TokenRules())._replace(prefixes=prefixes)


@functools.cache
def _say_why_numpy() -> None:
    say(
        "Numba's code is not compiled on this machine yet, which takes a minute or two: NumPy stands in for "
        "it while there are few texts. engine='numba' (--engine numba) compiles now."
    )


@contextlib.contextmanager
def _noted(
    shows_progress: bool, needs_compiling: bool, batch: RequestBatch
) -> Iterator[Callable[[int], None] | None]:
    """Show on the progress line why a batch takes long: it compiles first, or has a very long text.

    Gives None, or a function to call when all is compiled, and then with the number of tokens made so far.
    """
    rows, length = batch.token_ids.shape
    long = ""
    if length > LONG_TOKENS:  # Batches come longest first.
        text = batch.requests[0].text[:NOTED_LETTERS]
        long = f"a line of up to {length:,} tokens takes long: '{text}...'"
    notes = [long, f"compiling for {rows} x {length} tokens" if needs_compiling else ""]
    if not (shows_progress and any(notes)):
        yield None
        return

    def made(tokens: int) -> None:
        progress.note(
            f"{long}; {tokens:,} of at most {batch.longest:,} tokens made" if long else ""
        )

    with activity("; ".join(filter(None, notes))) as progress:
        yield made
