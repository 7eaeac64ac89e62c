"""Normalisation of text before it is cut: our own, and as part of a SentencePiece model."""

from __future__ import annotations

import functools
import itertools
import re
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator

from keras_attention.utils.checks import can_iterate, shown
from keras_attention.utils.lazily import needed

# Characters that show nothing and mean nothing, and why each may go. What looks like one but decides what is
# read stays: the joiners U+200C and U+200D (Indic scripts, Persian, emoji), variation selectors, the tags of
# flags, invisible operators of formulas, Mongolian and Hangul fillers, U+034F (order of marks), and U+0080 to
# U+009F, which are often letters and quotation marks of Windows in a wrong encoding.
INVISIBLE = re.compile(
    "["
    "\u0000-\u0008\u000e-\u001b\u007f"  # controls of terminals and files, but white space
    "\u00ad\u200b"  # soft hyphen, zero width space: a line may end there
    "\u2060\ufeff"  # word joiner, and the byte order mark, its old form: no line may end there
    # Arabic letter mark, left-to-right and right-to-left mark, embeddings, overrides, isolates: only the
    # direction of display. Unicode (UAX #9) has them ignored where text is compared.
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
    "\u206a-\u206f"  # other controls of display, which Unicode has deprecated
    "]"
)
# What a tokenizer does to text first. Imported ones have a normalisation of their own, and none of ours.
USUAL, NONE = "nfc_visible", "none"
FORM = "Unicode NFC, no invisible characters, single spaces"


def normalize(text: str, normalization: str = USUAL) -> str:
    """Normalise text: Unicode NFC, no invisible characters, single spaces, and none at the ends.

    Invisible characters are those of `INVISIBLE`, such as soft hyphens and zero width spaces. Nothing else
    is changed: no case folding, and no compatibility folding (NFKC rewrites "½", "²" and "…", which a
    detokenised BLEU would then count as errors). White space is what `str.split` splits at, including tabs,
    line breaks and no-break spaces. U+2581, which SentencePiece writes for a space, counts as one.

    With the normalization `"none"`, nothing changes.

    Example:

    >>> normalize(" Zwei\\tMa\\u0308n\\u00adner\\n")
    'Zwei Männer'
    """
    if normalization == NONE:
        return text
    text = INVISIBLE.sub("", text)
    return " ".join(unicodedata.normalize("NFC", text).replace("\u2581", " ").split())


def normalized_texts(texts: Iterable[str], normalization: str = USUAL) -> Iterator[str]:
    """Each text normalised."""
    if isinstance(texts, str | bytes) or not can_iterate(texts):
        raise ValueError(f"`texts` must be an iterable of str. Received: {shown(texts)}")
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"Text {position} must be a str. Received: {shown(text)}")
        if not text.isascii() and re.search("[\ud800-\udfff]", text):
            raise ValueError(
                f"Text {position} holds half of a surrogate pair, which is not a character. Was its file "
                f"read with errors='surrogateescape'? Received: {shown(text)}"
            )
        yield normalize(text, normalization)


# Unicode decomposes no character from here on.
LAST_COMPOSED = 0x30000


def with_normalization(model: bytes) -> bytes:
    """Return a "bpe" tokenizer's model with its normalisation inside, for programs that do not normalise.

    They get the ids of `Tokenizer.encode`. Differences are left in text that nobody writes: several marks of
    one letter in an order that is not canonical (but two points of Hebrew or Arabic), or of which a later one
    is composed with the letter, an invisible character between a letter and its mark, and the character NUL.
    A model that normalises already stays as it is, and keeps invisible characters as far as it does itself.
    """
    messages = needed(
        "sentencepiece.sentencepiece_model_pb2",
        "The normalisation is written into the SentencePiece model by protobuf, which is not installed: "
        "pip install 'protobuf>=5'",
    )
    proto = messages.ModelProto.FromString(model)
    if proto.normalizer_spec.precompiled_charsmap:
        return model
    proto.normalizer_spec.name = "nfc_visible"
    rules = messages.NormalizerSpec.FromString(_normalizer_spec())
    proto.normalizer_spec.precompiled_charsmap = rules.precompiled_charsmap
    proto.normalizer_spec.remove_extra_whitespaces = True
    return proto.SerializeToString()


@functools.cache
def _normalizer_spec() -> bytes:
    """Return SentencePiece's message with the table of all replacements."""
    import sentencepiece

    rules = {old: new for old, new in _replacements() if old != new and old != "\0"}
    lines = [
        "\t".join(" ".join(f"{ord(c):X}" for c in text) for text in rule) for rule in rules.items()
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        sentencepiece.set_min_log_level(1)  # It would tell how it reads the table.
        normalizer = sentencepiece.SentencePieceNormalizer(rule_tsv=file.name)
    return normalizer.serialized_normalizer_spec()


def _replacements() -> Iterator[tuple[str, str]]:
    """Yield each text that `normalize` replaces, and by what: all ways to write a letter with marks."""
    for letter in map(chr, range(LAST_COMPOSED)):
        if INVISIBLE.match(letter):
            yield letter, ""
        elif letter.isspace() or letter == "\u2581":
            yield letter, " "
        elif not unicodedata.is_normalized("NFD", letter):
            composed, parts = (unicodedata.normalize(form, letter) for form in ("NFC", "NFD"))
            yield letter, composed
            # Marks may stand alone or be composed with the letters before them.
            for end in range(1, len(parts) + 1):
                yield unicodedata.normalize("NFC", parts[:end]) + parts[end:], composed
            yield parts, composed
    # Points of Hebrew and Arabic: vowels are written behind a doubling, and stand canonically before it.
    points = [c for c in map(chr, range(0x5B0, 0x671)) if 10 <= unicodedata.combining(c) <= 35]
    for pair in map("".join, itertools.permutations(points, 2)):
        yield pair, unicodedata.normalize("NFC", pair)
