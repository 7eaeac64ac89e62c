"""A SentencePiece model that normalises text itself, as `Tokenizer` does before it asks its own."""

from __future__ import annotations

import functools
import tempfile
import unicodedata
from collections.abc import Iterator

from keras_attention.data.normalization import INVISIBLE

# Unicode decomposes no character from here on.
LAST_COMPOSED = 0x30000


def with_normalization(model: bytes) -> bytes:
    """Return a "bpe" tokenizer's model with its normalisation inside, for programs that do not normalise.

    They get the ids of `Tokenizer.encode`. Differences are left in text that nobody writes: several marks of
    one letter in an order that is not canonical, an invisible character between a letter and its mark, and
    the character NUL.

    Args:
        model: The model of a `Tokenizer` with `normalization="nfc_visible"`.

    Raises:
        ImportError: If protobuf is not installed.
    """
    try:
        from sentencepiece.sentencepiece_model_pb2 import ModelProto
    except ImportError as error:
        raise ImportError(
            "The normalisation is written into the SentencePiece model by protobuf, which is not installed: "
            "pip install 'protobuf>=5'"
        ) from error
    proto = ModelProto.FromString(model)
    proto.normalizer_spec.name = "nfc_visible"
    proto.normalizer_spec.precompiled_charsmap = _charsmap()
    proto.normalizer_spec.remove_extra_whitespaces = True
    return proto.SerializeToString()


@functools.cache
def _charsmap() -> bytes:
    """Return SentencePiece's table of replacements."""
    import sentencepiece
    from sentencepiece.sentencepiece_model_pb2 import NormalizerSpec

    rules = {old: new for old, new in _replacements() if old != new and old != "\0"}
    lines = [
        "\t".join(" ".join(f"{ord(c):X}" for c in text) for text in rule) for rule in rules.items()
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        normalizer = sentencepiece.SentencePieceNormalizer(rule_tsv=file.name)
    spec = NormalizerSpec.FromString(normalizer.serialized_normalizer_spec())
    return spec.precompiled_charsmap


def _replacements() -> Iterator[tuple[str, str]]:
    """Yield each text that `normalize` replaces, and what it becomes: all ways to write a letter with marks."""
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
