"""Read models in CTranslate2's format, such as those of Argos Translate and LibreTranslate.

Shape letters: D hidden_dim, V vocabulary, L positions.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_attention.interop import foreign
from keras_attention.interop.ctranslate2 import MODEL_FILE
from keras_attention.interop.ctranslate2_variables import Variables, read_variables
from keras_attention.spec import parts
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.files import DamagedFile

CONFIG_FILE = "config.json"
SHARED, SOURCE, TARGET = (f"{name}_vocabulary" for name in ("shared", "source", "target"))
# Number of an activation in the file -> its name in a spec.
ACTIVATION_OF = {0: "relu", 2: "silu", 3: "gelu", 5: "tanh", 6: "sigmoid"}
HEADS = {"TransformerBase": 8, "TransformerBig": 16, "TransformerSpec": 8}
EPSILON, RMS_EPSILON = 1e-5, 1e-6  # CTranslate2's, if the settings have none
# Positions that are computed count from 1, which no layout of ours does: so they become a table.
COMPUTED_POSITIONS = 2048
PAD, END = 0, 1  # In the spec.
# Settings of how results are shown, and of one table of embeddings.
IGNORED = "(.*/)?(alignment_layer|alignment_heads|embeddings_merge)"


class CTranslate2Model(NamedTuple):
    """A model in CTranslate2's format."""

    spec: TransformerSpec
    source_pieces: list[str]  # token of each id of the source
    target_pieces: list[str]
    unknown: str  # the unknown token
    source_prefix: list[str]  # tokens that every source begins with
    ends_source: bool  # whether every source ends with the end token


def read_ctranslate2(folder: Path, positions: str = foreign.POSITIONS[0]) -> CTranslate2Model:
    """Read a model in CTranslate2's format, with weights of any type.

    Ids are 0 for padding and 1 for the end of a sentence, in source and target; then come the other tokens
    in their order. Padding is the start token if this has a zero embedding, else a further token that is
    never produced.

    If the model was converted from Marian, CTranslate2 computes other positions than those of its
    training: `"as_trained"` takes the latter, `"as_transformers"` CTranslate2's.
    """
    path = folder / MODEL_FILE
    model = _Reader(folder, read_variables(path))
    spec = foreign.checked(lambda: model.spec(positions), path)
    return CTranslate2Model(
        spec,
        model.pieces("source"),
        model.pieces("target"),
        model.unknown,
        [model.bos] if model.flag("add_source_bos", "with_source_bos") else [],
        model.ends_source,
    )


def _read_vocabularies(folder: Path) -> tuple[list[str], list[str], bool]:
    """Return the tokens of source and target, and whether they are one vocabulary."""
    shared = _read_vocabulary(folder, SHARED)
    if shared is not None:
        return shared, shared, True
    source, target = (_read_vocabulary(folder, name) for name in (SOURCE, TARGET))
    if source is None or target is None:
        raise ValueError(
            f"'{folder}' lacks its vocabulary: expected {SHARED}.json or .txt, or {SOURCE} and {TARGET}."
        )
    return source, target, False


def _read_vocabulary(folder: Path, name: str) -> list[str] | None:
    path = folder / f"{name}.json"
    if path.is_file():
        tokens = foreign.read_foreign_json(path, list)
    else:
        path = folder / f"{name}.txt"
        if not path.is_file():
            return None
        tokens = foreign.read_foreign_text(path).removesuffix("\n").split("\n")
    if not all(isinstance(token, str) for token in tokens) or len(set(tokens)) < len(tokens):
        raise DamagedFile(f"'{path}' must hold tokens, each of them once.")
    return tokens


