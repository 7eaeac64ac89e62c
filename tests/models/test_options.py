"""What published models have beside the paper's, against NumPy: each option alone, and all pairs of them."""

import itertools
import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import (
    LabelSmoothedCrossentropy,
    SimplexLearningRate,
    Transformer,
    Translator,
    head_importance,
)
from keras_attention.visualization import attention_entries, attention_figures, save_attention
from tests.decoding.oracle_search import slow_beam_search
from tests.helpers import numpy
from tests.models.numpy_transformer import greedy, teacher_forced_logits
from tests.spec.test_spec import EVERY_OPTION

ON_TORCH = keras.backend.backend() == "torch"
V, D, F, N, B, T, S = 13, 12, 21, 3, 2, 4, 6
SOURCE = np.array([[5, 6, 7, 8, 9, 1], [10, 11, 1, 0, 0, 0]])
TARGET = np.array([[0, 3, 4, 5], [0, 6, 12, 0]])
LABELS = np.array([[3, 4, 5, 1], [6, 12, 1, 0]])

ALONE = {
    "deep_encoder": {"num_layers": (3, 1)},
    "deep_decoder": {"num_layers": [1, 2]},
    "target_vocabulary": {"target_vocabulary_size": 17},
    "logits_bias": {"use_logits_bias": True},
    "start_token": {"start_token_id": 3},
    "final_norm": {"final_normalization": True},
    "embedding_norm": {"embedding_normalization": True},
    "suppressed": {"suppressed_token_ids": [2, 0]},
    "ssru": {"decoder_cell": "ssru"},
    "swiglu": {"activation": "silu", "gated_feed_forward": True},
    "rms_norm": {"normalization": "rms", "normalize_first": True},
    "every": EVERY_OPTION,
}
# Arguments that only training needs and a spec does not hold.
OF_TRAINING = ("dropout", "attention_dropout", "activation_dropout", "recompute", "seed")
# Every value of each meets every value of the others in one of `PAIRWISE`.
FACTORS = {
    "num_layers": [2, (2, 1), (1, 2)],
    "target_vocabulary_size": [None, 17],
    "use_logits_bias": [False, True],
    "start_token_id": [None, 3],
    "norm": [{}, {"normalize_first": True}, {"final_normalization": True}],
    "embedding_normalization": [False, True],
    "suppressed_token_ids": [(), (2, 0)],
    "decoder_cell": ["attention", "ssru"],
    "tie_weights": [True, False],
    "position_layout": ["interleaved", "halves", "learned"],
    "use_attention_bias": [False, True],
    "activation": ["relu", "silu"],
    "gated_feed_forward": [False, True],
    "normalization": ["layer", "rms"],
    "pad_token_id": [0, 12],
}


def all_pairs(factors):
    """Rows that hold each pair of values of two factors, chosen greedily."""
    names = list(factors)
    left = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(names, 2)
        for i, j in itertools.product(range(len(factors[a])), range(len(factors[b])))
    }
    while left:
        row = dict([min(left)[0], min(left)[1]])
        for name in names:
            if name not in row:
                row[name] = max(
                    range(len(factors[name])),
                    key=lambda i, name=name: sum(
                        (one, (name, i)) in left or ((name, i), one) in left for one in row.items()
                    ),
                )
        left -= {tuple(pair) for pair in itertools.permutations(row.items(), 2)}
        values = {name: factors[name][i] for name, i in row.items()}
        yield {**values.pop("norm"), **values}


PAIRWISE = list(all_pairs(FACTORS))
# PyTorch alone compiles nothing. Elsewhere the first rows, which hold every value and the most pairs.
PAIRS = PAIRWISE[: None if ON_TORCH else 6]
EVERY = [*ALONE.values(), *PAIRS]
RICH = {
    "num_layers": (2, 1),
    "target_vocabulary_size": 17,
    "use_logits_bias": True,
    "start_token_id": 3,
    "final_normalization": True,
    "suppressed_token_ids": (0, 2),
    "decoder_cell": "ssru",
}
MODERN = {"normalization": "rms", "gated_feed_forward": True, "activation": "silu"}


