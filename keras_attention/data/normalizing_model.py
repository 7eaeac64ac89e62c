"""A SentencePiece model that normalises text itself, as `Tokenizer` does before it asks its own."""

from __future__ import annotations

import functools
import tempfile
import unicodedata
from collections.abc import Iterator
from typing import Any

from keras_attention.data.normalization import INVISIBLE

# Unicode decomposes no character from here on.
LAST_COMPOSED = 0x30000


def with_normalization(model: bytes) -> bytes:
    """Return a "bpe" tokenizer's model with its normalisation inside, for programs that do not normalise.

    They get the ids of `Tokenizer.encode`. Differences are left in text that nobody writes: several marks of
    one letter in an order that is not canonical, an invisible character between a letter and its mark, and
    the character NUL. A model that normalises already stays as it is.
    """
    try:
        from sentencepiece import sentencepiece_model_pb2
    except ImportError as error:
        raise ImportError(
            "The normalisation is written into the SentencePiece model by protobuf, which is not installed: "
            "pip install 'protobuf>=5'"
        ) from error
    messages: Any = sentencepiece_model_pb2  # made when it is imported: unknown to mypy
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
