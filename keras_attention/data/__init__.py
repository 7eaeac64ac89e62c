"""Text in, batches of token ids out: corpora, tokenizer, token store, batches."""

from keras_attention.data.batches import TokenBatches
from keras_attention.data.corpora import (
    Corpus,
    corpus_from_files,
    corpus_from_tsv,
    load_corpus,
    write_corpus,
)
from keras_attention.data.filters import FilteredText, Filters
from keras_attention.data.parallel_text import ParallelText
from keras_attention.data.token_store import TokenStore
from keras_attention.data.tokenizer import Tokenizer

__all__ = [
    "Corpus",
    "FilteredText",
    "Filters",
    "ParallelText",
    "TokenBatches",
    "TokenStore",
    "Tokenizer",
    "corpus_from_files",
    "corpus_from_tsv",
    "load_corpus",
    "write_corpus",
]
