"""The Weighted Transformer as a whole: parameters, training on the simplex, files, specs and searches."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_attention import (
    PRESETS,
    Adam,
    LabelSmoothedCrossentropy,
    SimplexLearningRate,
    Transformer,
    export_ctranslate2,
)
from keras_attention.decoding.batching import Batching
from keras_attention.decoding.model_search import ModelSearch
from keras_attention.decoding.requests import Request
from keras_attention.engine.select import EngineSelector
from keras_attention.evaluation.cost import ModelSizes
from keras_attention.spec import SpecError
from keras_attention.spec.files import load_spec, save_spec
from keras_attention.utils.progress import Progress
from tests.helpers import STEP_BY_STEP, numpy
from tests.training import resumed_run

BACKEND = keras.backend.backend()
# Each dtype is another program for a compiler; what differs from float32 are the layers' dtypes.
TORCH = pytest.mark.backends("torch")
V, N, D, F, M = 13, 2, 12, 24, 3
SIZES = {"num_layers": N, "hidden_dim": D, "intermediate_dim": F, "num_heads": M}
KINDS = [
    {"branch_feed_forward": "shared"},
    {"branch_feed_forward": "split", "branched_decoder": "self", "use_attention_bias": True},
    {"branch_feed_forward": "shared", "normalize_first": True, "value_dim": 5, "branched_decoder": "self"},
]  # fmt: skip
OF_BACKEND = KINDS if BACKEND == "torch" else KINDS[1:2]
SOURCE = np.array([[5, 6, 7, 8, 1], [10, 11, 1, 0, 0]], "int32")
TARGET = np.array([[0, 7, 11, 3], [0, 12, 5, 0]], "int32")
LABELS = np.array([[7, 11, 3, 1], [12, 5, 1, 0]], "int32")
INPUTS = {"encoder_token_ids": SOURCE, "decoder_token_ids": TARGET}


def weighted(seed=3, vocabulary_size=V, **options):
    """Every weight matters; kappa and alpha stay on the simplex."""
    options = {**SIZES, "seed": seed, "branch_feed_forward": "shared", **options}
    model = Transformer(vocabulary_size, **options)
    random = np.random.default_rng(seed)
    for weight in model.trainable_variables:
        if weight.constraint is None:
            weight.assign(weight + 0.3 * random.standard_normal(weight.shape))
    return model


def branch_weights(model):
    return [w for w in model.trainable_variables if w.path.endswith(("/kappa", "/alpha"))]


def compiled(model, rate=0.05, simplex_rate=0.2, **kwargs):
    model.compile(
        Adam(rate, simplex_learning_rate=simplex_rate), LabelSmoothedCrossentropy(), **kwargs
    )
    return model


def assert_on_simplex(model):
    for weight in branch_weights(model):
        values = numpy(weight).astype("float64")
        assert values.min() >= 0 and abs(values.sum() - 1) <= 1e-6, (weight.path, values)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("kind,more", [("shared", 0), ("split", (M - 1) * D)])
def test_parameters_are_the_plain_models_and_two_for_each_branch(kind, more):
    plain, model = Transformer(V, **SIZES), weighted(branch_feed_forward=kind)
    # A block has one sub-layer less, and so one normalisation less.
    assert model.count_params() == plain.count_params() + 2 * N * (2 * M + more - 2 * D)
    assert len(branch_weights(model)) == 2 * 2 * N


@pytest.mark.backends("torch")
def test_presets_are_the_rows_of_its_table_2():
    rows = {name: PRESETS[name] for name in PRESETS if name.startswith("weighted_l")}
    assert {name: (row["num_layers"], row["num_heads"], row["dropout"]) for name, row in rows.items()} == {
        "weighted_layers_2": (2, 8, 0.1),
        "weighted_layers_4": (4, 8, 0.1),
        "weighted_layers_6": (6, 8, 0.1),
        "weighted_layers_8": (8, 8, 0.3),
        "weighted_large": (6, 16, 0.3),
    }  # fmt: skip
    assert all(row["branch_feed_forward"] == "shared" for row in rows.values())
    base, big = PRESETS["base"], PRESETS["big"]
    for name, row in rows.items():
        sizes = big if name == "weighted_large" else base
        for size in ("hidden_dim", "intermediate_dim"):
            assert row[size] == sizes[size]
        assert row["attention_dropout"] == 0.1


@pytest.mark.backends("torch")
@pytest.mark.parametrize(
    "preset,plain,blocks",
    [("weighted_layers_6", 63_045_632, 12), ("weighted_large", 214_171_648, 12)],
)
def test_presets_have_2_m_parameters_more_a_block_and_a_normalisation_less(preset, plain, blocks):
    sizes = {**PRESETS[preset], "vocabulary_size": 37000}
    more = blocks * 2 * (sizes["num_heads"] - sizes["hidden_dim"])
    assert ModelSizes.of(sizes).parameters == plain + more


@pytest.mark.parametrize("dtype", ["float32", pytest.param("mixed_bfloat16", marks=TORCH)])
def test_training_moves_kappa_and_alpha_along_the_simplex(dtype):
    model = compiled(weighted(dtype=dtype, num_layers=1))
    start = [numpy(w).copy() for w in branch_weights(model)]
    losses = []
    for _ in range(8):
        losses.append(model.train_on_batch(INPUTS, LABELS))
        assert_on_simplex(model)
    assert losses[-1] < losses[0]
    moved = [np.abs(numpy(w) - s).max() for w, s in zip(branch_weights(model), start, strict=True)]
    # The rate is that of the simplex: no update of 0.05 would move so far in one step.
    assert min(moved) > 0.05


@TORCH
def test_the_simplex_rate_moves_only_kappa_and_alpha():
    frozen = compiled(weighted(num_layers=1), simplex_rate=0.0)
    other_frozen = compiled(weighted(num_layers=1), rate=0.0)
    for model in (frozen, other_frozen):
        before = {w.path: numpy(w).copy() for w in model.trainable_variables}
        # Adam's first step has one size: where all signs agree, the projection takes it back.
        for _ in range(3):
            model.train_on_batch(INPUTS, LABELS)
        moved = {w.path for w in model.trainable_variables if (numpy(w) != before[w.path]).any()}
        simplex = {w.path for w in branch_weights(model)}
        expected = set(before) - simplex if model is frozen else simplex
        # A bias that no gradient reaches stays; of the others each moves.
        assert moved == expected


@pytest.mark.parametrize(
    "dtype,tolerance", [("float32", 1e-4), pytest.param("mixed_bfloat16", 0.02, marks=TORCH)]
)
def test_accumulated_in_slices_it_is_one_update(dtype, tolerance):
    options = {"dropout": 0.0, "dtype": dtype, "num_layers": 1}
    whole = compiled(weighted(**options), **STEP_BY_STEP)
    slices = compiled(weighted(**options), accumulation_steps=2)
    for model in (whole, slices):
        model.fit(INPUTS, LABELS, batch_size=2, verbose=0)
        assert_on_simplex(model)
    for one, other in zip(branch_weights(whole), branch_weights(slices), strict=True):
        np.testing.assert_allclose(numpy(one), numpy(other), atol=tolerance)


@pytest.mark.backends("torch")
def test_saved_with_its_optimizer_it_goes_on_as_it_would_have(tmp_path):
    model = compiled(weighted(dropout=0.0), simplex_rate=SimplexLearningRate(D, N, 40, last_step=9))
    model.fit(INPUTS, LABELS, batch_size=2, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.simplex_learning_rate.last_step == 9
    for one in (model, loaded):
        one.fit(INPUTS, LABELS, batch_size=2, verbose=0)
    for one, other in zip(model.trainable_variables, loaded.trainable_variables, strict=True):
        np.testing.assert_allclose(numpy(one), numpy(other), atol=1e-6)


@pytest.mark.backends("torch")
def test_resumed_from_a_checkpoint_it_ends_in_the_same_bits(tmp_path):
    def make(metrics):
        return compiled(
            weighted(vocabulary_size=30, num_layers=1, dropout=0.2),
            simplex_rate=SimplexLearningRate(D, N, 4, last_step=4),
        )

    store = resumed_run.make_store(tmp_path / "store").folder
    whole, _ = resumed_run.train(tmp_path / "whole", store, updates=6, make=make)
    resumed_run.train(tmp_path / "cut", store, updates=3, make=make)
    resumed, _ = resumed_run.train(tmp_path / "cut", store, updates=6, make=make)
    assert resumed_run.state_of(resumed) == resumed_run.state_of(whole)
    assert_on_simplex(resumed)


@pytest.mark.parametrize("options", OF_BACKEND)
def test_the_spec_is_a_model_again(options):
    model = weighted(**options)
    copy = Transformer.from_spec(model.spec())
    np.testing.assert_array_equal(numpy(copy(INPUTS)), numpy(model(INPUTS)))
    assert {name: copy.get_config()[name] for name in options} == options


@pytest.mark.backends("torch")
def test_a_spec_off_the_simplex_or_half_branched_is_refused():
    model = weighted()
    model.encoder_blocks[1].self_attention.kappa.assign([0.5, 0.5, 0.5])
    with pytest.raises(SpecError, match="encoder.blocks.1: kappa must be .* sum to 1.*the sum 1.5"):
        model.spec()
    spec = weighted().spec()
    plain = Transformer(V, **SIZES).spec()
    blocks = (spec.encoder.blocks[0], plain.encoder.blocks[1])
    mixed = dataclasses.replace(spec, encoder=dataclasses.replace(spec.encoder, blocks=blocks))
    with pytest.raises(SpecError, match="one kind of branches"):
        mixed.options()
    block = dataclasses.replace(
        spec.encoder.blocks[0], feed_forward=plain.encoder.blocks[0].feed_forward
    )
    both = dataclasses.replace(
        spec, encoder=dataclasses.replace(spec.encoder, blocks=(block, spec.encoder.blocks[1]))
    )
    with pytest.raises(SpecError, match="encoder.blocks.0: there must be one branched attention"):
        both.validate()


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        *((BACKEND, options) for options in OF_BACKEND),
        # The other kinds: tests/engine/test_numba_search.py.
        pytest.param("numba", KINDS[0], marks=TORCH),
    ],
)
def test_the_engine_finds_what_the_plain_search_finds(engine, options):
    if engine == "numba":
        pytest.importorskip("numba")
    model = weighted(**options)
    for weight in branch_weights(model)[::2]:
        weight.assign([0.7, 0.0, 0.3])  # kappa: a branch without a head
    batching = Batching(batch_tokens=64, batch_size=2, max_length=None)

    def search(engine):
        [(lines, result)] = ModelSearch(model, 3, 0.6, 4, engine=engine)(
            [Request("", [5, 6, 7, 8, 1]), Request("", [10, 11, 1])],
            batching,
            Progress(None, "searching", enabled=False),
        )
        assert lines == [0, 1]
        return result

    plain, fast = search("plain"), search(engine)
    for line in (0, 1):
        for k, length in enumerate(plain.lengths[line]):
            np.testing.assert_array_equal(
                fast.sequences[line, k, :length], plain.sequences[line, k, :length]
            )
    np.testing.assert_array_equal(fast.lengths[:2], plain.lengths[:2])
    np.testing.assert_allclose(fast.scores[:2], plain.scores[:2], atol=1e-4)


@pytest.mark.backends("torch")
def test_ctranslate2_is_refused_by_name():
    pytest.importorskip("ctranslate2")
    with pytest.raises(SpecError, match="CTranslate2 has no branched attention"):
        EngineSelector(weighted().spec(), "float32", "ctranslate2")


@pytest.mark.backends("torch")
def test_a_width_that_the_heads_cannot_share_is_refused():
    with pytest.raises(ValueError, match="intermediate_dim=25, num_heads=3"):
        weighted(branch_feed_forward="split", intermediate_dim=25)


@pytest.mark.backends("tensorflow")
def test_an_export_that_has_no_branches_refuses_them(tmp_path):
    tokenizer = pytest.importorskip("keras_attention.data.tokenizer").Tokenizer.train(
        ["a small house", "ein kleines Haus"], vocabulary_size=280
    )
    model = Transformer(tokenizer.vocabulary_size, **SIZES, branch_feed_forward="shared")
    with pytest.raises(ValueError, match="CTranslate2 has no branched attention"):
        export_ctranslate2(model, tokenizer, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


@pytest.mark.backends("torch")
def test_in_files_and_back(tmp_path):
    spec = weighted(branch_feed_forward="split").spec()
    save_spec(spec, tmp_path / "spec")
    copy = Transformer.from_spec(load_spec(tmp_path / "spec"))
    expected = numpy(Transformer.from_spec(spec)(INPUTS))
    np.testing.assert_allclose(numpy(copy(INPUTS)), expected, atol=1e-6)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("load", ["model", "weights"])
def test_a_saved_model_off_the_simplex_is_refused_with_the_reason(tmp_path, load):
    sizes = {"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 12, "num_heads": 2}
    model = Transformer(11, **sizes, branch_feed_forward="shared")
    (kappa,) = (w for w in model.encoder_blocks[0].trainable_variables if w.name == "kappa")
    kappa.assign([0.75, 0.5])
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    with pytest.raises(ValueError, match=r"kappa.*sum to 1"):
        if load == "model":
            keras.saving.load_model(tmp_path / "model.keras")
        else:
            model.load_weights(tmp_path / "model.weights.h5")
