"""The batches that every program is fed, as a file: NumPy alone reads it."""

from __future__ import annotations

import hashlib
import itertools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness.subject import Subject

# Source ids (B, S), decoder ids (B, T), labels (B, T), all int32; 0 is padding.
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]
# Mean and deviation of the logarithm of a sentence's length, and of the logarithm of the ratio of both
# sides, in subwords, and the longest. Multi30K: counted with our own tokenizer of 8,000 pieces. WMT14: the
# shape of `data_pipeline.py`, 1.3 pieces a word.
LENGTHS = {"multi30k": (2.55, 0.33, 0.03, 0.19, 60), "wmt": (3.29, 0.62, -0.02, 0.16, 255)}


def write_batches(path: Path, batches: Sequence[Batch], facts: dict[str, Any]) -> None:
    """Write batches and what is known of them to an `.npz` file."""
    arrays: dict[str, Any] = {
        f"{name}_{index}": array
        for index, batch in enumerate(batches)
        for name, array in zip(("source", "decoder", "labels"), batch, strict=True)
    }
    np.savez(path, facts=np.array(json.dumps(facts)), count=np.array(len(batches)), **arrays)


def read_batches(path: str | Path) -> tuple[list[Batch], dict[str, Any]]:
    """Return what `write_batches` wrote."""
    with np.load(path) as file:
        batches = [
            (file[f"source_{index}"], file[f"decoder_{index}"], file[f"labels_{index}"])
            for index in range(int(file["count"]))
        ]
        return batches, json.loads(str(file["facts"]))


def random_batch(pairs: int, length: int, vocabulary_size: int, seed: int) -> Batch:
    """Return a batch without padding: random ids, each sentence closed by the end token 1."""
    ids = np.random.default_rng(seed).integers(3, vocabulary_size, (2, pairs, length), "int32")
    ids[:, :, -1] = 1
    source, labels = ids
    return source, np.pad(labels[:, :-1], ((0, 0), (1, 0))), labels


def tokens(batches: Sequence[Batch]) -> int:
    """Return the number of real tokens, source and target together."""
    return int(sum((source != 0).sum() + (labels != 0).sum() for source, _, labels in batches))


def training_flop(options: dict[str, Any], batches: Sequence[Batch]) -> int:
    """Return the counted FLOPs of an update on each batch, padding included: 3 times 2 m n k of a product.

    The same count as `keras_attention.evaluation.cost.training_flops`, without importing a backend
    into the processes of other programs.
    """
    width, inner = options["hidden_dim"], options["intermediate_dim"]

    def attention(queries: int, keys: int) -> int:
        return 4 * width * width * (queries + keys) + 4 * width * queries * keys

    def row(source: int, target: int) -> int:
        layer = attention(source, source) + attention(target, target) + attention(target, source)
        layer += 4 * width * inner * (source + target)
        return options["num_layers"] * layer + 2 * width * options["vocabulary_size"] * target

    shapes = [(*source.shape, labels.shape[1]) for source, _, labels in batches]
    return 3 * sum(rows * row(source, target) for rows, source, target in shapes)


class BatchMaker(Subject):
    """Writes an epoch of `TokenBatches` of a real corpus, or of random ids with lengths like its.

    It runs in a process of its own: the programs need not import this package.

    Args:
        path: The `.npz` file to write.
        vocabulary_size: V; of a real corpus' tokenizer at most.
        pairs: Number of sentence pairs, 0 for all of the corpus.
        lengths: `"multi30k"` or `"wmt"`: what random sentences are like.
        data_dir: Folder of the real Multi30K; None for random ids.
        num_batches: Only so many batches; 0 for all.
        **batches: Arguments of `TokenBatches`.
    """

    def __init__(
        self,
        path: str,
        vocabulary_size: int,
        pairs: int,
        lengths: str = "multi30k",
        data_dir: str | None = None,
        num_batches: int = 0,
        **batches: Any,
    ) -> None:
        self.path, self.vocabulary_size, self.pairs = path, vocabulary_size, pairs
        self.lengths, self.data_dir, self.num_batches = lengths, data_dir, num_batches
        self.options = batches

    def prepare(self) -> dict[str, Any]:
        from keras_attention import TokenBatches, TokenStore

        with tempfile.TemporaryDirectory() as folder:
            text, tokenizer = self._real() if self.data_dir else self._random()
            store = TokenStore.build(folder, text, tokenizer, verbose=False)
            made = TokenBatches(store, **self.options)
            batches: list[Batch] = []
            for index in range(min(len(made), self.num_batches or len(made))):
                inputs, labels = made.batch(0, index)
                batches.append((inputs["encoder_token_ids"], inputs["decoder_token_ids"], labels))
            statistics = made.statistics()
        facts = {
            "data": self.data_dir and "Multi30K" or f"random ids, lengths like {self.lengths}",
            "vocabulary_size": tokenizer.vocabulary_size,
            "padding": statistics["padding"],
            "shapes": len(statistics["shapes"]),
            "pairs": statistics["pairs"],
            **self.options,
        }
        write_batches(Path(self.path), batches, facts)
        return facts

    def _real(self) -> tuple[Any, Any]:
        from keras_attention import Tokenizer, load_corpus

        text = load_corpus("multi30k", self.data_dir).train
        tokenizer = Tokenizer.train(
            [*text.sources(), *text.targets()], vocabulary_size=self.vocabulary_size
        )
        return Pairs(itertools.islice(text, self.pairs or None)), tokenizer

    def _random(self) -> tuple[Any, Any]:
        random = np.random.default_rng(5)
        mean, deviation, ratio_mean, ratio_deviation, most = LENGTHS[self.lengths]
        count = self.pairs or 29_000
        source = np.exp(random.normal(mean, deviation, count))
        target = source * np.exp(random.normal(ratio_mean, ratio_deviation, count))
        sides = [np.clip(np.rint(side), 1, most).astype(int) for side in (source, target)]
        texts = [
            [" ".join(map(str, random.integers(3, self.vocabulary_size, n))) for n in side]
            for side in sides
        ]
        return Pairs(zip(*texts, strict=True)), Numbers(self.vocabulary_size)


class Pairs(list[tuple[str, str]]):
    """A parallel text in memory, as `TokenStore.build` takes it."""

    def fingerprint(self) -> str:
        """Of the pairs in order."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


class Numbers:
    """A tokenizer of text that consists of ids."""

    end_token_id = 1

    def __init__(self, vocabulary_size: int) -> None:
        self.vocabulary_size = vocabulary_size

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids that the texts spell."""
        return [[int(number) for number in text.split()] for text in texts]

    def fingerprint(self) -> str:
        """Of the vocabulary."""
        return hashlib.sha256(f"numbers {self.vocabulary_size}".encode()).hexdigest()
