"""Which words, and so which tokens, of training pairs are translations of each other."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.data.corpus import Corpus
from keras_attention.data.joints import BYTE
from keras_attention.data.normalization import USUAL, normalize
from keras_attention.data.presegmented import SIDES
from keras_attention.data.text_files import existing_file, read_lines
from keras_attention.data.token_store import CHUNK_PAIRS, TokenStore
from keras_attention.utils.files import DamagedFile, atomic_file
from keras_attention.utils.progress import say, with_progress
from keras_attention.utils.scripts import word_spans
from keras_attention.utils.sides import encode_side, piece_of, places_without_text
from keras_attention_viewer.tokens import (
    bare_piece,
    describe_tokens,
    is_sentence_pieces,
    split_words,
    words_between_spaces,
)

Links = tuple[tuple[int, int], ...]
# In place of a file: the true links that the corpus has.
GOLD = "gold"
LINK = re.compile(r"(\d+)-(\d+)", re.ASCII)


class WordAlignments:
    """The word alignments of the training pairs of a corpus, all of them checked.

    A file has a line for each pair in Pharaoh form, such as `0-0 1-2`: numbers of a source and a target word,
    from 0, where a word is what stands between spaces or tabs; a tag before a source, which `write_corpus`
    writes with it, is its first word. A line may be empty. The true links of a
    corpus count punctuation at the beginning or end of a word as a separate word: `Corpus.alignments`.

    Args:
        corpus: The `Corpus`. Only its training part is used.
        given: The file, plain or packed, or `"gold"` for the links in `corpus.alignments`.
    """

    def __init__(self, corpus: Corpus, given: str):
        self.text = corpus.train
        self.is_gold = given == GOLD
        if corpus.vocabulary is not None:
            raise ValueError(
                f"`guided_alignment` needs plain text, but '{corpus.name}' is already split into subwords. "
                "Leave it out."
            )
        if self.is_gold:
            if not any(corpus.alignments.get(pair) for pair in self.text):
                raise ValueError(
                    f"`guided_alignment` is 'gold', but no training pair of '{corpus.name}' has true links. "
                    "Give a file of alignments, a line for each training pair."
                )
            self._lines: Callable[[], Iterator[Any]] = lambda: (
                corpus.alignments.get(pair, ()) for pair in self.text
            )
        else:
            file = existing_file(given)
            self._lines = lambda: read_lines(file)
        self._name = "`Corpus.alignments`" if self.is_gold else f"'{given}'"
        self.fingerprint = self._checked()

    def words(self, text: str) -> list[str]:
        """Return the words of a text, as the links number them."""
        # Aligners split at spaces and tabs alone. Text with others has other words once it is normalised.
        return split_words(text) if self.is_gold else re.findall(r"[^ \t]+", text)

    def links(self) -> Iterator[Links]:
        """Yield the links of each training pair."""
        for number, line in enumerate(self._lines(), start=1):
            yield line if self.is_gold else self._parsed(number, line)

    def _checked(self) -> str:
        """Check all links; return the fingerprint of them and of how words are counted."""
        digest = hashlib.sha256(b"gold" if self.is_gold else b"between spaces")
        pairs = lines = 0
        for pair, links in itertools.zip_longest(self.text, self.links()):
            pairs, lines = pairs + (pair is not None), lines + (links is not None)
            if pair is None or links is None:
                continue
            sizes = [len(self.words(text)) for text in pair]
            for link in links:
                for side, number, size in zip(("source", "target"), link, sizes, strict=True):
                    if not 0 <= number < size:
                        raise ValueError(
                            f"{self._where(pairs)}: the link {link[0]}-{link[1]} has a {side} word that is "
                            f"not there: the {side} of training pair {pairs} has {size} words, counted "
                            "from 0. Align the text that is trained on."
                        )
            digest.update(f"{sorted({*map(tuple, links)})}\n".encode())
        if lines != pairs:
            raise ValueError(
                f"{self._name} has {lines:,} lines, but '{self.text.name}' has {pairs:,} training pairs. "
                "Give a line for each pair, empty where nothing is aligned. Pairs that filters leave out, or "
                "that are held out for validation and test because no --validation-files or --test-files are "
                "given, are not trained on."
            )
        return digest.hexdigest()

    def _parsed(self, number: int, line: str) -> Links:
        found = []
        for word in line.split():
            if (match := LINK.fullmatch(word)) is None:
                raise ValueError(
                    f"{self._where(number)}: expected links such as 0-0 1-2, a source and a target word "
                    f"each. Received: {word!r}"
                )
            found.append((int(match[1]), int(match[2])))
        return tuple(found)

    def _where(self, number: int) -> str:
        return f"{self._name}, {'pair' if self.is_gold else 'line'} {number:,}"


def word_positions(
    tokenizer: Any, ids: Sequence[int], side: str, is_marked: bool, splits_punctuation: bool = False
) -> list[list[int]]:
    """Return the positions of the tokens of each word of a text: end tokens and codes of languages have none.

    A word is what stands between spaces; with `splits_punctuation`, punctuation at its beginning or end is a
    word of its own. `is_marked` says that SentencePiece marks beginnings of words, even if none of these
    tokens begins one.
    """
    pieces = [piece_of(tokenizer, token, side) for token in ids]
    tokens = describe_tokens(pieces, places_without_text(tokenizer, ids, side))
    words = words_between_spaces(tokens, is_marked)
    prefix = getattr(tokenizer, "source_prefix", None) if side == "source" else None
    words = words[len((prefix or "").split()) :]
    if not splits_punctuation:
        return words
    positions = itertools.chain.from_iterable(words)
    groups = itertools.groupby(positions, key=lambda position: tokens[position]["word"])
    return [list(group) for _, group in groups]


def links_between(
    tokenizer: Any,
    source: Sequence[int],
    target: Sequence[int],
    weights: np.ndarray,
    splits_scripts: bool = False,
    texts: tuple[str, str] | None = None,
) -> Links:
    """Return the links of a pair of token ids from weights (T, S): of each target word, its source word.

    With `splits_scripts`, words are those of `word_spans`. All words of the same tokens have the same links.
    With `texts`, words are numbered as they stand there: normalisation may leave out some of them, and
    word-pieces split punctuation off.
    """
    pieces = [
        [piece_of(tokenizer, token, side) for token in ids]
        for side, ids in (("source", source), ("target", target))
    ]
    sides = _words(tokenizer, source, target)
    if splits_scripts:
        sides = [_split(words, own) for words, own in zip(sides, pieces, strict=True)]
    columns, rows = (
        _members(words, len(ids)) for words, ids in zip(sides, (source, target), strict=True)
    )
    if not len(columns):
        return ()
    # Weights are summed over the pieces of both words.
    words = rows @ weights[: len(target), : len(source)] @ columns.T
    links = [
        (word, number)
        for number, best in enumerate(words.argmax(axis=1))
        for word, positions in enumerate(sides[0])
        if positions == sides[0][best]
    ]
    if texts is None:
        return tuple(links)
    normalization = getattr(tokenizer, "normalization", USUAL)
    (owners, _), (numbers, chosen) = (
        _places(words, own, text, splits_scripts, normalization)
        for words, own, text in zip(sides, pieces, texts, strict=True)
    )
    found = {(owners[word], numbers[number]) for word, number in links if number in chosen}
    return tuple(sorted(found, key=lambda link: link[::-1]))


def _places(
    words: Sequence[Sequence[int]],
    pieces: Sequence[str],
    text: str,
    splits_scripts: bool,
    normalization: str,
) -> tuple[list[int], set[int]]:
    """Return the number of the word of a text in which each word of tokens begins, and one for each of those.

    Words are as they are where their letters are not those of the text.
    """

    def letters(one: str) -> str:
        return "".join(normalize(one, normalization).split())

    spans = [text[slice(*span)] for span in word_spans(text)] if splits_scripts else text.split()
    found = (b"".join(_letters_of(pieces[i]) for i in word) for word in words)
    contents = ["".join(content.decode(errors="replace").split()) for content in found]
    owners = [number for number, own in enumerate(map(letters, spans)) for _ in own]
    if "".join(contents) != "".join(map(letters, spans)) or not owners:
        return [*range(len(words))], {*range(len(words))}
    starts = itertools.accumulate(map(len, contents), initial=0)
    numbers = [owners[min(start, len(owners) - 1)] for start, _ in zip(starts, words, strict=False)]
    # Of a word and its punctuation the longest part is the word.
    longest: dict[int, int] = {}
    for index, number in enumerate(numbers):
        if number not in longest or len(contents[index]) > len(contents[longest[number]]):
            longest[number] = index
    return numbers, {*longest.values()}


def _letters_of(piece: str) -> bytes:
    byte = BYTE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else bare_piece(piece).encode()


def _split(words: Sequence[Sequence[int]], pieces: Sequence[str]) -> list[list[int]]:
    """Return the positions of the tokens of each word of `word_spans`; a token may belong to several."""
    found: list[list[int]] = []
    for word in words:
        content, owners = b"", list[int]()
        for position in word:
            own = _letters_of(pieces[position])
            content, owners = content + own, owners + [position] * len(own)
        try:
            text = content.decode()
        except UnicodeDecodeError:  # Tokens need not be whole letters.
            found.append([*word])
            continue
        ends = [0, *itertools.accumulate(len(letter.encode()) for letter in text)]
        found += [sorted({*owners[ends[start] : ends[end]]}) for start, end in word_spans(text)]
    return found


def _members(words: Sequence[Sequence[int]], length: int) -> np.ndarray:
    """Return which tokens belong to which word, as zeros and ones (words, length)."""
    members = np.zeros((len(words), length))
    for number, word in enumerate(words):
        members[number, word] = 1
    return members


ARRAYS = ("starts", "targets", "sources")
POSITION = np.dtype("<u2")  # of a token in its sentence


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
        except Exception:  # Damaged bytes raise errors of many kinds there.
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
    pairs = zip(range(len(store)), kept, strict=True)
    for number, (pair, links) in with_progress(pairs, len(store), "aligning tokens", "pairs"):
        both = store.source(number).tolist(), store.target(number).tolist()
        words = _words(tokenizer, *both, alignments.is_gold)
        if [*map(len, words)] == [len(alignments.words(text)) for text in pair]:
            of_tokens = np.array(token_links(links, *words), "int64").reshape(-1, 2)
            if of_tokens.size and of_tokens.max() > np.iinfo(POSITION).max:
                raise ValueError(
                    "Alignments need sentences of at most 65,536 tokens. Leave out longer ones."
                )
            counts[number] = len(of_tokens)
            found.append(of_tokens.astype(POSITION))
        else:
            unlike += 1
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
    starts = np.concatenate([[0], np.cumsum(counts)])
    arrays = dict(zip(ARRAYS, (starts, *np.concatenate(found).T), strict=True))
    with atomic_file(file) as opened:
        np.savez(opened, **arrays)


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


def _words(
    tokenizer: Any, source: Sequence[int], target: Sequence[int], splits_punctuation: bool = False
) -> list[list[list[int]]]:
    """Return the positions of the tokens of each word, on both sides of a pair."""
    both = {"source": source, "target": target}
    # A translation may have no word's start at all.
    is_marked = is_sentence_pieces(
        piece_of(tokenizer, token, side) for side, ids in both.items() for token in ids
    )
    return [
        word_positions(tokenizer, ids, side, is_marked, splits_punctuation)
        for side, ids in both.items()
    ]
