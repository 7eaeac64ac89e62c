"""`torch.nn.Transformer` inside a model of one's own."""

import numpy as np
import pytest

from keras_attention import Transformer
from keras_attention.interop.torch_transformer import read_torch
from keras_attention.spec import EmbeddingSpec, PositionsSpec
from keras_attention.spec.parts import sinusoid
from tests.helpers import numpy
from tests.spec_oracle import SpecOracle

pytestmark = pytest.mark.backends("torch")
torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

DIM, HEADS, VOCABULARY = 12, 3, 17
SOURCE, TARGET = [4, 9, 16, 2, 1], [3, 8, 8, 15]


def make(**options):
    """A Transformer with weights that all matter."""
    torch.manual_seed(3)
    options = {"norm_first": False, **options}
    model = torch.nn.Transformer(
        DIM, HEADS, 2, 3, 20, dropout=0.0, batch_first=True, **options
    ).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.2 * torch.randn_like(weight)
    return model


def expected_logits(model, table, softmax, layout="interleaved"):
    def embed(ids):
        positions = sinusoid(np.arange(len(ids)), DIM, layout)
        rows = table[ids] * np.float32(np.sqrt(DIM)) + positions
        return torch.from_numpy(rows.astype("float32"))[None]

    mask = torch.nn.Transformer.generate_square_subsequent_mask(len(TARGET))
    with torch.no_grad():
        states = model(embed(SOURCE), embed(TARGET), tgt_mask=mask)[0]
    return states.numpy() @ softmax


@pytest.mark.parametrize(
    "options", [{}, {"norm_first": True}, {"activation": "gelu", "layer_norm_eps": 0.1}]
)
@pytest.mark.parametrize("tied", [True, False])
def test_logits(options, tied):
    model = make(**options)
    random = np.random.default_rng(5)
    table = random.normal(size=(VOCABULARY, DIM)).astype("float32")
    softmax = random.normal(size=(DIM, VOCABULARY)).astype("float32")
    spec = read_torch(
        model.state_dict(),
        EmbeddingSpec(table, None if tied else softmax),
        HEADS,
        normalize_first=options.get("norm_first", False),
        positions=PositionsSpec("halves"),
        activation=options.get("activation", "relu"),
        layer_norm_epsilon=options.get("layer_norm_eps", 1e-5),
        start_token_id=2,
    )
    oracle = SpecOracle(spec)
    found = oracle.logits(SOURCE, TARGET)
    expected = expected_logits(model, table, table.T if tied else softmax, "halves")
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert spec.encoder.norm is not None and spec.decoder.norm is not None
    assert spec.options()["num_layers"] == (2, 3) and spec.start_token_id == 2


@pytest.mark.parametrize("is_spec", [True, False])
def test_the_keras_model_of_one(is_spec):
    model = make(norm_first=True)
    table = np.random.default_rng(5).normal(size=(VOCABULARY, DIM)).astype("float32")
    ours = Transformer.from_torch(
        model.state_dict(),
        HEADS,
        EmbeddingSpec(table) if is_spec else table,
        options={"normalize_first": True},
        dropout=0.2,
    )
    ids = {"encoder_token_ids": np.array([SOURCE]), "decoder_token_ids": np.array([TARGET])}
    found = ours(ids)
    expected = expected_logits(model, table, table.T)
    np.testing.assert_allclose(numpy(found)[0], expected, rtol=1e-5, atol=1e-4)
    assert ours.dropout == 0.2


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda weights: weights.pop("encoder.layers.0.norm1.bias"), "encoder.layers.0.norm1.bias"),
        (lambda weights: weights.update(extra=np.ones(3)), "further arrays.*extra"),
        (
            lambda weights: weights.update({"decoder.norm.weight": np.ones(5)}),
            "decoder.norm.gamma has D = 5",
        ),
        (lambda weights: weights.update({"decoder.norm.weight": np.ones((5, 5))}), "1 axes"),
        (lambda weights: weights.clear(), "encoder.blocks is empty"),
    ],
)
def test_weights_that_do_not_fit(change, message):
    weights = dict(make().state_dict())
    change(weights)
    table = EmbeddingSpec(np.ones((VOCABULARY, DIM), "float32"))
    with pytest.raises(ValueError, match=message):
        read_torch(weights, table, HEADS)
    with pytest.raises(ValueError, match="5 heads do not divide"):
        read_torch(make().state_dict(), table, 5)


def test_without_biases():
    table = EmbeddingSpec(np.ones((VOCABULARY, DIM), "float32"))
    with pytest.raises(ValueError, match="bias=False"):
        read_torch(make(bias=False).state_dict(), table, HEADS)
