"""The benchmark's Marian computes what our model computes."""

import keras
import numpy as np
import pytest

from keras_attention import Transformer

pytestmark = pytest.mark.backends("torch")

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="HF transformers is not installed")


@pytest.mark.parametrize(
    "variant",
    [{}, {"use_attention_bias": True, "position_layout": "halves"}, {"num_layers": (2, 1)}],
)
def test_same_logits(variant):
    from peers.decoding.make_job import weights_of
    from peers.marian import marian_model

    model = Transformer(
        23,
        hidden_dim=12,
        intermediate_dim=18,
        num_heads=3,
        **{"num_layers": 1, **variant},
        dtype="float32",
    )
    random = np.random.default_rng(3)
    for weight in model.weights:
        if "seed" not in weight.path:
            weight.assign(random.normal(float(weight.path.endswith("gamma")), 0.4, weight.shape))
    # The target holds padding, which embeds as zero; the second source ends early.
    source = np.array([[4, 19, 8, 3, 1], [7, 22, 1, 0, 0]])
    target = np.array([[0, 6, 0, 21], [0, 9, 9, 5]])
    ours = model({"encoder_token_ids": source, "decoder_token_ids": target})
    marian = marian_model(model.get_config(), weights_of(model), 9, pad_embeds_as_zero=True).eval()
    with torch.inference_mode():
        theirs = marian(
            input_ids=torch.from_numpy(source),
            attention_mask=torch.from_numpy((source != 0).astype("int64")),
            decoder_input_ids=torch.from_numpy(target),
        ).logits.numpy()
    ours = keras.ops.convert_to_numpy(ours)
    assert ours.std() > 0.5
    np.testing.assert_allclose(theirs, ours, atol=1e-4, rtol=1e-4)
