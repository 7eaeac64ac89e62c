"""The largest entries of long rows."""

from typing import Any

from keras import ops

# Rows shorter than this are not worth two passes.
SHORTEST_ROW = 1024
BEST_CHUNK = 64


def top_k(values: Any, k: int) -> tuple[Any, Any]:
    """`ops.top_k` over the last axis of (R, V), with int32 places; a CPU finds it faster in two passes.

    The k largest entries are in the k chunks with the largest maxima. To find those, a row is read
    once; what is sorted is short. Ties go to the lower place (PyTorch leaves their order open).
    """
    size = chunk_size(values.shape[-1], k)
    if size is None:
        best, places = ops.top_k(values, k)
        return best, ops.cast(places, "int32")
    num_chunks = values.shape[-1] // size
    chunks = ops.reshape(values, (-1, num_chunks, size))
    # In the order of their places: ties must not see which chunk had the larger maximum.
    chosen = ops.sort(ops.cast(ops.top_k(ops.max(chunks, axis=-1), k)[1], "int32"), axis=-1)
    row_starts = ops.arange(ops.shape(values)[0], dtype="int32")[:, None] * num_chunks
    kept = ops.take(ops.reshape(values, (-1, size)), row_starts + chosen, axis=0)
    best, among = ops.top_k(ops.reshape(kept, (-1, k * size)), k)
    among = ops.cast(among, "int32")
    chunk = ops.take_along_axis(chosen, ops.floor_divide(among, size), axis=1)
    return best, chunk * size + ops.mod(among, size)


def chunk_size(length: int, k: int) -> int | None:
    """Return a divisor of `length` near 64, or None where one pass is as good."""
    if length < SHORTEST_ROW or k * BEST_CHUNK * 2 > length:
        return None
    divisors = [size for size in range(BEST_CHUNK // 4, BEST_CHUNK * 4 + 1) if length % size == 0]
    return min(divisors, key=lambda size: abs(size - BEST_CHUNK), default=None)
