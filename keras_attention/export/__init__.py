"""Trained models for other engines."""

from keras_attention.export.ctranslate2 import export_ctranslate2

__all__ = ["export_ctranslate2"]
