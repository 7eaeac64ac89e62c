"""Guided alignment: the loss against NumPy, its gradient against differences, and who gives weights."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import LabelSmoothedCrossentropy, Transformer, WeightedTransformer
from keras_attention.ops.reference import DEFINITIONS
from tests.helpers import STEP_BY_STEP

# 4 pairs: sources of at most 5 tokens, targets of at most 6.
SOURCE = np.array([[5, 6, 7, 8, 1], [7, 4, 1, 0, 0], [8, 9, 1, 0, 0], [3, 9, 5, 1, 0]], "int32")
LABELS = np.array(
    [[4, 6, 9, 5, 3, 1], [6, 4, 1, 0, 0, 0], [9, 1, 0, 0, 0, 0], [9, 8, 3, 7, 1, 0]], "int32"
)
ALIGNED = np.zeros((4, 6, 5), "float32")
for row, read, columns in ((0, 1, [2]), (0, 2, [0, 1]), (0, 4, [3]), (1, 1, [1]), (3, 3, [0, 2])):
    ALIGNED[row, read, columns] = 1 / len(columns)
INPUTS = {
    "encoder_token_ids": SOURCE,
    "decoder_token_ids": np.pad(LABELS, ((0, 0), (1, 0)))[:, :-1],
}
GUIDED = {**INPUTS, "alignments": ALIGNED}
WEIGHT = 0.7
# Elsewhere each case is several programs, compiled for seconds: those stay that differ by the backend.
ON_TORCH = keras.backend.backend() == "torch"
WAYS = {
    "recompute": {"recompute": True},
    "dropout": {"attention_dropout": 1e-7, "compiled": STEP_BY_STEP},
}
if ON_TORCH:
    WAYS |= {"plain": {}, "ssru": {"decoder_cell": "ssru"}}
    WAYS |= {"weighted": {"kind": WeightedTransformer}}


def model_of(
    head=(0, 1), steps=1, weight=WEIGHT, rate=0.5, optimizer=None, compiled=None, **options
):
    given = {"num_layers": (1, 2), "num_heads": 2, "dropout": 0.0, "seed": 3, **options}
    model = given.pop("kind", Transformer)(11, hidden_dim=8, intermediate_dim=12, **given)
    model.compile(
        optimizer or keras.optimizers.SGD(rate),
        LabelSmoothedCrossentropy(),
        accumulation_steps=steps,
        alignment_head=head,
        alignment_weight=weight,
        **(compiled or {}),
    )
    return model


def fit(model, inputs, labels=LABELS, **options):
    history = model.fit(inputs, labels, batch_size=len(labels), shuffle=False, verbose=0, **options)
    return history.history["loss"]


def head_loss(model, layer, head):
    """Cross-entropy of the alignment and the head's weights, over all target tokens, by loops."""
    scores = model.attention_scores(SOURCE, INPUTS["decoder_token_ids"])["cross"][layer]
    weights = keras.ops.convert_to_numpy(scores)[:, head].astype("float64")
    total = 0.0
    for place in zip(*np.nonzero(ALIGNED), strict=True):
        total -= ALIGNED[place] * np.log(weights[place])
    return total / (LABELS != 0).sum()