class _Reader:
    """Makes a spec from variables, settings and vocabularies."""

    def __init__(self, folder: Path, variables: Variables) -> None:
        self._variables = variables
        config = folder / CONFIG_FILE
        self._settings = foreign.Settings.of_file(config)
        self.unknown = self._settings.get("unk_token", str, "<unk>")
        *vocabularies, self._is_shared = _read_vocabularies(folder)
        # An unknown token that is not listed is the last, as in CTranslate2.
        self._tokens = {
            side: [*dict.fromkeys([*tokens, self.unknown])]
            for side, tokens in zip(("source", "target"), vocabularies, strict=True)
        }
        self.bos = self._settings.get("bos_token", str, "<s>")
        self._end = self._settings.get("eos_token", str, "</s>")
        is_from_bos = variables.scalar("with_target_bos", 1)
        start = self.bos if is_from_bos else self._end
        if self._settings.values.get("decoder_start_token", start) is None:
            raise ValueError(
                f"'{config}': decoder_start_token is null, so translations begin with the code of their "
                "language in its place, as in mBART-25. Put the code there, such as 'ro_RO'."
            )
        self._start = self._settings.get("decoder_start_token", str, start)
        self._is_marian = bool(variables.scalar("decoder/start_from_zero_embedding", 0))
        self._pad: str | None = None
        self._orders: dict[str, list[int]] = {}

    @property
    def ends_source(self) -> bool:
        """Whether sources end with the end token, which Marian's always do."""
        return self._is_marian or self.flag("add_source_eos", "with_source_eos")

    def flag(self, setting: str, variable: str) -> bool:
        """Return a flag of the settings, or of an older version's variables."""
        return self._settings.get(setting, bool, bool(self._variables.scalar(variable, 0)))

    def pieces(self, side: str) -> list[str]:
        """Return the token of each id."""
        tokens = self._tokens[side]
        return [tokens[i] if i >= 0 else "" for i in self._orders[side]]

    def spec(self, positions: str) -> TransformerSpec:
        """Return the whole model."""
        if (name := self._variables.name) not in HEADS:
            raise parts.SpecError(
                f"it is a {name!r}, not an encoder-decoder: read are {list(HEADS)}"
            )
        tables = {
            side: self._variables.first([f"{layer}/weight" for layer in layers])
            for side, layers in (
                ("source", ("encoder/embeddings_0", "encoder/embeddings")),
                ("target", ("decoder/embeddings", "decoder/embeddings_0")),
            )
        }
        self._arrange(tables)
        source, target, start = self._embeddings(tables)
        dim = source.embeddings.shape[1]
        layouts = [self._positions(kind, dim, positions) for kind in ("encoder", "decoder")]
        encoder, decoder = (
            self._stack(kind, layout)
            for kind, layout in zip(("encoder", "decoder"), layouts, strict=True)
        )
        self._variables.refuse_unread(IGNORED)
        spec = TransformerSpec(
            source,
            encoder,
            decoder,
            start_token_id=start,
            end_token_id=END,
            target_embedding=target,
            suppressed_token_ids=(PAD,) if self._pad is None else (),
        )
        is_marian = any(layout.layout == "halves" for layout in layouts)
        return (
            foreign.as_transformers(spec) if is_marian and positions == "as_transformers" else spec
        )

    def _arrange(self, tables: dict[str, np.ndarray]) -> None:
        """Find the row of each id: that of padding, of the end, then all others; -1 for a zero row."""
        for side, table in tables.items():
            tokens = self._tokens[side]
            if len(tokens) != len(table):
                raise parts.SpecError(
                    f"its {side} vocabulary has {len(tokens)} tokens, its table {len(table)} rows"
                )
        rows = {side: {t: i for i, t in enumerate(self._tokens[side])} for side in tables}
        has_zero = all(
            self._start in rows[side] and not tables[side][rows[side][self._start]].any()
            for side in tables
        )
        if self._start not in rows["target"] and not self._is_marian:
            raise parts.SpecError(f"its target vocabulary lacks the start token {self._start!r}")
        if has_zero and not self._is_marian:
            self._pad = self._start
        for side, ids in rows.items():
            first = [-1 if self._pad is None else ids[self._pad], ids.get(self._end, -1)]
            if first[1] < 0 and (side == "target" or self.ends_source):
                raise parts.SpecError(f"its {side} vocabulary lacks the end token {self._end!r}")
            self._orders[side] = [*first, *(i for i in ids.values() if i not in first)]

    def _embeddings(
        self, tables: dict[str, np.ndarray]
    ) -> tuple[parts.EmbeddingSpec, parts.EmbeddingSpec | None, int]:
        """Return the table of the source, that of the target if it is another, and the start token's id."""
        scales = {
            side: self._scale(kind, tables[side].shape[1])
            for side, kind in (("source", "encoder"), ("target", "decoder"))
        }
        projection = self._variables.array("decoder/projection/weight", 2)
        bias = self._variables.optional("decoder/projection/bias")
        order = self._orders["target"]
        if len(projection) != len(order) - order.count(-1):
            raise parts.SpecError(
                f"its softmax matrix has {len(projection)} rows, its vocabulary "
                f"{len(self._tokens['target'])} tokens"
            )
        arranged = {
            side: _rows(table, self._orders[side]) * np.float32(scales[side])
            for side, table in tables.items()
        }
        softmax = _rows(projection, order)
        is_tied = np.array_equal(arranged["target"][1:], softmax[1:])
        target = parts.EmbeddingSpec(
            softmax if is_tied else arranged["target"],
            None if is_tied else softmax.T.copy(),
            None if bias is None else _rows(bias, order),
            PAD,
        )
        is_from_zero = self._is_marian or self._pad is not None
        start = PAD if is_from_zero else self.pieces("target").index(self._start)
        is_one = self._is_shared and np.array_equal(arranged["source"][1:], arranged["target"][1:])
        if is_one:
            return target, None, start
        return parts.EmbeddingSpec(arranged["source"], pad_token_id=PAD), target, start

    def _scale(self, kind: str, dim: int) -> float:
        """Return what a table is multiplied by so that `sqrt(D)` times it is the embedding."""
        root = math.sqrt(dim)
        for name in (f"{kind}/scale_embeddings", f"{kind}/embeddings/multiply_by_sqrt_depth"):
            if (value := self._variables.scalar(name)) is not None:
                if isinstance(value, int):  # A flag.
                    value = root if value else 1.0
                return 1.0 if math.isclose(value, root, rel_tol=1e-6) else value / root
        return 1.0

    def _positions(self, kind: str, dim: int, positions: str) -> parts.PositionsSpec:
        table = self._variables.optional(f"{kind}/position_encodings/encodings")
        if table is None:
            numbers = np.arange(1, COMPUTED_POSITIONS + 1)
            return parts.PositionsSpec("learned", parts.sinusoid(numbers, dim, "halves"))
        if table.ndim == 3 and len(table) == 1:
            table = table[0]
        numbers = np.arange(len(table))
        for layout in ("interleaved", "halves"):
            if _is_near(table, parts.sinusoid(numbers, dim, layout)):
                return parts.PositionsSpec(layout)
        # Marian was trained with the layout "halves", and converters write the paper's frequencies.
        order = [*range(0, dim, 2), *range(1, dim, 2)]
        if self._is_marian and _is_near(table, parts.sinusoid(numbers, dim)[:, order]):
            return parts.PositionsSpec("halves")
        return parts.PositionsSpec("learned", table)

    def _stack(self, kind: str, positions: parts.PositionsSpec) -> parts.StackSpec:
        heads = self._setting(kind, "num_heads", HEADS[self._variables.name])
        activation = self._setting(kind, "activation", 0)
        if activation not in ACTIVATION_OF:
            raise parts.SpecError(
                f"its activation has the number {activation}; read are {ACTIVATION_OF}"
            )
        if heads < 1:
            raise parts.SpecError(f"it has {heads} heads")
        pre_norm = bool(self._setting(kind, "pre_norm", 1))
        blocks: list[parts.BlockSpec] = []
        while self._variables.has(f"{kind}/layer_{len(blocks)}/ffn/linear_0/weight"):
            name = f"{kind}/layer_{len(blocks)}"
            gate = f"{name}/ffn/linear_0_noact"
            network = parts.FeedForwardSpec(
                self._dense(f"{name}/ffn/linear_0"),
                self._dense(f"{name}/ffn/linear_1"),
                ACTIVATION_OF[activation],
                self._dense(gate) if self._variables.has(f"{gate}/weight") else None,
            )
            is_decoder = kind == "decoder"
            blocks.append(
                parts.BlockSpec(
                    self._attention(f"{name}/self_attention", heads, [3]),
                    self._norm(f"{name}/self_attention"),
                    network,
                    self._norm(f"{name}/ffn"),
                    self._attention(f"{name}/attention", heads, [1, 2]) if is_decoder else None,
                    self._norm(f"{name}/attention") if is_decoder else None,
                    pre_norm,
                )
            )
        norm, embedding_norm = (
            self._norm(kind, name) if self._variables.has(f"{kind}/{name}/gamma") else None
            for name in ("layer_norm", "layernorm_embedding")
        )
        return parts.StackSpec(positions, tuple(blocks), norm, embedding_norm)

    def _setting(self, kind: str, name: str, default: int) -> int:
        """Return a setting of a stack; older versions have one for both."""
        value = self._variables.scalar(f"{kind}/{name}", self._variables.scalar(name, default))
        return int(default if value is None else value)

    def _attention(self, name: str, heads: int, joined: list[int]) -> Any:
        """Return attention; `joined` says how many of queries, keys and values each matrix holds."""
        maps = []
        for index, count in enumerate(joined):
            dense = self._dense(f"{name}/linear_{index}")
            width, rest = divmod(dense.kernel.shape[1], count)
            if rest:
                raise parts.SpecError(
                    f"{name}/linear_{index} holds no {count} matrices of one width"
                )
            for start in range(0, count * width, width):
                part = slice(start, start + width)
                bias = None if dense.bias is None else dense.bias[part]
                maps.append(parts.DenseSpec(dense.kernel[:, part], bias))
        scale = self._variables.scalar(f"{name}/queries_scale")
        width = maps[0].kernel.shape[1]
        factor = 1.0 if scale is None else float(scale) * math.sqrt(width / heads)
        if not math.isclose(factor, 1.0, rel_tol=1e-6):
            query = maps[0]
            bias = None if query.bias is None else query.bias * np.float32(factor)
            maps[0] = parts.DenseSpec(query.kernel * np.float32(factor), bias)
        return foreign.attention_of([*maps, self._dense(f"{name}/linear_{len(joined)}")], heads)

    def _dense(self, name: str) -> parts.DenseSpec:
        kernel = np.ascontiguousarray(self._variables.array(f"{name}/weight", 2).T)
        return parts.DenseSpec(kernel, self._variables.optional(f"{name}/bias"))

    def _norm(self, name: str, kind: str = "layer_norm") -> parts.NormSpec:
        gamma = self._variables.array(f"{name}/{kind}/gamma")
        beta = self._variables.optional(f"{name}/{kind}/beta")
        usual = RMS_EPSILON if beta is None else EPSILON
        epsilon = self._settings.get("layer_norm_epsilon", float, usual)
        return parts.NormSpec(gamma, beta, epsilon)


def _rows(array: np.ndarray, order: list[int]) -> np.ndarray:
    """Return the rows of an array in an order; -1 is a row of zeros."""
    return np.pad(array, [(0, 1), *[(0, 0)] * (array.ndim - 1)])[order]


def _is_near(table: np.ndarray, expected: np.ndarray) -> bool:
    return table.shape == expected.shape and bool(np.abs(table - expected).max() < 1e-4)
