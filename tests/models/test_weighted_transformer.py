"""The Weighted Transformer as a whole: its equations, training on the simplex, files and the plain search."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_attention import (
    PRESETS,
    WEIGHTED_PRESETS,
    Adam,
    LabelSmoothedCrossentropy,
    SimplexLearningRate,
    Tokenizer,
    Transformer,
    Translator,
    WeightedTransformer,
    export_ctranslate2,
)
from keras_attention.spec import SpecError
from tests.decoding.letters import LetterTokenizer
from tests.helpers import STEP_BY_STEP, numpy
from tests.models.numpy_transformer import greedy, teacher_forced_logits
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
    model = WeightedTransformer(vocabulary_size, **{**SIZES, "seed": seed, **options})
    random = np.random.default_rng(seed)
    for weight in model.trainable_variables:
        if weight.constraint is None:
            weight.assign(weight + 0.3 * random.standard_normal(weight.shape))
    return model


def described(model):
    """What the oracle reads of a model: the parts of a `TransformerSpec`, which has no branches."""

    def attention(layer):
        dense = {
            part: getattr(layer, f"{part}_dense") for part in ("query", "key", "value", "output")
        }
        own = {name: getattr(layer, name) for name in ("kappa", "alpha") if hasattr(layer, name)}
        networks = [
            SimpleNamespace(inner=network.inner, outer=network.outer, activation="relu")
            for network in getattr(layer, "feed_forwards", ())
        ]
        return SimpleNamespace(**dense, **own, feed_forwards=networks)

    def stack(kind, *attentions):
        blocks = []
        for block in getattr(model, f"{kind}_blocks"):
            parts = {"feed_forward": None, "normalize_first": model.normalize_first}
            for name in attentions:
                parts[name] = attention(getattr(block, name))
                parts[f"{name}_norm"] = getattr(block, f"{name}_residual").normalization
            blocks.append(SimpleNamespace(**parts))
        norm = getattr(model, f"{kind}_normalization") if model.final_normalization else None
        positions = SimpleNamespace(table=None, layout="interleaved")
        return SimpleNamespace(blocks=blocks, norm=norm, positions=positions)

    of_table = {"reverse_embeddings": None, "logits_bias": None, "pad_token_id": 0}
    table = SimpleNamespace(embeddings=model.token_embedding.embeddings, **of_table)
    tokens = {"start_token_id": 0, "end_token_id": 1, "suppressed_token_ids": ()}
    stacks = {
        "encoder": stack("encoder", "self_attention"),
        "decoder": stack("decoder", "self_attention", "cross_attention"),
    }
    return SimpleNamespace(embedding=table, target_embedding=None, **stacks, **tokens)


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
def test_networks_of_branches_have_no_gates():
    with pytest.raises(ValueError, match="leave `gated_feed_forward` out"):
        weighted(gated_feed_forward=True)


@pytest.mark.backends("torch")
def test_presets_are_the_rows_of_its_table_2():
    rows = WEIGHTED_PRESETS.items()
    assert {name: (row["num_layers"], row["num_heads"], row["dropout"]) for name, row in rows} == {
        "weighted_layers_2": (2, 8, 0.1),
        "weighted_layers_4": (4, 8, 0.1),
        "weighted_layers_6": (6, 8, 0.1),
        "weighted_layers_8": (8, 8, 0.3),
        "weighted_large": (6, 16, 0.3),
    }
    for name, row in rows:
        sizes = PRESETS["big" if name == "weighted_large" else "base"]
        for size in ("hidden_dim", "intermediate_dim"):
            assert row[size] == sizes[size]
        assert row["attention_dropout"] == 0.1
    small = {"hidden_dim": 24, "intermediate_dim": 32}
    made = WeightedTransformer.from_preset(
        "weighted_layers_8", 11, branched_decoder="self", **small
    )
    assert len(made.encoder_blocks) == 8 and made.get_config()["branched_decoder"] == "self"
    other = WeightedTransformer.from_preset("tiny", 11)
    assert other.hidden_dim == PRESETS["tiny"]["hidden_dim"] and branch_weights(other)


@pytest.mark.parametrize("options", OF_BACKEND)
def test_it_is_its_equations_at_once_and_in_steps_of_the_plain_search(options):
    model = weighted(**options)
    for weight in branch_weights(model)[::2]:
        weight.assign([0.7, 0.0, 0.3])  # kappa: a branch without a head
    spec = described(model)
    expected = teacher_forced_logits(spec, SOURCE, TARGET)
    np.testing.assert_allclose(numpy(model(INPUTS)), expected, atol=1e-4)
    # And what a translator finds is the argmax of the same numbers, token by token.
    translator = Translator(model, LetterTokenizer(V), beam_size=1, max_extra_length=3)
    choice = translator.engine_for(1)
    assert choice.name == "plain" and "no branches" in choice.reason
    texts = ["cdef", "hi", "jajb"]
    for text, (best,) in zip(texts, translator.translate(texts), strict=True):
        source = [*LetterTokenizer(V).encode([text])[0], 1]
        (wanted,) = greedy(spec, [source], len(best.token_ids) + best.is_finished)
        assert [*best.token_ids, *[1] * best.is_finished] == wanted.tolist()


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


@pytest.mark.backends("torch")
@pytest.mark.parametrize("what", ["spec", "engine", "export", "from_spec"])
def test_where_there_are_no_branches_it_is_refused_by_name(what, tmp_path):
    model = weighted(vocabulary_size=17)
    with pytest.raises(ValueError, match="A spec has no branches") as refused:
        if what == "spec":
            model.spec()
        elif what == "engine":
            Translator(model, LetterTokenizer(), engine="torch")
        elif what == "export":
            pytest.importorskip("ctranslate2")
            tokenizer = Tokenizer.train(["a small house"], vocabulary_size=280)
            model = WeightedTransformer(tokenizer.vocabulary_size, **SIZES)
            export_ctranslate2(model, tokenizer, tmp_path / "exported")
        else:
            WeightedTransformer.from_spec(Transformer(V, **SIZES).spec())
    assert what == "engine" or isinstance(refused.value, SpecError)
    assert not any(tmp_path.iterdir())


@pytest.mark.backends("torch")
def test_branches_of_the_self_attention_that_a_cell_replaces_are_refused():
    with pytest.raises(ValueError, match="An SSRU takes the place of self-attention"):
        weighted(decoder_cell="ssru", branched_decoder="self")


@pytest.mark.backends("torch")
@pytest.mark.parametrize(("load", "name"), [("model", "kappa"), ("weights", "alpha")])
def test_a_saved_model_off_the_simplex_is_refused_with_the_reason(tmp_path, load, name):
    sizes = {"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 12, "num_heads": 2}
    model = WeightedTransformer(11, **sizes)
    (numbers,) = (w for w in model.encoder_blocks[0].trainable_variables if w.name == name)
    numbers.assign([1.25, -0.5] if name == "alpha" else [0.75, 0.5])
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    with pytest.raises(ValueError, match=f"`{name}` must be numbers of at least 0 that sum to 1"):
        if load == "model":
            keras.saving.load_model(tmp_path / "model.keras")
        else:
            model.load_weights(tmp_path / "model.weights.h5")
