"""A model in eight bits, against the arithmetic of Keras' quantization in NumPy."""

import dataclasses
import gc

import keras
import numpy as np
import pytest

from keras_attention import Transformer, Translator, WeightedTransformer
from keras_attention.layers import TokenEmbedding
from keras_attention.spec import SpecError
from tests.models import numpy_transformer
from tests.models.test_lora import INPUTS, SOURCE, TARGET, best_of, made, numbers
from tests.models.test_options import Numbers

OPTIONS = [
    {},
    {"decoder_cell": "ssru", "tie_weights": False, "use_logits_bias": True},
    {"gated_feed_forward": True, "target_vocabulary_size": 17, "use_attention_bias": True},
]


@pytest.fixture(autouse=True)
def nothing_to_search():
    """Keras' `quantize` searches all objects for garbage once a layer: on JAX most of these tests' time."""
    gc.freeze()


def rounded(x, axes=-1):
    """The 255 numbers that eight bits can be, from -127 to 127 times the largest of these axes / 127."""
    x = numpy_transformer.array(x)
    scale = 127.0 / (np.abs(x).max(axis=axes, keepdims=True) + 1e-7)
    return np.clip(np.round(x * scale), -127, 127) / scale


def with_rounded_weights(part):
    """A spec with kernels rounded by column, and tables by row; attention's output has two axes of input."""
    changes = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if field.name == "kernel":
            changes["kernel"] = rounded(value, 0)
        elif field.name == "embeddings":
            changes["embeddings"] = rounded(value)
        elif field.name == "reverse_embeddings" and value is not None:
            changes["reverse_embeddings"] = rounded(value, 0)
        elif field.name == "output":
            kernel = rounded(value.kernel, (0, 1))
            changes["output"] = dataclasses.replace(value, kernel=kernel)
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            changes[field.name] = tuple(with_rounded_weights(each) for each in value)
        elif dataclasses.is_dataclass(value):
            changes[field.name] = with_rounded_weights(value)
    return dataclasses.replace(part, **changes)


def logits_in_eight_bits(spec, monkeypatch):
    """The forward pass of `numpy_transformer`, with the input of each product rounded, too."""
    plain_dense, plain_heads = numpy_transformer.dense, numpy_transformer.heads

    def heads(*arguments):
        found, weights = plain_heads(*arguments)
        return rounded(found, (2, 3)), weights

    class Table:
        """A matrix that rounds what it is multiplied by."""

        def __init__(self, matrix):
            self.matrix = matrix

        __array_ufunc__ = None

        def __rmatmul__(self, x):
            return rounded(x) @ self.matrix

    spec = with_rounded_weights(spec)
    table = spec.output_embedding
    kernel = table.embeddings.T if table.reverse_embeddings is None else table.reverse_embeddings
    with monkeypatch.context() as patch:
        patch.setattr(numpy_transformer, "dense", lambda x, part: plain_dense(rounded(x), part))
        patch.setattr(numpy_transformer, "heads", heads)
        plain_array = numpy_transformer.array
        patch.setattr(
            numpy_transformer,
            "array",
            lambda weight: weight if isinstance(weight, Table) else plain_array(weight),
        )
        name = "embedding" if spec.target_embedding is None else "target_embedding"
        own = dataclasses.replace(table, reverse_embeddings=Table(kernel))
        spec = dataclasses.replace(spec, **{name: own})
        return numpy_transformer.teacher_forced_logits(spec, SOURCE, TARGET)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("type_check", [True, False])
def test_logits(options, type_check, monkeypatch):
    model = made(**options)
    plain = numpy_transformer.teacher_forced_logits(model.spec(), SOURCE, TARGET)
    expected = logits_in_eight_bits(model.spec(), monkeypatch)
    model.quantize("int8", type_check=type_check)
    found = numbers(model(INPUTS))
    assert 1e-3 < np.abs(expected - plain).max() < 0.2
    np.testing.assert_allclose(found, expected, atol=2e-4)


