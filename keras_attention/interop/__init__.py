"""Export of trained models to other engines."""

from keras_attention.interop.ctranslate2 import export_ctranslate2
from keras_attention.interop.hugging_face_export import export_hugging_face

__all__ = ["export_ctranslate2", "export_hugging_face"]
