"""A tokenizer whose source and target differ, and one of the user's own that knows no sides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

LANGUAGES = ("source_language", "target_language")  # Arguments of `Translator`.


def encode_side(tokenizer: Any, texts: Iterable[str], side: str, **options: Any) -> list[list[int]]:
    """Return the ids of each text of one side, without an end token; options are those of `encode`."""
    return tokenizer.encode(list(texts), **options, **_named(tokenizer, side))


def encode_ended(tokenizer: Any, texts: Iterable[str], side: str) -> list[list[int]]:
    """Return the ids of each text of one side as the model reads or writes them, with the end token."""
    end = end_of(tokenizer, side)
    return [[*ids, *end] for ids in encode_side(tokenizer, texts, side)]


def decode_side(tokenizer: Any, ids: Any, side: str) -> str:
    """Return the text of ids of one side."""
    return tokenizer.decode(ids, **_named(tokenizer, side))


def end_of(tokenizer: Any, side: str) -> list[int]:
    """Return what stands behind the ids of a side: the end token, or nothing if sources lack it."""
    ends = side == "target" or getattr(tokenizer, "ends_source", True)
    return [tokenizer.end_token_id] if ends else []


def places_without_text(tokenizer: Any, ids: Iterable[int], side: str) -> set[int]:
    """Return the positions of tokens that no word of a text has.

    These are end tokens, codes of languages, and what every source of an imported tokenizer begins with.
    """
    ids_of_none = {tokenizer.end_token_id, *getattr(tokenizer, "languages", {}).values()}
    first = len(getattr(tokenizer, "first_source_ids", ())) if side == "source" else 0
    return {place for place, token in enumerate(ids) if place < first or token in ids_of_none}


def start_of(tokenizer: Any) -> list[int]:
    """Return what every translation begins with: the code of its language, if the model has many.

    It is not there twice where decoding starts with it.
    """
    if not getattr(tokenizer, "languages", None):
        return []
    code = tokenizer.language_id("target")
    return [] if code == tokenizer.start_token_id else [code]


def in_languages(
    tokenizer: Any, source_language: str | None = None, target_language: str | None = None
) -> Any:
    """Return a tokenizer for these languages, as it is for None; see `Tokenizer.in_languages`."""
    if source_language is target_language is None:
        return tokenizer
    if not hasattr(tokenizer, "in_languages"):
        raise ValueError(
            "`source_language` and `target_language` need a `Tokenizer` with languages. Received: "
            f"{type(tokenizer).__name__}"
        )
    return tokenizer.in_languages(source_language, target_language)


def unknown_of(tokenizer: Any, side: str) -> Any:
    """Return the id of the unknown token on one side; None if the tokenizer has none."""
    own = getattr(tokenizer, "unknown_token_id", None)
    return own if side == "source" else getattr(tokenizer, "target_unknown_token_id", own)


def piece_of(tokenizer: Any, token_id: int, side: str) -> str:
    """Return the subword with this id on one side."""
    return tokenizer.id_to_token(token_id, **_named(tokenizer, side))


def target_size_of(tokenizer: Any) -> int:
    """Return the number of ids of the target."""
    return getattr(tokenizer, "target_vocabulary_size", tokenizer.vocabulary_size)


def has_one_vocabulary(tokenizer: Any) -> bool:
    """Whether each id is the same subword on both sides."""
    size = tokenizer.vocabulary_size
    if not hasattr(tokenizer, "target_vocabulary_size"):
        return True
    return size == tokenizer.target_vocabulary_size and all(
        piece_of(tokenizer, i, "source") == piece_of(tokenizer, i, "target") for i in range(size)
    )


def _named(tokenizer: Any, side: str) -> dict[str, str]:
    """Return the argument `side` for a tokenizer that has one."""
    return {"side": side} if hasattr(tokenizer, "target_vocabulary_size") else {}
