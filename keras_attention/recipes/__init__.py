"""Whole runs, from a corpus to a trained model, its translations and its report."""

import importlib
from typing import Any

# Name -> its module, imported on the first use: the command line reads settings without Keras.
_MODULES = {
    "RECIPES": "catalog",
    "Plan": "plan",
    "TranslationConfig": "config",
    "check_export": "export_check",
    "checkpoint_translator": "from_checkpoint",
    "distill": "distillation",
    "plan_training": "plan",
    "prepare_corpus": "bulk_store",
    "score_corpus": "bulk",
    "train_translation": "run",
    "translate_corpus": "bulk",
}

__all__ = [
    "RECIPES",
    "Plan",
    "TranslationConfig",
    "check_export",
    "checkpoint_translator",
    "distill",
    "plan_training",
    "prepare_corpus",
    "score_corpus",
    "train_translation",
    "translate_corpus",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
