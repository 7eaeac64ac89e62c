"""From a model to text: beam search, and the `Translator` around it."""

from keras_attention.decoding.beam_search import BeamSearchResult, beam_search
from keras_attention.decoding.translator import Translation, Translator

__all__ = ["BeamSearchResult", "Translation", "Translator", "beam_search"]
