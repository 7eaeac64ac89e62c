"""The models of the paper, built from the layers."""

from keras_attention.models.transformer import Transformer
from keras_attention.spec.presets import PRESETS

__all__ = ["PRESETS", "Transformer"]
