"""Agreement among processes that train together: same settings, same decisions, same errors."""

import contextlib
import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_attention.ops.dispatch import backend_choice
from keras_attention.training import processes
from keras_attention.training.distribution import is_chief, jax_process_count, process_index
from keras_attention.utils.agreed import agreed


def largest_of_all(values: Sequence[float]) -> list[float]:
    """Return the largest of each number over all processes. All of them must call this at the same point."""
    return _gathered(np.asarray(values, "float64")).max(0).tolist()


def chief_says(value: float) -> float:
    """Return the chief's value, in every process: decisions about training must be the same in all of them.

    All processes must call it at the same point. For clocks and signals, which differ between them.
    """
    return float(_gathered(np.asarray(value, "float64"))[0])


def values_of_all(value: Any) -> list[Any]:
    """Return each process's JSON value, in their order. All must call this at the same point."""
    if _process_count() == 1:
        return [value]
    # As JSON: PyTorch's gathering of objects would run what another process sends.
    text = json.dumps(value, default=str).encode()
    size = int(_gathered(np.asarray(len(text), "int32")).max())
    rows = _gathered(np.frombuffer(text.ljust(size), np.uint8))
    return [json.loads(row.tobytes()) for row in rows]


def _process_count() -> int:
    return backend_choice("Training", jax=jax_process_count, default=processes.process_count)()


def _gathered(values: np.ndarray) -> np.ndarray:
    """Return the arrays of all processes, stacked."""
    if _process_count() == 1:
        return values[None]
    return backend_choice("Training", jax=_gathered_on_jax, torch=processes.gathered)(values)


def _gathered_on_jax(values: np.ndarray) -> np.ndarray:
    from jax.experimental import multihost_utils

    narrow = values.astype("float32") if values.dtype == "float64" else values
    return np.asarray(multihost_utils.process_allgather(narrow))


def check_agreement(facts: Mapping[str, Any]) -> None:
    """Raise a ValueError in every process, unless all have the same settings, by name."""
    for name, values, other in _differences(facts):
        error = ValueError(
            f"The processes disagree: `{name}` is {values[0]!r} in process 0 and {values[other]!r} in "
            f"process {other}. Start all of them with the same settings."
        )
        raise agreed(error, is_chief())


def check_same_texts(texts: Mapping[str, Any]) -> None:
    """Raise a ValueError in every process, unless all have the same text of each part.

    They tell each other checksums, not the text. The message names the text and the first pair that differs.
    """
    for name, _, other in _differences({n: text.fingerprint() for n, text in texts.items()}):
        sums = [_checksum("\n".join(pair)) for pair in texts.get(name, ())]
        counts = values_of_all(len(sums))
        first = _first_difference(sums, max(counts))
        what = (
            "The filters differ" if first is None else f"Pair {first:,} is the first that differs"
        )
        error = ValueError(
            f"The {name} text differs: {counts[0]:,} pairs in process 0, {counts[other]:,} in process "
            f"{other}. {what}. Give all processes the same files and filters."
        )
        raise agreed(error, is_chief())


def _differences(facts: Mapping[str, Any]) -> Iterator[tuple[str, list[Any], int]]:
    """Yield what is not the same in all processes: its name, all values, and who differs from process 0."""
    known = values_of_all(dict(facts))
    for name in sorted({name for row in known for name in row}):
        values = [row.get(name) for row in known]
        other = next((i for i, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            yield name, values, other


def _first_difference(sums: Sequence[str], longest: int) -> int | None:
    """Return the number, from 1, of the first entry that is not the same in all processes; None if all are.

    A list of millions is compared in blocks first, so that little is sent.
    """
    size = math.isqrt(longest) + 1
    starts = range(0, longest, size)
    blocks = values_of_all([_checksum("".join(sums[start : start + size])) for start in starts])
    for start, *block in zip(starts, *blocks, strict=True):
        if len({*block}) > 1:
            rows = values_of_all(list(sums[start : start + size]))
            entries = itertools.zip_longest(*rows)
            return next(start + i for i, entry in enumerate(entries, 1) if len({*entry}) > 1)
    return None


def _checksum(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@contextlib.contextmanager
def failing_together() -> Iterator[None]:
    """Within this context, an error in one process is raised in all: none waits for one that has left."""
    failed: Exception | None = None
    try:
        yield
    except Exception as error:
        failed = error
    texts = values_of_all(None if failed is None else f"{type(failed).__name__}: {failed}")
    speaker = next((index for index, text in enumerate(texts) if text is not None), None)
    if speaker is None:
        return
    if failed is None:
        failed = ValueError(f"Process {speaker} could not go on: {texts[speaker]}")
    # Each message is shown once.
    raise agreed(failed, texts.index(texts[process_index()] or texts[speaker]) == process_index())


@contextlib.contextmanager
def chief_first() -> Iterator[None]:
    """Run the block in the chief first, then in the other processes, which find what it has made.

    An error in one process is raised in all.
    """
    for is_chiefs_turn in (True, False):
        with failing_together():
            if is_chief() == is_chiefs_turn:
                yield