def model_of(randomized=True, **options):
    """Every weight matters."""
    sizes = {"num_layers": 2, "hidden_dim": D, "intermediate_dim": F, "num_heads": N}
    model = Transformer(V, **{**sizes, "dropout": 0.0, "seed": 4, **options})
    random = np.random.default_rng(3)
    for weight in model.trainable_weights if randomized else ():
        weight.assign(numpy(weight) + 0.2 * random.standard_normal(weight.shape))
    return model


def inputs_of(model):
    source, target = (np.where(ids == 0, model.pad_token_id, ids) for ids in (SOURCE, TARGET))
    target[:, 0] = model.start_token_id
    return {"encoder_token_ids": source, "decoder_token_ids": target}


def kept(model):
    return [v for v in range(model.target_vocabulary_size) if v not in model.suppressed_token_ids]


def test_the_rows_hold_all_pairs():
    flat = dict.fromkeys(("normalize_first", "final_normalization"))
    for a, b in itertools.combinations([*FACTORS, *flat], 2):
        if "norm" in (a, b) or {a, b} == {*flat}:
            continue
        wanted = itertools.product(FACTORS.get(a, [True]), FACTORS.get(b, [True]))
        assert {(x, y) for x, y in wanted} <= {(row.get(a), row.get(b)) for row in PAIRWISE}
    assert len(PAIRWISE) < 20


@pytest.mark.parametrize("options", EVERY, ids=[*ALONE, *map(str, range(len(PAIRS)))])
def test_equals_numpy_in_the_forward_in_steps_and_from_a_spec(options):
    model = model_of(**options)
    inputs = inputs_of(model)
    expected = teacher_forced_logits(model.spec(), *inputs.values())
    assert expected.shape == (B, T, options.get("target_vocabulary_size") or V)
    np.testing.assert_allclose(numpy(model(inputs)), expected, atol=2e-5)
    np.testing.assert_allclose(
        numpy(Transformer.from_spec(model.spec())(inputs)), expected, atol=2e-5
    )
    beams = 3
    memory, cache = model.encode(inputs["encoder_token_ids"]), model.initial_cache(B, beams, T + 1)
    for t in range(T):
        fed = np.repeat(inputs["decoder_token_ids"][:, t : t + 1], beams, axis=1)
        logits, cache = model.decode_step(fed, t, memory, cache)
        found = numpy(logits)
        assert (found[..., list(model.suppressed_token_ids)] < -1e20).all()
        for beam in range(beams):
            np.testing.assert_allclose(
                found[:, beam, kept(model)], expected[:, t, kept(model)], atol=2e-5
            )


@pytest.mark.parametrize("options", EVERY, ids=[*ALONE, *map(str, range(len(PAIRS)))])
@pytest.mark.backends("torch")
def test_config_and_spec_round_trips(options):
    model = model_of(**options)
    config = json.loads(json.dumps(model.get_config()))
    copy = Transformer.from_config(config)
    assert copy.get_config() == model.get_config() and copy.trainable
    frozen = Transformer.from_config({**config, "trainable": False})
    assert not frozen.trainable_weights and not frozen.get_config()["trainable"]
    del config["trainable"]  # as it was before
    assert Transformer.from_config(config).trainable
    assert [w.path for w in copy.weights] == [w.path for w in model.weights]
    again = Transformer.from_spec(model.spec(), **{name: config[name] for name in OF_TRAINING})
    differs = {"name", "key_dim", "value_dim", "final_normalization", "start_token_id"}
    differs |= set() if model.max_length else {"max_length"}
    found, wanted = again.get_config(), model.get_config()
    assert {k: v for k, v in found.items() if k not in differs} == {
        k: v for k, v in wanted.items() if k not in differs
    }
    assert again.final_normalization == model.final_normalization
    assert again.start_token_id == model.start_token_id
    weights = again.spec().weights()
    assert [*weights] == [*model.spec().weights()]
    assert len(weights) == len(model.trainable_weights)
    for path, weight in model.spec().weights().items():
        np.testing.assert_array_equal(numpy(weights[path]), numpy(weight))


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("float32", RICH),
        ("mixed_bfloat16", {**RICH, "tie_weights": False, "num_layers": 1}),
        ("mixed_float16", {**RICH, **MODERN}),
    ],
)
def test_saves_loads_and_keeps_the_state_in_float32(tmp_path, policy, options):
    model = model_of(**options, dtype=policy)
    inputs = inputs_of(model)
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    assert copy.dtype_policy.name == policy
    logits = numpy(model(inputs))
    np.testing.assert_array_equal(numpy(copy(inputs)), logits)
    np.testing.assert_allclose(
        logits, teacher_forced_logits(model.spec(), *inputs.values()), atol=0.15
    )
    cache = model.initial_cache(B, 2, T)
    assert keras.backend.standardize_dtype(cache[0]["state"].dtype) == "float32"
    _, cache = model.decode_step(
        inputs["decoder_token_ids"][:, :2], 0, model.encode(inputs["encoder_token_ids"]), cache
    )
    state = numpy(cache[0]["state"])
    assert keras.backend.standardize_dtype(cache[0]["state"].dtype) == "float32"
    if policy == "mixed_bfloat16":  # It has digits that bfloat16 has not.
        assert (state != numpy(ops.cast(cache[0]["state"], "bfloat16"))).any()


