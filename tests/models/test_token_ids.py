"""Ids outside the vocabulary are refused early, on every backend and by every public method."""

import types

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import LabelSmoothedCrossentropy, Transformer
from keras_attention.models.token_ids import check_token_ids
from tests.helpers import STEP_BY_STEP

V = 9
SOURCE, TARGET, LABELS = np.array([[5, 8, 1]]), np.array([[0, 8]]), np.array([[8, 1]])
MESSAGE = r"'{}' holds ids outside .* of 9 tokens \(ids 0 to 8\)\. Received: ids from {} to {}\."
NO_IDS = "'encoder_token_ids' (must hold token ids|holds ids outside)"


def inputs(source=SOURCE, target=TARGET):
    return {"encoder_token_ids": source, "decoder_token_ids": target}


SIZES = {"num_layers": 1, "hidden_dim": 4, "intermediate_dim": 6, "num_heads": 2}


def compiled(**options):
    model = Transformer(V, **SIZES, **options)
    model.compile("sgd", LabelSmoothedCrossentropy(), **STEP_BY_STEP)
    return model


@pytest.fixture(scope="module")
def model():
    return compiled()


@pytest.fixture(scope="module")
def learned():
    """A model with positions for three tokens."""
    return compiled(position_layout="learned", max_length=3)


