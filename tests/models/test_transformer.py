"""The Transformer against the paper in NumPy, and what users do with a model."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attention import PRESETS, LabelSmoothedCrossentropy, Transformer
from tests import oracle
from tests.helpers import numpy

V, L, D, F, N, B, T, S = 13, 2, 12, 20, 3, 2, 4, 6
rng = np.random.default_rng(2)
SOURCE = np.array([[5, 6, 7, 8, 9, 1], [10, 11, 1, 0, 0, 0]])
TARGET = np.array([[0, 3, 4, 5], [0, 6, 12, 0]])
INPUTS = {"encoder_token_ids": SOURCE, "decoder_token_ids": TARGET}


def small(**kwargs):
    arguments = {
        "vocabulary_size": V,
        "num_layers": L,
        "hidden_dim": D,
        "intermediate_dim": F,
        "num_heads": N,
        "dropout": 0.0,
        "seed": 4,
    }
    return Transformer(**{**arguments, **kwargs})


def randomized(model):
    """Gains and biases get numbers that matter, too."""
    generator = np.random.default_rng(3)
    model.set_weights(
        [w + 0.1 * generator.normal(size=w.shape).astype("float32") for w in model.get_weights()]
    )
    return model


@pytest.fixture(scope="module")
def model():
    """Shared by the tests that only call it."""
    return randomized(small())


def named_weights(model):
    found = {"/".join(w.path.split("/")[-5:]): numpy(w) for w in model.weights}

    def get(path):
        matches = [w for name, w in found.items() if name == path or name.endswith("/" + path)]
        assert len(matches) == 1, (path, sorted(found))
        return matches[0].astype("float64")

    return get


def test_equals_the_paper_in_numpy(model):
    expected = oracle.transformer(SOURCE, TARGET, named_weights(model), L)
    np.testing.assert_allclose(numpy(model(INPUTS)), expected, atol=2e-4)


@pytest.mark.backends("torch")
@pytest.mark.parametrize(
    "preset,vocabulary_size,count",
    [
        ("base", 37000, 63_045_632),
        ("base", 32000, 60_485_632),
        ("big", 37000, 214_171_648),
        ("big", 32000, 209_051_648),
        ("table3_a_heads_1", 37000, 63_045_632),
        ("table3_a_heads_4", 37000, 63_045_632),
        ("table3_a_heads_16", 37000, 63_045_632),
        ("table3_a_heads_32", 37000, 63_045_632),
        ("table3_b_key_dim_16", 37000, 55_967_744),
        ("table3_b_key_dim_32", 37000, 58_327_040),
        ("table3_c_layers_2", 37000, 33_644_544),
        ("table3_c_layers_4", 37000, 48_345_088),
        ("table3_c_layers_8", 37000, 77_746_176),
        ("table3_c_hidden_256", 37000, 26_816_512),
        ("table3_c_hidden_1024", 37000, 163_815_424),
        ("table3_c_intermediate_1024", 37000, 50_450_432),
        ("table3_c_intermediate_4096", 37000, 88_236_032),
        ("table3_e_learned_positions", 37000, 63_307_776),
    ],
)
def test_parameter_counts_of_table_3(preset, vocabulary_size, count):
    assert parameters(vocabulary_size=vocabulary_size, **PRESETS[preset]) == count


def parameters(**arguments):
    """Count of a model whose 200 million floats are never drawn: from the shapes of its variables."""
    try:
        with keras.StatelessScope(initialize_variables=False):
            return Transformer(**arguments).count_params()
    finally:
        keras.utils.clear_session()  # Keras would draw them all when it makes the next model.


@pytest.mark.backends("torch")
def test_base_as_built_has_the_count_of_table_3():
    assert Transformer.base().count_params() == 63_045_632


@pytest.mark.backends("torch")
@pytest.mark.parametrize(
    ("option", "more"),
    [("use_attention_bias", 36_864), ("normalize_first", 2 * 2 * 512), ("tie_weights", -11 * 512)],
)
def test_options_add_parameters(option, more):
    plain, other = (parameters(vocabulary_size=11, **{option: flag}) for flag in (False, True))
    assert other - plain == more


def test_embeddings_start_at_unit_variance():
    model = Transformer(vocabulary_size=3000, num_layers=1)
    table = numpy(model.token_embedding.embeddings)
    assert table.std() == pytest.approx(0.04419417, rel=0.01)


def test_attention_scores_of_every_layer_and_kind(model):
    scores = model.attention_scores(SOURCE, TARGET)
    shapes = {"encoder": (B, N, S, S), "decoder": (B, N, T, T), "cross": (B, N, T, S)}
    assert {kind: len(layers) for kind, layers in scores.items()} == dict.fromkeys(shapes, L)
    for kind, layers in scores.items():
        for weights in layers:
            weights = numpy(weights)
            assert weights.shape == shapes[kind]
            np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
            if kind == "decoder":
                assert (np.triu(weights, 1) == 0).all()
            else:
                assert (weights[1, :, :, 3:] == 0).all()


@pytest.mark.backends("torch")
def test_saves_and_loads_in_safe_mode(tmp_path, model):
    """On other backends and in other precisions: `test_options.py`."""
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    np.testing.assert_array_equal(numpy(copy(INPUTS)), numpy(model(INPUTS)))
    model.save_weights(tmp_path / "model.weights.h5")
    other = small(seed=5)
    assert np.abs(numpy(other(INPUTS)) - numpy(model(INPUTS))).max() > 0.01
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(numpy(other(INPUTS)), numpy(model(INPUTS)))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_is_close_and_finite(policy):
    model, full = small(dtype=policy), small()
    model.set_weights(full.get_weights())
    got = model(INPUTS)
    assert keras.backend.standardize_dtype(got.dtype) == policy.removeprefix("mixed_")
    np.testing.assert_allclose(numpy(got), numpy(full(INPUTS)), atol=0.15)
    logits, _ = model.decode_step(
        TARGET[:, :1], 0, model.encode(SOURCE), model.initial_cache(B, 1, 2)
    )
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    np.testing.assert_allclose(numpy(logits)[:, 0], numpy(got)[:, 0], atol=0.15)


@pytest.fixture
def steps(monkeypatch):
    """The models whose `train_step` was run, or traced by a compiler."""
    found, original = [], Transformer.train_step

    def train_step(model, *data):
        found.append(model)
        return original(model, *data)

    monkeypatch.setattr(Transformer, "train_step", train_step)
    return found


@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit_learns_with_and_without_jit(jit_compile, steps):
    if keras.backend.backend() == "torch" and jit_compile:
        pytest.skip("torch.compile needs a C++ toolchain and minutes")
    if keras.backend.backend() == "jax" and not jit_compile:
        pytest.skip("JAX compiles each operation by itself, for minutes")
    model = small(num_layers=1, dropout=0.1)
    model.compile(keras.optimizers.Adam(0.05), LabelSmoothedCrossentropy(), jit_compile=jit_compile)
    labels = np.concatenate([TARGET[:, 1:], np.ones((B, 1), int)], axis=1)
    losses = model.fit(INPUTS, labels, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]
    if keras.backend.backend() == "tensorflow":
        assert steps == [model]


@pytest.mark.backends("tensorflow")
def test_tensorflow_traces_an_update_with_loss_scaling_once(steps):
    model = small(num_layers=1, dtype="mixed_float16")
    model.compile("adam", LabelSmoothedCrossentropy(), jit_compile=False)
    model.fit(INPUTS, TARGET, verbose=0)
    assert steps == [model]


@pytest.mark.backends("torch")
def test_fit_without_compile_says_so():
    with pytest.raises(ValueError, match="compile"):
        small().fit(INPUTS, TARGET, verbose=0)


def test_the_seed_decides_weights_and_dropout():
    one, same, other = small(dropout=0.5), small(dropout=0.5), small(dropout=0.5, seed=5)
    assert all((a == b).all() for a, b in zip(one.get_weights(), same.get_weights(), strict=True))
    got = [numpy(model(INPUTS, training=True)) for model in (one, same, other)]
    np.testing.assert_array_equal(got[0], got[1])
    assert np.abs(got[0] - got[2]).max() > 0.01


@pytest.mark.backends("torch")
def test_summary_is_readable():
    lines: list[str] = []
    small().summary(print_fn=lines.append)
    text = "\n".join(lines)
    for name in ("token_embedding", "encoder_block_2", "decoder_block_1", "Total params"):
        assert name in text
    assert "?" not in text and text.count("(None, None, 12)") == len(small().layers)


@pytest.mark.backends("torch")
@pytest.mark.parametrize(
    "name, meant",
    [
        ("Tiny", "Did you mean 'tiny'"),
        ("transformer_big", "Did you mean 'big'"),
        ("table3_a", "Did you mean 'table3_a_heads_1' or 'table3_a_heads_4'"),
        ("gigantic", "Received: "),
        ("", "Received: "),
        (3, "Received: "),
        (["tiny"], "Received: "),
    ],
)
def test_a_wrong_preset_is_answered_by_what_was_meant(name, meant):
    told = f"`preset` must be the name of a model size. .*{meant}"
    with pytest.raises(ValueError, match=told) as error:
        Transformer.from_preset(name, vocabulary_size=9)
    text = str(error.value)
    assert f"Received: preset={name!r}. The sizes for small corpora are tiny, small" in text
    assert sum(preset in text for preset in PRESETS if preset.startswith("table3")) <= 3


@pytest.mark.backends("torch")
@pytest.mark.parametrize("preset", ["runs/tiny", Path("tiny"), "hf://owner/name"])
def test_a_pretrained_model_has_a_vocabulary(preset):
    with pytest.raises(ValueError, match="`vocabulary_size` is for untrained models") as error:
        Transformer.from_preset(preset, vocabulary_size=9)
    assert f"Received: preset={preset!r}, vocabulary_size=9" in str(error.value)


@pytest.mark.backends("torch")
@pytest.mark.parametrize(
    "name, own, other",
    [
        ("num_layers", 2, 1),
        ("activation", "relu", "gelu"),
        ("position_layout", "halves", "learned"),
    ],
)
def test_a_pretrained_model_keeps_what_its_weights_are_for(name, own, other):
    spec = small(num_layers=2, activation="relu", position_layout="halves").spec()
    with pytest.raises(
        ValueError, match=f"`{name}` is {own!r} in the .* Received: {name}={other!r}"
    ):
        Transformer.from_spec(spec, **{name: other})
    for same in [own, [2, 2]] if name == "num_layers" else [own]:
        assert Transformer.from_spec(spec, **{name: same}, dropout=0.3).get_config()[name] == own


@pytest.mark.backends("torch")
def test_the_name_of_a_size_is_no_folder(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "tiny").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="'mine' holds no model that is known: it has no file"):
        Transformer.from_preset("mine")
    assert Transformer.from_preset("tiny", vocabulary_size=9, num_layers=1).hidden_dim == 128


@pytest.mark.backends("torch")
def test_bad_inputs_are_named():
    with pytest.raises(ValueError, match="num_heads=5, hidden_dim=12"):
        small(num_heads=5)
    with pytest.raises(ValueError, match="encoder_token_ids"):
        small()({"tokens": SOURCE})
    with pytest.raises(ValueError, match="no argument 'n_layers'. Did you mean 'num_layers'?"):
        Transformer(9, n_layers=1)


def test_a_step_beyond_the_cache_and_unknown_ids_are_refused(model):
    memory, cache = model.encode(SOURCE[:1]), model.initial_cache(1, 1, 4)
    model.decode_step(np.array([[5]]), 3, memory, cache)
    for index, problem in {4: "from 0 to 3, the last", -1: "an int of at least 0"}.items():
        with pytest.raises(ValueError, match=f"{problem}.*start_index={index}"):
            model.decode_step(np.array([[5]]), index, memory, cache)
    with pytest.raises(ValueError, match="'token_ids' holds ids outside the model's vocabulary"):
        model.decode_step(np.array([[-1]]), 0, memory, cache)
