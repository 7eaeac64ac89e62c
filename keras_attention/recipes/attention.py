"""The attention that a run logs for the viewer."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from keras_attention.callbacks.attention_log import MOST_TOKENS, AttentionLog
from keras_attention.callbacks.monitor import TrainingMonitor
from keras_attention.data.corpus import Corpus
from keras_attention.data.normalization import normalize
from keras_attention.data.token_store import TokenStore
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.decoding.translator import Translator
from keras_attention.utils.sides import encode_side, has_one_vocabulary, target_size_of
from keras_attention.visualization.attention_entries import token_ranks
from keras_attention.visualization.event_files import SummaryWriter

# Number of pairs that are shown. More are measured, until they have this many source tokens together.
SHOWN = 5
MEASURED_TOKENS = 200
LOOKED_AT = 200
MIDDLING_WORDS = 10
# Training pairs that the frequencies of tokens come from.
COUNTED_PAIRS = 20_000


def attention_log(
    tokenizer: Tokenizer,
    corpus: Corpus,
    store: TokenStore,
    writer: SummaryWriter,
    translator: Translator,
    monitor: TrainingMonitor,
) -> list[AttentionLog]:
    """Return the callback that logs the attention on validation pairs; none if all are too long to show.

    The store, that of the training set, gives the frequencies of tokens. The translator has the current
    weights of the model in training, and the monitor's clock is stopped meanwhile.
    """
    pairs = middling_pairs(corpus, tokenizer)
    if not pairs:
        return []
    log = AttentionLog(
        writer,
        tokenizer,
        pairs,
        shown=SHOWN,
        alignments=[corpus.alignments.get(pair) for pair in pairs],
        token_ranks=_store_ranks(store, tokenizer),
        translate=lambda texts: translator.translate(texts, n_best=translator.beam_size),
        importance=True,
        monitor=monitor,
    )
    return [log]


def middling_pairs(corpus: Corpus, tokenizer: Tokenizer) -> list[tuple[str, str]]:
    """Return validation pairs of medium length: long enough to be interesting, short enough to read.

    There are at least as many as are shown, and enough to have the tokens for measuring heads.
    """
    looked_at = list(itertools.islice(corpus.validation, LOOKED_AT))
    sides = zip(*looked_at, strict=True)
    ids = [encode_side(tokenizer, *side) for side in zip(sides, ("source", "target"), strict=False)]
    found = [
        (abs(len(pair[0].split()) - MIDDLING_WORDS), pair, len(both[0]))
        for pair, *both in zip(looked_at, *ids, strict=True)
        if all(map(normalize, pair)) and max(map(len, both)) < MOST_TOKENS
    ]
    found.sort()
    tokens = itertools.accumulate(of_source for _, _, of_source in found)
    count = 1 + sum(total < MEASURED_TOKENS for total in tokens)
    pairs = [pair for _, pair, _ in found]
    return pairs[: max(SHOWN, count)]


def _store_ranks(store: TokenStore, tokenizer: Tokenizer) -> Any:
    """Return ranks over both sides together, or of each side if it has a vocabulary of its own."""
    pairs = range(min(len(store), COUNTED_PAIRS))
    counts = {
        side: np.bincount(np.concatenate([ids(index) for index in pairs]), minlength=size)
        for side, ids, size in (
            ("source", store.source, tokenizer.vocabulary_size),
            ("target", store.target, target_size_of(tokenizer)),
        )
    }
    if has_one_vocabulary(tokenizer):
        return token_ranks(counts["source"] + counts["target"])
    return {side: token_ranks(of_side) for side, of_side in counts.items()}
