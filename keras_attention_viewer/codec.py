"""Records of attention: an `Entry`, and the blobs that it is stored as.

An entry is a sequence of gzip blobs: a header (JSON), then the weights of each kind and layer. So a viewer
can fetch only what it shows. A weight is an integer from 0 to 65535; 65535 stands for 1, so the error is at
most 8e-6. All input is checked: a file may be damaged or of another version, and a browser's requests come
from outside.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_attention_viewer.examples import example_problem
from keras_attention_viewer.thoughts import encode_norms, has_form, is_index, thought_problem
from keras_attention_viewer.tokens import Token

VERSION = 1
PLUGIN_NAME = "attention"
ONE = 65535
TARGETS = ("reference", "output")
# kind -> what its rows and its columns are.
KINDS = {
    "encoder": ("source", "source"),
    "decoder": ("decoder", "decoder_input"),
    "cross": ("decoder", "source"),
}
TOKEN_LISTS = ("source", "decoder_input", "decoder_output")
WEIGHT_TOLERANCE = 0.02  # bfloat16 weights that sum to 1 may exceed it a little
MOST_HEADER_BYTES = 1 << 25
LARGEST_SIZE = (1 << 31) - 1
MOST_WEIGHT_BYTES = 1 << 30
_TAG = re.compile(r"attention/(0|[1-9][0-9]{0,8})/(reference|output)")


class RecordError(ValueError):
    """A record that cannot be read: damaged, or of another version."""


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
    """The attention of one sentence at one step.

    Attributes:
        header: Step, texts, tokens, kinds and measures, ready for JSON. See `make_entry`.
        weights: By kind, for each layer an array (N, T, S) of uint16; 65535 stands for 1.
    """

    header: dict[str, Any]
    weights: dict[str, list[np.ndarray]]

    def to_blobs(self) -> list[bytes]:
        """Return the header and the weights of each kind and layer, in the order of `header["kinds"]`."""
        layers = [layer for kind in self.header["kinds"] for layer in self.weights[kind["name"]]]
        return [encode_header(self.header), *(encode_weights(layer) for layer in layers)]

    @classmethod
    def from_blobs(cls, blobs: Sequence[bytes]) -> Entry:
        """Read what `to_blobs` wrote.

        Raises:
            RecordError: If the blobs are damaged, or of another version.
        """
        if not blobs:
            raise RecordError("This attention record is empty.")
        header = decode_header(blobs[0])
        expected = 1 + sum(kind["layers"] for kind in header["kinds"])
        if len(blobs) != expected:
            raise RecordError(
                f"This attention record should have {expected} parts. Received: {len(blobs)}"
            )
        weights = {
            kind["name"]: [
                decode_weights(blobs[kind["first_blob"] + layer], weight_shape(header, kind))
                for layer in range(kind["layers"])
            ]
            for kind in header["kinds"]
        }
        return cls(header, weights)


def make_entry(
    step: int,
    source_text: str,
    target_text: str,
    source: Sequence[Token],
    decoder_input: Sequence[Token],
    decoder_output: Sequence[Token],
    weights: Mapping[str, Sequence[Any]],
    *,
    target: str = "reference",
    alignment: Sequence[Sequence[int]] | None = None,
    loss: float | None = None,
    predictions: Sequence[Mapping[str, Any]] | None = None,
    alternatives: Sequence[Mapping[str, Any]] | None = None,
    value_norms: Mapping[str, Sequence[Any]] | None = None,
) -> Entry:
    """Make an entry from the attention weights of one sentence.

    Args:
        step: Number of updates that the model has been trained for.
        source_text: The source sentence.
        target_text: Its translation: the reference, or what the model found.
        source: The S source tokens, from `describe_tokens`.
        decoder_input: The T tokens that the decoder reads, the start token first.
        decoder_output: The T tokens that it predicts from these, the end token last.
        weights: By kind, for each layer the weights after the softmax: `"encoder"` (N, S, S),
            `"decoder"` (N, T, T), `"cross"` (N, T, S). Kinds may be absent.
        target: `"reference"`, or `"output"` if the decoder read its own translation.
        alignment: The true alignment, if it is known: pairs of a source word and a target word, by
            their indices. Words are those of the tokens.
        loss: Loss of the sentence, if it is known.
        predictions: What the model thought of each of the T tokens that it predicts, if it is known: a dict
            with the probability of the token, `"p"`, and the likeliest `"others"`, pairs of a text and a
            probability.
        alternatives: What the beam search found, the best first: dicts with `"text"`, `"score"` and
            `"is_finished"`.
        value_norms: By kind, for each layer the norms (N, S) or (N, T) of the transformed value of each
            token that is read. A weight times its norm is that token's contribution.

    Returns:
        An `Entry`, without measures; see `measured`.

    Raises:
        ValueError: If tokens, weights or alignment do not fit together.
    """
    tokens = {
        "source": list(source),
        "decoder_input": list(decoder_input),
        "decoder_output": list(decoder_output),
    }
    if not weights or not set(weights) <= set(KINDS):
        raise ValueError(f"Expected weights of {sorted(KINDS)}. Received: {sorted(weights)}")
    kinds, stored, first = [], {}, 1
    for name in (name for name in KINDS if name in weights):
        rows, columns = KINDS[name]
        stored[name] = [quantize(layer) for layer in weights[name]]
        shapes = {layer.shape for layer in stored[name]}
        expected = _row_count(tokens, rows), len(tokens[columns])
        if len(shapes) != 1 or next(iter(shapes))[1:] != expected:
            raise ValueError(
                f"Expected weights of shape (heads, {expected[0]}, {expected[1]}) in each layer of "
                f"{name!r}, as there are so many tokens. Received: {sorted(shapes)}"
            )
        sizes = {"layers": len(stored[name]), "heads": next(iter(shapes))[0]}
        kinds.append({"name": name, **sizes, "rows": rows, "columns": columns, "first_blob": first})
        first += len(stored[name])
    header = {
        "version": VERSION,
        "step": int(step),
        "target": target,
        "source_text": source_text,
        "target_text": target_text,
        "tokens": tokens,
        "kinds": kinds,
        "measures": None,
        "alignment": None if alignment is None else sorted([int(s), int(t)] for s, t in alignment),
        "loss": None if loss is None or not np.isfinite(loss) else float(loss),
        "importance": None,
        "predictions": None if predictions is None else [dict(one) for one in predictions],
        "alternatives": None if alternatives is None else [dict(one) for one in alternatives],
        "value_norms": None
        if value_norms is None
        else {name: encode_norms(norms) for name, norms in value_norms.items()},
    }
    _check_header(header, ValueError)
    return Entry(header, stored)


def entry_tag(number: int, target: str = "reference") -> str:
    """Return the tag of a sentence in TensorBoard.

    >>> entry_tag(2)
    'attention/2/reference'
    """
    return f"{PLUGIN_NAME}/{number}/{target}"


def parse_tag(tag: str) -> tuple[int, str] | None:
    """Return the number of the sentence and target of a tag; None if it is no such tag.

    >>> parse_tag("attention/2/output"), parse_tag("attention/layer_1")
    ((2, 'output'), None)
    """
    match = _TAG.fullmatch(tag)
    return (int(match[1]), match[2]) if match else None


def quantize(weights: Any) -> np.ndarray:
    """Weights (N, T, S) as whole numbers from 0 to 65535; a ValueError says that these are none."""
    values = np.asarray(weights, "float64")
    if values.ndim != 3 or 0 in values.shape:
        raise ValueError(
            "Expected the weights of one sentence in one layer, shape (heads, rows, columns), none "
            f"of them 0. Received: shape {values.shape}"
        )
    # Not `min() < ...`: the comparison of a NaN must not pass.
    if not np.all((values >= -WEIGHT_TOLERANCE) & (values <= 1 + WEIGHT_TOLERANCE)):
        raise ValueError(
            "Attention weights must lie between 0 and 1: pass them after the softmax. "
            f"Received: values from {values.min()} to {values.max()}"
        )
    return np.rint(values.clip(0, 1) * ONE).astype("uint16")


def dequantize(layers: Sequence[np.ndarray]) -> np.ndarray:
    """Return stored weights of several layers (N, T, S) as floats of all their heads (layers * N, T, S)."""
    return np.concatenate(list(layers)).astype("float32") / ONE


def encode_header(header: Mapping[str, Any]) -> bytes:
    """Return a header as a blob."""
    text = json.dumps(header, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return gzip.compress(text.encode(), 9, mtime=0)


def decode_header(blob: bytes) -> dict[str, Any]:
    """Read a header; a RecordError says that it is damaged, or of another version."""
    try:
        header = json.loads(_decompress(blob, MOST_HEADER_BYTES), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"The header of this attention record is damaged. ({error})") from None
    _check_header(header, RecordError)
    return header


def encode_weights(weights: np.ndarray) -> bytes:
    """Return stored weights of one layer as a blob."""
    # Weights hardly repeat one another: without a search for repeats, but of zeros, a blob is smaller.
    packer = zlib.compressobj(6, zlib.DEFLATED, 31, 9, zlib.Z_RLE)
    return packer.compress(weights.astype("<u2").tobytes()) + packer.flush()


def decode_weights(blob: bytes, shape: tuple[int, int, int]) -> np.ndarray:
    """Read the weights of one layer, uint16 of this shape; a RecordError says that the blob has none."""
    size = 2 * int(np.prod(shape, dtype="int64"))
    try:
        content = _decompress(blob, size)
    except ValueError as error:
        raise RecordError(f"The weights in this attention record are damaged. ({error})") from None
    if len(content) != size:
        raise RecordError(
            f"Expected {size} bytes of weights, of shape {shape}. Received: {len(content)} bytes. "
            "Do models of several sizes write into this folder?"
        )
    return np.frombuffer(content, "<u2").reshape(shape)


def weight_shape(header: Mapping[str, Any], kind: Mapping[str, Any]) -> tuple[int, int, int]:
    """Heads, rows and columns of a kind's layers."""
    tokens = header["tokens"]
    return kind["heads"], _row_count(tokens, kind["rows"]), len(tokens[kind["columns"]])