@pytest.mark.parametrize("tie_weights", [True, False])
def test_an_embedding(tie_weights):
    layer = TokenEmbedding(11, 6, tie_weights=tie_weights, use_logits_bias=True)
    layer.build()
    layer.logits_bias.assign(np.arange(11.0))
    table = numbers(layer.embeddings)
    reverse = table.T if tie_weights else numbers(layer.reverse_embeddings)
    layer.quantize("int8")
    ids = np.array([[3, 0, 10]])
    expected = rounded(table)[ids] * 6**0.5
    expected[0, 1] = 0.0  # padding
    np.testing.assert_allclose(numbers(layer(ids)), expected, atol=1e-5)
    x = np.random.default_rng(2).normal(size=(2, 3, 6)).astype("float32")
    expected = rounded(x) @ rounded(reverse, 0) + np.arange(11.0)
    np.testing.assert_allclose(numbers(layer(x, reverse=True)), expected, atol=1e-4)


def test_it_translates_plainly_and_is_kept(tmp_path):
    model = made(seed=4)
    model.quantize("int8")
    with pytest.raises(SpecError, match="'token_embedding' has weights that are quantized"):
        model.spec()
    settings = {"beam_size": 2, "max_extra_length": 3, "show_progress": False}
    translator = Translator(model, Numbers(model), **settings)
    assert translator.engine_for(2).name == "plain"
    found = best_of(translator)
    with pytest.raises(ValueError, match="engine='numpy' cannot decode this model.*quantized"):
        Translator(model, Numbers(model), engine="numpy")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numbers(loaded(INPUTS)), numbers(model(INPUTS)))
    assert best_of(Translator(loaded, Numbers(loaded), **settings)) == found
    kinds = {str(w.dtype) for w in loaded.weights if w.name in ("kernel", "embeddings")}
    assert kinds == {"int8"}


def test_a_configuration_of_keras_is_kept(tmp_path):
    """Weights alone in eight bits: activations stay as they are."""
    model = made()
    before = numbers(model(INPUTS))
    config = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    model.quantize(config=config)
    expected = numpy_transformer.teacher_forced_logits(
        with_rounded_weights(made().spec()), SOURCE, TARGET
    )
    found = numbers(model(INPUTS))
    np.testing.assert_allclose(found, expected, atol=2e-4)
    assert np.abs(found - before).max() > 1e-3
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numbers(loaded(INPUTS)), found)


@pytest.mark.backends("torch")
def test_what_cannot_be_quantized_is_refused():
    for mode in ("int4", "float8"):
        model = made()
        before = numbers(model(INPUTS))
        with pytest.raises(
            ValueError, match=f"`mode` must be one of 'int8'. Received: mode='{mode}'"
        ):
            model.quantize(mode)
        np.testing.assert_array_equal(numbers(model(INPUTS)), before)
    # Before Keras 3.16, Keras itself refuses these and what is no mode.
    for mode in ("gptq", "awq"):
        with pytest.raises(ValueError, match=f"{mode.upper()}|mode='{mode}'"):
            made().quantize(mode)
    with pytest.raises(ValueError, match="nvalid quantization mode|mode='int9'"):
        made().quantize("int9")
    model = WeightedTransformer(13, num_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2)
    with pytest.raises(ValueError, match="cannot be quantized, .* has no branches"):
        model.quantize("int8")
    model = made()
    model.quantize("int8")
    with pytest.raises(ValueError, match="cannot be quantized, .* that are quantized .int8."):
        model.quantize("int8")

    class Own(TokenEmbedding):
        pass

    layer = Own(11, 6)
    layer.build()
    with pytest.raises(NotImplementedError, match="is a Own, a subclass"):
        layer.quantize("int8")
    layer.quantize("int8", type_check=False)
    assert layer.quantization_mode == "int8"
    assert isinstance(Transformer.from_spec(made().spec()), Transformer)