@pytest.mark.parametrize("head", [(1, 0), *[(1, 1), (0, 0)] * ON_TORCH])
def test_the_loss_is_that_of_numpy(head):
    model = model_of(head, rate=1e-9)
    plain = float(model.evaluate(INPUTS, LABELS, batch_size=4, verbose=0))
    expected = plain + WEIGHT * head_loss(model, *head)
    assert fit(model, GUIDED)[0] == pytest.approx(expected, rel=1e-5)
    # Without alignments, and in validation, there is none.
    assert fit(model, INPUTS)[0] == pytest.approx(plain, rel=1e-5)
    assert float(model.evaluate(GUIDED, LABELS, batch_size=4, verbose=0)) == pytest.approx(
        plain, rel=1e-5
    )


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_the_update_is_that_of_differences(options):
    """How a step of gradient descent moves some weights, against central differences of the loss."""
    model = model_of(rate=1.0, **options)
    weights = [w for w in model.trainable_variables if w.path.endswith("/kernel")]
    chosen = [weights[0], *(w for w in weights if "decoder_block_1/cross" in w.path)][:3]
    assert len(chosen) == 3
    places = [tuple(size // 2 for size in weight.shape) for weight in chosen]
    before = [keras.ops.convert_to_numpy(weight).copy() for weight in chosen]

    def loss():
        plain = float(model.evaluate(INPUTS, LABELS, batch_size=4, verbose=0))
        return plain + WEIGHT * head_loss(model, 0, 1)

    slopes = []
    for weight, place, start in zip(chosen, places, before, strict=True):
        around = []
        for change in (5e-3, -5e-3):
            moved = start.copy()
            moved[place] += change
            weight.assign(moved)
            around.append(loss())
        weight.assign(start)
        slopes.append((around[0] - around[1]) / 1e-2)
    fit(model, GUIDED)
    for weight, place, start, slope in zip(chosen, places, before, slopes, strict=True):
        step = start[place] - keras.ops.convert_to_numpy(weight)[place]
        assert step == pytest.approx(slope, rel=3e-2, abs=5e-4)


def test_slices_train_as_the_whole():
    whole, slices = model_of(), model_of(steps=2)
    start = whole.get_weights()
    assert fit(slices, GUIDED, epochs=2) == pytest.approx(fit(whole, GUIDED, epochs=2), rel=1e-5)
    plain = model_of(compiled=STEP_BY_STEP)
    fit(plain, INPUTS, epochs=2)
    moved = apart = 0.0
    for a, b, c, d in zip(
        start, whole.get_weights(), slices.get_weights(), plain.get_weights(), strict=True
    ):
        np.testing.assert_allclose(c, b, atol=1e-5)
        moved, apart = max(moved, np.abs(b - a).max()), max(apart, np.abs(d - b).max())
    assert moved > 1e-2 and apart > 1e-3


@pytest.mark.backends("torch")  # elsewhere the gradient above says it, and each update takes long
def test_the_head_learns_the_alignment():
    model = model_of(optimizer=keras.optimizers.Adam(0.05), weight=2.0)
    before = head_loss(model, 0, 1)
    fit(model, GUIDED, epochs=16)
    # Two tokens are aligned with two others each: so much is left at best.
    least = 2 * np.log(2) / (LABELS != 0).sum()
    assert head_loss(model, 0, 1) - least < 0.7 * (before - least)


@pytest.mark.backends("torch")
def test_one_layer_alone_is_asked_for_weights(monkeypatch):
    """All other attention may be fused; see `flash` of `dot_product_attention`."""
    from keras_attention.layers import multi_head_attention as module

    asked = []
    original = module.dot_product_attention

    def attend(*args, flash=None, **kwargs):
        asked.append(flash)
        return original(*args, flash=flash, **kwargs)

    monkeypatch.setattr(module, "dot_product_attention", attend)
    model = model_of()
    for inputs, refused in ((GUIDED, [2]), (INPUTS, [])):
        asked.clear()
        model(
            {name: keras.ops.convert_to_tensor(each) for name, each in inputs.items()},
            training=True,
        )
        assert len(asked) == 5  # one of the encoder; then self- and cross-attention of each block
        assert [i for i, flash in enumerate(asked) if flash is False] == refused
    assert "dot_product_attention" in DEFINITIONS


@pytest.mark.backends("torch")
def test_is_saved_with_the_model(tmp_path):
    model = model_of(weight=0.25, compiled=STEP_BY_STEP)
    fit(model, GUIDED)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert (loaded.alignment_head, loaded.alignment_weight) == ((0, 1), 0.25)
    assert fit(loaded, GUIDED) == pytest.approx(fit(model, GUIDED), rel=1e-5)


@pytest.mark.backends("torch")
@pytest.mark.parametrize(
    "options, message",
    [
        ({"alignment_head": (3, 0)}, "layer from 0 to 2 and a head from 0 to 1.* layer 3"),
        ({"alignment_head": (0, 2)}, "head 2"),
        ({"alignment_head": (0, -1)}, "alignment_head"),
        ({"alignment_head": 1}, "a layer and a head of it"),
        ({"alignment_head": (0, 1), "alignment_weight": 0.0}, "alignment_weight"),
        ({"alignment_head": (0, 1), "loss": "mse"}, "`token_count`"),
    ],
)
def test_refusals(options, message):
    model = Transformer(11, 3, 8, 12, 2)
    with pytest.raises(ValueError, match=message):
        model.compile(**{"loss": LabelSmoothedCrossentropy(), **options})


def test_a_weight_that_is_zero_in_float16_leaves_the_scaled_gradient_finite():
    """Else the loss scale falls, and updates are left out, whenever a head is sharp."""
    model = model_of(dtype="mixed_float16", optimizer="adam")
    weights = ops.convert_to_tensor(np.zeros((4, 2, 6, 5), "float16"))
    model.keep_weights(weights)
    half = float(model.added_sum(GUIDED))
    assert half == pytest.approx(-WEIGHT * ALIGNED.sum() * np.log(1e-4), rel=1e-3)
    model.keep_weights(ops.cast(weights, "float32"))
    assert float(model.added_sum(GUIDED)) == pytest.approx(-WEIGHT * ALIGNED.sum() * np.log(1e-9))
    # The slope at 0, times the paper's weight and Keras' first loss scale, over a thousand tokens.
    assert 0.05 / np.exp(-half / WEIGHT / ALIGNED.sum()) * 2**15 / 1000 < np.finfo("float16").max
