"""Gradient accumulation: the update of a batch in slices is the update of the batch."""

import keras
import numpy as np
import pytest

from keras_attention import (
    Adam,
    LabelSmoothedCrossentropy,
    ParallelText,
    TokenAccuracy,
    TokenBatches,
    Tokenizer,
    TokenStore,
    Transformer,
)
from tests.helpers import STEP_BY_STEP

# Every slice of two has another number of tokens: rows 0 and 2 have 3, rows 1 and 3 have 8.
LABELS = np.array([[4, 1, 0, 0, 0], [6, 4, 1, 0, 0], [1, 0, 0, 0, 0], [9, 8, 3, 7, 1]])
SOURCE = np.array([[5, 6, 1], [7, 1, 0], [8, 9, 1], [3, 1, 0]])
INPUTS = {
    "encoder_token_ids": SOURCE,
    "decoder_token_ids": np.pad(LABELS, ((0, 0), (1, 0)))[:, :-1],
}


def compiled_model(steps, optimizer=None, dropout=0.0, loss=None, **options):
    model = Transformer(
        11, num_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2, seed=3, dropout=dropout,
        dtype=options.pop("dtype", "float32"),
    )  # fmt: skip
    loss = loss or LabelSmoothedCrossentropy()
    model.compile(optimizer or keras.optimizers.SGD(0.5), loss, accumulation_steps=steps, **options)
    return model


def fit(model, **options):
    return model.fit(INPUTS, LABELS, batch_size=4, shuffle=False, verbose=0, **options).history


# Of tokens: those of one row weigh nothing, and so those of one slice of four.
WEIGHTS = np.array([[1.0], [0.0], [2.0], [0.5]]) * np.ones(5)


@pytest.fixture(scope="module")
def whole():
    """A model after two updates of whole batches, its weights before, and what `fit` told."""
    # A large epsilon, for with a small one the sign of a gradient that is all rounding decides Adam's step.
    model = compiled_model(1, Adam(0.01, epsilon=1e-3), metrics=[TokenAccuracy()], **STEP_BY_STEP)
    start = model.get_weights()
    return model, start, fit(model, epochs=2, sample_weight=WEIGHTS)


def test_slices_train_as_the_whole(whole):
    whole, start, expected = whole
    slices = compiled_model(4, Adam(0.01, epsilon=1e-3), metrics=[TokenAccuracy()])
    got = fit(slices, epochs=2, sample_weight=WEIGHTS)
    assert got["loss"] == pytest.approx(expected["loss"], rel=2e-6)
    assert got["token_accuracy"] == pytest.approx(expected["token_accuracy"], rel=1e-5)
    assert int(keras.ops.convert_to_numpy(slices.optimizer.iterations)) == 2
    assert slices.optimizer.gradient_norm == pytest.approx(whole.optimizer.gradient_norm, rel=1e-4)
    moved = 0.0
    for a, b, c in zip(start, whole.get_weights(), slices.get_weights(), strict=True):
        np.testing.assert_allclose(c, b, atol=1e-5)
        moved = max(moved, np.abs(b - a).max())
    assert moved > 1e-2


def test_every_slice_draws_its_own_dropout():
    """Equal rows in two slices: with one mask for both, the loss would be that of one slice."""
    model = compiled_model(2, keras.optimizers.SGD(0.0), dropout=0.5)
    states = [v for v in model.variables if v.path.endswith("seed_generator_state")]
    before = [keras.ops.convert_to_numpy(state).copy() for state in states]
    fit(model)
    after = [keras.ops.convert_to_numpy(state) for state in states]
    once = compiled_model(1, dropout=0.5)
    drawn = [v for v in once.variables if v.path.endswith("seed_generator_state")]
    once(INPUTS, training=True)
    for start, twice, single in zip(before, after, drawn, strict=True):
        one = keras.ops.convert_to_numpy(single).astype("int64") - start
        assert one.any() and (twice.astype("int64") - start == 2 * one).all()


def test_float16_scales_its_loss(whole):
    model = compiled_model(2, Adam(0.01, epsilon=1e-3), dtype="mixed_float16")
    start = model.get_weights()
    history = fit(model, epochs=2, sample_weight=WEIGHTS)
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert history["loss"] == pytest.approx(whole[2]["loss"], rel=2e-2)
    assert any((a != b).any() for a, b in zip(start, model.get_weights(), strict=True))
    assert model.optimizer.inner_optimizer.first_nonfinite == 0


@pytest.mark.backends("torch")
@pytest.mark.parametrize(
    "steps,options", [(3, {}), (2, {"batch_size": 3}), (4, {"validation_split": 0.25})]
)
def test_uneven_rows_are_refused_before_anything_is_compiled(steps, options, monkeypatch):
    model = compiled_model(steps)
    monkeypatch.setattr(model, "make_train_function", lambda *_: pytest.fail("it was begun"))
    with pytest.raises(ValueError, match=rf"multiple of the {steps} accumulation steps"):
        model.fit(INPUTS, LABELS, **{"batch_size": 4, "verbose": 0, **options})


@pytest.mark.backends("torch")
def test_uneven_rows_of_batches_are_refused(tmp_path):
    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text("<pad>\n</s>\n<unk>\nein\nHund\n", "utf-8")
    text = ParallelText("two", [("ein Hund", "Hund"), ("Hund", "ein Hund")])
    tokenizer = Tokenizer.from_vocabulary(vocabulary)
    store = TokenStore.build(tmp_path / "store", text, tokenizer)
    batches = TokenBatches(store, batch_tokens=8, num_replicas=2)
    with pytest.raises(ValueError, match=r"\(2 on each replica\).* 3 accumulation steps"):
        compiled_model(3).fit(batches, verbose=0)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("steps", [0, True, 1.5])
def test_steps_must_be_a_positive_integer(steps):
    with pytest.raises(ValueError, match="accumulation_steps"):
        compiled_model(steps)


@pytest.mark.backends("torch")
def test_what_cannot_be_accumulated_is_refused():
    with pytest.raises(ValueError, match="LabelSmoothedCrossentropy"):
        compiled_model(2, loss="sparse_categorical_crossentropy")
    with pytest.raises(ValueError, match="gradient_accumulation_steps"):
        compiled_model(2, Adam(0.1, gradient_accumulation_steps=2))


@pytest.mark.backends("torch")
def test_is_saved_with_the_model(tmp_path):
    model = compiled_model(2, Adam(0.01))
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.accumulation_steps == 2 and isinstance(loaded.optimizer, Adam)
