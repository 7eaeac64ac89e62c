"""Runs a spec on a CPU by Numba, whatever the backend, and without any.

A whole search is one compiled call over the arrays of the spec. Small models wait for Python, large ones
for their weights: these are stored in float32, bfloat16 or 8-bit integers, activations are float32.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from keras_attention.engine.base import Beams, Draws, SearchingEngine, SearchOptions, TokenRules
from keras_attention.engine.numba.attention import PREFETCHED_SLOTS
from keras_attention.engine.numba.choice import Choice
from keras_attention.engine.numba.compiling import compiled, is_on_disk
from keras_attention.engine.numba.layers import CELL, Model, Workspace
from keras_attention.engine.numba.search import Rules, SearchState, Source, search
from keras_attention.engine.numba.threads import ThreadGroup, run_searches
from keras_attention.engine.numba.weights import Weights, read_only, read_weights
from keras_attention.spec import TransformerSpec

# Instructions' worth of multiplications in a step that pay for another thread: a fraction of a millisecond.
WORK_PER_THREAD = 6_000_000
# If the decoder is read from memory: rows from which on a thread computes for longer than it reads.
ROWS_PER_GROUP = 24


class NumbaEngine(SearchingEngine):
    """Runs a spec on a CPU, in `"float32"`, `"bfloat16"` or `"int8"`."""

    name = "numba"

    def __init__(self, spec: TransformerSpec, precision: str):
        super().__init__(spec, precision)
        # By micro-kernel, which can change when weights of 8 bits are trained further.
        self._compiled: dict[Any, Any] = {}
        self._signatures: dict[str, tuple[Any, ...]] = {}

    def read_weights(self) -> None:
        self.positions.cache_clear()
        # Assigned at once: another thread may be searching with the weights that were read before.
        self.weights = read_weights(self.spec, self.precision)

    def as_tensor(self, array: np.ndarray) -> np.ndarray:
        return read_only(array)

    def needs_compiling(self, batch_size: int, length: int) -> bool:
        return self.weights.packing.kernel not in self._compiled

    def is_compiled(self) -> bool:
        """Whether the search is compiled, by this process or an earlier one."""
        is_here = not self.needs_compiling(1, 1)
        return is_here or is_on_disk(search, self._signature_of(self.weights))

    def _signature_of(self, weights: Weights) -> tuple[Any, ...]:
        """Return the types of the arguments of `search`, the same in each search."""
        kernel = weights.packing.kernel
        if kernel not in self._signatures:
            options = SearchOptions(1, 1, 0.0, np.ones(2, "float32"), 0)
            token_ids = np.full((1, 1), self.spec.end_token_id, "int32")
            limits = np.ones(1, "int32")
            encoder, decoder, *rest = self._arguments(
                weights, token_ids, limits, options, slice(None)
            )
            member = ThreadGroup(0, 1, 0, 0, np.empty(1, "float32"))
            given = (weights.model, encoder, decoder, member, *rest)
            self._signatures[kernel] = tuple(map(numba.typeof, given))
        return self._signatures[kernel]

    def search(self, token_ids, limits, options, made=None) -> Beams:
        weights = self.weights
        groups, threads = self.thread_groups(weights, len(token_ids), options.beam_size)
        # Batches come longest first: each group gets long sentences and short ones.
        parts = [slice(group, None, groups) for group in range(groups)]
        given = (weights, token_ids, limits, options)
        searches = [self._arguments(*given, part) for part in parts]
        found = [one[-1] for one in searches]
        slots = max(token_ids.shape[1], options.max_length)

        def watch() -> None:
            assert made is not None
            made(max(_longest(beams, self.spec.pad_token_id) for beams in found))

        size = (threads, slots)
        run_searches(self.program(weights), weights.model, searches, size, made and watch)
        rows = np.arange(len(token_ids))
        order = np.argsort(np.concatenate([rows[part] for part in parts]))
        return Beams(*(np.concatenate(arrays)[order] for arrays in zip(*found, strict=True)))

    def _arguments(
        self,
        weights: Weights,
        token_ids: np.ndarray,
        limits: np.ndarray,
        options: SearchOptions,
        part: slice,
    ) -> tuple[Any, ...]:
        """Return what `search` takes for a part of the sentences, but for model and thread group."""
        spec, beam_size, max_length = self.spec, options.beam_size, options.max_length
        token_ids, limits = token_ids[part], limits[part]
        sentences, length = token_ids.shape
        source = _source_of(spec, token_ids, self.positions("encoder", length))
        rules = Rules(
            limits=limits.astype("int64"),
            penalties=np.array(options.penalties, "float32"),
            decisive_slot=options.decisive_slot,
            end_token_id=spec.end_token_id,
            pad_token_id=spec.pad_token_id,
            positions=self.positions("decoder", max_length),
            choice=choice_of(options.rules, options.draws, spec.end_token_id, part),
        )
        state = _state_of(spec, weights.model, source, rules, options)
        found = no_hypotheses(sentences, beam_size, max_length, spec.pad_token_id)
        sizes = (int(source.bounds[-1]), sentences * beam_size)
        workspaces = (_workspace_of(weights, spec.hidden_dim, rows) for rows in sizes)
        return *workspaces, source, rules, state, found

    def program(self, weights: Weights) -> Any:
        """Return `search`, compiled."""
        key = weights.packing.kernel
        if key not in self._compiled:
            self._compiled[key] = compiled(search, self._signature_of(weights))
        return self._compiled[key]

    def thread_groups(self, weights: Weights, sentences: int, beam_size: int) -> tuple[int, int]:
        """Return how many groups of threads search a part of the sentences each, and their threads.

        Groups never wait for each other; the threads of a group do, several times a layer. But each
        group reads all weights of the decoder. So there are as many groups as sentences if the weights
        are in the cache, and fewer if they come from memory; more threads work in each where a step is long.
        """
        most = numba.config.NUMBA_NUM_THREADS
        least_sentences = 1 if weights.are_cached else -(-ROWS_PER_GROUP // beam_size)
        groups = max(1, min(most, sentences // least_sentences))
        work = sentences * beam_size * weights.of_step // weights.packing.at_once
        return groups, max(1, min(most // groups, work // (groups * WORK_PER_THREAD)))


def _source_of(spec: TransformerSpec, token_ids: np.ndarray, positions: np.ndarray) -> Source:
    """Return the tokens of sentences (B, S), without padding, one after the other."""
    is_token = token_ids != spec.pad_token_id
    return Source(
        ids=token_ids[is_token].astype("int32"),
        token_positions=np.nonzero(is_token)[1].astype("int64"),
        bounds=np.concatenate([[0], np.cumsum(is_token.sum(axis=1))]).astype("int64"),
        positions=positions,
        slots=np.arange(token_ids.shape[1] + PREFETCHED_SLOTS, dtype="int64"),
    )


def choice_of(
    rules: TokenRules | None, draws: Draws | None, end_token_id: int, part: slice
) -> Choice:
    """Return how tokens of some sentences are chosen; arrays are copied, so that all are of one type."""
    nothing = np.zeros((0, 0))
    ngram, min_length, max_length, banned, prefixes = rules or TokenRules()
    uniforms, temperature, top_k, top_p = draws or (nothing, 0.0, 0, 1.0)
    return Choice(
        is_plain=rules is None and draws is None,
        is_restricted=rules is not None,
        ngram=int(ngram),
        min_length=int(min_length),
        max_length=int(max_length),
        end_token_id=end_token_id,
        banned=np.array(nothing if banned is None else banned, "int32", order="C"),
        prefixes=np.array(nothing if prefixes is None else prefixes[part], "int32", order="C"),
        temperature=float(temperature),
        top_k=int(top_k),
        top_p=float(top_p),
        uniforms=np.array(uniforms[part], "float32", order="C"),
    )


def _state_of(
    spec: TransformerSpec, model: Model, source: Source, rules: Rules, options: SearchOptions
) -> SearchState:
    """Return the arrays that a search changes, at its begin."""
    beam_size, max_length = options.beam_size, options.max_length
    sentences, tokens = len(rules.limits), int(source.bounds[-1])
    rows = sentences * beam_size
    searched = np.flatnonzero(rules.limits > 0).astype("int64")
    history = np.zeros((2, sentences, beam_size, max_length + PREFETCHED_SLOTS), "int64")
    history[0, :, :, 0] = np.arange(beam_size)
    candidates = 2 * beam_size if beam_size > 1 else 1
    width = min(candidates, spec.target_vocabulary_size)
    candidates = min(candidates, beam_size * width)
    blocks, is_cell = len(model.decoder.matrices), model.decoder.options[:, CELL] == 1
    cache = (blocks, sentences, 0 if is_cell.all() else max_length * beam_size)
    (heads, key_dim, value_dim), kv = model.heads, model.layout.kv.dtype
    weighed = 0 if rules.choice.is_plain else rows
    return SearchState(
        sentences=np.concatenate([searched, np.zeros(sentences - len(searched), "int64")]),
        active=np.array([len(searched)]),
        tokens=np.full((sentences, beam_size), spec.start_token_id, "int32"),
        history=history,
        keys=np.empty((*cache, heads * key_dim), kv),
        values=np.empty((*cache, heads * value_dim), kv),
        cells=np.zeros((2, blocks * is_cell.any(), rows, spec.hidden_dim), "float32"),
        memory=np.empty((blocks, tokens, heads * (key_dim + value_dim)), kv),
        logits=np.empty((rows, spec.target_vocabulary_size), "float32"),
        weights=np.empty((weighed, spec.target_vocabulary_size), "float32"),
        log_probs=np.empty((rows, width), "float32"),
        ids=np.empty((rows, width), "int32"),
        scores=np.empty((sentences, candidates), "float32"),
        chosen=np.empty((sentences, candidates), "int64"),
        previous=np.empty((sentences, beam_size, max_length), "int32"),
    )


def _workspace_of(weights: Weights, depth: int, rows: int) -> Workspace:
    """Return what a group of threads computes so many rows of width D in."""
    heads, _, value_dim = weights.model.heads
    widths = (depth, depth, depth, weights.widest, heads * value_dim)
    arrays: list[Any] = [np.empty((rows, width), "float32") for width in widths]
    return Workspace._make([*arrays, weights.packing.workspace(rows, weights.deepest)])


def no_hypotheses(sentences: int, beam_size: int, max_length: int, pad_token_id: int) -> Beams:
    """Return one alive hypothesis of each sentence, the empty one, and none finished."""
    scores = np.full((2, sentences, beam_size), -np.inf, "float32")
    scores[0, :, 0] = 0.0
    sequences = np.full((2, sentences, beam_size, max_length), pad_token_id, "int32")
    return Beams(sequences[0], scores[0], sequences[1], scores[1])


def _longest(found: Beams, pad_token_id: int) -> int:
    """Return how many tokens the best hypotheses have at most, also while they grow."""
    is_token = found.alive_sequences[:, 0] != pad_token_id
    return int(is_token.sum(axis=-1).max(initial=0))


ENGINE = NumbaEngine
