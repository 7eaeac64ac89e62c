"""Encoder and decoder blocks in NumPy, with the weights of attention; and what their tests share."""

import numpy as np

from tests.models import numpy_transformer


def randomized(block, *shapes, seed=14):
    """Builds a block and gives every weight numbers that matter."""
    block.build(*shapes)
    generator = np.random.default_rng(seed)
    for weight in block.trainable_variables:
        noise = generator.normal(size=weight.shape)
        weight.assign(1.0 + 0.3 * noise if weight.path.endswith("gamma") else 0.4 * noise)
    return block


def encoder_block(block, x, allowed):
    """x (B,S,D), allowed (B,S,S) -> (B,S,D), scores."""
    scores = []
    x = numpy_transformer.block(x, block.spec(), allowed, scores=scores)
    return x, *scores


def decoder_block(block, x, memory, own_allowed, cross_allowed):
    """x (B,T,D), memory (B,S,D), (B,T,T), (B,T,S) -> (B,T,D), scores, scores."""
    scores = []
    own_allowed = own_allowed & np.tri(x.shape[1], dtype=bool)
    x = numpy_transformer.block(x, block.spec(), own_allowed, memory, cross_allowed, scores)
    return x, *scores
