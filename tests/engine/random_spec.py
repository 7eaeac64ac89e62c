"""Specs with random weights, of sizes that differ pairwise, and every option that a spec has."""

import itertools

import numpy as np

from keras_attention.spec import (
    AttentionSpec,
    BlockSpec,
    DenseSpec,
    EmbeddingSpec,
    FeedForwardSpec,
    NormSpec,
    PositionsSpec,
    SSRUSpec,
    StackSpec,
    TransformerSpec,
)

V, TARGET_V, D, N, K, U, F = 23, 19, 12, 3, 5, 7, 16
END = 0.9  # shrinks the logit of the end token, so that translations get longer
OPTIONS = (
    *("depths", "logits_bias", "suppressed", "target_vocabulary", "final_norm"),
    *("start_token", "ssru", "pre_norm", "untied", "pad_last"),
)


def covering_set():
    """Six sets of options; any two options are both in one, both not in one, and one without the other."""
    rows = [set() for _ in range(6)]
    for option, on in zip(OPTIONS, itertools.combinations(range(5), 3), strict=True):
        for row in on:
            rows[row].add(option)
    return rows


class Drawing:
    """Random weights in the shapes of Keras."""

    def __init__(self, seed):
        self._random = np.random.default_rng(seed)

    def __call__(self, *shape, scale=0.45):
        return (scale * self._random.standard_normal(shape)).astype("float32")

    def dense(self, *kernel, inputs=1, bias=True):
        return DenseSpec(self(*kernel), self(*kernel[inputs:]) if bias else None)

    def norm(self, options):
        """With a bias of the logits, an RMSNorm. (With suppressed tokens, one of the embeddings.)"""
        # Gains of both signs: else a tied model repeats its last token.
        gamma, beta = self(D, scale=1.0), self(D, scale=0.2)
        return NormSpec(gamma, None if "logits_bias" in options else beta, 1e-4)

    def network(self, options):
        """With deep encoders, a SwiGLU whose gates are about 1: else few hypotheses end."""
        gate = DenseSpec(self(D, F), 1.0 + self(F)) if "depths" in options else None
        inner, outer = self.dense(D, F), self.dense(F, D)
        return FeedForwardSpec(inner, outer, "relu" if gate is None else "silu", gate)

    def attention(self, bias):
        query, key = (self.dense(D, N, K, bias=bias) for _ in range(2))
        value = self.dense(D, N, U, bias=bias)
        return AttentionSpec(query, key, value, self.dense(N, U, D, inputs=2, bias=bias))

    def block(self, decodes, options):
        own = self.attention(bias=True)
        if decodes and "ssru" in options:
            own = SSRUSpec(self.dense(D, D, bias="untied" in options), self.dense(D, D))
        return BlockSpec(
            self_attention=own,
            self_attention_norm=self.norm(options),
            feed_forward=self.network(options),
            feed_forward_norm=self.norm(options),
            cross_attention=self.attention(bias=True) if decodes else None,
            cross_attention_norm=self.norm(options) if decodes else None,
            normalize_first="pre_norm" in options,
        )

    def stack(self, depth, decodes, options):
        return StackSpec(
            PositionsSpec("halves" if "pad_last" in options else "interleaved"),
            tuple(self.block(decodes, options) for _ in range(depth)),
            self.norm(options) if options & {"final_norm", "pre_norm"} else None,
            self.norm(options) if "suppressed" in options else None,
        )


def random_spec(options=frozenset(), seed=3):
    """A spec of NumPy arrays with these `OPTIONS`."""
    options, draw = set(options), Drawing(seed)
    is_joint = "target_vocabulary" not in options
    size = V if is_joint else TARGET_V
    pad = size - 1 if "pad_last" in options else 0
    rows, columns = draw(size, D), draw(D, size)
    rows[1] *= END
    columns[:, 1] *= END
    table = EmbeddingSpec(
        rows,
        columns if "untied" in options else None,
        draw(size, scale=1.5) if "logits_bias" in options else None,
        pad_token_id=pad,
    )
    depths = (3, 1) if "depths" in options else (2, 2)
    spec = TransformerSpec(
        embedding=table if is_joint else EmbeddingSpec(draw(V, D), pad_token_id=pad),
        encoder=draw.stack(depths[0], False, options),
        decoder=draw.stack(depths[1], True, options),
        start_token_id=2 if "start_token" in options else pad,
        end_token_id=1,
        target_embedding=None if is_joint else table,
        suppressed_token_ids=(pad, 4, 9) if "suppressed" in options else (),
    )
    spec.validate()
    return spec
