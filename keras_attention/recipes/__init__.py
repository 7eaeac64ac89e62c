"""Whole runs, from a corpus to a trained model, its translations and its report."""

from keras_attention.recipes import _quiet  # noqa: F401  (first: TensorFlow reads it when imported)
from keras_attention.recipes.command_line import run
from keras_attention.recipes.settings import RECIPES
from keras_attention.recipes.translation import TranslationConfig, train_translation

__all__ = ["RECIPES", "TranslationConfig", "run", "train_translation"]
