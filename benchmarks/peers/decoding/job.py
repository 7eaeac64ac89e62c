"""The job that all programs do, read from a folder, and what they have in common.

The folder holds `job.json` (sentences as ids without the end token, the search, the model's settings),
`model.keras`, `weights.npz` (the same weights for programs without Keras), `ctranslate2/` (the same for
CTranslate2) and `tokenizer/`. `make_job.py` writes it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from harness.subject import Subject, timed


class Job:
    """What is translated and how.

    Attributes:
        config: The configuration of the `Transformer`.
        sentences: Source ids, without the end token.
        texts: The same as text for a program that has the tokenizer.
        forced: Whether all outputs have a given length: the weights never choose the end token.
        extra_length: Tokens that a translation may have more than its source with the end token.
        beam_size, length_penalty: Of the search.
        checked: Number of sentences whose translations are compared.
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
            return dict(arrays)

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


class DecodingPeer(Subject):
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

    def import_libraries(self) -> None:
        """Import what the program needs."""
        raise NotImplementedError

    def build(self) -> dict[str, Any]:
        """Build the model; return facts about it."""
        raise NotImplementedError

    def translate(self, rows: list[int], max_length: int) -> list[list[int]]:
        """Token ids of the best translation of each, without an end token, at most `max_length`."""
        raise NotImplementedError

    def prepare(self) -> dict[str, Any]:
        return {**self.build(), "work": {"sentences": len(self.rows)}}

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
        return {"translations": translations, "approximate": self.precision != "float32"}

    def run(self, count: int) -> list[float]:
        return timed(lambda: self.translate_all(self.rows), count)

    def translate_all(self, rows: list[int]) -> None:
        """One pass over the sentences."""
        for batch in self.job.batches(rows, self.batch_size):
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
