"""Runs a spec on a CPU by Numba, whatever the backend, and without any.

A whole search is one compiled call over the arrays of the spec. Small models wait for Python, large ones
for their weights: these are stored in float32, bfloat16 or 8-bit integers, activations are float32.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numba
import numpy as np

from keras_attention.engine.base import Beams, SearchingEngine, SearchOptions
from keras_attention.engine.numba import tiles
from keras_attention.engine.numba.attention import PREFETCHED_SLOTS
from keras_attention.engine.numba.choice import choice_of
from keras_attention.engine.numba.compiling import compiled, has_features, is_on_disk
from keras_attention.engine.numba.layers import (
    ACTIVATION,
    ACTIVATIONS,
    CELL,
    PRE_NORM,
    Model,
    Stack,
    Workspace,
)
from keras_attention.engine.numba.packing import NotEightBits, Packing, eight_bit_scales
from keras_attention.engine.numba.search import (
    Rules,
    SearchState,
    Source,
    search,
)
from keras_attention.engine.numba.threads import ThreadGroup
from keras_attention.engine.prepare import (
    Matrix,
    Preparation,
    StackWeights,
    prepare,
)
from keras_attention.spec import NormSpec, SSRUSpec, StackSpec, TransformerSpec
from keras_attention.spec.parts import as_array

# Ctrl-C is answered within this time.
ANSWER_SECONDS = 0.5
# Instructions' worth of multiplications in a step that pay for another thread: a fraction of a millisecond.
WORK_PER_THREAD = 6_000_000
# A decoder of at most this size is read from the last cache.
CACHED_BYTES = 16 << 20
# If the decoder is read from memory: rows from which on a thread computes for longer than it reads.
ROWS_PER_GROUP = 24
# In the order of `layers.SELF`, .. and `layers.SELF_NORM`, ..
MATRICES = (
    *("self_projection", "self_output", "inner", "outer"),
    *("cross_projection", "cross_output", "memory_projection"),
)
NORMS = ("self_norm", "feed_forward_norm", "cross_norm")


class Weights(NamedTuple):
    """A model as compiled code reads it, and the arrays that its tables hold addresses of."""

    model: Model
    arrays: list[Any]
    of_step: int  # how many weights a step of the decoder reads
    packing: Packing
    widest: int  # the most columns of a matrix
    deepest: int  # and rows

    @property
    def are_cached(self) -> bool:
        """Whether a step of the decoder finds its weights in the last cache."""
        return self.of_step * self.packing.layout.weights.itemsize <= CACHED_BYTES


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
        table = as_array(self.spec.output_embedding.embeddings)
        if self.precision == "float32" and eight_bit_scales(table) is not None:
            # Perhaps the model came with 8 bits. A step then reads a fourth of the memory, which takes most
            # of its time, and computes the products of float32.
            with contextlib.suppress(NotEightBits):
                self._pack_weights(Packing("float32", stored="int8"))
                return
        self._pack_weights(Packing(self.precision))

    def _pack_weights(self, packing: Packing) -> None:
        arrays: list[Any] = []

        def packed(matrix: Matrix) -> list[int]:
            depth, width = matrix.kernel.shape
            arrays.append(packing.pack_weight(matrix.kernel.T, matrix.bias))
            return packing.matrix(arrays[-1], width, depth)

        store = Preparation(
            read=as_array,
            table=_read_only,
            softmax=lambda table, kernel, bias: packed(
                Matrix(table.T if kernel is None else kernel, bias)
            ),
            matrix=packed,
            norm=_norm,
            xp=np,
        )
        prepared = prepare(self.spec, store)
        heads = (self.spec.num_heads, self.spec.key_dim, self.spec.value_dim)
        model = Model(
            encoder=_stack(prepared.encoder, self.spec.encoder),
            decoder=_stack(prepared.decoder, self.spec.decoder),
            softmax=np.array(prepared.softmax, "int64"),
            source=prepared.target if prepared.source is None else prepared.source,
            target=prepared.target,
            heads=heads,
            layout=packing.layout,
        )
        stack = model.decoder
        tables = (stack.matrices[:, :6], model.softmax)
        of_step = sum(int(table[..., tiles.WIDTH :].prod(axis=-1).sum()) for table in tables)
        stacks = (model.encoder, model.decoder)
        most = (
            max(int(stack.matrices[:, :, side].max()) for stack in stacks)
            for side in (tiles.WIDTH, tiles.DEPTH)
        )
        weights = Weights(model, arrays, of_step, packing, *most)
        # Processors without AVX-512 read the last cache faster if nothing is prefetched from it.
        layout = packing.layout._replace(
            prefetches=has_features("avx512f") or not weights.are_cached
        )
        # Assigned at once: another thread may be searching with the weights that were read before.
        self.weights = weights._replace(model=model._replace(layout=layout))

    def as_tensor(self, array: np.ndarray) -> np.ndarray:
        return _read_only(array)

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
            encoder, decoder, *rest = self.arguments(
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
        searches = [self.arguments(weights, token_ids, limits, options, part) for part in parts]
        slots = max(token_ids.shape[1], max_length)
        self.run(self.program(weights), weights, searches, (threads, slots), made)
        found = _no_hypotheses(len(token_ids), beam_size, max_length, self.spec.pad_token_id)
        for part, arguments in zip(parts, searches, strict=True):
            for whole, own in zip(found, arguments[-1], strict=True):
                whole[part] = own
        return found

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

    def arguments(
        self,
        weights: Weights,
        token_ids: np.ndarray,
        limits: np.ndarray,
        options: SearchOptions,
        part: slice,
    ) -> tuple[Any, ...]:
        """Return what the compiled search of some sentences takes, but for model and thread group."""
        beam_size, max_length, _, penalties, decisive_slot, rules, draws = options
        spec, model = self.spec, weights.model
        token_ids, limits = token_ids[part], limits[part]
        sentences, length = token_ids.shape
        is_token = token_ids != spec.pad_token_id
        bounds = np.concatenate([[0], np.cumsum(is_token.sum(axis=1))]).astype("int64")
        tokens, rows = int(bounds[-1]), sentences * beam_size
        searched = np.flatnonzero(limits > 0).astype("int64")
        source = Source(
            ids=token_ids[is_token].astype("int32"),
            token_positions=np.nonzero(is_token)[1].astype("int64"),
            bounds=bounds,
            positions=self.positions("encoder", length),
            slots=np.arange(length + PREFETCHED_SLOTS, dtype="int64"),
        )
        choice = choice_of(rules, draws, spec.end_token_id, part)
        how = Rules(
            limits=limits.astype("int64"),
            penalties=np.array(penalties, "float32"),
            decisive_slot=decisive_slot,
            end_token_id=spec.end_token_id,
            pad_token_id=spec.pad_token_id,
            positions=self.positions("decoder", max_length),
            choice=choice,
        )
        history = np.zeros((2, sentences, beam_size, max_length + PREFETCHED_SLOTS), "int64")
        history[0, :, :, 0] = np.arange(beam_size)
        candidates = 2 * beam_size if beam_size > 1 else 1
        width = min(candidates, spec.target_vocabulary_size)
        candidates = min(candidates, beam_size * width)
        blocks, is_cell = len(model.decoder.matrices), model.decoder.options[:, CELL] == 1
        slots = 0 if is_cell.all() else max_length * beam_size
        cache = (blocks, sentences, slots)
        (heads, key_dim, value_dim), kv = model.heads, model.layout.kv.dtype
        state = SearchState(
            sentences=np.concatenate([searched, np.zeros(sentences - len(searched), "int64")]),
            active=np.array([len(searched)]),
            tokens=np.full((sentences, beam_size), spec.start_token_id, "int32"),
            history=history,
            keys=np.empty((*cache, heads * key_dim), kv),
            values=np.empty((*cache, heads * value_dim), kv),
            cells=np.zeros((2, blocks * is_cell.any(), rows, spec.hidden_dim), "float32"),
            memory=np.empty((blocks, tokens, heads * (key_dim + value_dim)), kv),
            logits=np.empty((rows, spec.target_vocabulary_size), "float32"),
            weights=np.empty(
                (0 if choice.is_plain else rows, spec.target_vocabulary_size), "float32"
            ),
            log_probs=np.empty((rows, width), "float32"),
            ids=np.empty((rows, width), "int32"),
            scores=np.empty((sentences, candidates), "float32"),
            chosen=np.empty((sentences, candidates), "int64"),
            previous=np.empty((sentences, beam_size, max_length), "int32"),
        )
        found = _no_hypotheses(sentences, beam_size, max_length, spec.pad_token_id)
        workspaces = (self.workspace(weights, number) for number in (tokens, rows))
        return *workspaces, source, how, state, found

    def workspace(self, weights: Weights, rows: int) -> Workspace:
        heads, _, value_dim = weights.model.heads
        depth = self.spec.hidden_dim
        widths = (depth, depth, depth, weights.widest, heads * value_dim)
        arrays = (np.empty((rows, width), "float32") for width in widths)
        return Workspace._make([*arrays, weights.packing.workspace(rows, weights.deepest)])

    def run(
        self,
        program: Any,
        weights: Weights,
        searches: Sequence[tuple[Any, ...]],
        size: tuple[int, int],
        made: Callable[[int], None] | None = None,
    ) -> None:
        """Run searches at once.

        Each is run by a group of so many threads, and an attention reads at most so many slots: `size`.

        The caller's thread waits: Python answers Ctrl-C in its first thread only, and not within
        compiled code.
        """
        threads, slots = size
        barriers, stop = np.zeros((len(searches), 2), "int64"), np.zeros(1, "int64")
        scores = np.empty((len(searches), threads, slots), "float32")

        def arguments(group: int, rank: int) -> tuple[Any, ...]:
            encoder_workspace, workspace, *rest = searches[group]
            shared = (barriers[group].ctypes.data, stop.ctypes.data)
            member = ThreadGroup(rank, threads, *shared, scores[group, rank])
            return weights.model, encoder_workspace, workspace, member, *rest

        if made is not None:
            made(0)

        def run() -> None:
            pool = _pool(os.getpid())
            first, *others = itertools.product(range(len(searches)), range(threads))
            running = [pool.submit(program, *arguments(*member)) for member in others]
            program(*arguments(*first))
            for one in running:
                one.result()

        leader = _leader(os.getpid())
        try:
            searching = leader.submit(run)
            while not searching.done():
                # A signal that another thread received does not wake this one: the timeout does.
                with contextlib.suppress(TimeoutError):
                    searching.result(timeout=ANSWER_SECONDS)
                if made is not None:
                    made(max(_longest(one[-1], self.spec.pad_token_id) for one in searches))
            searching.result()
        except BaseException:
            stop[0] = 1
            leader.submit(int).result()  # Its turn comes when no thread reads the arrays.
            raise


def _read_only(array: np.ndarray) -> np.ndarray:
    """Return a read-only view: Numba has another type for it, and the search is compiled for one type."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _stack(weights: StackWeights, spec: StackSpec) -> Stack:
    count, depth = len(spec.blocks), spec.blocks[0].self_attention_norm.gamma.shape[0]
    matrices = np.zeros((count, len(MATRICES), len(tiles.MATRIX)), "int64")
    norms = np.zeros((count, len(NORMS), 3, depth), "float32")
    epsilons = np.zeros((count, len(NORMS)), "float32")
    options = np.zeros((count, 3), "int64")
    for index, (part, block) in enumerate(zip(weights.blocks, spec.blocks, strict=True)):
        for table, names in ((matrices, MATRICES), (norms, NORMS)):
            for column, name in enumerate(names):
                stored = getattr(part, name)
                if stored is not None:
                    table[index, column] = stored
        block_norms = (
            block.self_attention_norm,
            block.feed_forward_norm,
            block.cross_attention_norm,
        )
        epsilons[index] = [0.0 if norm is None else norm.epsilon for norm in block_norms]
        activation = ACTIVATIONS.index(block.feed_forward.activation)
        options[index, PRE_NORM], options[index, ACTIVATION] = block.normalize_first, activation
        options[index, CELL] = isinstance(block.self_attention, SSRUSpec)
    last = np.zeros((0, 3, depth), "float32") if weights.norm is None else weights.norm[None]
    epsilon = 0.0 if spec.norm is None else spec.norm.epsilon
    return Stack(matrices, norms, epsilons, options, last, epsilon)


