"""Layers from their configs: every argument, none at its default, arrives where it is for."""

import inspect
import json

import keras
import numpy as np
import pytest

from keras_attention import (
    SSRU,
    BranchedAttention,
    FeedForward,
    MultiHeadAttention,
    PositionalEncoding,
    TokenEmbedding,
    Transformer,
    TransformerDecoder,
    TransformerDecoderBlock,
    TransformerEncoder,
    TransformerEncoderBlock,
)
from keras_attention.layers import ResidualConnection
from keras_attention.layers.arguments import KERAS_ARGUMENTS
from keras_attention.layers.residual import RMSNormalization
from tests.helpers import numpy

pytestmark = pytest.mark.backends("torch")

D = 6
OF_A_BLOCK = {
    "num_heads": 3,
    "intermediate_dim": 11,
    "key_dim": 4,
    "value_dim": 6,
    "dropout": 0.15,
    "attention_dropout": 0.25,
    "activation_dropout": 0.35,
    "activation": "gelu",
    "gated_feed_forward": True,
    "normalize_first": True,
    "use_attention_bias": True,
    "normalization": "rms",
    "layer_norm_epsilon": 1e-4,
    "kernel_initializer": "he_normal",
    "seed": 5,
    "name": "mine",
}
OF_A_STACK = {
    **{name: value for name, value in OF_A_BLOCK.items() if name != "kernel_initializer"},
    "num_layers": 2,
    "final_normalization": True,
    "recompute": True,
    "position_layout": "learned",
    "max_length": 9,
    "attention_window": 7,
}
OF_A_DECODER = {
    **OF_A_STACK,
    "vocabulary_size": 13,
    "hidden_dim": D,
    "tie_weights": False,
    "use_logits_bias": True,
    "pad_token_id": 2,
}
ARGUMENTS = {
    TransformerEncoderBlock: OF_A_BLOCK,
    TransformerDecoderBlock: OF_A_BLOCK,
    TransformerEncoder: OF_A_STACK,
    TransformerDecoder: OF_A_DECODER,
    Transformer: {**OF_A_DECODER, "end_token_id": 3},
    FeedForward: {
        "intermediate_dim": 7,
        "activation": "gelu",
        "dropout": 0.2,
        "kernel_initializer": "he_normal",
        "bias_initializer": "ones",
        "seed": 4,
        "gated": True,
        "name": "mine",
    },
    ResidualConnection: {
        "dropout": 0.25,
        "normalize_first": True,
        "epsilon": 1e-4,
        "seed": 9,
        "normalization": "rms",
        "name": "mine",
    },
    TokenEmbedding: {
        "vocabulary_size": 11,
        "hidden_dim": 5,
        "pad_token_id": 4,
        "tie_weights": False,
        "embeddings_initializer": "ones",
        "embeddings_regularizer": "l2",
        "embeddings_constraint": "non_neg",
        "mask_zero": True,
        "reverse_dtype": "float32",
        "logit_soft_cap": 30.0,
        "name": "mine",
        "dtype": "mixed_bfloat16",
    },
    PositionalEncoding: {"layout": "halves", "max_length": 9, "name": "mine"},
    SSRU: {
        "use_bias": True,
        "kernel_initializer": "he_normal",
        "bias_initializer": "ones",
        "name": "mine",
    },
}


def assert_arrived_in_block(block):
    block.build(*[(None, None, D)] * (2 if isinstance(block, TransformerDecoderBlock) else 1))
    attention, residual = block.self_attention, block.self_attention_residual
    for one in (attention, getattr(block, "cross_attention", attention)):
        assert (one.num_heads, one.key_dim, one.value_dim, one.dropout) == (3, 4, 6, 0.25)
    assert attention.use_bias
    assert (residual.dropout, residual.normalize_first, residual.epsilon) == (0.15, True, 1e-4)
    assert (block.feed_forward.intermediate_dim, block.feed_forward.dropout) == (11, 0.35)
    assert block.feed_forward.activation is keras.activations.gelu and block.feed_forward.gated
    assert type(residual.normalization) is RMSNormalization
    assert isinstance(block.feed_forward.kernel_initializer, keras.initializers.HeNormal)
    assert attention.get_config()["kernel_initializer"]["class_name"] == "HeNormal"


def assert_arrived_in_blocks(model):
    model.build((None, None, D))
    blocks = [*getattr(model, "encoder_blocks", []), *getattr(model, "decoder_blocks", [])]
    assert len(blocks) == (4 if isinstance(model, Transformer) else 2)
    assert {block.attention_window for block in blocks} == {7}
    assert {block.self_attention.value_dim for block in blocks} == {6}


def assert_arrived_in_feed_forward(layer):
    assert layer.activation is keras.activations.gelu
    assert isinstance(layer.kernel_initializer, keras.initializers.HeNormal)
    assert isinstance(layer.bias_initializer, keras.initializers.Ones)


def assert_arrived_in_residual(layer):
    layer.build((None, None, D))
    assert layer.normalization.epsilon == 1e-4 and layer.dropout_layer.rate == 0.25


def assert_arrived_in_embedding(layer):
    assert isinstance(layer.embeddings_initializer, keras.initializers.Ones)
    assert layer.compute_dtype == "bfloat16"


