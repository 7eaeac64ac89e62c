"""Runs a spec on a CPU by Numba, whatever the backend, and without any.

A whole search is one compiled call over the arrays of the spec. Small models are held up by how often
Python is asked, large ones by reading the weights: these are stored in float32, bfloat16 or 8-bit
integers, activations are float32.
"""

from __future__ import annotations

import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np

from keras_attention.engine.base import SearchingEngine
from keras_attention.engine.numba import tiles
from keras_attention.engine.numba.attention import FETCHED_AHEAD
from keras_attention.engine.numba.layers import ACTIVATIONS, Model, Room, Stack, Team
from keras_attention.engine.numba.packing import Storage
from keras_attention.engine.numba.search import Books, Found, Rules, Source, search
from keras_attention.engine.prepare import Matrix, Preparation, StackWeights, prepare
from keras_attention.spec import NormSpec, StackSpec, TransformerSpec
from keras_attention.spec.parts import as_array

# Products of two numbers in a step that are worth another thread: a fraction of a millisecond.
PRODUCTS_PER_THREAD = 6_000_000
# In the order of `layers.SELF`, .. and `layers.SELF_NORM`, ..
PRODUCTS = (
    *("self_projection", "self_output", "inner", "outer"),
    *("cross_projection", "cross_output", "memory_projection"),
)
NORMS = ("self_norm", "feed_forward_norm", "cross_norm")

# A search takes all threads: the next one waits for it.
_ONE_SEARCH = threading.Lock()


class NumbaEngine(SearchingEngine):
    """Runs a spec on a CPU, in `"float32"`, `"bfloat16"` or `"int8"`."""

    name = "numba"

    def __init__(self, spec: TransformerSpec, precision: str):
        super().__init__(spec, precision)
        self._storage = Storage(precision)
        self._is_compiled = False

    def read_weights(self) -> None:
        self._arrays: list[Any] = []  # what the tables hold addresses of
        store = Preparation(
            read=as_array,
            table=lambda table: (table, self._stored(Matrix(table.T))),
            matrix=self._stored,
            projection=lambda matrix, widths: self._stored(matrix),
            norm=_norm,
            xp=np,
        )
        weights = prepare(self.spec, store)
        (table, tied), storage = weights.table, self._storage
        self._model = Model(
            encoder=_stack(weights.encoder, self.spec.encoder),
            decoder=_stack(weights.decoder, self.spec.decoder),
            softmax=np.array(weights.softmax or tied, "int64"),
            table=np.ascontiguousarray(table),
            heads=(self.spec.num_heads, self.spec.key_dim, self.spec.value_dim),
            kinds=storage.kinds,
            tiling=storage.tiling,
            kept=storage.kept,
        )

    def _stored(self, matrix: Matrix) -> list[int]:
        depth, width = matrix.kernel.shape
        packed = self._storage.packed(matrix.kernel.T, matrix.bias)
        self._arrays.append(packed)
        return self._storage.product(packed, width, depth)

    def needs_compiling(self, batch_size: int, length: int) -> bool:
        return not self._is_compiled

    def search(
        self,
        token_ids: np.ndarray,
        limits: np.ndarray,
        beam_size: int,
        max_length: int,
        penalties: np.ndarray,
        decisive_slot: int,
    ) -> dict[str, np.ndarray]:
        spec, model, kept = self.spec, self._model, self._storage.kept.dtype
        sentences, length = token_ids.shape
        is_token = token_ids != spec.pad_token_id
        ends = np.concatenate([[0], np.cumsum(is_token.sum(axis=1))]).astype("int64")
        tokens, rows = int(ends[-1]), sentences * beam_size
        searched = np.flatnonzero(limits > 0).astype("int64")
        source = Source(
            ids=token_ids[is_token].astype("int32"),
            places=np.nonzero(is_token)[1].astype("int64"),
            ends=ends,
            positions=spec.positions(spec.encoder, length),
            all_places=np.arange(length + FETCHED_AHEAD, dtype="int64"),
        )
        rules = Rules(
            limits=limits.astype("int64"),
            penalties=penalties,
            decisive_slot=decisive_slot,
            start_token_id=spec.start_token_id,
            end_token_id=spec.end_token_id,
            pad_token_id=spec.pad_token_id,
            positions=spec.positions(spec.decoder, max_length),
        )
        history = np.zeros((2, sentences, beam_size, max_length + FETCHED_AHEAD), "int64")
        history[0, :, :, 0] = np.arange(beam_size)
        width = min(2 * beam_size if beam_size > 1 else 1, spec.vocabulary_size)
        blocks, slots = len(model.decoder.products), max_length * beam_size
        heads, key_dim, value_dim = model.heads
        books = Books(
            sentences=np.concatenate([searched, np.zeros(sentences - len(searched), "int64")]),
            left=np.array([len(searched)]),
            tokens=np.full((sentences, beam_size), spec.start_token_id, "int32"),
            history=history,
            values=np.empty((rows, width), "float32"),
            ids=np.empty((rows, width), "int32"),
            keys=np.empty((blocks, sentences, slots, heads * key_dim), kept),
            kept_values=np.empty((blocks, sentences, slots, heads * value_dim), kept),
            memory=np.empty((blocks, tokens, heads * (key_dim + value_dim)), kept),
            logits=np.empty((rows, spec.vocabulary_size), "float32"),
        )
        found = _nothing_found(sentences, beam_size, max_length, spec.pad_token_id)
        if len(searched):
            with _ONE_SEARCH:
                self._run(self._room(tokens), self._room(rows), source, rules, books, found)
        return found._asdict()

    def _run(self, encoder_room: Room, room: Room, *arguments: Any) -> None:
        """Searches, by as many threads as are worth it."""
        threads = self._threads(len(room.x), len(encoder_room.x)) if self._is_compiled else 1
        barrier = np.zeros(2, "int64")

        def run(thread: int) -> None:
            team = Team(thread, threads, barrier.ctypes.data)
            search(self._model, encoder_room, room, team, *arguments)

        others = [_pool().submit(run, thread) for thread in range(1, threads)]
        run(0)
        for other in others:
            other.result()
        self._is_compiled = True

    def _threads(self, rows: int, tokens: int) -> int:
        decoder = self._model.decoder.products[:, :6, tiles.WIDTH :].prod(axis=2).sum()
        decoder += self._model.softmax[tiles.WIDTH :].prod()
        work = rows * int(decoder) // PRODUCTS_PER_THREAD
        return max(1, min(numba.config.NUMBA_NUM_THREADS, work))

    def _room(self, rows: int) -> Room:
        products = [stack.products for stack in (self._model.encoder, self._model.decoder)]
        widest = max(int(table[:, :, tiles.WIDTH].max()) for table in products)
        deepest = max(int(table[:, :, tiles.DEPTH].max()) for table in products)
        heads, _, value_dim = self._model.heads

        def numbers(width: int) -> np.ndarray:
            return np.empty((rows, width), "float32")

        depth = self.spec.hidden_dim
        return Room(
            x=numbers(depth),
            normed=numbers(depth),
            update=numbers(depth),
            wide=numbers(widest),
            attended=numbers(heads * value_dim),
            packed=self._storage.scratch(rows, deepest),
        )


