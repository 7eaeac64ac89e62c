"""Whole runs, from a corpus to a trained model, its translations and its report."""

from keras_attention.recipes.catalog import RECIPES
from keras_attention.recipes.config import TranslationConfig
from keras_attention.recipes.plan import Plan, plan_training
from keras_attention.recipes.run import train_translation

__all__ = ["RECIPES", "Plan", "TranslationConfig", "plan_training", "train_translation"]
