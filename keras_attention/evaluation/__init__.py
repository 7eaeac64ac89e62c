"""How good a model is: BLEU, chrF, perplexity."""

from keras_attention.evaluation.bleu import CorpusScore, corpus_bleu, corpus_chrf
from keras_attention.evaluation.perplexity import perplexity

__all__ = ["CorpusScore", "corpus_bleu", "corpus_chrf", "perplexity"]
