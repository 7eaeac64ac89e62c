"""Text in, batches of token ids out: corpora, tokenizer, token store, batches."""

from keras_attention.utils.lazily import imported_lazily

# Batches need Keras, and corpora need much else: a translation needs only the tokenizer.
_PLACES = {
    "batches": ("TokenBatches",),
    "corpora": ("Corpus", "corpus_from_files", "corpus_from_tsv", "load_corpus", "write_corpus"),
    "filters": ("FilteredText", "Filters"),
    "parallel_text": ("ParallelText",),
    "presets": ("Tokenizer",),  # which gives it `from_preset`
    "token_store": ("TokenStore",),
}
__getattr__, __dir__, __all__ = imported_lazily(__name__, _PLACES)
