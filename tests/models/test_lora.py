"""LoRA: what it adds, against Hu et al. 2021 in NumPy; what is trained; its weights alone and merged."""

import importlib.util

import keras
import numpy as np
import pytest

from keras_attention import (
    Adam,
    LabelSmoothedCrossentropy,
    Transformer,
    Translator,
    WeightedTransformer,
)
from keras_attention.models.lora import SETTINGS
from keras_attention.spec.files import load_spec, save_spec
from keras_attention.spec.parts import as_array
from keras_attention.utils.files import DamagedFile, OccupiedPath
from tests.models.numpy_transformer import teacher_forced_logits
from tests.models.test_options import TEXTS, Numbers

V, D, F, N, R = 13, 12, 20, 3, 2
K = D // N
RNG = np.random.default_rng
SOURCE = np.array([[5, 6, 7, 9, 1], [8, 3, 1, 0, 0]])
TARGET = np.array([[0, 7, 11, 4], [0, 2, 12, 0]])
INPUTS = {"encoder_token_ids": SOURCE, "decoder_token_ids": TARGET}
LABELS = np.array([[7, 11, 4, 1], [2, 12, 1, 0]])
BACKEND = keras.backend.backend()


def made(seed=1, **options):
    return Transformer(V, (2, 1), D, F, N, seed=seed, **options)