def test_fit_lowers_the_loss_and_moves_every_weight():
    """Recomputed; that this is the same update as without, the next test says."""
    model = model_of(**RICH, **MODERN, recompute=True, randomized=False)
    model.compile(keras.optimizers.Adam(0.01), LabelSmoothedCrossentropy(0.0))
    before = [numpy(w) for w in model.trainable_weights]
    # Batches of two lengths: TensorFlow then traces a graph for any length.
    longer = (
        np.pad(LABELS, ((0, 0), (0, 3))),
        np.pad(inputs_of(model)["decoder_token_ids"], ((0, 0), (0, 3))),
    )
    batches = [
        (inputs_of(model), LABELS),
        ({**inputs_of(model), "decoder_token_ids": longer[1]}, longer[0]),
    ]

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return batches[index]

    losses = model.fit(Batches(), epochs=8, verbose=0).history["loss"]
    assert losses[-1] < 0.6 * losses[0]
    for weight, old in zip(model.trainable_weights, before, strict=True):
        assert np.abs(numpy(weight) - old).max() > 0, weight.path


@pytest.mark.backends("torch")
def test_a_start_token_has_an_embedding_unless_it_is_padding():
    for start in (None, 3):
        model = model_of(start_token_id=start)
        before = numpy(model(inputs_of(model)))[:, 0]
        table = numpy(model.token_embedding.embeddings)
        table[model.start_token_id] += 1.0
        model.token_embedding.embeddings.assign(table)
        bias = numpy(model(inputs_of(model)))[:, 0] - before
        bias[:, model.start_token_id] = 0.0  # Its own logit follows its row.
        assert (np.abs(bias).max() > 1e-3) == (start is not None)


@pytest.mark.backends("torch")
def test_a_new_bias_is_zero_and_belongs_to_the_targets_table():
    model = model_of(use_logits_bias=True, target_vocabulary_size=17, randomized=False)
    assert numpy(model.target_embedding.logits_bias).tolist() == [0.0] * 17
    assert model.token_embedding.logits_bias is None
    assert model.compute_output_shape({"decoder_token_ids": (5, 7)}) == (5, 7, 17)


class Numbers:
    """A tokenizer of "5 6 7" for a model with two vocabularies."""

    def __init__(self, model):
        self.vocabulary_size = model.vocabulary_size
        self.target_vocabulary_size = model.target_vocabulary_size
        for name in ("pad_token_id", "start_token_id", "end_token_id"):
            setattr(self, name, getattr(model, name))

    def encode(self, texts, side="source"):
        if isinstance(texts, str):
            return [int(number) for number in texts.split()]
        return [self.encode(text) for text in texts]

    def decode(self, ids, side="target"):
        return " ".join(map(str, ids))

    def id_to_token(self, token_id, side="target"):
        return f"▁{token_id}"


TEXTS = ["5 6 7 8 9", "10 11"]


# A compiler compiles each search; on every backend once: what an option changes of a step is tested above.
SEARCHED = {"rich": RICH, **(ALONE if ON_TORCH else {})}
LIMITS = dict(zip(TEXTS, (8, 5), strict=True)) if ON_TORCH else {TEXTS[0]: 8}


