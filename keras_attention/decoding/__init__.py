"""From a model to text: beam search, and the `Translator` around it."""

from keras_attention.decoding.beam_search import beam_search
from keras_attention.decoding.constraints import (
    ForcedPrefix,
    RequiredPhrases,
    TextConstraint,
    WellFormedTrees,
)
from keras_attention.decoding.hypotheses import BeamSearchResult
from keras_attention.decoding.translator import Translation, Translator

__all__ = [
    "BeamSearchResult",
    "ForcedPrefix",
    "RequiredPhrases",
    "TextConstraint",
    "Translation",
    "Translator",
    "WellFormedTrees",
    "beam_search",
]
