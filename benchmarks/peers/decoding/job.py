"""The job that all subjects do, read from a folder, and what their subjects have in common.

The folder holds `job.json` (sentences as ids without the end token, the search, the model's settings),
`model.keras`, `weights.npz` (the same weights for programs without Keras), `ctranslate2/` (the same for
CTranslate2) and `tokenizer/`. `make_job.py` writes it.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from peers.peer import Peer
from peers.weights import depths_of


class Job:
    """What is translated and how.

    Attributes:
        config: The configuration of the `Transformer`.
        sentences: Source ids, without the end token.
        texts: The same as text for a program that has the tokenizer.
        forced: Whether all outputs have a given length: the weights never choose the end token.
        extra_length: Tokens that a translation may have more than its source with the end token.
        beam_size, length_penalty: Of the search.
        checked: Sentences whose translations are compared.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        settings = json.loads((self.folder / "job.json").read_text("utf-8"))
        self.config: dict[str, Any] = settings["config"]
        self.sentences: list[list[int]] = settings["sentences"]
        self.texts: list[str] = settings["texts"]
        self.forced: bool = settings["forced"]
        self.extra_length: int = settings["extra_length"]
        self.beam_size: int = settings["beam_size"]
        self.length_penalty: float = settings["length_penalty"]
        self.checked: int = settings["checked"]

    def weights(self) -> dict[str, np.ndarray]:
        """All weights by the names of `weights.weight_shapes`."""
        with np.load(self.folder / "weights.npz") as arrays:
            return {name: arrays[name] for name in arrays.files}

    def limit(self, rows: list[int]) -> int:
        """Tokens that a batch of these sentences is cut at.

        Forced lengths: the mean of what the sentences want, so that who knows one limit for a batch
        writes as many tokens as who knows one for each sentence. Else the longest.
        """
        lengths = [len(self.sentences[row]) + 1 + self.extra_length for row in rows]
        return round(sum(lengths) / len(lengths)) if self.forced else max(lengths)

    def batches(self, rows: list[int], batch_size: int) -> list[list[int]]:
        """Sentences of like length together, the longest first."""
        rows = sorted(rows, key=lambda row: -len(self.sentences[row]))
        return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]

    def work(self, rows: list[int]) -> dict[str, float]:
        """Sentences, and the operations of their matrix products if lengths are forced."""
        work: dict[str, float] = {"sentences": len(rows)}
        if self.forced:
            work["tokens"] = sum(len(self.sentences[row]) + 1 + self.extra_length for row in rows)
            work["flop"] = sum(self._flop(len(self.sentences[row]) + 1) for row in rows)
        return work

    def _flop(self, source: int) -> float:
        """Products of one sentence: 2 operations for each weight and position, and the attentions'."""
        config = self.config
        width, inner = (config[k] for k in ("hidden_dim", "intermediate_dim"))
        encoders, decoders = depths_of(config["num_layers"])
        target = source + self.extra_length
        feed_forward, attention = 2 * width * inner, 4 * width**2
        encoder = source * (feed_forward + attention + 2 * source * width)
        # Keys and values of the source are made once, for all beams.
        memory = source * 2 * width**2
        step = feed_forward + attention + 2 * width**2 + target * width + 2 * source * width
        softmax = width * config["vocabulary_size"]
        beams = self.beam_size * target
        blocks = encoders * encoder + decoders * (memory + beams * step)
        return 2.0 * (blocks + beams * softmax)


class DecodingPeer(Peer):
    """A program that translates the job; a sample is one pass over all sentences.

    Args:
        folder: The job.
        batch_size: Most sentences translated together.
        precision: `"float32"` or what the program offers beside.
        limit: Translate only so many sentences, of like and typical length: for slow programs.
    """

    def __init__(
        self, folder: str, batch_size: int, precision: str = "float32", limit: int | None = None
    ) -> None:
        self.job, self.batch_size, self.precision = Job(folder), batch_size, precision
        self.rows = typical(self.job, limit)
        self.import_libraries()

    def translate(self, rows: list[int], max_length: int) -> list[list[int]]:
        """Token ids of the best translation of each, without an end token, at most `max_length`."""
        raise NotImplementedError

    def work(self) -> dict[str, float]:
        return self.job.work(self.rows)

    def check(self) -> dict[str, Any]:
        """Return translations of the first sentences; with forced lengths one by one, to be exact."""
        rows = list(range(self.job.checked))
        batches = self.job.batches(rows, 1 if self.job.forced else self.batch_size)
        found: dict[int, list[int]] = {}
        for batch in batches:
            found.update(zip(batch, self.translate(batch, self.job.limit(batch)), strict=True))
        return self.outputs([found[row] for row in rows])

    def outputs(self, translations: list[list[int]]) -> dict[str, Any]:
        """Return what `check` returns; only float32 must find the same."""
        return {
            "translations": translations,
            "approximate": self.precision != "float32",
        }

    def run(self, count: int) -> list[float]:
        seconds = []
        for _ in range(count):
            started = time.perf_counter()
            self.translate_all()
            seconds.append(time.perf_counter() - started)
        return seconds

    def translate_all(self) -> None:
        """One pass over the sentences."""
        for batch in self.job.batches(self.rows, self.batch_size):
            self.translate(batch, self.job.limit(batch))


def typical(job: Job, limit: int | None) -> list[int]:
    """All sentences, or `limit` neighbours in length whose mean length is nearest to that of all."""
    rows = sorted(range(len(job.sentences)), key=lambda row: len(job.sentences[row]))
    if limit is None or limit >= len(rows):
        return rows
    lengths = np.array([len(job.sentences[row]) for row in rows])
    means = np.convolve(lengths, np.ones(limit) / limit, "valid")
    start = int(np.abs(means - lengths.mean()).argmin())
    return rows[start : start + limit]


def padded(rows: list[list[int]], pad_token_id: int) -> np.ndarray:
    """Rows of ids as one int32 array, filled up behind."""
    array = np.full((len(rows), max(map(len, rows))), pad_token_id, "int32")
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array
