"""Runs a spec on a CPU by Numba, whatever the backend, and without any.

A whole search is one compiled call over the arrays of the spec. Small models are held up by how often
Python is asked, large ones by reading the weights: these are stored in float32, bfloat16 or 8-bit
integers, activations are float32.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numba
import numpy as np

from keras_attention.engine.base import SearchingEngine, SearchOptions
from keras_attention.engine.numba import tiles
from keras_attention.engine.numba.attention import FETCHED_AHEAD
from keras_attention.engine.numba.layers import ACTIVATIONS, BRANCHED, Model, Room, Stack, Team
from keras_attention.engine.numba.packing import Storage
from keras_attention.engine.numba.search import Books, Found, Rules, Source, search
from keras_attention.engine.prepare import (
    BranchWeights,
    Matrix,
    Preparation,
    StackWeights,
    prepare,
)
from keras_attention.spec import NormSpec, StackSpec, TransformerSpec
from keras_attention.spec.parts import as_array

# In which Ctrl-C is answered at the latest.
ANSWER_SECONDS = 0.5
# Products of two numbers in a step that are worth another thread: a fraction of a millisecond.
PRODUCTS_PER_THREAD = 6_000_000
# Weights that a step reads from the cache.
CACHED_BYTES = 16 << 20
# Where they come from memory: rows from which on a thread computes for longer than it reads.
ROWS_OF_A_TEAM = 24
# Of each size the last so many times count, and each so many searches a size that was slower is tried again.
TRIES, AGAIN = 5, 50
Size = tuple[int, int]
# In the order of `layers.SELF`, .. and `layers.SELF_NORM`, ..
PRODUCTS = (
    *("self_projection", "self_output", "inner", "outer"),
    *("cross_projection", "cross_output", "memory_projection"),
)
NORMS = ("self_norm", "feed_forward_norm", "cross_norm")


class NumbaEngine(SearchingEngine):
    """Runs a spec on a CPU, in `"float32"`, `"bfloat16"` or `"int8"`."""

    name = "numba"

    def __init__(self, spec: TransformerSpec, precision: str):
        super().__init__(spec, precision)
        self._storage = Storage(precision)
        self._is_compiled = False
        self._known_sizes: dict[tuple[int, int, int], TeamSizes] = {}

    def read_weights(self) -> None:
        self._positions.clear()
        arrays: list[Any] = []

        def stored(matrix: Matrix) -> list[int]:
            depth, width = matrix.kernel.shape
            arrays.append(self._storage.packed(matrix.kernel.T, matrix.bias))
            return self._storage.product(arrays[-1], width, depth)

        store = Preparation(
            read=as_array,
            table=lambda table: (table, stored(Matrix(table.T))),
            matrix=stored,
            norm=_norm,
            xp=np,
        )
        weights = prepare(self.spec, store)
        (table, tied), storage = weights.table, self._storage
        model = Model(
            encoder=_stack(weights.encoder, self.spec.encoder),
            decoder=_stack(weights.decoder, self.spec.decoder),
            softmax=np.array(weights.softmax or tied, "int64"),
            table=_read_only(table),
            heads=(self.spec.num_heads, self.spec.key_dim, self.spec.value_dim),
            kinds=storage.kinds,
            tiling=storage.tiling,
            kept=storage.kept,
        )
        # Together: a search of another thread may be under way with those that were read before.
        self._weights = Weights(model, arrays)

    def as_tensor(self, array: np.ndarray) -> np.ndarray:
        return _read_only(array)

    def needs_compiling(self, batch_size: int, length: int) -> bool:
        return not self._is_compiled

    def search(
        self, token_ids: np.ndarray, limits: np.ndarray, options: SearchOptions
    ) -> dict[str, np.ndarray]:
        beam_size, max_length = options.beam_size, options.max_length
        self.check_ids(token_ids)
        weights = self._weights
        sizes = self._sizes(len(token_ids), beam_size)
        teams, threads = sizes.next()
        # Batches come longest first: each team gets long ones and short ones.
        parts = [slice(team, None, teams) for team in range(teams)]
        searches = [
            self._arguments(weights.model, token_ids[part], limits[part], options) for part in parts
        ]
        seconds = self._run(weights, searches, threads, max(token_ids.shape[1], max_length))
        work = sum(
            len(source.ids) + beam_size * int(books.steps[0])
            for *_, source, _, books, _ in searches
        )
        if work:  # not only padding
            sizes.took((teams, threads), seconds / work)
        found = _nothing_found(len(token_ids), beam_size, max_length, self.spec.pad_token_id)
        for part, arguments in zip(parts, searches, strict=True):
            for whole, own in zip(found, arguments[-1], strict=True):
                whole[part] = own
        return found._asdict()

    def _sizes(self, sentences: int, beam_size: int) -> TeamSizes:
        """How many teams search some of the sentences each, and the threads of a team.

        Teams do not wait for each other, threads of a team do many times in a step. But each team reads
        all weights. What is guessed here is corrected by what searches take.
        """
        most = numba.config.NUMBA_NUM_THREADS if self._is_compiled else 1
        if sentences > most:  # about as many are alike
            sentences = max(most, 1 << sentences.bit_length() - 1)
        key = (sentences, beam_size, most)
        if key in self._known_sizes:
            return self._known_sizes[key]
        model = self._weights.model
        stack, softmax = model.decoder, model.softmax
        of_a_step = (stack.products[:, :6], stack.branches, softmax)
        products = sum(int(table[..., tiles.WIDTH :].prod(axis=-1).sum()) for table in of_a_step)
        is_cached = products * self._storage.kinds.weights.itemsize <= CACHED_BYTES
        least = 1 if is_cached else -(-ROWS_OF_A_TEAM // beam_size)
        teams = max(1, min(most, sentences // least))
        work = sentences * beam_size * products // (teams * PRODUCTS_PER_THREAD)
        first = (teams, max(1, min(most // teams, work)))
        return self._known_sizes.setdefault(key, TeamSizes(first, (min(most, sentences), most)))

    def _arguments(
        self, model: Model, token_ids: np.ndarray, limits: np.ndarray, options: SearchOptions
    ) -> tuple[Any, ...]:
        """What the compiled search of some sentences takes, but for model and team."""
        beam_size, max_length, penalties, decisive_slot = options
        spec = self.spec
        sentences, length = token_ids.shape
        is_token = token_ids != spec.pad_token_id
        ends = np.concatenate([[0], np.cumsum(is_token.sum(axis=1))]).astype("int64")
        tokens, rows = int(ends[-1]), sentences * beam_size
        searched = np.flatnonzero(limits > 0).astype("int64")
        source = Source(
            ids=token_ids[is_token].astype("int32"),
            places=np.nonzero(is_token)[1].astype("int64"),
            ends=ends,
            positions=self.positions("encoder", length),
            all_places=np.arange(length + FETCHED_AHEAD, dtype="int64"),
        )
        rules = Rules(
            limits=limits.astype("int64"),
            penalties=penalties,
            decisive_slot=decisive_slot,
            end_token_id=spec.end_token_id,
            pad_token_id=spec.pad_token_id,
            positions=self.positions("decoder", max_length),
        )
        history = np.zeros((2, sentences, beam_size, max_length + FETCHED_AHEAD), "int64")
        history[0, :, :, 0] = np.arange(beam_size)
        candidates = 2 * beam_size if beam_size > 1 else 1
        width = min(candidates, spec.vocabulary_size)
        candidates = min(candidates, beam_size * width)
        blocks, slots = len(model.decoder.products), max_length * beam_size
        (heads, key_dim, value_dim), kept = model.heads, self._storage.kept.dtype
        books = Books(
            sentences=np.concatenate([searched, np.zeros(sentences - len(searched), "int64")]),
            left=np.array([len(searched)]),
            steps=np.zeros(1, "int64"),
            tokens=np.full((sentences, beam_size), spec.start_token_id, "int32"),
            history=history,
            values=np.empty((rows, width), "float32"),
            ids=np.empty((rows, width), "int32"),
            keys=np.empty((blocks, sentences, slots, heads * key_dim), kept),
            kept_values=np.empty((blocks, sentences, slots, heads * value_dim), kept),
            memory=np.empty((blocks, tokens, heads * (key_dim + value_dim)), kept),
            logits=np.empty((rows, spec.vocabulary_size), "float32"),
            scores=np.empty((sentences, candidates), "float32"),
            chosen=np.empty((sentences, candidates), "int64"),
            before=np.empty((sentences, beam_size, max_length), "int32"),
        )
        found = _nothing_found(sentences, beam_size, max_length, spec.pad_token_id)
        return self._room(model, tokens), self._room(model, rows), source, rules, books, found

    def _run(
        self, weights: Weights, searches: Sequence[tuple[Any, ...]], threads: int, places: int
    ) -> float:
        """Makes searches at once, each by a team of so many threads, while the caller's waits.

        An attention sees at most so many places. Returns the seconds that it took.

        Python answers Ctrl-C in its first thread only, and not within compiled code.
        """
        barriers, stop = np.zeros((len(searches), 2), "int64"), np.zeros(1, "int64")
        of_places = np.empty((len(searches), threads, places), "float32")

        def arguments_of(team: int, thread: int) -> tuple[Any, ...]:
            encoder_room, room, *rest = searches[team]
            shared = (barriers[team].ctypes.data, stop.ctypes.data)
            member = Team(thread, threads, *shared, of_places[team, thread].ctypes.data)
            return weights.model, encoder_room, room, member, *rest

        def run() -> float:
            started, pool = time.perf_counter(), _pool(os.getpid())
            first, *others = itertools.product(range(len(searches)), range(threads))
            running = [pool.submit(search, *arguments_of(*member)) for member in others]
            search(*arguments_of(*first))
            for one in running:
                one.result()
            return time.perf_counter() - started

        if not self._is_compiled:
            search.compile(tuple(map(numba.typeof, arguments_of(0, 0))))
            self._is_compiled = True
        leader = _leader(os.getpid())
        try:
            searching = leader.submit(run)
            while not searching.done():
                # A signal that another thread received does not wake this one: time does.
                with contextlib.suppress(TimeoutError):
                    searching.result(timeout=ANSWER_SECONDS)
            return searching.result()
        except BaseException:
            stop[0] = 1
            leader.submit(int).result()  # Its turn comes when nobody reads the arrays.
            raise

    def _room(self, model: Model, rows: int) -> Room:
        stacks = (model.encoder, model.decoder)
        products = [table for stack in stacks for table in (stack.products, stack.branches)]
        widest = max(int(table[:, :, tiles.WIDTH].max()) for table in products)
        deepest = max(int(table[:, :, tiles.DEPTH].max()) for table in products)
        heads, _, value_dim = model.heads

        def numbers(width: int) -> np.ndarray:
            return np.empty((rows, width), "float32")

        depth = self.spec.hidden_dim
        return Room(
            x=numbers(depth),
            normed=numbers(depth),
            update=numbers(depth),
            wide=numbers(widest),
            attended=numbers(heads * value_dim),
            hidden=numbers(deepest),  # a plain model touches none of it
            packed=self._storage.scratch(rows, deepest),
        )


class Weights(NamedTuple):
    """A model as compiled code reads it, and the arrays that its tables hold addresses of."""

    model: Model
    arrays: list[Any]


class TeamSizes:
    """How many teams of how many threads search batches of a size: what took the least time, found by trying.

    It depends on the processor how long threads that work together wait for each other's numbers, and for
    how many rows a team must read all weights. The translations do not depend on it.

    Args:
        first: Teams and threads of each to begin with.
        most: Largest number of teams, and of all their threads.
    """

    def __init__(self, first: Size, most: tuple[int, int]):
        self._best = first
        self._most = most
        # Replaced, never changed: several threads may search with one engine.
        self._seconds: dict[Size, tuple[float, ...]] = {}
        self._searches = 0

    def next(self) -> Size:
        """Teams and threads for the next search: the best ones, after those near it have been tried."""
        self._searches += 1
        near = list(self._near(*self._best))
        for size in (self._best, *near):
            if len(self._seconds.get(size, ())) < TRIES:
                return size
        turn, rest = divmod(self._searches, AGAIN)
        return near[turn % len(near)] if near and not rest else self._best

    def took(self, size: Size, seconds: float) -> None:
        """Enters the time of a search by its size, per unit of work."""
        times = (*self._seconds.get(size, ()), seconds)[-TRIES:]
        self._seconds = {**self._seconds, size: times}
        known = {
            size: statistics.median(times)
            for size, times in self._seconds.items()
            if len(times) == TRIES
        }
        if known:
            self._best = min(known, key=known.__getitem__)

    def _near(self, teams: int, threads: int) -> Iterator[Size]:
        """Half or twice the threads, or teams with twice or half the threads each."""
        sizes = (
            (teams, threads // 2),
            (teams, threads * 2),
            (teams * 2, max(1, threads // 2)),
            (teams // 2, threads * 2),
        )
        most_teams, most_threads = self._most
        for size in dict.fromkeys(sizes):
            if 0 < size[0] <= most_teams and 0 < size[0] * size[1] <= most_threads:
                yield size


def _read_only(array: np.ndarray) -> np.ndarray:
    """As arrays of JAX are: to Numba others are of another type, and it would compile again."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _stack(weights: StackWeights, spec: StackSpec) -> Stack:
    """The tables of a stack's blocks."""
    number, depth = len(spec.blocks), spec.blocks[0].self_attention_norm.gamma.shape[0]
    products = np.zeros((number, len(PRODUCTS), len(tiles.PRODUCT)), "int64")
    norms = np.zeros((number, len(NORMS), 2, depth), "float32")
    epsilons = np.zeros((number, len(NORMS)), "float32")
    options = np.full((number, 3), -1, "int64")
    heads = spec.blocks[0].self_attention.query.kernel.shape[1]
    branches = np.zeros((number, heads, len(tiles.PRODUCT)), "int64")
    alphas = np.ones((number, heads), "float32")
    for index, (part, block) in enumerate(zip(weights.blocks, spec.blocks, strict=True)):
        for table, names in ((products, PRODUCTS), (norms, NORMS)):
            for place, name in enumerate(names):
                stored = getattr(part, name)
                if isinstance(stored, BranchWeights):
                    branches[index], options[index, BRANCHED] = stored.inner, place
                    alphas[index] = 1.0 if stored.alpha is None else stored.alpha[:, 0]
                    stored = stored.outer
                if stored is not None:
                    table[index, place] = stored
        of_norms = (block.self_attention_norm, block.feed_forward_norm, block.cross_attention_norm)
        for place, norm in enumerate(of_norms):
            epsilons[index, place] = 0.0 if norm is None else norm.epsilon
        activation = ACTIVATIONS.index(block.networks[0].activation)
        options[index, :BRANCHED] = block.normalize_first, activation
    last = np.zeros((0, 2, depth), "float32") if weights.norm is None else weights.norm[None]
    epsilon = 0.0 if spec.norm is None else spec.norm.epsilon
    return Stack(products, norms, epsilons, options, branches, alphas, last, epsilon)


def _norm(norm: NormSpec) -> np.ndarray:
    return np.stack([as_array(norm.gamma), as_array(norm.beta)])


def _nothing_found(sentences: int, beam_size: int, max_length: int, pad_token_id: int) -> Found:
    """One alive hypothesis of each sentence, the empty one, and none finished."""
    scores = np.full((2, sentences, beam_size), -np.inf, "float32")
    scores[0, :, 0] = 0.0
    sequences = np.full((2, sentences, beam_size, max_length), pad_token_id, "int32")
    return Found(sequences[0], scores[0], sequences[1], scores[1])


@functools.cache
def _leader(process: int) -> ThreadPoolExecutor:
    """A process' thread that begins searches, one after the other: each takes all threads.

    A process that was forked inherits none: it makes its own.
    """
    return ThreadPoolExecutor(1, "keras_attention")


@functools.cache
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads beside the leader; they sleep until there is work."""
    return ThreadPoolExecutor(max(1, numba.config.NUMBA_NUM_THREADS - 1), "keras_attention")


ENGINE = NumbaEngine
