"""Wrong tensors and labels at the public doors: each is refused by an error that names it.

What parameters must not take is in test_public_arguments.py.
"""

import functools
import math

import keras
import numpy as np
import pytest

from keras_attention import (
    SSRU,
    Adam,
    FeedForward,
    LabelSmoothedCrossentropy,
    MultiHeadAttention,
    Perplexity,
    PositionalEncoding,
    ResidualConnection,
    TokenAccuracy,
    TokenEmbedding,
    Transformer,
    TransformerDecoder,
    TransformerDecoderBlock,
    TransformerEncoder,
    TransformerEncoderBlock,
)
from keras_attention.models import BranchedAttention

# What a door is called with: right tensors, from which wrong ones are derived.
SIZES = {"B": 2, "T": 3, "S": 5, "D": 8, "E": 8, "F": 8, "N": 4, "W": 6, "V": 11}


def tensor(letters, dtype="float32"):
    return np.ones([SIZES[letter] for letter in letters.removeprefix("...")], dtype)


def wrong_tensors(right, letters, known=""):
    """No tensors, no numbers, another rank; and other sizes of the letters that are known."""
    yield from ([], 3, "x", b"x", {}, object(), [[1.0], [1.0, 2.0]])
    yield from (np.full(right.shape, "a"), np.full(right.shape, None), right.astype(complex))
    if not letters.startswith("..."):
        yield from (right[0], right[None], right[..., None])
    if letters[-1] in known:
        yield np.ones((*right.shape[:-1], right.shape[-1] - 1), right.dtype)
    if letters[0] in known:
        yield np.concatenate([right, right[:1]])


@functools.cache
def small_transformer():
    return Transformer(11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=4)


def layer_doors():
    for make in (
        lambda: TransformerEncoderBlock(4, 16),
        lambda: TransformerDecoderBlock(4, 16),
        lambda: TransformerEncoder(1, 16, 4),
        lambda: MultiHeadAttention(4, 2),
        lambda: BranchedAttention(4, 2, 16),
        lambda: FeedForward(16),
        lambda: PositionalEncoding(),
        lambda: ResidualConnection(),
        lambda: SSRU(),
    ):
        yield make, make().call_axes
    yield lambda: functools.partial(TokenEmbedding(11, 8), reverse=True), {"inputs": "...D"}


def called_doors():
    """Pairs of a function that makes a door, and of the axes of what it is called with."""
    yield from layer_doors()
    ids = {"encoder_token_ids": "BS", "decoder_token_ids": "BT"}
    yield lambda: lambda **given: small_transformer()(given), ids
    vectors = {"encoder_sequence": "BSD", "encoder_padding_mask": "BS"}
    yield lambda: TransformerDecoder(11, 1, 8, 16, 4), {"decoder_token_ids": "BT", **vectors}
    yield lambda: TransformerDecoder(11, 1, 8, 16, 4).memory, vectors
    yield lambda: small_transformer().attention_scores, ids
    yield lambda: small_transformer().encode, {"encoder_token_ids": "BS"}
    labels = {"y_true": "BT", "y_pred": "BTV", "sample_weight": "BT"}
    yield LabelSmoothedCrossentropy, labels
    for metric in (TokenAccuracy, Perplexity):
        yield lambda metric=metric: metric().update_state, labels


@pytest.mark.parametrize(("make", "axes"), list(called_doors()))
def test_each_tensor_is_checked_at_the_door(make, axes):
    """By its rank, its sizes, and what it holds; in a fresh layer and in a built one."""
    given = {
        name: tensor(letters, "bool" if "mask" in name else "int32" if "ids" in name else "float32")
        for name, letters in axes.items()
    }
    built, known = make(), "DEFN"
    built(**given)
    for name, right in given.items():
        letters = axes[name]
        wrong = [(built, value) for value in wrong_tensors(right, letters, known)]
        wrong += [(make(), value) for value in wrong_tensors(right, letters)]
        if name == "sample_weight":  # One for all is right.
            wrong = [(door, value) for door, value in wrong if not isinstance(value, int)]
        for door, value in wrong:
            with pytest.raises(ValueError) as error:
                door(**{**given, name: value})
                pytest.fail(f"{name}={value!r} was accepted")
            assert name in str(error.value) or "Labels must" in str(error.value), (value, error)
            assert "received" in str(error.value).lower()  # "Full shape received", in Keras' words
        known += "" if "mask" in name else letters.replace(".", "")


@pytest.mark.backends("torch")
@pytest.mark.parametrize(("make", "axes"), list(layer_doors()))
def test_training_is_on_or_off(make, axes):
    given = {name: tensor(letters) for name, letters in axes.items() if "mask" not in name}
    for value in ("yes", 2, [], 1.0):
        with pytest.raises(ValueError, match="`training` must be True, False or None. Received"):
            make()(**given, training=value)


