"""Specs with random weights, of sizes that differ pairwise, and every option that a spec has."""

import itertools

import numpy as np

from tests import spec_oracle

V, TARGET_V, D, N, K, U = 23, 19, 12, 3, 5, 7
END = 0.9  # shrinks the logit of the end token, so that translations get longer
SMALLER = np.float32(0.75)  # shrinks matrices, so that those of 8 bits are near
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


def random_spec(options=frozenset(), seed=1):
    """A spec of NumPy arrays with these `OPTIONS`; some come with others that are not named.

    With a bias of the logits a model has RMSNorms, with deep encoders a SwiGLU, with suppressed tokens a norm
    of the embeddings.
    """
    has = {option: option in options for option in OPTIONS}
    size = TARGET_V if has["target_vocabulary"] else V
    pad = size - 1 if has["pad_last"] else 0
    spec = spec_oracle.random_spec(
        V,
        (3, 1) if has["depths"] else (2, 2),
        D,
        N,
        (K, U),
        seed,
        activation="silu" if has["depths"] else "relu",
        bias=True,
        embedding_norm=has["suppressed"],
        epsilon=1e-4,
        final_norm=has["final_norm"] or has["pre_norm"],
        gated=has["depths"],
        layout="halves" if has["pad_last"] else "interleaved",
        logits_bias=has["logits_bias"],
        normalize_first=has["pre_norm"],
        pad_token_id=pad,
        rms=has["logits_bias"],
        ssru=has["ssru"] and ("biased" if has["untied"] else True),
        start_token_id=2 if has["start_token"] else pad,
        suppressed_token_ids=(pad, 4, 9) if has["suppressed"] else (),
        target_vocabulary=size if has["target_vocabulary"] else None,
        tied=not has["untied"],
    )
    spec = spec.map_weights(lambda weight: SMALLER * weight if weight.ndim > 1 else weight)
    table = spec.output_embedding
    table.embeddings[1] *= END
    if has["untied"]:
        table.reverse_embeddings[:, 1] *= END
    for block in (*spec.encoder.blocks, *spec.decoder.blocks) if has["depths"] else ():
        block.feed_forward.gate.bias[:] += 1.0  # Gates are about 1: else few hypotheses end.
    return spec
