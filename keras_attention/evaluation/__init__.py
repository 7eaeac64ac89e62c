"""How good a model is, and what it cost: BLEU, chrF, perplexity, FLOPs, and one report of it all."""

from keras_attention.evaluation.bleu import CorpusScore, corpus_bleu, corpus_chrf, corpus_ter
from keras_attention.evaluation.comparison import PairedDifference, corpus_scores, paired_tests
from keras_attention.evaluation.cost import (
    matmul_peak,
    training_cost,
    training_flops,
    transformer_flops,
)
from keras_attention.evaluation.head_importance import head_importance
from keras_attention.evaluation.moses_bleu import tokenized_bleu
from keras_attention.evaluation.perplexity import perplexity
from keras_attention.evaluation.report import Sentences, System, evaluation_report, write_report
from keras_attention.evaluation.report_text import report_text

__all__ = [
    "CorpusScore",
    "PairedDifference",
    "Sentences",
    "System",
    "corpus_bleu",
    "corpus_chrf",
    "corpus_scores",
    "corpus_ter",
    "evaluation_report",
    "head_importance",
    "matmul_peak",
    "paired_tests",
    "perplexity",
    "report_text",
    "tokenized_bleu",
    "training_cost",
    "training_flops",
    "transformer_flops",
    "write_report",
]
