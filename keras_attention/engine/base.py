"""The contract of an engine: what runs a `TransformerSpec` for a beam search.

An `Engine` holds the weights of a spec as it computes with them. A `SteppingEngine` starts a `State`, which
is one search's, and feeds every beam one token at a time; a `SearchingEngine` makes the whole search.

Shape letters: B sentences, W beams of each, S source length, P slots of the buffer, V vocabulary.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from keras_attention.spec import SSRUSpec, TransformerSpec


class Engine(abc.ABC):
    """Runs a spec that `select.refusal` lets pass in one precision.

    The precision is the dtype of weights and activations, or `"int8"` for products of 8-bit integers. Weights
    are read by `read_weights`, not before.
    """

    name: str  # as `Translator(engine=...)` takes it

    def __init__(self, spec: TransformerSpec, precision: str):
        self.spec = spec
        self.precision = precision
        self.positions = functools.lru_cache(self._positions)  # emptied by who reads new weights

    @abc.abstractmethod
    def read_weights(self) -> None:
        """Take over the present weights of the spec."""

    def needs_compiling(self, batch_size: int, length: int) -> bool:
        """Whether a batch (B, S) takes longer because it is compiled first."""
        return False

    def _positions(self, kind: str, length: int) -> Any:
        """Return the encodings (length, D) of the first positions of the `"encoder"` or the `"decoder"`."""
        return self.as_tensor(self.spec.positions(getattr(self.spec, kind), length))

    def as_tensor(self, array: np.ndarray) -> Any:
        """Return a NumPy array as the engine computes with it."""
        return array


class SteppingEngine(Engine):
    """An engine that computes a step at a time; `decoding.incremental_search` keeps the beams' books."""

    # Whether it compiles a program for each shape (B, S), so that there should be few. Its buffers then have
    # room for the longest hypothesis from the start.
    fixed_shapes = False

    @functools.cached_property
    def cells(self) -> tuple[int, ...]:
        """The decoder's blocks that have a cell in place of self-attention."""
        blocks = enumerate(self.spec.decoder.blocks)
        return tuple(i for i, block in blocks if isinstance(block.self_attention, SSRUSpec))

    @abc.abstractmethod
    def start(self, token_ids: np.ndarray, beam_size: int, max_length: int) -> State:
        """Encode sources, int32 (B, S), padded behind; return a new search, of at most `max_length` steps."""


class Draws(NamedTuple):
    """How tokens are drawn at random; `decoding.sampling` says what the numbers mean."""

    uniforms: np.ndarray  # float32 (B, L), a random number for each token
    temperature: float  # what logits are divided by
    top_k: int  # how many of the likeliest tokens may be drawn; 0 for all
    top_p: float  # the probability that they have together; 1 for all


class TokenRules(NamedTuple):
    """Which tokens may follow; see `decoding.restrictions`."""

    ngram: int = 0  # no n-gram of this many tokens occurs twice; 0 for no such rule
    min_length: int = 0  # no hypothesis of fewer tokens ends, the end not counted
    max_length: int = 0  # each hypothesis of so many tokens ends; 0 for no such rule
    # int32 (phrases, P), token sequences that do not occur; -1 behind. None for none.
    banned: np.ndarray | None = None
    # int32 (B, P), with which hypotheses begin, whatever else is said; -1 behind. None for none.
    prefixes: np.ndarray | None = None


class SearchOptions(NamedTuple):
    """How a whole search is made; `decoding.hypotheses.search_options` makes it."""

    beam_size: int  # W
    max_length: int  # L, the size of the sequences
    length_penalty: float
    penalties: np.ndarray  # float32 (L + 1,), what alpha comes to for hypotheses of each length
    # A sentence is done when its finished hypothesis of this rank cannot be beaten.
    decisive_slot: int
    rules: TokenRules | None = None  # which tokens may follow; None for all
    draws: Draws | None = None  # how tokens are drawn, for a beam of 1; None for the likeliest


class Beams(NamedTuple):
    """The best hypotheses of each sentence so far, best first; -1e30 or less scores a slot without one."""

    alive_sequences: Any  # (B, W, L) int32
    alive_scores: Any  # (B, W) float32, log-probabilities
    finished_sequences: Any  # (B, W, L) int32
    finished_scores: Any  # (B, W) float32, penalised


class SearchingEngine(Engine):
    """An engine that makes a whole search by itself, by the rules of `decoding.hypotheses`."""

    @abc.abstractmethod
    def search(
        self,
        token_ids: np.ndarray,
        limits: np.ndarray,
        options: SearchOptions,
        made: Callable[[int], None] | None = None,
    ) -> Beams:
        """Search the likeliest hypotheses.

        Args:
            token_ids: int32 (B, S), padded behind; compiled code trusts that all are in the vocabulary.
            limits: int32 (B,), the longest hypothesis of each sentence; 0 searches none.
            options: How it searches.
            made: Is told now and then, after what is compiled first, how many tokens the longest
                hypotheses have. Defaults to none.

        Returns:
            What was found, as `decoding.hypotheses.result` takes it.
        """


class State(abc.ABC):
    """One search: B sentences whose beams share one buffer of keys and values."""

    masked: float  # the bias that hides a slot

    def __init__(self, engine: Any, batch_size: int, beam_size: int):
        self.engine = engine
        # The beams of the last step that those of the next one continue. The state of a cell, which is no
        # slot of the buffer, is reordered by it; None without cells.
        self.parents = np.zeros((batch_size, beam_size), "int64") if engine.cells else None

    def reorder(self, parents: np.ndarray) -> None:
        """Let the beams (B, W) of the next step continue these beams of the last one."""
        if self.parents is not None:
            self.parents = parents

    def parent_rows(self) -> np.ndarray | None:
        """Return `forward.Step.parents`, int32 (R,)."""
        if self.parents is None:
            return None
        rows, beams = self.parents.shape
        return (np.arange(rows)[:, None] * beams + self.parents).reshape(-1).astype("int32")

    @abc.abstractmethod
    def step(
        self,
        token_ids: np.ndarray,
        index: int,
        start: int,
        history_bias: np.ndarray,
        width: int | None,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Feed every beam one token.

        Args:
            token_ids: int32 (B, W), the tokens at position `index`.
            index: Their position, 0 for the start token.
            start: Slot of the buffer for the first beam's keys and values; beam k's is `start + k`.
            history_bias: float32 (B, W, P), 0 at the slots that are a beam's history, its new one
                included; else `masked`.
            width: How many continuations are wanted; None for the logits, in which to choose.

        Returns:
            Log-probabilities, float32, and ids, int32, (B, W, width) each, of the likeliest next
            tokens, best first; fewer of a smaller vocabulary. Or logits, float32 (B, W, V), and None.
        """

    @abc.abstractmethod
    def compact(self, slots: np.ndarray, room: int) -> None:
        """Move the slots (B, P') to the beginning of a buffer with P' + `room` slots."""

    def select_rows(self, rows: np.ndarray) -> None:
        """Go on with these sentences only, whose state is copied."""
        if self.parents is not None:
            self.parents = self.parents[rows]

    def padded_batch_size(self, number: int) -> int:
        """Return the number of sentences, at least `number`, with which a step is computed."""
        return number
