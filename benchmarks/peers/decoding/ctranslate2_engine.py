"""CTranslate2 with the very same weights, from tokens to tokens."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from peers.decoding.job import DecodingPeer

# Sentences of a trial of how many threads are best.
TRIED = 32


class CTranslate2(DecodingPeer):
    """`ctranslate2.Translator` at its best setting of threads, which is tried before anything is timed.

    One batch at a time, as in the other programs, either by all CPUs or by one: OpenMP's threads wait for
    each other after every operation, and small models are the slower for it. Or all batches at once, one
    CPU for each.

    Args:
        at_once: Whether batches are translated at once, as many as there are CPUs.
        **job: Arguments of `DecodingPeer`.
    """

    def __init__(self, at_once: bool = False, **job: Any) -> None:
        self.at_once = at_once
        super().__init__(**job)

    def import_libraries(self) -> None:
        import ctranslate2

        self.library = ctranslate2

    def build(self) -> dict[str, Any]:
        folder = self.job.folder
        names = json.loads((folder / "ctranslate2" / "shared_vocabulary.json").read_text("utf-8"))
        self.ids = {name: index for index, name in enumerate(names)}
        self.tokens = [[names[index] for index in row] for row in self.job.sentences]
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        assert cpus is not None
        tried = []
        for inter, intra in [(cpus, 1)] if self.at_once else [(1, cpus), (1, 1)]:
            self.translator = self.library.Translator(
                str(folder / "ctranslate2"),
                compute_type=self.precision,
                inter_threads=inter,
                intra_threads=intra,
            )
            tried.append((self._trial(), f"{inter} x {intra}", self.translator))
        _, threads, self.translator = min(tried)
        return {
            "compute_type": self.translator.compute_type,
            "threads": threads,
            "tried": {name: seconds for seconds, name, _ in tried},
        }

    def _trial(self) -> float:
        """Seconds of a pass over some sentences, the better of two after a first one."""
        rows = self.rows[:: max(1, len(self.rows) // TRIED)]
        seconds = []
        for _ in range(3):
            started = time.perf_counter()
            self._translate_batches(rows)
            seconds.append(time.perf_counter() - started)
        return min(seconds[1:])

    def translate(self, rows: list[int], max_length: int) -> list[list[int]]:
        results = [result.result() for result in self._begun(rows, max_length)]
        return [[self.ids[token] for token in result.hypotheses[0]] for result in results]

    def translate_all(self) -> None:
        self._translate_batches(self.rows)

    def _translate_batches(self, rows: list[int]) -> None:
        begun = []
        for batch in self.job.batches(rows, self.batch_size):
            begun += self._begun(batch, self.job.limit(batch))
            if not self.at_once:
                begun[-1].result()
        for result in begun:
            result.result()

    def _begun(self, rows: list[int], max_length: int) -> list[Any]:
        return self.translator.translate_batch(
            [self.tokens[row] for row in rows],
            beam_size=self.job.beam_size,
            length_penalty=self.job.length_penalty,
            max_decoding_length=max_length,
            asynchronous=True,
        )