def numbers(tensor):
    return np.array(keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32")))


def fitted(model, epochs=2):
    model.compile(Adam(0.05), LabelSmoothedCrossentropy(0.0, 0))
    model.fit(INPUTS, LABELS, epochs=epochs, verbose=0)
    return model


def best_of(translator):
    """Token ids of the two best translations of each text, and the score of the best one."""
    found = translator.translate(TEXTS, n_best=2, unique=False)
    ids = [[each.token_ids for each in best] for best in found]
    return ids, [best[0].score for best in found]


@pytest.fixture(scope="module")
def trained():
    model = made(use_attention_bias=True)
    model.enable_lora(R, lora_alpha=5.0)
    return fitted(model)


def test_at_first_it_computes_what_it_did():
    model = made(use_attention_bias=True)
    before = numbers(model(INPUTS))
    model.enable_lora(R)
    np.testing.assert_array_equal(numbers(model(INPUTS)), before)
    assert not model.compiled


def test_only_the_small_matrices_are_trained():
    """A of Keras' layers has the kernel's axes but the last, and B its last."""
    model = made(use_attention_bias=True)
    whole = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    model.enable_lora(R)
    blocks = 2 + 2 * 1  # an attention in each encoder block, two in each decoder block
    shapes = [tuple(v.shape) for v in model.trainable_variables]
    assert sorted(shapes) == sorted([(D, N, R), (R, K)] * 2 * blocks)
    before = {v.path: numbers(v) for v in model.non_trainable_variables if "seed" not in v.path}
    assert sum(value.size for value in before.values()) == whole
    fitted(model)
    for variable in model.non_trainable_variables:
        if variable.path in before and "seed" not in variable.path:
            assert variable.shape == before[variable.path].shape
    after = {v.path: numbers(v) for v in model.non_trainable_variables if "seed" not in v.path}
    assert all(np.array_equal(after[path], value) for path, value in before.items())
    chosen = made()
    chosen.enable_lora(R, ["inner", "outer"])
    count = sum(int(np.prod(v.shape)) for v in chosen.trainable_variables)
    assert count == 3 * 2 * R * (D + F)


def test_the_merged_kernels_are_those_of_the_paper(trained):
    """Equation 3: W_0 + alpha / r A B; here of each head's columns, which share B."""
    spec = trained.spec()
    for index, block in enumerate(trained.encoder_blocks):
        attention = block.self_attention
        for name in ("query", "value"):
            layer = getattr(attention, f"{name}_dense")
            parts = {v.name: numbers(v).astype("float64") for v in layer.variables}
            expected = parts["kernel"].copy()
            for head in range(N):
                expected[:, head] += 2.5 * (
                    parts["lora_kernel_a"][:, head] @ parts["lora_kernel_b"]
                )
            assert np.abs(expected - parts["kernel"]).max() > 1e-3
            found = getattr(spec.encoder.blocks[index].self_attention, name).kernel
            np.testing.assert_allclose(as_array(found), expected, atol=1e-6)
        unchanged = spec.encoder.blocks[index].self_attention.key.kernel
        assert unchanged is attention.key_dense.kernel


def test_its_logits_are_those_of_the_merged_spec(trained):
    expected = teacher_forced_logits(trained.spec(), SOURCE, TARGET)
    np.testing.assert_allclose(numbers(trained(INPUTS)), expected, atol=1e-4)


def test_engines_follow_its_training():
    """A translator from before the training finds what the plain search finds after it."""
    model = made()
    model.enable_lora(R, ["query", "value", "inner"])
    settings = {"beam_size": 2, "max_extra_length": 3, "show_progress": False}
    names = ("plain", BACKEND, "numpy", *["numba"] * (BACKEND == "torch"))
    translators = {n: Translator(model, Numbers(model), engine=n, **settings) for n in names}
    before = {name: best_of(one) for name, one in translators.items()}
    fitted(model, 4)
    after = {name: best_of(one) for name, one in translators.items()}
    for found in (before, after):
        ids, scores = found["plain"]
        for name in names:
            assert found[name][0] == ids, name
            np.testing.assert_allclose(found[name][1], scores, rtol=1e-4)
    assert np.abs(np.subtract(before["plain"][1], after["plain"][1])).max() > 0.01


def test_it_is_saved_merged(trained, tmp_path):
    expected = numbers(trained(INPUTS))
    trained.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    assert (
        loaded.lora_rank is None
        and loaded.count_params() == made(use_attention_bias=True).count_params()
    )
    np.testing.assert_allclose(numbers(loaded(INPUTS)), expected, atol=1e-5)
    save_spec(trained.spec(), tmp_path / "spec")
    other = Transformer.from_spec(load_spec(tmp_path / "spec"))
    np.testing.assert_allclose(numbers(other(INPUTS)), expected, atol=1e-5)


def test_a_mixed_models_spec_is_merged_in_float32():
    model = made(dtype="mixed_bfloat16")
    model.enable_lora(R)
    layer = model.encoder_blocks[0].self_attention.query_dense
    layer.lora_kernel_b.assign(RNG(0).normal(size=(R, K)))
    parts = {v.name: numbers(v).astype("float64") for v in layer.variables}
    expected = parts["kernel"] + parts["lora_kernel_a"] @ parts["lora_kernel_b"]
    found = as_array(model.spec().encoder.blocks[0].self_attention.query.kernel)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.abs(numbers(layer.kernel) - expected).max() > 1e-4  # Keras' is in bfloat16


def test_merging_goes_on_from_there(trained):
    model = made(use_attention_bias=True)
    model.enable_lora(R)
    for layer in model.lora_layers().values():
        layer.lora_kernel_b.assign(np.ones((R, K)))
    expected = numbers(model(INPUTS))
    model.merge_lora()
    np.testing.assert_allclose(numbers(model(INPUTS)), expected, atol=1e-5)
    for layer in model.lora_layers().values():
        assert not numbers(layer.lora_kernel_b).any() and numbers(layer.lora_kernel_a).any()
    fitted(model)
    assert np.abs(numbers(model(INPUTS)) - expected).max() > 1e-3


def test_its_weights_alone(trained, tmp_path):
    file = tmp_path / "own.lora.npz"
    trained.save_lora_weights(file)
    with np.load(file) as saved:
        count = sum(saved[name].size for name in saved.files if name != SETTINGS)
    assert count == sum(int(np.prod(v.shape)) for v in trained.trainable_variables)
    other = made(use_attention_bias=True)
    other.load_lora_weights(file)  # enables it
    np.testing.assert_array_equal(numbers(other(INPUTS)), numbers(trained(INPUTS)))
    assert len(other.trainable_variables) == len(trained.trainable_variables)
    again = made(use_attention_bias=True)
    again.enable_lora(R)
    again.load_lora_weights(file)
    np.testing.assert_array_equal(numbers(again(INPUTS)), numbers(trained(INPUTS)))
    with pytest.raises(FileExistsError):
        trained.save_lora_weights(file)
    trained.save_lora_weights(file, overwrite=True)
    foreign = tmp_path / "mine.npz"
    np.savez(foreign, mine=np.ones(3))
    with pytest.raises(OccupiedPath, match="keras_attention did not write it"):
        trained.save_lora_weights(foreign, overwrite=True)
    with np.load(foreign) as kept:
        assert kept["mine"].tolist() == [1, 1, 1]
    one, *_ = again.lora_layers().values()
    one.lora_alpha = 7
    with pytest.raises(ValueError, match=rf"one rank and one `lora_alpha`.*query {R}, 7"):
        again.save_lora_weights(tmp_path / "none.npz")
    assert not (tmp_path / "none.npz").exists()


@pytest.mark.backends("torch")
def test_presets_and_exports_have_merged_kernels(tmp_path):
    demo = Translator.from_preset("demo_en_de", engine="numpy", show_progress=False)
    model = Transformer.from_preset("demo_en_de")
    model.enable_lora(4)
    for layer in model.lora_layers().values():
        b = layer.lora_kernel_b
        b.assign(RNG(8).normal(size=b.shape))
    texts = ["The small house is old.", "A student reads the book."]
    translator = Translator(model, demo.tokenizer, engine="numpy", show_progress=False)
    expected = translator(texts)
    assert expected != demo(texts)
    folders = [translator.save_to_preset(tmp_path / "preset")]
    formats = {"hugging_face": "transformers", "ctranslate2": "ctranslate2", "onnx": "onnxruntime"}
    for name, package in formats.items():
        if importlib.util.find_spec(package):
            folders.append(translator.export(tmp_path / name, name))
    for folder in folders:
        assert Translator.from_preset(folder, show_progress=False)(texts) == expected, folder


@pytest.mark.backends("torch")
def test_those_of_another_model_are_refused(trained, tmp_path):
    file = tmp_path / "own.lora.npz"
    trained.save_lora_weights(file)
    four = made()
    four.enable_lora(4)
    three = made(use_attention_bias=True)
    three.enable_lora(R, ["key"])
    wide = Transformer(V, (2, 1), 18, F, N, key_dim=K)
    for model, message in (
        (made(seed=2), "trained beside kernels with the sha256 .* those of this model have"),
        (
            Transformer(V, 1, D, F, N),
            "it has 'encoder_block_2.self_attention.query', which this model",
        ),
        (four, "its rank is 2, that of this model 4"),
        (three, "it has 8 layers with LoRA, this model has 4"),
        (wide, r"query.a is \(12, 3, 2\) there, and would be \(18, 3, 2\) here"),
    ):
        before = [numbers(v) for v in model.weights]
        with pytest.raises(ValueError, match=f"are another model's: .*{message}"):
            model.load_lora_weights(file)
        after = [numbers(v) for v in model.weights]
        assert len(after) == len(before)
        assert all(np.array_equal(*pair) for pair in zip(after, before, strict=True))


@pytest.mark.backends("torch")
def test_damaged_and_hostile_files_are_refused(trained, tmp_path):
    file = tmp_path / "own.lora.npz"
    trained.save_lora_weights(file)
    with np.load(file) as saved:
        arrays = dict(saved)
    name = "encoder_block_1.self_attention.query.a"
    whole = file.read_bytes()
    entry = whole.index(b"PK\1\2")
    broken = {
        "cut": whole[: len(whole) // 2],
        "text": b"no archive",
        # What the archive's list says of a version, of a password and of a packing.
        **{
            f"bits_{at}": whole[: entry + at] + b"\xff" + whole[entry + at + 1 :]
            for at in (6, 8, 10)
        },
        "absent": {key: value for key, value in arrays.items() if key != name},
        "infinite": {**arrays, name: np.full_like(arrays[name], np.inf)},
        "pickled": {**arrays, name: np.array([{}], object)},
        "settings": {**arrays, SETTINGS: np.frombuffer(b'{"rank": "x"}', "uint8")},
    }
    for kind, content in broken.items():
        path = tmp_path / f"{kind}.npz"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            np.savez(path, **content)
        with pytest.raises(DamagedFile, match=f"{kind}.npz.* is no file of `save_lora_weights`"):
            made(use_attention_bias=True).load_lora_weights(path)
    np.savez_compressed(tmp_path / "small.npz", **{**arrays, name: np.zeros((4000, 4000))})
    with pytest.raises(DamagedFile, match="it is compressed"):
        made().load_lora_weights(tmp_path / "small.npz")
    with pytest.raises(FileNotFoundError, match="There is no file"):
        made().load_lora_weights(tmp_path / "absent")


@pytest.mark.backends("torch")
def test_what_cannot_be_adapted_is_refused():
    model = made()
    for wrong, message in (
        ({"rank": 0}, "`rank` must be"),
        (
            {"rank": K + 1},
            f"`rank` must be at most {K}, .*self_attention.query, .12, 3, 4.*Received: 5",
        ),
        ({"rank": D + 1, "target_layer_names": ["outer"]}, f"`rank` must be at most {D}"),
        ({"rank": 2, "lora_alpha": 0.0}, "`lora_alpha` must be"),
        ({"rank": 2, "target_layer_names": ["querry"]}, "'querry', but .* Did you mean 'query'"),
        ({"rank": 2, "target_layer_names": ["token_embedding"]}, "projections are .*, key, outer"),
        ({"rank": 2, "target_layer_names": "query"}, "`target_layer_names` must be"),
    ):
        with pytest.raises(ValueError, match=message):
            model.enable_lora(**wrong)
    whole = made().trainable_variables
    assert model.lora_rank is None and len(model.trainable_variables) == len(whole)
    with pytest.raises(ValueError, match="has no LoRA weights"):
        model.save_lora_weights("file")
    model.enable_lora(2)
    with pytest.raises(ValueError, match="enabled already, with rank 2"):
        model.enable_lora(2)
    with pytest.raises(ValueError, match="Quantize the merged model"):
        model.quantize("int8")
    other = made()
    other.quantize("int8")
    with pytest.raises(ValueError, match="is quantized, and LoRA is for weights in full precision"):
        other.enable_lora(2)


@pytest.mark.backends("torch")
def test_its_first_numbers_follow_from_the_models_seed():
    def first(seed):
        model = made(seed)
        model.enable_lora(R)
        return [numbers(layer.lora_kernel_a) for layer in model.lora_layers().values()]

    assert all(np.array_equal(*pair) for pair in zip(first(1), first(1), strict=True))
    matrices = [*first(1), *first(2)]
    assert len({matrix.tobytes() for matrix in matrices}) == len(matrices)


@pytest.mark.backends("torch")
def test_a_weighted_transformer():
    model = WeightedTransformer(
        V, num_layers=1, hidden_dim=D, intermediate_dim=F, num_heads=N, seed=1
    )
    before = numbers(model(INPUTS))
    model.enable_lora(R)
    np.testing.assert_array_equal(numbers(model(INPUTS)), before)
    fitted(model)
    assert np.abs(numbers(model(INPUTS)) - before).max() > 1e-3
