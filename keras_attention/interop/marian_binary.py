"""Read models in Marian's binary format, such as those of Firefox, with 8-bit weights and all.

Shape letters: D hidden_dim, F intermediate_dim, V vocabulary.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.interop import foreign
from keras_attention.spec import parts
from keras_attention.spec.transformer import TransformerSpec

FORMAT_VERSION = 1
SETTINGS = "special:model.yml"
# Number of a type in the file -> its NumPy type.
INT8_SCALED = 0x4101  # with a multiplier behind the numbers
TYPES = {0x101: "<i1", INT8_SCALED: "<i1", 0x402: "<f2", 0x404: "<f4", 0x408: "<f8"}
ALIGNMENT = 256
# Bytes that an item has at least: its entry in the header.
LEAST_BYTES = 32
MOST_AXES = 8
# Marian's words: add, then normalise.
POST_NORM, PRE_NORM = ("", "an"), ("n", "a")
END, UNKNOWN = 0, 1
EPSILON = 1e-6
# Marian's "gelu" is none of ours: it multiplies by a sigmoid of 1.702 times the input.
ACTIVATIONS = {"relu": "relu", "swish": "silu"}
# Settings that change what is computed, and the only value of each that a spec can have.
REQUIRED = {
    "type": "transformer",
    "transformer-ffn-depth": 2,
    "transformer-no-projection": False,
    "transformer-pool": False,
    "transformer-tied-layers": [],
    "transformer-train-position-embeddings": False,
    "transformer-rnn-projection": False,
    "transformer-depth-scaling": False,
    "ulr": False,
    "right-left": False,
    "lemma-dim-emb": 0,
    "input-types": [],
    "transformer-decoder-dim-ffn": 0,
    "transformer-decoder-ffn-depth": 0,
}


def read_marian(path: Path) -> TransformerSpec:
    """Read a model in Marian's binary format: `model.*.bin`.

    The weights become float32. The positions are `"halves"`. Marian starts to translate from a zero
    embedding, and has no padding token: this gets the last id, after those of the vocabulary. It and the
    unknown token are never produced, as in Marian. The decoder has an `SSRUSpec` or self-attention.
    """
    return spec_of(read_items(path), path)


def spec_of(items: Items, path: Path) -> TransformerSpec:
    """Return the model of Marian's arrays, which come from this file."""
    if not items.has(SETTINGS):
        raise items.error(f"it holds no {SETTINGS!r}, the model's settings")
    settings = foreign.Settings(simple_yaml(items.text(SETTINGS)), path)
    return foreign.checked(lambda: _Model(items, settings).spec(), path)


class Items(foreign.Arrays):
    """The arrays in a file: of each its type, its shape and its bytes."""

    def __init__(self, file: foreign.BinaryFile) -> None:
        super().__init__({}, file.error)
        self._decoded = file.decoded

    def add(self, name: str, type_id: int, shape: tuple[int, ...], data: np.ndarray) -> None:
        """Add an array whose size was checked."""
        if self.has(name):
            raise self.error(f"it holds {name!r} twice")
        self.values[name] = type_id, shape, data

    def text(self, name: str) -> str:
        """Return an array of letters."""
        return self._decoded(self.values[name][2], repr(name))

    def widened(self, name: str) -> np.ndarray:
        type_id, shape, data = self.values[name]
        if type_id not in TYPES or type_id == 0x101:
            raise self.error(f"{name!r} has the type {type_id:#x}, which is not read")
        dtype = np.dtype(TYPES[type_id])
        size = math.prod(shape) * dtype.itemsize
        values = data[:size].view(dtype).astype("float32")
        if type_id != INT8_SCALED:
            return values.reshape(shape)
        multiplier = data[size : size + 4].view("<f4")[0]
        if not (np.isfinite(multiplier) and multiplier > 0):
            raise self.error(f"the multiplier of {name!r} is {multiplier}")
        values /= multiplier
        # Matrices of 8 bits for products are stored transposed, tables of embeddings are not.
        is_table = name.rpartition("_")[2] == "Wemb"
        return values.reshape(shape) if is_table else values.reshape(shape[::-1]).T.copy()


