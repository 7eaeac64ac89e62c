"""The models of the paper, built from the layers."""

from keras_attention.models.presets import PRESETS
from keras_attention.models.transformer import Transformer

__all__ = ["PRESETS", "Transformer"]
