"""Whole runs, from a corpus to a trained model, its translations and its report."""

from keras_attention.recipes.translation import TranslationConfig, train_translation

__all__ = ["TranslationConfig", "train_translation"]