def read_items(path: Path) -> Items:
    """Read the header of a file, and check that all sizes in it fit together."""
    file = foreign.BinaryFile(path)
    version, count = file.numbers("<QQ", "the header")
    if version != FORMAT_VERSION:
        raise file.error(
            f"it has the format version {version}, expected {FORMAT_VERSION}; is it a binary model of "
            "Marian?"
        )
    if count * LEAST_BYTES > file.left:
        raise file.error(f"{count:,} arrays do not fit into it")
    headers = [file.numbers("<QQQQ", f"the header of array {i}") for i in range(count)]
    names = [file.text(header[0], "a name") for header in headers]
    shapes = []
    for name, header in zip(names, headers, strict=True):
        if header[2] > MOST_AXES:
            raise file.error(f"{name!r} has {header[2]:,} axes")
        shapes.append(file.numbers(f"<{header[2]}i", f"the shape of {name!r}"))
    (padding,) = file.numbers("<Q", "the padding")
    file.take(padding, "the padding")
    items = Items(file)
    for name, (_, type_id, _, length), shape in zip(names, headers, shapes, strict=True):
        if min(shape, default=1) < 1:
            raise file.error(f"{name!r} has the shape {shape}")
        if type_id in TYPES:
            size = math.prod(shape) * np.dtype(TYPES[type_id]).itemsize
            size += 4 * (type_id == INT8_SCALED)
            if length not in (size, -(-size // ALIGNMENT) * ALIGNMENT):
                raise file.error(f"{name!r} {shape} should have {size:,} bytes, not {length:,}")
        items.add(name, type_id, shape, file.take(length, repr(name)))
    return items


def simple_yaml(text: str) -> dict[str, Any]:
    """Read the YAML that Marian writes: `key: value`, with lists of values; all else is left out.

    >>> simple_yaml('heads: 8\\nnormal: ""\\ndims:\\n  - 3\\n  - 4\\nnone: []\\nskip: false')
    {'heads': 8, 'normal': '', 'dims': [3, 4], 'none': [], 'skip': False}
    """
    settings: dict[str, Any] = {}
    last = None
    for line in text.splitlines():
        entry = re.fullmatch(r"([\w-]+):\s*(.*?)\s*", line)
        item = re.fullmatch(r"\s*- (.*?)\s*", line)
        if entry:
            last, value = entry.groups()
            settings[last] = [] if value in ("", "[]") else _scalar(value)
        elif item and isinstance(settings.get(last or ""), list):
            settings[last or ""].append(_scalar(item[1]))
    return settings


def _scalar(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    if re.fullmatch(r"-?\d{1,18}\.\d{1,18}", text):
        return float(text)
    quoted = re.fullmatch(r"\"(.*)\"|'(.*)'", text)
    return (quoted[1] or quoted[2] or "") if quoted else text


class _Model:
    """Makes a spec from the arrays and the settings of a file."""

    def __init__(self, items: Items, settings: foreign.Settings) -> None:
        self._items, self._settings = items, settings
        settings.refuse_unless(REQUIRED)
        self._heads = settings.number("transformer-heads")
        names = ("transformer-preprocess", "transformer-postprocess")
        # d is dropout, which only training has.
        steps = tuple(settings.get(name, str, "").replace("d", "") for name in names)
        if steps not in (POST_NORM, PRE_NORM):
            raise parts.SpecError(
                f"its {names[0]} and {names[1]} {steps} are neither post- nor pre-norm"
            )
        self._normalize_first = steps == PRE_NORM
        activation = settings.get("transformer-ffn-activation", str, "relu")
        if activation not in ACTIVATIONS:
            raise parts.SpecError(
                f"its transformer-ffn-activation is {activation!r}; read are {list(ACTIVATIONS)}"
            )
        self._activation = ACTIVATIONS[activation]
        kind = settings.get("transformer-decoder-autoreg", str, "self-attention")
        cell = settings.get("dec-cell", str, "ssru") if kind == "rnn" else ""
        if (kind, cell) not in (("self-attention", ""), ("rnn", "ssru")):
            raise parts.SpecError(
                f"its decoder has transformer-decoder-autoreg {kind!r} {cell!r}; read are self-attention "
                "and an rnn of SSRU cells"
            )
        self._is_ssru = kind == "rnn"

    def spec(self) -> TransformerSpec:
        """Return the whole model."""
        source, target = self._tables()
        pad = source.embeddings.shape[0] - 1
        encoder, decoder = (
            self._stack(kind, self._settings.number(f"{kind[:3]}-depth"))
            for kind in ("encoder", "decoder")
        )
        self._items.refuse_unread("special:.*|.*_QuantMultA")  # multipliers of activations
        return TransformerSpec(
            source,
            encoder,
            decoder,
            start_token_id=pad,
            end_token_id=END,
            target_embedding=target,
            suppressed_token_ids=(UNKNOWN, pad),
        )

    def _tables(self) -> tuple[parts.EmbeddingSpec, parts.EmbeddingSpec | None]:
        """Return the table of the source, and that of the target if it is another, with rows for padding."""
        is_one = self._items.has("Wemb")
        table = self._items.array("Wemb" if is_one else "decoder_Wemb", 2)
        softmax = self._items.optional("decoder_ff_logit_out_W", 2)
        bias = self._items.optional("decoder_ff_logit_out_b")
        pad = table.shape[0]
        target = parts.EmbeddingSpec(table, softmax, None if bias is None else bias.ravel(), pad)
        if is_one:
            return foreign.with_row(target), None
        source = parts.EmbeddingSpec(self._items.array("encoder_Wemb", 2), pad_token_id=pad)
        if source.embeddings.shape[0] != pad:
            raise parts.SpecError(
                f"its vocabularies have {source.embeddings.shape[0]} and {pad} tokens; only those of one "
                "size are read"
            )
        return foreign.with_row(source), foreign.with_row(target)

    def _stack(self, kind: str, depth: int) -> parts.StackSpec:
        blocks = tuple(self._block(f"{kind}_l{i + 1}", kind == "decoder") for i in range(depth))
        top = self._settings.get("transformer-postprocess-top", str, "").replace("d", "")
        if top not in ("", "n"):
            raise parts.SpecError(
                f"its transformer-postprocess-top is {top!r}; read are '' and 'n'"
            )
        norm = self._norm(f"{kind}_top") if top else None
        return parts.StackSpec(parts.PositionsSpec("halves"), blocks, norm)

    def _block(self, name: str, is_decoder: bool) -> parts.BlockSpec:
        is_ssru = is_decoder and self._is_ssru
        pre = "_pre" if self._normalize_first else ""
        own: Any
        if is_ssru:
            rnn = f"{name}_rnn"
            own = parts.SSRUSpec(self._dense(rnn, "", has_bias=False), self._dense(rnn, "f"))
            norm = self._norm(f"{rnn}_ffn", pre)
        else:
            own = self._attention(f"{name}_self")
            norm = self._norm(f"{name}_self_Wo", pre)
        network = parts.FeedForwardSpec(
            self._dense(f"{name}_ffn", "1"), self._dense(f"{name}_ffn", "2"), self._activation
        )
        return parts.BlockSpec(
            own,
            norm,
            network,
            self._norm(f"{name}_ffn_ffn", pre),
            self._attention(f"{name}_context") if is_decoder else None,
            self._norm(f"{name}_context_Wo", pre) if is_decoder else None,
            self._normalize_first,
        )

    def _attention(self, name: str) -> Any:
        return foreign.attention_of([self._dense(name, part) for part in "qkvo"], self._heads)

    def _dense(self, name: str, part: str, has_bias: bool = True) -> parts.DenseSpec:
        bias = self._items.array(f"{name}_b{part}").ravel() if has_bias else None
        return parts.DenseSpec(self._items.array(f"{name}_W{part}", 2), bias)

    def _norm(self, name: str, suffix: str = "") -> parts.NormSpec:
        gamma, beta = (
            self._items.array(f"{name}_ln_{part}{suffix}").ravel() for part in ("scale", "bias")
        )
        return parts.NormSpec(gamma, beta, EPSILON)
