"""The graph of a SavedModel: what `Translator` does, in operations of TensorFlow and tensorflow-text.

`engine/forward.py` computes the model, as for the engine, and `plain_search.py` searches. As in
`incremental_search.py`, the beams of a sentence share one buffer of keys and values, and only the mask of
their histories is reordered.

Shape letters: B sentences, W beams, S source, L longest hypothesis, P slots of the buffer, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras import ops

from keras_attention.data.normalization import INVISIBLE
from keras_attention.decoding.hypotheses import (
    NO_HYPOTHESIS,
    BeamSearchResult,
    SearchRules,
    exist,
    result,
    select,
)
from keras_attention.decoding.plain_search import Choice, Steps, find_hypotheses
from keras_attention.decoding.requests import LARGEST_BUFFER
from keras_attention.engine.forward import Step, decode, encode
from keras_attention.engine.tensorflow import TensorFlowOperations
from keras_attention.spec import SSRUSpec, TransformerSpec

LAST_SPACE = 0x3000  # the last character of which `str.isspace` is true


def write_graph(
    spec: TransformerSpec,
    tokenizer: Any,
    rules: SearchRules,
    lengths: tuple[int, int],
    folder: Path,
) -> None:
    """Write the SavedModel of a spec of NumPy arrays into an existing folder.

    `lengths` are the most tokens of a source, and the most that a translation may have more.
    """
    text = TextOperations(tokenizer)
    model = ModelOperations(spec, rules, *lengths)
    module = tf.Module()
    # TensorFlow saves what is an attribute: variables, and the resource of the tokenizer.
    module.all_weights, module.pieces = model.variables, text.pieces
    string, number = tf.TensorSpec((None,), tf.string), tf.TensorSpec((), tf.int32)

    @tf.function(input_signature=[string, number], autograph=False)
    def translate(texts, n_best=tf.constant(1)):  # noqa: B008
        return _translate(text, model, texts, n_best)

    @tf.function(input_signature=[string, string], autograph=False)
    def score(sources, targets):
        return _score(text, model, sources, targets)

    # With one input for each row, TensorFlow Serving can join what several clients send.
    @tf.function(input_signature=[string], autograph=False)
    def serve(texts):
        return translate(texts, tf.constant(1))

    module.translate, module.score = translate, score
    signatures = {"serving_default": serve, "translate": translate, "score": score}
    tf.saved_model.save(module, str(folder), signatures=signatures)
    assets = folder / "assets"
    if assets.is_dir() and not any(assets.iterdir()):
        assets.rmdir()  # A manifest lists files.


class TextOperations:
    """The normalisation and the SentencePiece model of a "bpe" `Tokenizer`."""

    def __init__(self, tokenizer: Any) -> None:
        import tensorflow_text

        self._normalize_utf8 = tensorflow_text.normalize_utf8
        self.pieces = tensorflow_text.SentencepieceTokenizer(model=tokenizer.model)
        self._pad, self._end = tokenizer.pad_token_id, tokenizer.end_token_id
        prefix = tokenizer.source_prefix
        self._prefixes = {"source": "" if prefix is None else f"{prefix} ", "target": ""}
        spaces = [c for c in map(chr, range(LAST_SPACE + 1)) if c.isspace()]
        self._invisible = _escaped(INVISIBLE.pattern)
        self._spaces = _escaped(f"[{''.join(spaces)}\u2581]") + "+"

    def normalize(self, texts: Any) -> Any:
        """Do `data.normalization.normalize`."""
        texts = tf.strings.regex_replace(texts, self._invisible, "")
        texts = self._normalize_utf8(texts, "NFC")
        return tf.strings.strip(tf.strings.regex_replace(texts, self._spaces, " "))

    def encode(self, texts: Any, side: str) -> tuple[Any, Any]:
        """Return the ids (B, S) of texts (B,) with the end token, padded, and whether a text is empty."""
        valid = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        is_wrong = tf.cast(texts != valid, "int32")
        problem = ["A text is not UTF-8. Its number:", tf.argmax(is_wrong)]
        texts = self.normalize(_asserted(tf.reduce_sum(is_wrong) == 0, problem, texts))
        if self._prefixes[side]:
            texts = tf.where(texts == "", texts, self._prefixes[side] + texts)
        rows = self.pieces.tokenize(texts)
        ends = tf.fill((tf.size(texts), 1), self._end)
        ids = tf.concat([rows, ends], axis=1).to_tensor(self._pad)
        return ids, rows.row_lengths() == 0

    def decode(self, ids: Any) -> Any:
        """Return the texts of rows of ids: up to the first end token, without padding."""
        is_over = tf.cumsum(tf.cast(ids == self._end, "int32"), axis=1) > 0
        rows = tf.ragged.boolean_mask(ids, ~is_over & (ids != self._pad))
        return self.normalize(self.pieces.detokenize(rows))


class GraphOperations(TensorFlowOperations):
    """`TensorFlowOperations` whose buffers grow, and whose cells read all tokens of a target at once."""

    def append(self, buffer: Any, new: Any, start: Any) -> Any:
        return tf.concat([buffer, new], axis=2)

    def cell(self, projected: Any, state: Any, parents: Any) -> Any:
        if parents is not None:
            return super().cell(projected, state, parents)
        steps = tf.reshape(projected, (tf.shape(state)[0], -1, 2 * self.spec.hidden_dim))
        inputs, gates = tf.split(tf.transpose(steps, (1, 0, 2)), 2, axis=-1)
        gates = tf.sigmoid(gates)
        first = tf.zeros_like(gates[0])
        states = tf.scan(
            lambda last, own: own[0] * last + (1.0 - own[0]) * own[1], (gates, inputs), first
        )
        return tf.transpose(states, (1, 0, 2))


class _Cache(NamedTuple):
    """What a step leaves to the next one."""

    parents: Any  # (B, W) int32, the beams of the last step that the present ones continue
    history_bias: Any  # (B, W, P)
    buffers: Any  # of a block keys and values (N, B, P, d), or its cell's state (B, W, D)


class ModelOperations:
    """A spec's weights as variables, to be saved, its search, and its log-probabilities.

    `longest` are the largest numbers of tokens of a source, and of a target.
    """

    def __init__(
        self, spec: TransformerSpec, rules: SearchRules, max_length: int, max_extra_length: int
    ) -> None:
        self.spec, self.rules, self.max_extra_length = spec, rules, max_extra_length
        self._operations = GraphOperations(spec, "float32")
        self.variables: list[Any] = []
        self._weights = keras.tree.map_structure(
            lambda value: None if value is None else self._variable(value),
            self._operations.prepare(spec),
        )
        self.longest = [max_length, max_length + max_extra_length]
        if spec.max_length is not None:
            self.longest = [min(length, spec.max_length) for length in self.longest]
        self._positions = [
            self._variable(spec.positions(stack, length))
            for stack, length in zip((spec.encoder, spec.decoder), self.longest, strict=True)
        ]

    def _variable(self, value: Any) -> Any:
        self.variables.append(tf.Variable(value, trainable=False))
        return self.variables[-1]

    def _encode(self, token_ids: Any) -> Any:
        positions = self._positions[0][: tf.shape(token_ids)[1]]
        return encode(self._operations, self._weights, token_ids, positions)

    def _decode(self, step: Step, buffers: Any, memory: tuple[Any, Any]) -> tuple[Any, Any]:
        """Return the logits (R, V), and the new buffers."""
        (logits, _), new = decode(self._operations, self._weights, step, buffers, *memory, None)
        return logits, new

    def _first_buffers(self, rows: Any, beam_size: Any) -> list[Any]:
        spec = self.spec
        return [
            (tf.zeros((rows, beam_size, spec.hidden_dim)),)
            if isinstance(block.self_attention, SSRUSpec)
            else tuple(
                tf.zeros((spec.num_heads, rows, 0, width))
                for width in (spec.key_dim, spec.value_dim)
            )
            for block in spec.decoder.blocks
        ]

    def log_probabilities(self, source_ids: Any, target_ids: Any) -> Any:
        """Return log P (B,) of targets (B, T), padded behind."""
        memory = self._encode(source_ids)
        rows, length = tf.unstack(tf.shape(target_ids))
        starts = tf.fill((rows, 1), self.spec.start_token_id)
        inputs = tf.concat([starts, target_ids[:, :-1]], axis=1)
        # The tokens of a target are what beams are in a step, but that they see those before them.
        is_later = tf.range(length)[:, None] < tf.range(length)
        bias = tf.where(is_later, self._operations.masked, 0.0)[None, None]
        step = Step(inputs, self._positions[1][:length], None, bias)
        logits, _ = self._decode(step, self._first_buffers(rows, 1), memory)
        targets = tf.reshape(target_ids, (-1,))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
        losses = tf.where(targets != self.spec.pad_token_id, losses, 0.0)
        return -tf.reduce_sum(tf.reshape(losses, (rows, length)), axis=1)

    def search(self, source_ids: Any, limits: Any, rank: Any) -> BeamSearchResult:
        """Search like `beam_search`, for sources (B, S) and the longest hypothesis of each (B,), 0 for none.

        A sentence is done when its finished hypothesis of this rank cannot be beaten.
        """
        beam_size, memory = self.rules.beam_size, self._encode(source_ids)
        rows = tf.size(limits)
        own_bias = (1.0 - tf.eye(beam_size, batch_shape=[rows])) * self._operations.masked

        def step(tokens: Any, index: Any, cache: _Cache) -> tuple[Any, _Cache]:
            bias = tf.concat([cache.history_bias, own_bias], axis=2)
            lines = tf.reshape(tf.range(rows)[:, None] * beam_size + cache.parents, (-1,))
            position = self._positions[1][index : index + 1]
            read = Step(tokens, position, None, bias[:, None], lines)
            logits, buffers = self._decode(read, cache.buffers, memory)
            logits = tf.reshape(logits, (rows, beam_size, self.spec.target_vocabulary_size))
            return logits, _Cache(cache.parents, bias, buffers)

        def reordered(cache: _Cache, parents: Any) -> _Cache:
            return _Cache(parents, select(cache.history_bias, parents, ops), cache.buffers)

        cache = _Cache(
            tf.zeros((rows, beam_size), "int32"),
            tf.zeros((rows, beam_size, 0)),
            self._first_buffers(rows, beam_size),
        )
        # What has no slot yet grows.
        cache = tf.nest.map_structure(
            lambda part: tf.compat.v1.placeholder_with_default(
                part, [size or None for size in part.shape]
            ),
            cache,
        )
        longest = tf.maximum(tf.reduce_max(limits), 1)
        steps = Steps(step, cache, reordered)
        found = find_hypotheses(steps, limits, self.rules, rank, longest, Choice())
        return result(*found, self.rules, ops)


def _translate(
    text: TextOperations, model: ModelOperations, texts: Any, n_best: Any
) -> dict[str, Any]:
    """Return the n best translations of texts (B,), and their scores."""
    beam_size = model.rules.beam_size
    problem = [f"`n_best` must be from 1 to {beam_size}, the beam size. Received:", n_best]
    n_best = _asserted((n_best >= 1) & (n_best <= beam_size), problem, n_best)
    source_ids, is_empty = text.encode(_at_least_one(texts), "source")
    source_ids, lengths = _checked(source_ids, model, "source")
    limits = tf.minimum(lengths + model.max_extra_length, model.longest[1])
    limits = tf.where(is_empty, 0, limits)
    # As large as `Batching` allows.
    size = tf.cast(tf.size(limits), "int64") * tf.cast(tf.reduce_max(limits), "int64")
    problem = [f"Too much at once for {beam_size} beams. Give fewer texts, or shorter ones."]
    limits = _asserted(size * beam_size**2 <= LARGEST_BUFFER, problem, limits)
    # Only who wants the n best waits for the certainty of the others.
    rank = tf.where(n_best > 1, beam_size - 1, 0)
    found, scores, *_ = model.search(source_ids, limits, rank)
    written = text.decode(tf.reshape(found, (-1, tf.shape(found)[2])))
    written = tf.reshape(written, (-1, beam_size))
    is_there = exist(scores)
    # Other tokens may spell the same text; of those the best one is kept.
    is_same = (written[:, :, None] == written[:, None]) & is_there[:, None]
    is_before = tf.linalg.band_part(tf.ones((beam_size, beam_size)), -1, 0) - tf.eye(beam_size)
    is_kept = is_there & ~tf.reduce_any(is_same & (is_before > 0), axis=2)
    order = tf.argsort(tf.cast(~is_kept, "int32"), axis=1, stable=True)[:, :n_best]
    is_kept, written, scores = (
        tf.gather(part, order, batch_dims=1) for part in (is_kept, written, scores)
    )
    is_first = tf.range(n_best) == 0
    nothing = tf.where(is_empty[:, None] & is_first, 0.0, NO_HYPOTHESIS)
    return {
        "translations": tf.where(is_kept, written, "")[: tf.size(texts)],
        "scores": tf.where(is_kept, scores, nothing)[: tf.size(texts)],
    }


def _score(
    text: TextOperations, model: ModelOperations, sources: Any, targets: Any
) -> dict[str, Any]:
    """Return log P(target | source) of each pair of texts (B,) and (B,)."""
    sizes = [tf.size(sources), tf.size(targets)]
    problem = ["Every source needs its target. Received:", *sizes]
    sources, targets = (
        _asserted(sizes[0] == sizes[1], problem, texts) for texts in (sources, targets)
    )
    source_ids, target_ids = (
        _checked(text.encode(_at_least_one(texts), side)[0], model, side)[0]
        for texts, side in ((sources, "source"), (targets, "target"))
    )
    found = model.log_probabilities(source_ids, target_ids)
    return {"log_probabilities": found[: tf.size(sources)]}


def _at_least_one(texts: Any) -> Any:
    """Return texts (B,), or an empty one where there is none: the model has no batches of no rows."""
    return tf.concat([texts, tf.fill((tf.cast(tf.size(texts) == 0, "int32"),), "")], axis=0)


def _checked(ids: Any, model: ModelOperations, side: str) -> tuple[Any, Any]:
    """Return ids (B, S) and their numbers of tokens; fail if there are more than positions."""
    lengths = tf.reduce_sum(tf.cast(ids != model.spec.pad_token_id, "int32"), axis=1)
    most = model.longest[side == "target"]
    problem = [
        f"A {side} is longer than {most} tokens, end token included. Split it into sentences. Its number:",
        tf.argmax(lengths),
    ]
    return _asserted(tf.reduce_all(lengths <= most), problem, ids), lengths


def _asserted(is_right: Any, problem: Sequence[Any], value: Any) -> Any:
    """Return a tensor; a call for which something is not right fails and shows the problem."""
    with tf.control_dependencies([tf.debugging.Assert(is_right, problem)]):
        return tf.identity(value)


def _escaped(pattern: str) -> str:
    """Return a class of characters as RE2 reads it: it knows no NUL and no escapes of Python."""
    return "".join(c if c in "[-]" else f"\\x{{{ord(c):x}}}" for c in pattern)
