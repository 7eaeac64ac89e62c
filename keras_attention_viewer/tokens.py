"""Tokens as the viewer shows them: which word a piece belongs to, what is special, what is punctuation."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Any

Token = dict[str, Any]

WORD_START = "▁"  # SentencePiece: begins a word
INSIDE_WORD = "##"  # WordPiece: begins a piece that goes on with a word
GOES_ON = "@@"  # subword-nmt: ends a piece whose word goes on


def describe_tokens(
    pieces: Sequence[str], special: Collection[int] = (), ranks: Sequence[int | None] | None = None
) -> list[Token]:
    """Describe the tokens of a sentence.

    A word is what stands between spaces. Punctuation at its beginning or end is a word of its own, as
    in `split_words`. The marks of SentencePiece (`▁dog`), WordPiece (`##ing`) and subword-nmt
    (`walk@@`) say where words begin; pieces without any mark are words.

    Args:
        pieces: The tokens as the tokenizer shows them.
        special: Positions of tokens that are no text: start, end, padding.
        ranks: For each token its rank by frequency, 0 for the most frequent; None where it is unknown.

    Returns:
        For each token a dict with `text`, `word` (index of its word; None if special), `special`,
        `punctuation` and `rank`.

    Raises:
        ValueError: If `ranks` has another length than `pieces`.

    Example:

    >>> tokens = describe_tokens(["▁Wasch", "bär", ".", "</s>"], special=[3])
    >>> [(token["text"], token["word"], token["punctuation"]) for token in tokens]
    [('▁Wasch', 0, False), ('bär', 0, False), ('.', 1, True), ('</s>', None, False)]
    """
    if ranks is not None and len(ranks) != len(pieces):
        raise ValueError(
            f"Expected a rank for each of {len(pieces)} tokens. Received: {len(ranks)} ranks"
        )
    ranks = [None] * len(pieces) if ranks is None else ranks
    tokens: list[Token] = [
        {
            "text": piece,
            "word": None,
            "special": position in special,
            "punctuation": position not in special and is_punctuation(bare_piece(piece)),
            "rank": rank,
        }
        for position, (piece, rank) in enumerate(zip(pieces, ranks, strict=True))
    ]
    for mark, following in itertools.pairwise(tokens):
        if mark["text"] == WORD_START:  # A mark that is a token of its own is as the one behind it.
            mark["punctuation"] = following["punctuation"]
    word = 0
    for run in words_between_spaces(tokens, is_sentence_pieces(pieces)):
        for part in _peel(run, lambda position: tokens[position]["punctuation"]):
            for position in part:
                tokens[position]["word"] = word
            word += 1
    return tokens


def split_words(text: str) -> list[str]:
    """Return the words of a text; punctuation at the beginning or end of a word is a word of its own.

    >>> split_words("Well-known (since 3.5)!")
    ['Well-known', '(', 'since', '3.5', ')!']
    """
    words = []
    for run in text.split():
        words += ["".join(part) for part in _peel([*run], is_punctuation)]
    return words


def word_count(tokens: Sequence[Token]) -> int:
    """Return the number of words that the tokens of a sentence belong to."""
    return 1 + max((token["word"] for token in tokens if token["word"] is not None), default=-1)


def words_between_spaces(tokens: Sequence[Token], is_marked: bool) -> list[list[int]]:
    """Return the positions of the tokens of each word, where a word is what stands between spaces.

    Special tokens are left out, and end a word. `is_marked` says whether SentencePiece marks beginnings of
    words, even if none of these tokens begins one.
    """
    words: list[list[int]] = []
    previous: Token | None = None
    for position, token in enumerate(tokens):
        if token["special"]:
            previous = None
            continue
        if is_marked:
            goes_on = not token["text"].startswith(WORD_START)
        else:
            ended = previous is None or not previous["text"].endswith(GOES_ON)
            goes_on = token["text"].startswith(INSIDE_WORD) or not ended
        if goes_on and previous is not None:
            words[-1].append(position)
        else:
            words.append([position])
        previous = token
    return words


def word_text(tokens: Sequence[Token]) -> str:
    """Return the text of a word from its pieces, without the tokenizer's marks."""
    return "".join(bare_piece(token["text"]) for token in tokens)


def is_punctuation(text: str) -> bool:
    """Whether a text is nothing but punctuation."""
    return bool(text) and all(unicodedata.category(letter)[0] == "P" for letter in text)


def bare_piece(piece: str) -> str:
    """Return a piece without the mark of its tokenizer."""
    if piece.startswith(INSIDE_WORD):
        return piece[len(INSIDE_WORD) :]
    if piece.endswith(GOES_ON):
        return piece[: -len(GOES_ON)]
    return piece.replace(WORD_START, "")


def is_sentence_pieces(pieces: Iterable[str]) -> bool:
    """Whether pieces have SentencePiece's mark of a word's start.

    >>> is_sentence_pieces(["▁wash", "ing"]), is_sentence_pieces(["wash", "##ing"])
    (True, False)
    """
    return any(piece.startswith(WORD_START) for piece in pieces)


def _peel(run: list[Any], is_peel: Any) -> list[list[Any]]:
    """Leading punctuation, the word, trailing punctuation: those of the three that there are."""
    start = sum(1 for _ in itertools.takewhile(is_peel, run))
    end = sum(1 for _ in itertools.takewhile(is_peel, reversed(run[start:])))
    parts = [run[:start], run[start : len(run) - end], run[len(run) - end :]]
    return [part for part in parts if part]
