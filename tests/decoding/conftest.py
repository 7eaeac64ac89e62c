"""What several files of this room search with."""

import pytest

from keras_attention import Translator
from tests.decoding.letters import small_model


@pytest.fixture(scope="session")
def seven():
    """A model of 7 tokens."""
    return small_model(seed=3, vocabulary_size=7, scale=0.7)


@pytest.fixture(scope="session")
def greedy_demo():
    """The demo's model, searched greedily without anything compiled."""
    return Translator.from_preset("demo_en_de", beam_size=1, engine="numpy", show_progress=False)
