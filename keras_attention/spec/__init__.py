"""A model described without its code: the specs that engines run, exports write and imports fill.

This room imports neither Keras nor a backend: a spec can be read from a file and run without them.
"""

from keras_attention.spec.options import (
    BlockOptions,
    DecoderBlockOptions,
    DecoderOptions,
    StackOptions,
    TransformerOptions,
)
from keras_attention.spec.parts import (
    AttentionSpec,
    BlockSpec,
    DenseSpec,
    EmbeddingSpec,
    FeedForwardSpec,
    NormSpec,
    PositionsSpec,
    SpecError,
    SSRUSpec,
    StackSpec,
)
from keras_attention.spec.presets import PRESETS
from keras_attention.spec.transformer import TransformerSpec

__all__ = [
    "PRESETS",
    "AttentionSpec",
    "BlockOptions",
    "BlockSpec",
    "DecoderBlockOptions",
    "DecoderOptions",
    "DenseSpec",
    "EmbeddingSpec",
    "FeedForwardSpec",
    "NormSpec",
    "PositionsSpec",
    "SSRUSpec",
    "SpecError",
    "StackOptions",
    "StackSpec",
    "TransformerOptions",
    "TransformerSpec",
]
