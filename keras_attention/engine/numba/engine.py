"""Runs a spec on a CPU by Numba, whatever the backend, and without any.

A whole search is one compiled call over the arrays of the spec. Small models wait for Python, large ones
for their weights: these are stored in float32, bfloat16 or 8-bit integers, activations are float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from keras_attention.engine.base import Beams, SearchingEngine, SearchOptions
from keras_attention.engine.numba.arguments import arguments_of, no_hypotheses
from keras_attention.engine.numba.compiling import compiled, is_on_disk
from keras_attention.engine.numba.running import run_searches
from keras_attention.engine.numba.search import search
from keras_attention.engine.numba.threads import ThreadGroup
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
        self._positions.clear()
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

    def search(
        self,
        token_ids: np.ndarray,
        limits: np.ndarray,
        options: SearchOptions,
        made: Callable[[int], None] | None = None,
    ) -> Beams:
        beam_size, max_length = options.beam_size, options.max_length
        self.check_ids(token_ids)
        weights = self.weights
        groups, threads = self.thread_groups(weights, len(token_ids), beam_size)
        # Batches come longest first: each group gets long sentences and short ones.
        parts = [slice(group, None, groups) for group in range(groups)]
        given = (weights, token_ids, limits, options)
        searches = [self._arguments(*given, part) for part in parts]
        slots = max(token_ids.shape[1], max_length)

        def watch() -> None:
            if made is not None:
                made(max(_longest(one[-1], self.spec.pad_token_id) for one in searches))

        watch()
        run_searches(self.program(weights), weights.model, searches, (threads, slots), watch)
        found = no_hypotheses(len(token_ids), beam_size, max_length, self.spec.pad_token_id)
        for part, arguments in zip(parts, searches, strict=True):
            for whole, own in zip(found, arguments[-1], strict=True):
                whole[part] = own
        return found

    def _arguments(self, *given: Any) -> tuple[Any, ...]:
        return arguments_of(self.spec, self.positions, *given)

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


def _longest(found: Beams, pad_token_id: int) -> int:
    """Return how many tokens the best hypotheses have at most, also while they grow."""
    is_token = found.alive_sequences[:, 0] != pad_token_id
    return int(is_token.sum(axis=-1).max(initial=0))


ENGINE = NumbaEngine