LABELS = [[5, 11], [5, -1], [5, -100], [5, 2**32 + 3], [5, 5.7]]


@pytest.mark.backends("torch")
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("make", [LabelSmoothedCrossentropy, TokenAccuracy, Perplexity])
def test_labels_that_no_vocabulary_has_are_refused_in_arrays(make, labels):
    with pytest.raises(ValueError, match=r"integers from 0 to 10.*Received: \["):
        make()(np.array([labels]), np.zeros((1, 2, 11), "float32"))


def test_the_padding_label_may_be_any():
    loss, logits = LabelSmoothedCrossentropy(pad_token_id=-100), np.zeros((1, 2, 11), "float32")
    assert float(loss(np.array([[5, -100]]), logits)) == pytest.approx(math.log(11))


def in_a_graph(function):
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=False)
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import torch

    return torch.compile(function, backend="eager")


@pytest.mark.parametrize("label", [11, -1, -100, 2**32 + 3])
def test_labels_in_a_graph_give_an_error_or_nan(label):
    if keras.backend.backend() == "jax" and label > 2**31:
        pytest.skip("JAX's integers have 32 bits")
    labels = keras.ops.convert_to_tensor(np.array([[5, label]], "int64"))
    loss = in_a_graph(LabelSmoothedCrossentropy())
    try:
        value = keras.ops.convert_to_numpy(loss(labels, keras.ops.zeros((1, 2, 11))))
    except Exception as error:  # each backend has its own
        assert any(word in str(error) for word in ("range", "bounds", "not in [")), error
        return
    assert math.isnan(value)


def test_labels_of_a_dataset_never_train_in_silence():
    """Each of them in a graph: the test above."""
    tf = pytest.importorskip("tensorflow")
    model = Transformer(11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2)
    model.compile(Adam(0.01), LabelSmoothedCrossentropy())
    ids = np.full((4, 3), 5)
    labels = ids.copy()
    labels[2, 1] = -1
    inputs = {"encoder_token_ids": ids, "decoder_token_ids": ids}
    data = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(4)
    model(inputs)
    before = model.get_weights()
    try:
        (loss,) = model.fit(data, verbose=0).history["loss"]
    except Exception as error:  # each backend has its own
        assert any(word in str(error) for word in ("range", "bounds", "not in [")), error
    else:
        assert math.isnan(loss) and model.optimizer.first_nonfinite == 1
    for value, good in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, good)


@pytest.mark.parametrize("token_id", [11, -1, -6, 5.7, -0.5])
def test_ids_in_tensors_never_take_another_words_row(token_id):
    embedding = TokenEmbedding(11, 4)
    dtype = "int32" if isinstance(token_id, int) else "float32"
    ids = keras.ops.convert_to_tensor(np.array([[5, token_id]], dtype))
    try:
        rows = keras.ops.convert_to_numpy(embedding(ids))
    except Exception as error:  # each backend has its own
        assert "ind" in str(error).lower() or "range" in str(error).lower()
        return
    assert np.isfinite(rows[0, 0]).all() and np.isnan(rows[0, 1]).all()


@pytest.mark.backends("torch")
def test_source_and_target_need_the_same_number_of_rows():
    model = Transformer(11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2)
    inputs = {"encoder_token_ids": np.ones((1, 3), int), "decoder_token_ids": np.ones((2, 3), int)}
    with pytest.raises(ValueError, match=r"the same number of rows.*\(1, 3\) and \(2, 3\)"):
        model(inputs)


def test_weights_in_float16_are_not_trained():
    model = Transformer(
        11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2, dtype="float16"
    )
    with pytest.raises(ValueError, match="Use dtype='mixed_float16'.*Received: dtype='float16'"):
        model.compile("adam", LabelSmoothedCrossentropy())


@pytest.mark.backends("tensorflow", "jax")
def test_a_model_that_was_only_built_is_exported(tmp_path):
    tf = pytest.importorskip("tensorflow")
    model = Transformer(11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2, seed=1)
    model.export(tmp_path / "model", verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    for source, target in [([[5, 6, 1], [4, 1, 0]], [[0, 7], [0, 8]]), ([[9, 1]], [[0, 3, 10]])]:
        inputs = {
            "encoder_token_ids": np.array(source, "int32"),
            "decoder_token_ids": np.array(target, "int32"),
        }
        np.testing.assert_allclose(loaded.serve(inputs), model(inputs), atol=1e-5)


def test_another_backend_decides_itself_about_compiling():
    """What "auto" means on this backend is not saved."""
    for given in ({}, {"jit_compile": "auto"}, {"jit_compile": False}):
        model = small_transformer()
        model.compile("adam", LabelSmoothedCrossentropy(), **given)
        assert model.get_compile_config()["jit_compile"] == given.get("jit_compile", "auto")
