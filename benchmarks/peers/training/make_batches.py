"""Makes the batches with this package, in a process of its own: the others need not import it."""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness.subject import Subject

from peers.training.batches import Batch, write_batches

# Mean and deviation of the logarithm of a sentence's length, and of the logarithm of the ratio of both
# sides, in subwords, and the longest. Multi30K: counted with our own tokenizer of 8,000 pieces. WMT14: the
# shape of `data_pipeline.py`, 1.3 pieces a word.
LENGTHS = {"multi30k": (2.55, 0.33, 0.03, 0.19, 60), "wmt": (3.29, 0.62, -0.02, 0.16, 255)}


class BatchMaker(Subject):
    """Writes an epoch of `TokenBatches` of a real corpus, or of random ids with lengths like its.

    Args:
        path: The `.npz` file to write.
        vocabulary_size: V; of a real corpus' tokenizer at most.
        batch_tokens: Positions of a batch on either side, padding included.
        pairs: Number of sentence pairs, 0 for all of the corpus.
        lengths: `"multi30k"` or `"wmt"`: what random sentences are like.
        data_dir: Folder of the real Multi30K; None for random ids.
        max_shapes: Bound on the number of different shapes.
        length_multiple: Lengths are multiples of it.
        num_batches: Only so many batches; 0 for all.
    """

    def __init__(
        self,
        path: str,
        vocabulary_size: int,
        batch_tokens: int,
        pairs: int,
        lengths: str = "multi30k",
        data_dir: str | None = None,
        max_shapes: int = 24,
        length_multiple: int = 1,
        num_batches: int = 0,
    ) -> None:
        self.path, self.vocabulary_size, self.pairs = path, vocabulary_size, pairs
        self.lengths, self.data_dir, self.num_batches = lengths, data_dir, num_batches
        self.batch_options = {
            "batch_tokens": batch_tokens,
            "max_shapes": max_shapes,
            "length_multiple": length_multiple,
        }

    def prepare(self) -> dict[str, Any]:
        from keras_attention import TokenBatches, TokenStore

        with tempfile.TemporaryDirectory() as folder:
            text, tokenizer = self._real() if self.data_dir else self._random()
            store = TokenStore.build(folder, text, tokenizer, verbose=False)
            made = TokenBatches(store, **self.batch_options)
            count = min(len(made), self.num_batches or len(made))
            batches: list[Batch] = []
            for index in range(count):
                inputs, labels = made.batch(0, index)
                batches.append((inputs["encoder_token_ids"], inputs["decoder_token_ids"], labels))
            statistics = made.statistics()
        facts = {
            "data": self.data_dir and "Multi30K" or f"random ids, lengths like {self.lengths}",
            "vocabulary_size": tokenizer.vocabulary_size,
            "padding": statistics["padding"],
            "shapes": len(statistics["shapes"]),
            "pairs": statistics["pairs"],
            **self.batch_options,
        }
        write_batches(Path(self.path), batches, facts)
        return facts

    def _real(self) -> tuple[Any, Any]:
        from keras_attention import Tokenizer, load_corpus

        text = load_corpus("multi30k", self.data_dir).train
        tokenizer = Tokenizer.train(
            [*text.sources(), *text.targets()], vocabulary_size=self.vocabulary_size
        )
        return Pairs(list(itertools.islice(text, self.pairs or None))), tokenizer

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
        return Pairs(list(zip(*texts, strict=True))), Numbers(self.vocabulary_size)


class Pairs:
    """A parallel text in memory, as `TokenStore.build` takes it."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._pairs = pairs

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._pairs)

    def fingerprint(self) -> str:
        """Of the pairs in order."""
        return hashlib.sha256(repr(self._pairs).encode()).hexdigest()


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