def _row_count(tokens: Mapping[str, Sequence[Token]], rows: str) -> int:
    return len(tokens["decoder_input" if rows == "decoder" else rows])


def _decompress(blob: bytes, limit: int) -> bytes:
    """Unpacks one gzip member of at most `limit` bytes: a small blob could become a large one."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        content = unpacker.decompress(blob, limit + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(content) > limit:
        raise ValueError(f"more than {limit} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("it is cut off" if not unpacker.eof else "bytes follow its end")
    return content


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _check_header(header: Any, error: type[ValueError]) -> None:
    version = header.get("version") if isinstance(header, dict) else None
    if version != VERSION:
        raise error(
            f"This attention record has version {version!r}; this viewer reads version {VERSION}. "
            "Write it again with the package that is installed now, or install the one that wrote it."
        )
    problem = (
        _token_problem(header)
        or _kind_problem(header)
        or _alignment_problem(header)
        or thought_problem(header)
        or example_problem(header)
    )
    if problem:
        raise error(f"This attention record does not fit together: {problem}")


def _token_problem(header: dict[str, Any]) -> str | None:
    tokens = header.get("tokens")
    if not isinstance(tokens, dict) or set(tokens) != set(TOKEN_LISTS):
        return f"it should have the token lists {list(TOKEN_LISTS)}."
    for name, sentence in tokens.items():
        if not isinstance(sentence, list) or not sentence:
            return f"the tokens of {name!r} are no list, or there are none."
        if not has_form(sentence, [{"text": str}]):
            return f"a token of {name!r} has no text."
        if not has_form(sentence, [{"word": lambda word: word is None or is_index(word)}]):
            return f"the word of a token of {name!r} is no index."
    read, predicted = len(tokens["decoder_input"]), len(tokens["decoder_output"])
    if read != predicted:
        return f"the decoder reads {read} tokens and predicts {predicted}."
    return None


def _kind_problem(header: dict[str, Any]) -> str | None:
    if header.get("target") not in TARGETS or not is_index(header.get("step")):
        return f"its target should be one of {TARGETS}, its step a number of updates."
    if not has_form(header, {"source_text": str, "target_text": str}):
        return "its source and its target should be texts."
    kinds = header.get("kinds")
    if not isinstance(kinds, list) or not kinds:
        return "it should have kinds of attention."
    first = 1
    for kind in kinds:
        sides = (kind.get("rows"), kind.get("columns")) if has_form(kind, {"name": str}) else None
        if sides is None or sides != KINDS.get(kind["name"]):
            return f"its kinds should be of {sorted(KINDS)}, with their rows and columns."
        name, sizes = kind["name"], (kind.get("layers"), kind.get("heads"))
        are_sizes = all(is_index(size) and 0 < size <= LARGEST_SIZE for size in sizes)
        if not are_sizes or kind.get("first_blob") != first:
            return f"layers, heads or the first part of {name!r} are wrong."
        if 2 * np.prod(weight_shape(header, kind), dtype="float64") > MOST_WEIGHT_BYTES:
            return f"the weights of {name!r} are too many."
        first += kind["layers"]
    if len({kind["name"] for kind in kinds}) != len(kinds):
        return "a kind stands there twice."
    return None


def _alignment_problem(header: dict[str, Any]) -> str | None:
    alignment = header.get("alignment")
    if alignment is None:
        return None
    names = "source", "decoder_output"
    words = [{token.get("word") for token in header["tokens"][name]} for name in names]
    if not has_form(alignment, [(is_index, is_index)]):
        return "its alignment should be pairs of word indices."
    for link in alignment:
        if link[0] not in words[0] or link[1] not in words[1]:
            return f"its alignment names words that are not there: {link}."
    return None
