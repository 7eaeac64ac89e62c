"""The layers of the Transformer, each usable alone in a Keras model."""

from keras_attention.layers.decoder_block import TransformerDecoderBlock
from keras_attention.layers.embedding import TokenEmbedding
from keras_attention.layers.encoder_block import TransformerEncoderBlock
from keras_attention.layers.feed_forward import FeedForward
from keras_attention.layers.multi_head_attention import MultiHeadAttention
from keras_attention.layers.positional_encoding import PositionalEncoding, sinusoid
from keras_attention.layers.residual import ResidualConnection
from keras_attention.layers.ssru import SSRU

__all__ = [
    "SSRU",
    "FeedForward",
    "MultiHeadAttention",
    "PositionalEncoding",
    "ResidualConnection",
    "TokenEmbedding",
    "TransformerDecoderBlock",
    "TransformerEncoderBlock",
    "sinusoid",
]
