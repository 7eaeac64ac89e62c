"""What a run logs of its attention, for the viewer."""

from __future__ import annotations

import itertools

import numpy as np

from keras_attention.callbacks.attention_log import MOST_TOKENS, AttentionLog
from keras_attention.callbacks.monitor import TrainingMonitor
from keras_attention.data.corpus import Corpus
from keras_attention.data.token_store import TokenStore
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.decoding.translator import Translator
from keras_attention.visualization.attention_entries import token_ranks
from keras_attention.visualization.summary_writer import SummaryWriter

# Pairs that are shown, and all that are measured: some 200 words, of middling length.
SHOWN, MEASURED = 5, 20
LOOKED_AT = 200
MIDDLING_WORDS = 10
# Training pairs that the frequencies of tokens come from.
COUNTED_PAIRS = 20_000


def attention_log(
    writer: SummaryWriter,
    tokenizer: Tokenizer,
    corpus: Corpus,
    store: TokenStore,
    translator: Translator,
    monitor: TrainingMonitor,
) -> list[AttentionLog]:
    """The callback that logs the attention on validation pairs; none if all are too long to show.

    Args:
        writer: Where to write.
        tokenizer: The run's tokenizer.
        corpus: The run's corpus.
        store: Its training part, for the frequencies of tokens.
        translator: Translates with the present weights of the model in training.
        monitor: Whose clock is stopped meanwhile.
    """
    pairs = middling_pairs(corpus, tokenizer, MEASURED)
    if not pairs:
        return []
    log = AttentionLog(
        writer,
        tokenizer,
        pairs,
        shown=SHOWN,
        alignments=[corpus.alignments.get(pair) for pair in pairs],
        token_ranks=_store_ranks(store, tokenizer.vocabulary_size),
        translate=translator.translate,
        importance=True,
        monitor=monitor,
    )
    return [log]


def middling_pairs(corpus: Corpus, tokenizer: Tokenizer, count: int) -> list[tuple[str, str]]:
    """Validation pairs of middling length: long enough to say something, short enough to read."""
    pairs = [
        pair
        for pair in itertools.islice(corpus.validation, LOOKED_AT)
        if all(text.strip() and len(tokenizer.encode(text)) < MOST_TOKENS for text in pair)
    ]
    pairs.sort(key=lambda pair: (abs(len(pair[0].split()) - MIDDLING_WORDS), pair))
    return pairs[:count]


def _store_ranks(store: TokenStore, vocabulary_size: int) -> np.ndarray:
    counts = np.zeros(vocabulary_size, "int64")
    for index in range(min(len(store), COUNTED_PAIRS)):
        for ids in (store.source(index), store.target(index)):
            counts += np.bincount(ids, minlength=vocabulary_size)
    return token_ranks(counts)