def _stack(weights: StackWeights, spec: StackSpec) -> Stack:
    """The tables of a stack's blocks."""
    number, depth = len(spec.blocks), spec.blocks[0].self_attention_norm.gamma.shape[0]
    products = np.zeros((number, len(PRODUCTS), len(tiles.PRODUCT)), "int64")
    norms = np.zeros((number, len(NORMS), 2, depth), "float32")
    epsilons = np.zeros((number, len(NORMS)), "float32")
    options = np.zeros((number, 2), "int64")
    for index, (part, block) in enumerate(zip(weights.blocks, spec.blocks, strict=True)):
        for table, names in ((products, PRODUCTS), (norms, NORMS)):
            for place, name in enumerate(names):
                if getattr(part, name) is not None:
                    table[index, place] = getattr(part, name)
        of_norms = (block.self_attention_norm, block.feed_forward_norm, block.cross_attention_norm)
        for place, norm in enumerate(of_norms):
            epsilons[index, place] = 0.0 if norm is None else norm.epsilon
        activation = ACTIVATIONS.index(block.feed_forward.activation)
        options[index] = block.normalize_first, activation
    last = np.zeros((0, 2, depth), "float32") if weights.norm is None else weights.norm[None]
    epsilon = 0.0 if spec.norm is None else spec.norm.epsilon
    return Stack(products, norms, epsilons, options, last, epsilon)


def _norm(norm: NormSpec) -> np.ndarray:
    return np.stack([as_array(norm.gamma), as_array(norm.beta)])


def _nothing_found(sentences: int, beam_size: int, max_length: int, pad_token_id: int) -> Found:
    """One alive hypothesis of each sentence, the empty one, and none finished."""
    scores = np.full((2, sentences, beam_size), -np.inf, "float32")
    scores[0, :, 0] = 0.0
    sequences = np.full((2, sentences, beam_size, max_length), pad_token_id, "int32")
    return Found(sequences[0], scores[0], sequences[1], scores[1])


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """The threads beside the caller's; they sleep until there is work."""
    return ThreadPoolExecutor(max(1, numba.config.NUMBA_NUM_THREADS - 1), "keras_attention")


ENGINE = NumbaEngine
