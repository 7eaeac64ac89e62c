"""The models of the paper, built from the layers."""

from keras_attention.models.branched_attention import BranchedAttention
from keras_attention.models.decoder import TransformerDecoder
from keras_attention.models.encoder import TransformerEncoder
from keras_attention.models.transformer import Transformer
from keras_attention.models.weighted import WEIGHTED_PRESETS, WeightedTransformer
from keras_attention.spec.presets import PRESETS

__all__ = [
    "PRESETS",
    "WEIGHTED_PRESETS",
    "BranchedAttention",
    "Transformer",
    "TransformerDecoder",
    "TransformerEncoder",
    "WeightedTransformer",
]