def _norm(norm: NormSpec) -> np.ndarray:
    gamma, is_rms = as_array(norm.gamma), norm.beta is None
    beta = np.zeros_like(gamma) if is_rms else as_array(norm.beta)
    return np.stack([gamma, beta, np.full_like(gamma, 0.0 if is_rms else 1.0)])


def _no_hypotheses(sentences: int, beam_size: int, max_length: int, pad_token_id: int) -> Beams:
    """Return one alive hypothesis of each sentence, the empty one, and none finished."""
    scores = np.full((2, sentences, beam_size), -np.inf, "float32")
    scores[0, :, 0] = 0.0
    sequences = np.full((2, sentences, beam_size, max_length), pad_token_id, "int32")
    return Beams(sequences[0], scores[0], sequences[1], scores[1])


def _longest(found: Beams, pad_token_id: int) -> int:
    """Return how many tokens the best hypotheses have at most, also while they grow."""
    is_token = found.alive_sequences[:, 0] != pad_token_id
    return int(is_token.sum(axis=-1).max(initial=0))


@functools.cache
def _leader(process: int) -> ThreadPoolExecutor:
    """Return the thread of a process that starts searches, one after the other: each takes all threads.

    A forked process inherits no threads and makes its own.
    """
    return ThreadPoolExecutor(1, "keras_attention")


@functools.cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Return the threads beside the leader; they sleep until there is work."""
    return ThreadPoolExecutor(max(1, numba.config.NUMBA_NUM_THREADS - 1), "keras_attention")


ENGINE = NumbaEngine
