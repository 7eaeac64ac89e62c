"""Encoder and decoder blocks in NumPy, from the pieces of the oracle; and what their tests share."""

import numpy as np

from tests import oracle
from tests.helpers import numpy


def randomized(block, *shapes, seed=14):
    """Builds a block and gives every weight numbers that matter."""
    block.build(*shapes)
    generator = np.random.default_rng(seed)
    for weight in block.trainable_variables:
        noise = generator.normal(size=weight.shape)
        weight.assign(1.0 + 0.3 * noise if weight.path.endswith("gamma") else 0.4 * noise)
    return block


def weights(block, part, names):
    """The weights of a part of a block, in the order of `names`."""
    found = []
    for name in names:
        matches = [w for w in block.weights if w.path.endswith(f"/{part}/{name}")]
        assert len(matches) == 1, (part, name, [w.path for w in block.weights])
        found.append(numpy(matches[0]).astype("float64"))
    return found


def attention(block, part, query, value, allowed):
    projections = ("query", "key", "value", "attention_output")
    kinds = ("kernel", "bias") if block.use_attention_bias else ("kernel",)
    names = [f"{projection}/{kind}" for projection in projections for kind in kinds]
    return oracle.multi_head_attention(query, value, weights(block, part, names), allowed)


def normalization(block, part):
    gamma, beta = weights(block, f"{part}_residual/normalization", ("gamma", "beta"))
    return lambda x: oracle.layer_norm(x, gamma, beta, block.layer_norm_epsilon)


def residual(block, part, x, sublayer):
    """Sections 3.1 (post-norm) and tensor2tensor's pre-norm; returns what `sublayer` adds, too."""
    norm = normalization(block, part)
    update = sublayer(norm(x) if block.normalize_first else x)
    update, *more = update if isinstance(update, tuple) else (update,)
    return (x + update if block.normalize_first else norm(x + update), *more)


def feed_forward(block, x):
    names = ("inner/kernel", "inner/bias", "outer/kernel", "outer/bias")
    inner = weights(block, "feed_forward", names)
    return residual(block, "feed_forward", x, lambda x: oracle.feed_forward(x, *inner))[0]


def encoder_block(block, x, allowed):
    """x (B,S,D), allowed (B,S,S) -> (B,S,D), scores."""
    x, scores = residual(
        block, "self_attention", x, lambda x: attention(block, "self_attention", x, x, allowed)
    )
    return feed_forward(block, x), scores


def decoder_block(block, x, memory, own_allowed, cross_allowed):
    """x (B,T,D), memory (B,S,D), (B,T,T), (B,T,S) -> (B,T,D), scores, scores."""
    causal = np.array([[s <= t for s in range(x.shape[1])] for t in range(x.shape[1])])
    own_allowed = own_allowed & causal
    x, own = residual(
        block, "self_attention", x, lambda x: attention(block, "self_attention", x, x, own_allowed)
    )
    x, cross = residual(
        block, "cross_attention", x,
        lambda x: attention(block, "cross_attention", x, memory, cross_allowed),
    )  # fmt: skip
    return feed_forward(block, x), own, cross
