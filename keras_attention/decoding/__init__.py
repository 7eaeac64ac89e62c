"""From a model to text: beam search, and the `Translator` around it."""

from keras_attention.decoding.beam_search import BeamSearchResult, beam_search

__all__ = ["BeamSearchResult", "beam_search"]