ENTRANCES = {
    "call": lambda model, x: model(x),
    "fit": lambda model, x: model.fit(x, LABELS, verbose=0),
    "validation": lambda model, x: model.fit(inputs(), LABELS, validation_data=(x, LABELS)),
    "evaluate": lambda model, x: model.evaluate(x, LABELS, verbose=0),
    "predict": lambda model, x: model.predict(x, verbose=0),
    "attention_scores": lambda model, x: model.attention_scores(*x.values()),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(("name", "bad"), [("encoder_token_ids", 9), ("decoder_token_ids", -1)])
def test_ids_outside_of_the_vocabulary_are_refused(model, entrance, name, bad):
    data = {key: value.copy() for key, value in inputs().items()}
    data[name][0, 1] = bad
    message = MESSAGE.format(name, data[name].min(), data[name].max())
    with pytest.raises(ValueError, match=message):
        ENTRANCES[entrance](model, data)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("entrance", ["fit", "evaluate", "predict"])
@pytest.mark.parametrize("nothing", [None, [], {}, np.zeros((0, 3), "int32")])
def test_no_data_are_refused(model, entrance, nothing):
    """Keras says "pop from an empty set", or that a variable has no value."""
    with pytest.raises(ValueError, match="`x` must hold data, at least one row. Received: x="):
        ENTRANCES[entrance](model, nothing)


def test_bad_ids_in_encode_and_in_labels_are_refused(model):
    with pytest.raises(ValueError, match=MESSAGE.format("encoder_token_ids", 1, 9)):
        model.encode(SOURCE + (SOURCE == 8))
    with pytest.raises(ValueError, match="The batch holds ids .* from 1 to 9.*another tokenizer"):
        model.fit(inputs(), np.array([[9, 1]]), verbose=0)


@pytest.mark.parametrize(
    ("entrance", "bad"),
    [
        *zip(ENTRANCES, [5.7, 99.0, -1.0, np.nan, np.inf, 5.7], strict=True),
        *(("encode", bad) for bad in (5.7, 99.0, -1.0, np.nan, np.inf)),
    ],
)
def test_floats_that_are_not_ids_are_refused(model, entrance, bad):
    data = inputs(np.array([[5.0, bad, 1.0]], "float32"))
    call = {**ENTRANCES, "encode": lambda model, x: model.encode(x["encoder_token_ids"])}[entrance]
    with pytest.raises(ValueError, match=NO_IDS):
        call(model, data)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("ids", [[[5, -3]], [[5, 9]], [[5, 5.7]], [[5, np.int64(9)]]])
def test_lists_are_looked_at(model, ids):
    with pytest.raises(ValueError, match=NO_IDS):
        model.encode(ids)


@pytest.mark.backends("torch")
def test_a_list_in_place_of_an_array_is_refused_by_name(model):
    with pytest.raises(ValueError, match="'encoder_token_ids' must be an array .* Received: list"):
        model(inputs([[5, 8]]))


@pytest.mark.parametrize("entrance", [*ENTRANCES, "encode"])
def test_another_byte_order_is_named(model, entrance):
    """TensorFlow reads it, JAX has no name for it, and PyTorch refuses it."""
    data = inputs(SOURCE.astype(SOURCE.dtype.newbyteorder()))
    call = {**ENTRANCES, "encode": lambda model, x: model.encode(x["encoder_token_ids"])}[entrance]
    with pytest.raises(ValueError, match="encoder_token_ids.* byte order.*astype\\('int64'\\)"):
        call(model, data)


@pytest.mark.backends("torch")
def test_weights_of_classes_are_refused(model):
    """Keras would make one weight a row of them, of the position of its largest label."""
    for train in (model.fit, model.train_on_batch):
        with pytest.raises(
            ValueError, match="`class_weight` is for one label a row.*sample_weight"
        ):
            train(inputs(), LABELS, class_weight={8: 0.0, 1: 3.0})


def test_bytes_are_ids_of_a_vocabulary_of_256():
    model = Transformer(256, **SIZES, seed=3)
    model.compile("sgd", LabelSmoothedCrossentropy(), **STEP_BY_STEP)
    wanted, got = (
        model.evaluate(
            {k: v.astype(dtype) for k, v in inputs().items()}, LABELS.astype(dtype), verbose=0
        )
        for dtype in ("int32", "uint8")
    )
    assert got == pytest.approx(wanted, rel=1e-6) and np.isfinite(got)


def test_sample_weights_are_not_checked_as_ids(model):
    data = (inputs(), LABELS, np.array([[0.5, 99.0]]))
    history = model.fit(inputs(), LABELS, validation_data=data, verbose=0).history
    assert np.isfinite(history["val_loss"]).all()


def test_whole_numbers_of_a_float_type_are_the_same_ids():
    """Also 257, which bfloat16 cannot hold."""
    model = Transformer(300, **SIZES, dtype="mixed_bfloat16")
    ids = inputs(np.array([[257, 299, 1]]), np.array([[0, 259]]))
    floats = {name: part.astype("float32") for name, part in ids.items()}
    wanted, got = (ops.convert_to_numpy(model(part)) for part in (ids, floats))
    np.testing.assert_array_equal(got, wanted)


def test_ids_of_the_vocabulary_pass_everywhere(model):
    for entrance in ENTRANCES.values():
        entrance(model, inputs())
    tensors = {name: ops.convert_to_tensor(ids) for name, ids in inputs().items()}
    assert tuple(model(tensors).shape) == (1, 2, V)


@pytest.mark.backends("torch")
def test_batches_of_a_larger_vocabulary_are_refused(model):
    class Batches(keras.utils.PyDataset):
        def __init__(self, vocabulary_size):
            super().__init__()
            self.vocabulary_size = vocabulary_size

        def __len__(self):
            return 1

        def __getitem__(self, index):
            return inputs(), LABELS

    model.fit(Batches(V), verbose=0)
    with pytest.raises(ValueError, match="tokenizer of 10 tokens; .* vocabulary has 9"):
        model.fit(Batches(10), verbose=0)
    sides = types.SimpleNamespace(vocabulary_size=10, target_vocabulary_size=7)
    sizes = dict(zip(("encoder_token_ids", "decoder_token_ids"), (10, 7), strict=True))
    check_token_ids(sides, sizes)
    for name in sizes:
        with pytest.raises(ValueError, match=f"of {sizes[name]} tokens; .* has {sizes[name] - 1}"):
            check_token_ids(sides, {**sizes, name: sizes[name] - 1})
    with pytest.raises(ValueError, match="tokenizer of 10 tokens"):
        model.fit(inputs(), LABELS, validation_data=Batches(10), verbose=0)


@pytest.mark.backends("torch")
def test_what_has_no_ids_passes():
    check_token_ids({"a": np.zeros((0, 3), int), "b": np.array([0.5, 99.0]), "c": None}, V)


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("name", ["encoder_token_ids", "decoder_token_ids"])
@pytest.mark.backends("torch")
def test_more_tokens_than_learned_positions_are_refused(learned, entrance, name):
    data = inputs(np.array([[5, 8, 1]]), np.array([[0, 8, 7]]))
    data[name] = np.array([[5, 8, 7, 1]])
    with pytest.raises(
        ValueError, match="learned positions for 3 tokens.*of 4 tokens.*max_length=4"
    ):
        ENTRANCES[entrance](learned, data)


@pytest.mark.backends("tensorflow")
def test_a_search_for_nan_finds_none_in_a_healthy_model():
    """Nor in its training and its engine, but where an id is no id."""
    import tensorflow as tf

    from keras_attention import Adam, LabelSmoothedCrossentropy, Translator
    from tests.decoding.letters import LetterTokenizer

    inputs = {
        "encoder_token_ids": np.array([[3, 5, 1, 0], [4, 1, 0, 0], [9, 8, 7, 1]]),
        "decoder_token_ids": np.array([[0, 3, 0], [0, 6, 2], [0, 0, 0]]),
    }
    labels = np.array([[3, 1, 0], [6, 2, 1], [1, 0, 0]])
    tf.debugging.enable_check_numerics()
    try:
        model = Transformer(17, 1, 12, 20, 3)
        model.compile(Adam(1e-3), LabelSmoothedCrossentropy(0.1))
        assert np.isfinite(model.train_on_batch(inputs, labels))
        assert np.isfinite(model.predict_on_batch(inputs)).all()
        # So wide that XLA would compile parts of the step, which knows no such checks.
        wide = Transformer(130, 1, 128, 132, 2, dropout=0.1)
        wide.compile(Adam(1e-3), LabelSmoothedCrossentropy(0.1))
        assert np.isfinite(wide.train_on_batch(inputs, labels))
        for engine in ("tensorflow", "plain"):
            translator = Translator(model, LetterTokenizer(), beam_size=2, engine=engine)
            assert len(translator.translate(["cab", "gab"], n_best=2)) == 2
        with pytest.raises(tf.errors.InvalidArgumentError, match="NaN"):
            wrong = {name: tf.constant(ids + 0.5) for name, ids in inputs.items()}
            tf.function(lambda: model(wrong), autograph=False)()
    finally:
        tf.debugging.disable_check_numerics()
