"""How good a model is, and what it cost: BLEU, chrF, perplexity, FLOPs."""

from keras_attention.evaluation.bleu import CorpusScore, corpus_bleu, corpus_chrf
from keras_attention.evaluation.cost import (
    ModelSizes,
    flops_utilization,
    matmul_peak,
    paper_training_cost,
    training_flops,
    transformer_flops,
)
from keras_attention.evaluation.memory import TrainingMemory, training_memory
from keras_attention.evaluation.perplexity import perplexity

__all__ = [
    "CorpusScore",
    "ModelSizes",
    "TrainingMemory",
    "corpus_bleu",
    "corpus_chrf",
    "flops_utilization",
    "matmul_peak",
    "paper_training_cost",
    "perplexity",
    "training_flops",
    "training_memory",
    "transformer_flops",
]
