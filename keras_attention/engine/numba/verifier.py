"""Verifies drafts by compiled passes: one at a time, or all of a sentence in one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_attention.engine.base import DraftTables, SearchOptions, Verifier
from keras_attention.engine.numba.attention import PREFETCHED_SLOTS
from keras_attention.engine.numba.drafts import (
    ACCEPTED,
    LENGTH,
    NUMBERS,
    PROPOSED,
    ROWS,
    STEPS,
    DraftRules,
    DraftState,
    verify,
)
from keras_attention.engine.numba.threads import ThreadGroup

# How probable it must be that all proposals are right, for a pass of another tile of rows: it takes less time
# where a pass waits for weights from memory.
LEAST_SHARE, LEAST_SHARE_FROM_MEMORY = 0.65, 0.2


class NumbaVerifier(Verifier):
    """Verifies tokens as rows of one sentence's step, whose products do not depend on their number."""

    def __init__(self, engine: Any, token_ids: np.ndarray, max_length: int):
        self._engine, self._weights = engine, engine.weights
        self._slots = max(token_ids.shape[1], max_length)
        options = SearchOptions(1, max_length, 0.0, np.ones(max_length + 1, "float32"), 0)
        limits = np.array([max_length])
        arguments = engine.arguments(self._weights, token_ids, limits, options, slice(None))
        self._encoder_workspace, _, self._source, rules, self._state, self._found = arguments
        self._rules = rules._replace(in_a_row=1)
        self._passes: dict[int, tuple[Any, ...]] = {}
        self._shared = np.zeros(3, "int64")  # a barrier and what stops
        addresses = self._shared.ctypes.data, self._shared[2:].ctypes.data
        self._alone = ThreadGroup(0, 1, *addresses, np.empty(self._slots, "float32"))

    def verify(
        self, token_ids: np.ndarray, index: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows = len(token_ids)
        if rows not in self._passes:
            self._passes[rows] = self._passes_of(rows, no_tables())
        threads, arguments = self._passes[rows]
        _, workspace, _, _, state, *_, progress = arguments
        state.tokens[0] = token_ids
        progress.numbers[LENGTH], progress.numbers[ROWS] = index, rows
        if index and threads == 1:
            # A pass is short: no other thread need watch for Ctrl-C. To wake one may take as long.
            program = self._engine.program(verify, self._weights)
            program(self._weights.model, *arguments[:2], self._alone, *arguments[2:])
        else:
            self._run(threads, arguments)
        return state.log_probs, state.ids, workspace.x

    def search(
        self, tables: DraftTables, lookahead: int, margin: float
    ) -> tuple[list[int], np.float32, dict[str, int]]:
        least = LEAST_SHARE if self._weights.are_cached else LEAST_SHARE_FROM_MEMORY
        tile = max(2, self._weights.packing.layout.small_tile)
        drafting = DraftRules(tables, lookahead, np.float32(margin), tile, least)
        threads, arguments = self._passes_of(1 + lookahead, drafting)
        self._run(threads, arguments)
        progress = arguments[-1]
        length, steps, proposed, accepted = progress.numbers[[LENGTH, STEPS, PROPOSED, ACCEPTED]]
        report = {"steps": steps, "tokens": length, "proposed": proposed, "accepted": accepted}
        return progress.tokens[1 : 1 + length].tolist(), progress.score[0], report

    def _run(self, threads: int, arguments: tuple[Any, ...]) -> None:
        program = self._engine.program(verify, self._weights)
        self._engine.run(program, self._weights, [arguments], (threads, self._slots))

    def _passes_of(self, rows: int, drafting: DraftRules) -> tuple[int, tuple[Any, ...]]:
        """Return the number of threads of passes of up to so many rows, and what they take."""
        size = self._state.logits.shape[-1]
        history = np.empty((2, 1, rows, self._slots + PREFETCHED_SLOTS), "int64")
        history[:] = np.arange(history.shape[-1])
        state = self._state._replace(
            tokens=np.empty((1, rows), "int32"),
            history=history,
            logits=np.empty((rows, size), "float32"),
            log_probs=np.empty((rows, min(2, rows, size)), "float32"),
            ids=np.empty((rows, min(2, rows, size)), "int32"),
        )
        _, threads = self._engine.thread_groups(self._weights, 1, rows)
        workspaces = self._encoder_workspace, self._engine.workspace(self._weights, rows)
        most = len(self._rules.positions) + rows
        progress = new_progress(most, drafting.tables, self._engine.spec.start_token_id)
        shared = (self._source, self._rules, state, self._found, drafting, progress)
        return threads, (*workspaces, *shared)


def no_tables() -> DraftRules:
    """Return that Python proposes the tokens."""
    contexts = np.zeros(0, "int32"), np.zeros((1, 4), "int64"), np.zeros((0, 2), "int32")
    lexicon = (np.zeros(0, dtype) for dtype in ("float32", "int64", "int32", "float32"))
    tables = DraftTables._make([0, 0, *contexts, 0, *lexicon, 0.0])
    return DraftRules(tables, 0, np.float32(0.0), 1, 0.0)


def new_progress(length: int, tables: DraftTables, start_token_id: int) -> DraftState:
    """Return workspace for an output of so many tokens, which tables propose."""
    size = len(tables.frequencies)
    return DraftState(
        tokens=np.full(1 + length, start_token_id, "int32"),
        numbers=np.zeros(NUMBERS, "int64"),
        score=np.zeros(1, "float32"),
        path=np.empty(tables.levels, "int64"),
        candidates=np.empty(tables.most, "int32"),
        probabilities=np.zeros(size),
        suggested=np.empty(size, "int32"),
        likelihoods=np.zeros(size),
    )
