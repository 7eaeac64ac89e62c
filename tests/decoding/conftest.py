"""What several files of this room search with."""

import numpy as np
import pytest

from keras_attention import Transformer


@pytest.fixture(scope="session")
def seven():
    """A model of 7 tokens."""
    model = Transformer(7, num_layers=1, hidden_dim=12, intermediate_dim=20, num_heads=3)
    random = np.random.default_rng(3)
    for weight in model.weights:
        if len(weight.shape) > 1:
            weight.assign(0.7 * random.standard_normal(weight.shape))
    return model
