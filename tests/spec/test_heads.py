"""Heads switched off in a spec: against the paper in NumPy with them cut out, and against head masks."""

import re

import numpy as np
import pytest

from keras_attention import Transformer
from keras_attention.spec.heads import Head, without_heads
from tests import oracle
from tests.helpers import numpy
from tests.models.test_transformer import (
    INPUTS,
    SOURCE,
    TARGET,
    L,
    N,
    named_weights,
    randomized,
    small,
)

pytestmark = pytest.mark.backends("torch")

OFF = [Head("encoder", 1, 0), Head("decoder", 0, 2), Head("cross", 0, 1), Head("cross", 0, 0)]


def logits_of(spec):
    return numpy(Transformer.from_spec(spec)(INPUTS))


@pytest.mark.parametrize("off", [OFF, OFF[:1], OFF[1:2], OFF[2:3]], ids=range(4))
def test_without_heads_is_the_paper_without_them(off):
    model = randomized(small())
    found = logits_of(without_heads(model.spec(), off))
    taken_out = oracle.heads_taken_out(named_weights(model), off)
    np.testing.assert_allclose(found, oracle.transformer(SOURCE, TARGET, taken_out, L), atol=2e-4)
    assert np.abs(found - numpy(model(INPUTS))).max() > 0.01
    # The model keeps its own.
    whole = oracle.transformer(SOURCE, TARGET, named_weights(model), L)
    np.testing.assert_allclose(logits_of(model.spec()), whole, atol=2e-4)


@pytest.mark.parametrize(
    ("off", "options"),
    [
        (OFF, {"use_attention_bias": True, "normalize_first": True}),
        ([OFF[0], *OFF[2:]], {"decoder_cell": "ssru"}),
    ],
    ids=["bias", "cells"],
)
def test_it_is_what_a_head_mask_does(off, options):
    model = randomized(small(**options))
    masks = {kind: [np.ones((len(SOURCE), N)) for _ in range(L)] for kind in model.attention_layers}
    for kind, layer, head in off:
        masks[kind][layer][:, head] = 0.0
    expected = numpy(model(INPUTS, head_masks=masks))
    np.testing.assert_allclose(logits_of(without_heads(model.spec(), off)), expected, atol=1e-4)
    assert np.abs(expected - numpy(model(INPUTS))).max() > 0.001


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (Head("crosss", 0, 0), "one of encoder, decoder, cross. Received: crosss"),
        (
            Head("cross", 0, N),
            f"no cross head {N + 1} in layer 1: it has {L} layers with {N} heads",
        ),
        (Head("encoder", L, 0), f"no encoder head 1 in layer {L + 1}: it has {L} layers"),
        (Head("encoder", 0, -1), "no encoder head 0"),
    ],
)
def test_heads_that_are_not_there_are_refused(head, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        without_heads(small().spec(), [head])


def test_a_cell_has_no_heads():
    with pytest.raises(ValueError, match="no decoder head 1 in layer 1: .* no such attention"):
        without_heads(small(decoder_cell="ssru").spec(), [Head("decoder", 0, 0)])
