"""What the compiled search of some sentences takes: their ids, the rules, and the arrays it writes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from keras_attention.engine.base import Beams, SearchOptions
from keras_attention.engine.numba.attention import PREFETCHED_SLOTS
from keras_attention.engine.numba.choice import choice_of
from keras_attention.engine.numba.layers import CELL, Model, Workspace
from keras_attention.engine.numba.search import Rules, SearchState, Source
from keras_attention.engine.numba.weights import Weights
from keras_attention.spec import TransformerSpec


def arguments_of(
    spec: TransformerSpec,
    positions: Callable[[str, int], np.ndarray],
    weights: Weights,
    token_ids: np.ndarray,
    limits: np.ndarray,
    options: SearchOptions,
    part: slice,
) -> tuple[Any, ...]:
    """Return what the compiled search of a part of the sentences takes, but for model and thread group.

    `positions` returns the encodings of the first positions of the encoder or the decoder.
    """
    beam_size, max_length = options.beam_size, options.max_length
    token_ids, limits = token_ids[part], limits[part]
    sentences, length = token_ids.shape
    source = _source_of(spec, token_ids, positions("encoder", length))
    rules = _rules_of(spec, limits, options, positions("decoder", max_length), part)
    state = _state_of(spec, weights.model, source, rules, options)
    found = no_hypotheses(sentences, beam_size, max_length, spec.pad_token_id)
    sizes = (int(source.bounds[-1]), sentences * beam_size)
    workspaces = (_workspace_of(weights, spec.hidden_dim, rows) for rows in sizes)
    return *workspaces, source, rules, state, found


def _source_of(spec: TransformerSpec, token_ids: np.ndarray, positions: np.ndarray) -> Source:
    """Return the tokens of sentences (B, S), without padding, one after the other."""
    is_token = token_ids != spec.pad_token_id
    return Source(
        ids=token_ids[is_token].astype("int32"),
        token_positions=np.nonzero(is_token)[1].astype("int64"),
        bounds=np.concatenate([[0], np.cumsum(is_token.sum(axis=1))]).astype("int64"),
        positions=positions,
        slots=np.arange(token_ids.shape[1] + PREFETCHED_SLOTS, dtype="int64"),
    )


def _rules_of(
    spec: TransformerSpec,
    limits: np.ndarray,
    options: SearchOptions,
    positions: np.ndarray,
    part: slice,
) -> Rules:
    """Return how sentences are searched, which are a part of those of the options."""
    return Rules(
        limits=limits.astype("int64"),
        penalties=np.array(options.penalties, "float32"),
        decisive_slot=options.decisive_slot,
        end_token_id=spec.end_token_id,
        pad_token_id=spec.pad_token_id,
        positions=positions,
        choice=choice_of(options.rules, options.draws, spec.end_token_id, part),
    )


def _state_of(
    spec: TransformerSpec, model: Model, source: Source, rules: Rules, options: SearchOptions
) -> SearchState:
    """Return the arrays that a search changes, at its begin."""
    beam_size, max_length = options.beam_size, options.max_length
    sentences, tokens = len(rules.limits), int(source.bounds[-1])
    rows = sentences * beam_size
    searched = np.flatnonzero(rules.limits > 0).astype("int64")
    history = np.zeros((2, sentences, beam_size, max_length + PREFETCHED_SLOTS), "int64")
    history[0, :, :, 0] = np.arange(beam_size)
    candidates = 2 * beam_size if beam_size > 1 else 1
    width = min(candidates, spec.target_vocabulary_size)
    candidates = min(candidates, beam_size * width)
    blocks, is_cell = len(model.decoder.matrices), model.decoder.options[:, CELL] == 1
    cache = (blocks, sentences, 0 if is_cell.all() else max_length * beam_size)
    (heads, key_dim, value_dim), kv = model.heads, model.layout.kv.dtype
    weighed = 0 if rules.choice.is_plain else rows
    return SearchState(
        sentences=np.concatenate([searched, np.zeros(sentences - len(searched), "int64")]),
        active=np.array([len(searched)]),
        tokens=np.full((sentences, beam_size), spec.start_token_id, "int32"),
        history=history,
        keys=np.empty((*cache, heads * key_dim), kv),
        values=np.empty((*cache, heads * value_dim), kv),
        cells=np.zeros((2, blocks * is_cell.any(), rows, spec.hidden_dim), "float32"),
        memory=np.empty((blocks, tokens, heads * (key_dim + value_dim)), kv),
        logits=np.empty((rows, spec.target_vocabulary_size), "float32"),
        weights=np.empty((weighed, spec.target_vocabulary_size), "float32"),
        log_probs=np.empty((rows, width), "float32"),
        ids=np.empty((rows, width), "int32"),
        scores=np.empty((sentences, candidates), "float32"),
        chosen=np.empty((sentences, candidates), "int64"),
        previous=np.empty((sentences, beam_size, max_length), "int32"),
    )


def _workspace_of(weights: Weights, depth: int, rows: int) -> Workspace:
    """Return what a group of threads computes so many rows of width D in."""
    heads, _, value_dim = weights.model.heads
    widths = (depth, depth, depth, weights.widest, heads * value_dim)
    arrays: list[Any] = [np.empty((rows, width), "float32") for width in widths]
    return Workspace._make([*arrays, weights.packing.workspace(rows, weights.deepest)])


def no_hypotheses(sentences: int, beam_size: int, max_length: int, pad_token_id: int) -> Beams:
    """Return one alive hypothesis of each sentence, the empty one, and none finished."""
    scores = np.full((2, sentences, beam_size), -np.inf, "float32")
    scores[0, :, 0] = 0.0
    sequences = np.full((2, sentences, beam_size, max_length), pad_token_id, "int32")
    return Beams(sequences[0], scores[0], sequences[1], scores[1])
