"""Which source tokens each target token is aligned with, for the pairs of a token store."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.data.token_chunks import CHUNK_PAIRS, SIDES
from keras_attention.data.token_store import TokenStore
from keras_attention.data.word_alignments import Links, WordAlignments, word_positions
from keras_attention.utils.files import DamagedFile, atomic_file
from keras_attention.utils.progress import Progress, say
from keras_attention.utils.sides import encode_side, piece_of
from keras_attention_viewer.tokens import is_sentence_pieces

ARRAYS: dict[str, np.dtype[Any]] = {
    "starts": np.dtype("<i8"),
    "targets": np.dtype("<u2"),
    "sources": np.dtype("<u2"),
}


class TokenAlignments:
    """Alignments of the tokens of a `TokenStore`, spread from words over their subwords.

    They are in one file beside the folder of the store, which `build` makes.
    """

    def __init__(self, file: Path, pairs: int):
        self.file, self.pairs = Path(file), pairs
        try:
            with np.load(self.file, allow_pickle=False) as arrays:
                self._starts, self._targets, self._sources = (arrays[name] for name in ARRAYS)
            fits = len(self._starts) == pairs + 1
            fits &= self._starts[-1] == len(self._targets) == len(self._sources)
        except (zipfile.BadZipFile, ValueError, KeyError, EOFError, IndexError, TypeError):
            fits = False
        if not fits:
            raise DamagedFile(
                f"'{self.file}' is damaged. Delete it: the next start makes it again."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process reads the file itself.
        return type(self), (self.file.absolute(), self.pairs)

    def __len__(self) -> int:
        return self.pairs

    @classmethod
    def build(
        cls, store: TokenStore, alignments: WordAlignments, tokenizer: Any
    ) -> TokenAlignments:
        """Spread the alignments of a store's words over its tokens, or open the file if it exists."""
        file = store.folder.parent / f"{store.folder.name}-{alignments.fingerprint[:16]}.npz"
        if not file.exists():
            _write(file, store, alignments, tokenizer)
        return cls(file, len(store))

    def padded(self, pairs: np.ndarray, target_length: int, source_length: int) -> np.ndarray:
        """Return the alignments of pairs as one float32 array (B, T, S); the pair -1 gives a row of padding.

        Row t + 1 belongs to target token t, which the decoder reads there. It has equal weights of sum 1 on
        the source tokens that are aligned with the target token, and is 0 if there is none.
        """
        weights = np.zeros((len(pairs), target_length, source_length), "float32")
        for row, pair in enumerate(pairs.tolist()):
            if pair >= 0:
                here = slice(*self._starts[pair : pair + 2])
                weights[row, self._targets[here] + np.int64(1), self._sources[here]] = 1.0
        return weights / np.maximum(weights.sum(axis=-1, keepdims=True), 1.0)


def token_links(
    links: Links, source_words: Sequence[Sequence[int]], target_words: Sequence[Sequence[int]]
) -> list[tuple[int, int]]:
    """Return links between tokens, a target and a source position each, from links between words.

    Each token of a word is linked with each token of the words that this one is linked with.

    >>> token_links(((0, 1), (1, 0)), source_words=[[0], [1, 2]], target_words=[[0], [1]])
    [(0, 1), (0, 2), (1, 0)]
    """
    found = {
        pair
        for source, target in links
        for pair in itertools.product(target_words[target], source_words[source])
    }
    return sorted(found)


def _write(file: Path, store: TokenStore, alignments: WordAlignments, tokenizer: Any) -> None:
    # With BPE dropout, the store holds the text several times, each time split in another way.
    samples = range(store.metadata.get("samples", 1))
    kept = itertools.chain.from_iterable(_kept(store, alignments, tokenizer) for _ in samples)
    counts = np.zeros(len(store), "int64")
    found: list[np.ndarray] = []
    unlike = 0
    with Progress(len(store), "aligning tokens", "pairs") as progress:
        for number, (pair, links) in zip(range(len(store)), kept, strict=True):
            words = _words(store, number, tokenizer, alignments.is_gold)
            if [*map(len, words)] == [len(alignments.words(text)) for text in pair]:
                of_tokens = np.array(token_links(links, *words), "int64").reshape(-1, 2)
                if of_tokens.size and of_tokens.max() > np.iinfo(ARRAYS["targets"]).max:
                    raise ValueError(
                        "Alignments need sentences of at most 65,536 tokens. Leave out longer ones."
                    )
                counts[number] = len(of_tokens)
                found.append(of_tokens.astype(ARRAYS["targets"]))
            else:
                unlike += 1
            progress.add(1)
    if unlike == len(store):
        raise ValueError(
            "No pair can be aligned: the tokens of each have another number of words than its text, as "
            "word-pieces have, which split punctuation off. Use byte-pair encoding."
        )
    if unlike:
        say(
            f"Alignments of {unlike:,} of {len(store):,} pairs are left out: their tokens have another "
            "number of words than their text."
        )
    of_all = np.concatenate(found)
    arrays: dict[str, Any] = {
        "starts": np.concatenate([[0], np.cumsum(counts)]),
        "targets": of_all[:, 0],
        "sources": of_all[:, 1],
    }
    with atomic_file(file) as opened:
        typed: dict[str, Any] = {name: arrays[name].astype(dtype) for name, dtype in ARRAYS.items()}
        np.savez(opened, **typed)


def _kept(
    store: TokenStore, alignments: WordAlignments, tokenizer: Any
) -> Iterator[tuple[tuple[str, str], Links]]:
    """Yield the pairs that are in the store, with their links: those without an empty side."""
    aligned = zip(alignments.text, alignments.links(), strict=True)
    if not store.metadata["dropped_empty"]:
        yield from aligned
        return
    while chunk := list(itertools.islice(aligned, CHUNK_PAIRS)):
        sides = [
            encode_side(tokenizer, [pair[column] for pair, _ in chunk], side)
            for column, side in enumerate(SIDES)
        ]
        for one, *ids in zip(chunk, *sides, strict=True):
            if all(ids):
                yield one


def _words(store: TokenStore, number: int, tokenizer: Any, is_gold: bool) -> list[list[list[int]]]:
    """Return the positions of the tokens of each word, on both sides of a pair."""
    both = {"source": store.source(number).tolist(), "target": store.target(number).tolist()}
    is_marked = is_sentence_pieces(
        piece_of(tokenizer, token, side) for side, ids in both.items() for token in ids
    )
    return [word_positions(tokenizer, ids, side, is_marked, is_gold) for side, ids in both.items()]