@pytest.mark.parametrize("options", SEARCHED.values(), ids=SEARCHED)
def test_the_plain_search_finds_the_oracles_beams(options):
    """Beams that overtake each other carry their states, keys and values along."""
    model = model_of(**options)
    spec, alpha, beam_size = model.spec(), 0.6, 3
    translator = Translator(
        model,
        Numbers(model),
        engine="plain",
        beam_size=beam_size,
        max_extra_length=2,
        show_progress=False,
    )
    for text, length in LIMITS.items():
        found = translator.translate(text, n_best=beam_size, unique=False)
        source = np.array([[*map(int, text.split()), model.end_token_id]])

        def log_probabilities(prefix, source=source):
            target = np.array([[model.start_token_id, *prefix]])
            logits = teacher_forced_logits(spec, source, target)[0, -1]
            logits[list(model.suppressed_token_ids)] = -np.inf
            return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()

        wanted, _ = slow_beam_search(
            log_probabilities,
            model.target_vocabulary_size,
            model.end_token_id,
            length,
            alpha,
            beam_size,
            "n_best",
        )
        assert not {token for best in found for token in best.token_ids} & {
            *model.suppressed_token_ids
        }
        for best, (score, tokens, is_finished) in zip(found, wanted, strict=True):
            assert (*best.token_ids, *[model.end_token_id] * is_finished) == tokens
            assert best.score == pytest.approx(score, abs=1e-4)


@pytest.mark.backends("torch")
def test_suppressed_tokens_fill_no_beam():
    """A beam of ten has room for more than the four tokens that are left."""
    model = model_of(suppressed_token_ids=[v for v in range(V) if v not in (1, 3, 4, 5)])
    translator = Translator(
        model, Numbers(model), engine="plain", beam_size=10, max_extra_length=0, show_progress=False
    )
    for best in translator.translate("5", n_best=10, unique=False):
        assert {*best.token_ids} <= {3, 4, 5}
        assert best.score > -1e3


@pytest.mark.backends("torch")
def test_greedy_search_is_the_oracles():
    model = model_of(**RICH)
    translator = Translator(
        model, Numbers(model), engine="plain", beam_size=1, max_extra_length=3, show_progress=False
    )
    wanted = greedy(model.spec(), SOURCE, 9)
    for text, row, length in zip(TEXTS, wanted, (9, 6), strict=True):
        tokens = row[:length].tolist()
        tokens = tokens[: tokens.index(1)] if 1 in tokens else tokens
        assert list(translator.translate(text)[0].token_ids) == tokens


@pytest.mark.backends("torch")
def test_ids_are_checked_against_their_own_vocabulary():
    model = model_of(target_vocabulary_size=17)
    model.compile("sgd", LabelSmoothedCrossentropy())
    inputs = inputs_of(model)
    model({**inputs, "decoder_token_ids": np.full((B, T), 16)})
    model.test_on_batch(inputs, np.full((B, T), 16))
    with pytest.raises(ValueError, match=r"'encoder_token_ids' .* vocabulary of 13 tokens"):
        model({**inputs, "encoder_token_ids": np.full((B, S), 13)})
    with pytest.raises(ValueError, match=r"'decoder_token_ids' .* vocabulary of 17 tokens"):
        model({**inputs, "decoder_token_ids": np.full((B, T), 17)})
    with pytest.raises(ValueError, match="vocabulary of 17 tokens"):
        model.fit(inputs, np.full((B, T), 17), verbose=0)
    cache = model.initial_cache(B, 1, 2)
    model.decode_step(np.full((B, 1), 16), 0, model.encode(SOURCE), cache)
    with pytest.raises(ValueError, match="vocabulary of 17 tokens"):
        model.decode_step(np.full((B, 1), 17), 0, model.encode(SOURCE), cache)


@pytest.mark.backends("torch")
def test_a_translator_asks_for_the_targets_vocabulary():
    model = model_of(target_vocabulary_size=17)
    tokenizer = Numbers(model)
    del tokenizer.target_vocabulary_size
    with pytest.raises(ValueError, match="target_vocabulary_size 17, the tokenizer 13"):
        Translator(model, tokenizer, engine="plain")