IN_PARTS = {
    TransformerEncoderBlock: assert_arrived_in_block,
    TransformerDecoderBlock: assert_arrived_in_block,
    TransformerEncoder: assert_arrived_in_blocks,
    TransformerDecoder: assert_arrived_in_blocks,
    Transformer: assert_arrived_in_blocks,
    FeedForward: assert_arrived_in_feed_forward,
    ResidualConnection: assert_arrived_in_residual,
    TokenEmbedding: assert_arrived_in_embedding,
}


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_config_round_trip_of_every_argument(kind):
    given = ARGUMENTS[kind]
    layer = kind(**given)
    config = json.loads(json.dumps(layer.get_config()))
    assert set(given) <= set(config)
    copy = kind.from_config(config)
    assert copy.get_config() == layer.get_config()
    for made in (layer, copy):
        for name, value in given.items():
            if name != "dtype" and isinstance(getattr(made, name, None), (int, float, str)):
                assert getattr(made, name) == value, name
        IN_PARTS.get(kind, lambda made: None)(made)
    assert [w.shape for w in copy.weights] == [w.shape for w in layer.weights]


rng = np.random.default_rng(3)
VECTORS, MEMORY, MASK, IDS = 0, 1, 2, 3
ARRAYS = [
    rng.normal(size=(2, 4, D)),
    rng.normal(size=(2, 5, D + 3)),
    np.array([[True] * 5, [True] * 3 + [False] * 2]),
    rng.integers(0, 11, (2, 4)),
]


def two_blocks(x):
    return TransformerEncoderBlock(3, 11, normalize_first=True)(TransformerEncoderBlock(3, 11)(x))


def both_ways(ids):
    layer = TokenEmbedding(11, D, use_logits_bias=True)
    return layer(layer(ids), reverse=True)


def both_halves(memory, mask, ids):
    options = {"activation": "gelu", "position_layout": "learned", "max_length": 9}
    encoded = TransformerEncoder(2, 11, 3, **options)(memory, padding_mask=mask)
    return TransformerDecoder(11, 2, D + 3, 11, 3, **options)(ids, encoded, mask)


SCORES = {"return_attention_scores": True}
IN_MODELS = {
    two_blocks: [VECTORS],
    lambda x: TransformerEncoderBlock(3, 11)(x, **SCORES): [VECTORS],
    lambda x, y, mask: TransformerDecoderBlock(3, 11)(x, y, encoder_padding_mask=mask, **SCORES): [
        *(VECTORS, MEMORY, MASK)
    ],
    both_ways: [IDS],
    lambda x: ResidualConnection()(x, x): [VECTORS],
    lambda x: SSRU(use_bias=True)(x): [VECTORS],
    lambda x, y: MultiHeadAttention(3, 4)(x, y, **SCORES): [VECTORS, MEMORY],
    lambda x, y: BranchedAttention(3, 4, 11, value_dim=2)(x, y): [VECTORS, MEMORY],
    both_halves: [MEMORY, MASK, IDS],
}


@pytest.mark.parametrize("outputs_of", IN_MODELS)
@pytest.mark.parametrize("is_free", [False, True])
def test_saved_and_loaded_in_a_functional_model(outputs_of, is_free, tmp_path):
    """For any length, or for one; and symbolic shapes are the real ones."""
    arrays = [ARRAYS[place] for place in IN_MODELS[outputs_of]]
    shapes = [(None if is_free else a.shape[1], *a.shape[2:]) for a in arrays]
    inputs = [keras.Input(s, dtype=str(a.dtype)) for s, a in zip(shapes, arrays, strict=True)]
    model = keras.Model(inputs, outputs_of(*inputs))
    for weight in model.trainable_variables:
        if weight.constraint is None:
            weight.assign(numpy(weight) + 0.1 * rng.normal(size=weight.shape))
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    results = [keras.tree.flatten(one(arrays)) for one in (model, copy)]
    for symbolic, *found in zip(model.outputs, *results, strict=True):
        np.testing.assert_array_equal(*map(numpy, found))
        for size, real in zip(symbolic.shape[1:], found[0].shape[1:], strict=True):
            assert size == real or (size is None and is_free)


MADE = [
    TransformerEncoderBlock(2, 11),
    TransformerDecoderBlock(2, 11),
    TransformerEncoder(1, 11, 2),
    TransformerDecoder(13, 1, 6, 11, 2),
    Transformer(13, 1, 6, 11, 2),
]
each_made = pytest.mark.parametrize("made", MADE, ids=lambda made: type(made).__name__)


@each_made
def test_signature_and_help_show_what_the_config_has(made):
    """And a config has all options flat, with the defaults that the signature shows."""
    kind = type(made)
    shown = inspect.signature(kind).parameters
    config = made.get_config()
    assert {*shown} - {"kwargs"} == {*config} - {*KERAS_ARGUMENTS}
    sizes = {"num_heads", "intermediate_dim", "num_layers", "vocabulary_size", "hidden_dim"}
    for name in {*shown} - sizes - {"kwargs", "kernel_initializer"}:
        assert shown[name].default == config[name], name
        assert f"\n    {name}: " in kind.__init__.__doc__
    with pytest.raises(
        (TypeError, ValueError), match=" no argument 'drop_out'. Did you mean 'dropout'"
    ):
        kind.from_config({**config, "drop_out": 0.1})


@each_made
def test_files_of_plain_layers_may_say_that_they_have_no_branches(made):
    """They had these options before the Weighted Transformer was a class of its own."""
    off = {"branch_feed_forward": None, "branched_decoder": "cross"}
    config = made.get_config()
    assert type(made).from_config({**config, **off}).get_config() == config
    with pytest.raises((TypeError, ValueError), match="branch_feed_forward"):
        type(made).from_config({**config, **off, "branch_feed_forward": "shared"})


@pytest.mark.parametrize("kind", [TransformerEncoderBlock, TransformerDecoderBlock])
def test_files_of_blocks_may_name_their_window_as_keras_does(kind):
    config = kind(2, 11, attention_window=3).get_config()
    before = {**config, "sliding_window": config.pop("attention_window")}
    assert kind.from_config(before).attention_window == 3
