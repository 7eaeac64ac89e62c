"""Symbols that a tokenizer keeps whole, such as the tags <2de> and <bt>, and its languages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

from keras_attention.data.normalization import INVISIBLE, normalize
from keras_attention.utils.checks import check_text, check_texts, did_you_mean

# With a letter or digit inside: no word-piece has both kinds of characters, so none looks like a symbol.
SYMBOL = re.compile(r"<[^<>,\s\u2581]*[^\W_][^<>,\s\u2581]*>")
TAKEN = re.compile(r"<(pad|unk|s|/s|0x[0-9A-Fa-f]{2})>")
MOST_SHOWN = 12  # languages
# What a text may ask for that only a vocabulary can give; the second form is OPUS-MT's.
TAG = re.compile(rf"{SYMBOL.pattern}|>>[^<>\s]+<<")
# Tags before a text. Unlike `SYMBOL`, it reads a long line but once.
GAP = rf"{INVISIBLE.pattern[:-1]}\s\u2581]"
LEADING = re.compile(rf"{GAP}*(?:(?:<[^<>,\s\u2581]+>|>>[^<>\s]+<<){GAP}+)+")
# The language that it names.
NAMED = re.compile(r">>([^<>\s]+)<<|<2([^<>\s]+)>")


def language_tags(pieces: Iterable[str]) -> dict[str, str]:
    """Return the tags among pieces that name a language, by its name.

    >>> language_tags(["<2de>", "<bt>", ">>fra<<"])
    {'de': '<2de>', 'fra': '>>fra<<'}
    """
    found = (NAMED.fullmatch(piece) for piece in pieces)
    return {tag[1] or tag[2]: tag[0] for tag in found if tag}


def checked_symbols(symbols: Iterable[str]) -> list[str]:
    """Return symbols for a new vocabulary, each once."""
    found = list(dict.fromkeys(check_texts("symbols", symbols)))
    for symbol in found:
        if not SYMBOL.fullmatch(symbol) or TAKEN.fullmatch(symbol) or normalize(symbol) != symbol:
            raise ValueError(
                "`symbols` must be words in angle brackets, such as '<2de>', without a comma or white space "
                f"inside, and not <pad>, <unk>, <s>, </s> or a byte such as <0x0A>. Received: {symbol!r}"
            )
    return found


def pattern_of(symbols: Iterable[str]) -> re.Pattern[str] | None:
    """Return what finds symbols in a text, and splits it at them; None if there are none."""
    listed = "|".join(map(re.escape, symbols))
    return re.compile(f"({listed})") if listed else None


def tags_of(text: str | None) -> list[str]:
    """Return the tags in a text.

    >>> tags_of("<bt> <2de> translate:"), tags_of(None)
    (['<bt>', '<2de>'], [])
    """
    return [word for word in (text or "").split() if TAG.fullmatch(word)]


def without_tags(text: str) -> str:
    """Return a source without the tags before it, which are no words of it.

    >>> without_tags("<bt> <2de> a < b"), without_tags("<2de>")
    ('a < b', '<2de>')
    """
    return text[match.end() :] if (match := LEADING.match(text)) else text


def check_tags(name: str, tags: Iterable[str], tokenizer: Any) -> None:
    """Raise a ValueError unless a tokenizer has each of the tags as one piece."""
    for tag in tags:
        if tag not in tokenizer.tokens(tag):
            known = ", ".join(tokenizer.symbols)
            raise ValueError(
                f"`{name}` has the tag {tag!r}, which the vocabulary does not know: it would be split into "
                f"pieces. {f'It knows {known}.' if known else 'It knows no tags.'} Take one of these, or "
                "train a tokenizer with it (`symbols`)."
            )


def checked_prefix(prefix: Any, tokenizer: Any) -> str:
    """Return what is put before every source, after checking that the vocabulary knows its tags."""
    # It joins texts that are normalised already.
    prefix = normalize(check_text("source_prefix", prefix), tokenizer.normalization)
    prefix = " ".join(prefix.split())
    if not prefix:
        raise ValueError("`source_prefix` is empty. Leave it out, or give a text such as '<2de>'.")
    check_tags("source_prefix", tags_of(prefix), tokenizer)
    return prefix


def check_language(name: str, code: Any, languages: Collection[str]) -> str | None:
    """Return a code that is one of the languages, or None; else raise a ValueError."""
    if code is None or (isinstance(code, str) and code in languages):
        return code
    if not languages:
        raise ValueError(
            f"`{name}` is of models that translate between many languages, and this one has no codes of "
            f"languages. Leave it out. Received: {name}={code!r}"
        )
    raise ValueError(
        f"`{name}` must be a language of the model.{did_you_mean(code, languages)} "
        f"{shown_languages(languages, str(code)[:2])} "
        f"Received: {name}={code!r}"
    )


def shown_languages(languages: Iterable[str], begin: str = "") -> str:
    """Return a sentence with the codes of languages, not all of many: first those that begin so."""
    codes = sorted(languages, key=lambda code: (not code.startswith(begin), code))
    listed = codes if len(codes) <= MOST_SHOWN else [*codes[:MOST_SHOWN], "..."]
    rest = "" if listed == codes else " (`Tokenizer.languages` has all)"
    return f"It knows {', '.join(listed)}{rest}."


class ManyLanguages:
    """Methods of `Tokenizer` that choose between the languages of a model."""

    languages: Mapping[str, int]
    tags: Mapping[str, str]
    source_prefix: str | None
    start_token_id: int

    def in_languages(self, source: str | None = None, target: str | None = None) -> Self:
        """Return the tokenizer for texts in these languages, if the model translates between many.

        It writes their codes as the model reads them: in M2M-100, NLLB-200 and mBART-50 that of the source
        before its tokens, that of the target before those of the target; in mBART-25 behind the source, and
        as the start token. Texts are decoded without. A model of this kind needs both: without them `encode`
        raises. With `tags`, that of the target becomes `source_prefix`.

        Args:
            source: A code of `languages`, such as `"en"` in M2M-100 or `"eng_Latn"` in NLLB-200. Defaults to
                None: as it is.
            target: The same of the target, or one of `tags`.

        Raises:
            ValueError: If the tokenizer has no such language.
        """
        chosen = object.__new__(type(self))
        chosen.__dict__.update(self.__dict__)  # A copy would read the model again.
        if self.tags and target is not None:
            check_language("target_language", target, self.tags)
            chosen.source_prefix, target = self.tags[target], None
        for name, code, known in (
            ("source_language", source, self.languages),
            ("target_language", target, self.target_languages),
        ):
            if code is not None:
                setattr(chosen, name, check_language(name, code, known))
        return chosen

    @property
    def target_languages(self) -> Mapping[str, int]:
        """The languages that translations can be in: one, if decoding starts with its code."""
        own = {code: i for code, i in self.languages.items() if i == self.start_token_id}
        return own or self.languages

    def language_id(self, side: str) -> int:
        """Return the id of the chosen language's code; raise a ValueError if none is chosen."""
        name = f"{side}_language"
        if (code := getattr(self, name)) is None:
            raise ValueError(
                f"The model translates between {len(self.languages)} languages, so it must know from which "
                f"and into which: give `{name}`. {shown_languages(self.languages)}"
            )
        return self.languages[code]
