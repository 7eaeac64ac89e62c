"""A spec's weights as compiled code reads them: packed matrices, and tables of their addresses."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import numpy as np

from keras_attention.engine.numba import tiles
from keras_attention.engine.numba.compiling import has_features
from keras_attention.engine.numba.layers import (
    ACTIVATION,
    ACTIVATIONS,
    CELL,
    PRE_NORM,
    Model,
    Stack,
)
from keras_attention.engine.numba.packing import NotEightBits, Packing, eight_bit_scales
from keras_attention.engine.prepare import Matrix, StackWeights, prepare
from keras_attention.spec import NormSpec, SSRUSpec, StackSpec, TransformerSpec
from keras_attention.spec.parts import as_array

# A decoder of at most this size is read from the last cache.
CACHED_BYTES = 16 << 20
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
    are_cached: bool  # whether a step of the decoder finds its weights in the last cache


def read_weights(spec: TransformerSpec, precision: str) -> Weights:
    """Return the present weights of a spec for a precision of the engine."""
    table = as_array(spec.output_embedding.embeddings)
    if precision == "float32" and eight_bit_scales(table) is not None:
        # Perhaps the model came with 8 bits. A step then reads a fourth of the memory, which takes most
        # of its time, and computes the products of float32.
        with contextlib.suppress(NotEightBits):
            return packed_weights(spec, Packing("float32", stored="int8"))
    return packed_weights(spec, Packing(precision))


def packed_weights(spec: TransformerSpec, packing: Packing) -> Weights:
    """Return the present weights of a spec."""
    store = _Packed(packing)
    prepared = prepare(spec, store)
    model = Model(
        encoder=_stack(prepared.encoder, spec.encoder),
        decoder=_stack(prepared.decoder, spec.decoder),
        softmax=np.array(prepared.softmax, "int64"),
        source=prepared.target if prepared.source is None else prepared.source,
        target=prepared.target,
        heads=(spec.num_heads, spec.key_dim, spec.value_dim),
        layout=packing.layout,
    )
    stack = model.decoder
    tables = (stack.matrices[:, :6], model.softmax)
    of_step = sum(int(table[..., tiles.WIDTH :].prod(axis=-1).sum()) for table in tables)
    stacks = (model.encoder, model.decoder)
    widest, deepest = (
        max(int(stack.matrices[:, :, side].max()) for stack in stacks)
        for side in (tiles.WIDTH, tiles.DEPTH)
    )
    are_cached = of_step * packing.layout.weights.itemsize <= CACHED_BYTES
    # Processors without AVX-512 read the last cache faster if nothing is prefetched from it.
    layout = packing.layout._replace(prefetches=has_features("avx512f") or not are_cached)
    model = model._replace(layout=layout)
    return Weights(model, store.arrays, of_step, packing, widest, deepest, are_cached)


class _Packed:
    """Stores weights for `prepare`: a matrix as its numbers in a table, of `arrays` that are kept."""

    ops = np
    read = staticmethod(as_array)

    def __init__(self, packing: Packing):
        self.arrays: list[Any] = []
        self._packing = packing

    def prepare_table(self, table: np.ndarray) -> np.ndarray:
        return read_only(table)

    def prepare_softmax(self, table: np.ndarray, kernel: Any, bias: Any) -> list[int]:
        return self.prepare_matrix(Matrix(table.T if kernel is None else kernel, bias))

    def prepare_matrix(self, matrix: Matrix) -> list[int]:
        depth, width = matrix.kernel.shape
        self.arrays.append(self._packing.pack_weight(matrix.kernel.T, matrix.bias))
        return self._packing.matrix(self.arrays[-1], width, depth)

    def prepare_norm(self, norm: NormSpec) -> np.ndarray:
        gamma, is_rms = as_array(norm.gamma), norm.beta is None
        beta = np.zeros_like(gamma) if is_rms else as_array(norm.beta)
        return np.stack([gamma, beta, np.full_like(gamma, 0.0 if is_rms else 1.0)])


def read_only(array: np.ndarray) -> np.ndarray:
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
    first, last = (
        np.zeros((0, 3, depth), "float32") if each is None else each[None]
        for each in (weights.embedding_norm, weights.norm)
    )
    outer_epsilons = [norm.epsilon if norm else 0.0 for norm in (spec.embedding_norm, spec.norm)]
    return Stack(
        matrices, norms, epsilons, options, first, last, np.array(outer_epsilons, "float32")
    )
