"""An update on the largest batch: if memory is too small, it fails now and not after hours."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attention.training.distribution import accelerator_peak_bytes, has_accelerator

STATISTICS = Path("/proc/self/statm")  # Linux; its second number is the pages in memory
OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "ResourceExhausted", "OutOfMemory", "out of memory", "OOM")
FLOPS_WITHOUT_ACCELERATOR = 5e11  # some ten seconds on two CPU cores


@dataclasses.dataclass(frozen=True)
class StepProbe:
    """What an update takes: seconds until it is compiled, and of the next one; peak memory.

    The memory is that of the accelerator or, without one, of the process, as `device` says; None if unknown.
    """

    first_seconds: float
    seconds: float
    peak_bytes: int | None
    device: str

    def __str__(self) -> str:
        memory = "unknown" if self.peak_bytes is None else f"{self.peak_bytes / 2**30:.2f} GiB"
        return (
            f"{self.seconds:.2f} s per update ({self.first_seconds:.1f} s the first time); at most {memory} "
            f"of the {self.device}'s memory"
        )


def worth_trying(flops: float) -> bool:
    """Whether an update takes only seconds: on an accelerator, or a small one."""
    return has_accelerator() or flops < FLOPS_WITHOUT_ACCELERATOR


def probe_step(model: keras.Model, rows: int, source_length: int, target_length: int) -> StepProbe:
    """Train a compiled translation model for a few updates on random sentences that fill a batch (B, S, T).

    The updates change the model, so do not pass one that you want to keep. A MemoryError says that none fits.
    """
    random = np.random.default_rng(0)
    source = random.integers(3, model.vocabulary_size, (rows, source_length), "int32")
    target = random.integers(3, model.target_vocabulary_size, (rows, target_length), "int32")
    inputs = {"encoder_token_ids": source, "decoder_token_ids": target}
    seconds = []
    with _ProcessMemory() as process:
        for _ in range(getattr(model, "slow_batches", 1) + 1):
            started = time.perf_counter()
            try:
                model.train_on_batch(inputs, target)  # returns numbers: it waits for the device
            except Exception as error:
                _explain(error, (rows, source_length, target_length))
                raise
            seconds.append(time.perf_counter() - started)
    *first, last = seconds
    on_device = accelerator_peak_bytes() if has_accelerator() else None
    if on_device is not None:
        return StepProbe(sum(first), last, on_device, "accelerator")
    return StepProbe(sum(first), last, process.peak, "process")


def _explain(error: Exception, shape: tuple[int, int, int]) -> None:
    """Raise a MemoryError if this is a backend's error for missing memory."""
    text = f"{type(error).__name__} {error}"
    if any(sign in text for sign in OUT_OF_MEMORY):
        raise MemoryError(
            f"An update on (rows, source, target) = {shape} ran out of memory. Lower "
            "--batch-tokens, or raise --accumulation-steps or --replicas."
        ) from error


class _ProcessMemory:
    """Watches the memory of this process; `peak` is the largest value seen, None if unknown."""

    def __init__(self) -> None:
        self.peak: int | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while STATISTICS.exists():
            pages = int(STATISTICS.read_text().split()[1])
            self.peak = max(self.peak or 0, pages * os.sysconf("SC_PAGE_SIZE"))
            if self._ended.wait(0.02):
                return

    def __enter__(self) -> _ProcessMemory:
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._ended.set()
        self._thread.join()
