"""Specs of models: complete, refused if a spec cannot describe a layer. Round trips: `test_options.py`."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_attention import Transformer
from keras_attention.layers import FeedForward, MultiHeadAttention, TransformerDecoderBlock
from keras_attention.spec import SpecError
from keras_attention.spec.parts import ACTIVATIONS
from tests.helpers import numpy

SIZES = {"num_layers": 2, "hidden_dim": 12, "intermediate_dim": 20, "num_heads": 3}
EVERY_OPTION = {
    "key_dim": 5,
    "value_dim": 7,
    "dropout": 0.3,
    "attention_dropout": 0.2,
    "activation_dropout": 0.1,
    "activation": "gelu",
    "gated_feed_forward": True,
    "normalize_first": True,
    "use_attention_bias": True,
    "normalization": "rms",
    "layer_norm_epsilon": 1e-3,
    "position_layout": "learned",
    "max_length": 9,
    "tie_weights": False,
    "pad_token_id": 2,
    "end_token_id": 4,
    "recompute": True,
    "seed": 11,
}


def model_with(**options):
    """Every weight matters."""
    model = Transformer(13, **{**SIZES, **options})
    random = np.random.default_rng(3)
    for weight in model.trainable_weights:
        weight.assign(weight + 0.3 * random.standard_normal(weight.shape))
    return model


def test_weights_are_the_models_own():
    """What is assigned later is read later; NumPy arrays in their place make a spec, too."""
    model = model_with()
    spec = model.spec()
    before = Transformer.from_spec(spec.map_weights(numpy))
    model.token_embedding.embeddings.assign(numpy(model.token_embedding.embeddings) * 2.0)
    doubled = Transformer.from_spec(spec)
    for copy, factor in ((before, 0.5), (doubled, 1.0)):
        np.testing.assert_allclose(
            numpy(copy.token_embedding.embeddings),
            factor * numpy(model.token_embedding.embeddings),
            rtol=1e-6,
        )


@pytest.mark.backends("torch")
def test_what_is_missing_or_does_not_fit_is_named():
    spec = model_with().spec().map_weights(numpy)
    block = spec.decoder.blocks[1]
    without = dataclasses.replace(block.cross_attention, key=type(block.cross_attention.key)())
    narrow = dataclasses.replace(block.feed_forward_norm, gamma=np.zeros(11, "float32"))
    flat = dataclasses.replace(spec.embedding, embeddings=np.zeros(12, "float32"))
    broken = dataclasses.replace(block, cross_attention=without, feed_forward_norm=narrow)
    decoder = dataclasses.replace(spec.decoder, blocks=(spec.decoder.blocks[0], broken))
    with pytest.raises(SpecError) as error:
        dataclasses.replace(spec, decoder=decoder).validate()
    assert "decoder.blocks.1.cross_attention.key.kernel (D, N, K) is missing" in str(error.value)
    assert "decoder.blocks.1.feed_forward_norm.gamma has D = 11" in str(error.value)
    assert str(error.value).count(";") == 1, "nothing else is wrong"
    with pytest.raises(SpecError, match=r"must have the axes \(V, D\), but its shape is \(12,\)"):
        dataclasses.replace(spec, embedding=flat, decoder=decoder).validate()
    with pytest.raises(SpecError, match="end_token_id must be from 0 to 12, not 13"):
        dataclasses.replace(spec, end_token_id=13).validate()
    before = dataclasses.replace(spec.encoder.blocks[0], normalize_first=True)
    encoder = dataclasses.replace(spec.encoder, blocks=(before, spec.encoder.blocks[1]))
    with pytest.raises(SpecError, match="encoder.norm must exist, as the block is pre-norm"):
        dataclasses.replace(spec, encoder=encoder).validate()
    with pytest.raises(TypeError, match="'kernell'"):
        type(block.cross_attention.key)(kernell=np.zeros((2, 3)))


@pytest.mark.backends("torch")
def test_what_does_not_fit_of_two_vocabularies_and_cells_is_named():
    options = {"target_vocabulary_size": 17, "use_logits_bias": True, "decoder_cell": "ssru"}
    spec = model_with(**options, suppressed_token_ids=(2, 5)).spec().map_weights(numpy)
    assert (spec.vocabulary_size, spec.target_vocabulary_size) == (13, 17)
    assert spec.suppressed_token_ids == (2, 5)
    bias = spec.decoding_bias()
    assert (bias[[2, 5]] < -1e20).all() and np.isfinite(bias).all()
    kept = np.delete(np.arange(17), [2, 5])
    np.testing.assert_array_equal(bias[kept], spec.target_embedding.logits_bias[kept])
    with pytest.raises(SpecError, match="suppressed_token_ids must be from 0 to 16, not 17"):
        dataclasses.replace(spec, suppressed_token_ids=(17,)).validate()
    with pytest.raises(SpecError, match="end_token_id must be from 0 to 12, not 13"):
        dataclasses.replace(spec, end_token_id=13).validate()
    short = dataclasses.replace(spec.target_embedding, logits_bias=np.zeros(13, "float32"))
    with pytest.raises(SpecError, match=r"logits_bias has V of the target = 13, but .* has 17"):
        dataclasses.replace(spec, target_embedding=short).validate()
    block = spec.decoder.blocks[0]
    cell = dataclasses.replace(block.self_attention, inner=block.self_attention.forget)
    blocks = tuple(dataclasses.replace(b, self_attention=cell) for b in spec.decoder.blocks)
    biased = dataclasses.replace(spec, decoder=dataclasses.replace(spec.decoder, blocks=blocks))
    biased.validate()
    with pytest.raises(SpecError, match="an SSRU whose inner product has a bias"):
        Transformer.from_spec(biased)


@pytest.mark.backends("torch")
def test_activations_are_keras_own():
    for name in ACTIVATIONS:
        assert keras.activations.serialize(keras.activations.get(name)) == name


class OwnAttention(MultiHeadAttention):
    """May compute anything."""


class OwnBlock(TransformerDecoderBlock):
    """May compute anything."""


class OwnModel(Transformer):
    """Projects in its own way."""

    def _project(self, x):
        return super()._project(x)


class DeclaredFeedForward(FeedForward):
    """Says that it computes what its parent computes."""

    def spec(self):
        return super().spec()


def replaced(model, attribute, layer):
    """A model whose second decoder block has another layer."""
    block = model.decoder_blocks[1]
    block._tracker.unlock()
    setattr(block, attribute, layer)
    return model


def own_attention(model):
    layer = OwnAttention(num_heads=3, key_dim=4, use_bias=False, name="own")
    layer.build((None, None, 12), (None, None, 12))
    return replaced(model, "self_attention", layer)


def own_normalization(model):
    layer = keras.layers.UnitNormalization(name="unit")
    layer.build((None, 12))
    connection = model.decoder_blocks[1].cross_attention_residual
    connection._tracker.unlock()
    connection.normalization = layer
    return model


def gated_attention(model):
    layer = MultiHeadAttention(num_heads=3, key_dim=4, use_bias=False, use_gate=True, name="gated")
    layer.build((None, None, 12), (None, None, 12))
    return replaced(model, "cross_attention", layer)


def own_block(model):
    block = OwnBlock(num_heads=3, intermediate_dim=20, name="own_block")
    block.build((None, None, 12))
    model.decoder_blocks[0] = block
    return model


def quantized(model):
    model.decoder_blocks[1].feed_forward.outer.quantize("int8")
    return model


def adapted(model):
    model.token_embedding.enable_lora(2)
    return model


REFUSED = {
    own_attention: "decoder_block_2: 'own' is a OwnAttention, a subclass",
    own_normalization: "decoder_block_2: 'unit' is a UnitNormalization",
    gated_attention: "decoder_block_2: 'gated' has a gate",
    own_block: "'own_block' is a OwnBlock, a subclass",
    quantized: "decoder_block_2: 'outer' has weights that are quantized",
    adapted: "'token_embedding' has weights that are .*LoRA",
}


@pytest.mark.backends("torch")
@pytest.mark.parametrize("change", REFUSED)
def test_a_layer_that_a_spec_cannot_describe_is_refused_by_name(change):
    with pytest.raises(SpecError, match=REFUSED[change]):
        change(model_with()).spec()


@pytest.mark.backends("torch")
def test_a_model_that_overrides_decoding_is_refused():
    with pytest.raises(SpecError, match="OwnModel overrides `_project`"):
        OwnModel(13, **SIZES).spec()


@pytest.mark.backends("torch")
def test_an_unknown_activation_is_refused():
    model = model_with()
    model.encoder_blocks[0].feed_forward.inner.activation = keras.ops.square
    with pytest.raises(SpecError, match="encoder_block_1: 'inner' has the activation"):
        model.spec()


@pytest.mark.backends("torch")
def test_a_subclass_may_declare_itself():
    model = model_with()
    layer = DeclaredFeedForward(20, name="declared")
    layer.build((None, None, 12))
    spec = replaced(model, "feed_forward", layer).spec()
    assert spec.decoder.blocks[1].feed_forward.inner.kernel is layer.inner.kernel
