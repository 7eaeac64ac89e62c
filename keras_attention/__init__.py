"""keras_attention: the Transformer of "Attention Is All You Need" for Keras 3."""

import importlib
import os
import sys
from typing import Any

__version__ = "0.1.0"

# Keras can load a saved model only if its classes are registered, so these are imported at once. Not by
# the command line, which decides itself whether it needs Keras: `--help` answers without it. Python
# calls a program "-m" as long as it imports the packages of `python -m keras_attention`.
# Scripts on top of the command line, such as the examples, set the variable.
_PROGRAM = os.path.splitext(os.path.basename(sys.argv[0] if sys.argv else ""))[0]
if _PROGRAM not in ("-m", "keras-attention") and "KERAS_ATTENTION_LAZY" not in os.environ:
    from keras_attention import layers, models, training  # noqa: F401

# Public name -> room. The other rooms are imported on the first use of one of their names.
_ROOMS = {
    "layers": (
        "FeedForward",
        "MultiHeadAttention",
        "PositionalEncoding",
        "ResidualConnection",
        "TokenEmbedding",
        "TransformerDecoderBlock",
        "TransformerEncoderBlock",
    ),
    "models": ("PRESETS", "Transformer"),
    "training": (
        "Adam",
        "LabelSmoothedCrossentropy",
        "LearningRateSchedule",
        "Perplexity",
        "TokenAccuracy",
        "as_tf_dataset",
        "average_checkpoints",
    ),
    "data": (
        "Corpus",
        "ParallelText",
        "TokenBatches",
        "TokenStore",
        "Tokenizer",
        "corpus_from_files",
        "corpus_from_tsv",
        "load_corpus",
        "write_corpus",
    ),
    "decoding": ("Translation", "Translator", "beam_search"),
    "evaluation": (
        "corpus_bleu",
        "corpus_chrf",
        "evaluation_report",
        "head_importance",
        "matmul_peak",
        "paired_bootstrap",
        "paper_training_cost",
        "perplexity",
        "tokenized_bleu",
        "training_cost",
        "training_flops",
        "write_report",
    ),
    "interop": ("export_ctranslate2",),
    "spec": ("TransformerSpec",),
    "callbacks": (
        "AttentionHeatmaps",
        "AttentionLog",
        "HugePages",
        "MetricsLog",
        "TrainingMonitor",
        "TranslationScores",
    ),
    "visualization": ("SummaryWriter",),
    "utils": ("tune_memory",),
    "recipes": ("TranslationConfig", "train_translation"),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

# Without the rooms: `import *` must not hide a user's own `layers` or `models`.
__all__ = sorted(_ROOM_OF)


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _ROOM_OF:
        return getattr(importlib.import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