@pytest.mark.backends("torch")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"num_layers": (2, 0)}, "`num_layers` must be an int of at least 1, or a pair"),
        ({"num_layers": (2, 1, 1)}, "`num_layers` must be an int of at least 1, or a pair"),
        (
            {"target_vocabulary_size": 5, "pad_token_id": 5},
            "`pad_token_id` must be an int from 0 to 4",
        ),
        (
            {"target_vocabulary_size": 17, "end_token_id": 13},
            "`end_token_id` must be an int from 0 to 12",
        ),
        ({"suppressed_token_ids": [1]}, "must not hold the end token"),
        (
            {"normalize_first": True, "final_normalization": False},
            "leave out `final_normalization`",
        ),
    ],
)
def test_wrong_options_are_refused(options, problem):
    with pytest.raises(ValueError, match=problem):
        model_of(**options)


@pytest.mark.backends("torch")
def test_attention_of_a_decoder_with_cells(tmp_path):
    """A cell attends to nothing: its kind is absent, and nothing breaks or is drawn empty."""
    model = model_of(**{**RICH, "num_layers": (3, 2)})
    inputs = inputs_of(model)
    assert model.attention_layers == {"encoder": 3, "cross": 2}
    scores = model.attention_scores(*inputs.values())
    assert {kind: len(layers) for kind, layers in scores.items()} == model.attention_layers
    assert scores["cross"][1].shape == (B, N, T, S)
    importance = head_importance(model, *inputs.values(), LABELS)
    assert {kind: np.shape(layers) for kind, layers in importance.items()} == {
        "encoder": (3, N),
        "cross": (2, N),
    }
    entries = attention_entries(model, Numbers(model), [("5 6 7", "3 4")])
    kinds = entries[0].header["kinds"]
    assert [(kind["name"], kind["layers"]) for kind in kinds] == [("encoder", 3), ("cross", 2)]
    translator = Translator(model, Numbers(model), engine="plain", show_progress=False)
    page = save_attention(tmp_path / "page.html", translator, "5 6 7", "3 4")
    assert page.stat().st_size > 10_000
    one = model.attention_scores(SOURCE[:1], inputs["decoder_token_ids"][:1])
    names = [str(i) for i in SOURCE[0]], [str(i) for i in LABELS[0]]
    assert [*attention_figures(one, *names)][-2:] == ["cross/layer_1", "cross/layer_2"]


@pytest.mark.backends("torch")
def test_head_masks_of_unequal_depths():
    model = model_of(num_layers=(1, 2))
    inputs, mask = inputs_of(model), np.repeat([[0.0, 1.0, 1.0]], B, axis=0)
    plain = numpy(model(inputs))
    for kind, masks in (("encoder", [mask]), ("decoder", [None, mask]), ("cross", [mask, None])):
        assert np.abs(numpy(model(inputs, head_masks={kind: masks})) - plain).max() > 1e-4
        with pytest.raises(ValueError, match=f"each of {len(masks)} layers"):
            model(inputs, head_masks={kind: [None] * (3 - len(masks))})
    with pytest.raises(
        ValueError, match=r"'decoder'.*SSRUs .* no heads. There are those of encoder, cross"
    ):
        model_of(decoder_cell="ssru")(inputs, head_masks={"decoder": [mask, mask]})


@pytest.mark.backends("tensorflow")
def test_learning_rate_of_branches_follows_the_mean_depth():
    rates = [float(SimplexLearningRate(D, depths)(9)) for depths in ((5, 1), 3, (4, 2), 4)]
    assert rates[0] == rates[1] == rates[2] != rates[3]
    copy = SimplexLearningRate.from_config(SimplexLearningRate(D, (5, 1)).get_config())
    assert copy.num_layers == (5, 1)


@pytest.mark.backends("tensorflow")
def test_exports_for_any_length(tmp_path):
    import tensorflow as tf

    model = model_of(**RICH)
    model.export(tmp_path / "saved", verbose=False)
    inputs = {name: ids.astype("int32") for name, ids in inputs_of(model).items()}
    loaded = tf.saved_model.load(tmp_path / "saved")
    np.testing.assert_allclose(loaded.serve(inputs).numpy(), numpy(model(inputs)), atol=2e-5)
