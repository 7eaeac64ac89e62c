"""Export of trained models to other engines."""

from keras_attention.interop.ctranslate2 import export_ctranslate2

__all__ = ["export_ctranslate2"]
