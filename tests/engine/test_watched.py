"""The attention of a spec in NumPy, against the layers that define it, for all that a model may have."""

import numpy as np
import pytest

from keras_attention.engine.watched import WatchedSpec
from tests.helpers import numpy
from tests.models.test_transformer import SOURCE, TARGET, randomized, small

pytestmark = pytest.mark.backends("torch")

OPTIONS = [
    {},
    {"normalize_first": True, "use_attention_bias": True, "key_dim": 5, "value_dim": 7},
    {"num_layers": (1, 3), "decoder_cell": "ssru"},
    {"activation": "gelu", "suppressed_token_ids": (3,)},
    {"position_layout": "learned", "max_length": 9, "tie_weights": False, "use_logits_bias": True},
    {"target_vocabulary_size": 17, "activation": "silu"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
def test_it_is_what_the_layers_compute(options):
    model = randomized(small(**options))
    scores, norms, logits = WatchedSpec(model.spec()).attention_details(SOURCE, TARGET)
    expected = model.attention_details(SOURCE, TARGET)
    assert list(map(len, scores.values())) == list(map(len, expected.scores.values()))
    real = SOURCE != 0  # What stands in rows of padding is nobody's business.
    for kind, layers in expected.scores.items():
        for found, wanted in zip(scores[kind], map(numpy, layers), strict=True):
            for row, is_real in enumerate(real):
                rows = is_real if kind == "encoder" else slice(None)
                np.testing.assert_allclose(found[row][:, rows], wanted[row][:, rows], atol=1e-5)
    assert norms.keys() == expected.value_norms.keys()
    for kind, layers in expected.value_norms.items():
        for found, wanted in zip(norms[kind], map(numpy, layers), strict=True):
            for row, is_real in enumerate(real):
                columns = slice(None) if kind == "decoder" else is_real
                np.testing.assert_allclose(
                    found[row][:, columns], wanted[row][:, columns], atol=1e-4, rtol=1e-4
                )
    np.testing.assert_allclose(logits, numpy(expected.logits), atol=1e-4, rtol=1e-5)


def test_only_the_first_rows_have_norms_and_logits():
    model = randomized(small())
    scores, norms, logits = WatchedSpec(model.spec()).attention_details(SOURCE, TARGET, rows=1)
    assert len(scores["cross"][0]) == 2
    assert len(norms["cross"][0]) == len(logits) == 1
