"""What a model thought of each word, and what each word contributes, against the paper in NumPy."""

import keras
import numpy as np
import pytest

from keras_attention import (
    MultiHeadAttention,
    Tokenizer,
    Transformer,
    Translation,
    WeightedTransformer,
)
from keras_attention.models.attention_details import value_norms
from keras_attention.visualization import attention_entries
from keras_attention_viewer import Entry
from keras_attention_viewer.thoughts import decode_norms
from tests import oracle
from tests.models.test_transformer import named_weights, randomized

PAIRS = [("the old dogs sleep.", "die alten Hunde schlafen."), ("a dog", "ein Hund")]
SIZES = {"num_layers": 2, "hidden_dim": 12, "intermediate_dim": 16, "num_heads": 3}
HEADS = SIZES["num_heads"]
KINDS = ("encoder", "decoder", "cross")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([text for pair in PAIRS for text in pair], vocabulary_size=290)


@pytest.fixture(scope="module")
def model(tokenizer):
    return randomized(Transformer(tokenizer.vocabulary_size, **SIZES, dropout=0.0, seed=5))


def in_numpy(model, source, read, monkeypatch):
    """Logits (B, T, V), and by kind, for each layer a dict of what its attention computed, in NumPy."""
    calls = []
    attention = oracle.multi_head_attention

    def watched(query, value, weights, allowed):
        outputs, scores = attention(query, value, weights, allowed)
        kernels = {"value": weights[2], "output": weights[3]}
        calls.append({"read": value, **kernels, "outputs": outputs, "scores": scores})
        return outputs, scores

    monkeypatch.setattr(oracle, "multi_head_attention", watched)
    layers = SIZES["num_layers"]
    logits = oracle.transformer(source, read, named_weights(model), layers)
    decoder = calls[layers:]
    return logits, {"encoder": calls[:layers], "decoder": decoder[::2], "cross": decoder[1::2]}


def vectors(call):
    """What each position contributes to each output: weight times transformed value (B, N, T, S, D)."""
    transformed = np.stack(
        [call["read"] @ call["value"][:, n] @ call["output"][n] for n in range(HEADS)], axis=1
    )
    return call["scores"][..., None] * transformed[:, :, None]


def ids_of(tokenizer, pair):
    source, target = ([*tokenizer.encode(text), tokenizer.end_token_id] for text in pair)
    return np.array([source]), np.array([[tokenizer.start_token_id, *target[:-1]]]), target


def test_contributions_are_those_of_the_paper_in_numpy(model, tokenizer, monkeypatch):
    source, read, _ = ids_of(tokenizer, PAIRS[0])
    _, computed = in_numpy(model, source, read, monkeypatch)
    entry = attention_entries(model, tokenizer, PAIRS)[0]
    details = model.attention_details(source, read)
    for kind in KINDS:
        for layer, call in enumerate(computed[kind]):
            of_positions = vectors(call)
            # They sum to what the layer returns, over positions and heads.
            np.testing.assert_allclose(of_positions.sum((1, 3)), call["outputs"], atol=1e-9)
            expected = np.linalg.norm(of_positions, axis=-1)
            # Nothing is kept for gradients on PyTorch.
            assert not getattr(details.value_norms[kind][layer], "requires_grad", False)
            weights, norms = (
                keras.ops.convert_to_numpy(part[kind][layer])
                for part in (details.scores, details.value_norms)
            )
            scale = max(1.0, expected.max())
            np.testing.assert_allclose(
                weights * norms[:, :, None], expected, atol=1e-5 * scale, rtol=0
            )
            assert norms.std() > 0.05 * norms.mean()
            # In the record, beside a longer sentence or a shorter one.
            kept = entry.header["tokens"]["source" if kind != "decoder" else "decoder_input"]
            stored = decode_norms(
                entry.header["value_norms"][kind], (SIZES["num_layers"], HEADS, len(kept))
            )[layer]
            np.testing.assert_allclose(stored, norms[0], rtol=1e-5, atol=1e-6)


def test_probabilities_and_runners_up_are_those_of_the_paper_in_numpy(
    model, tokenizer, monkeypatch
):
    entries = attention_entries(model, tokenizer, PAIRS)
    for entry, pair in zip(entries, PAIRS, strict=True):
        source, read, predicted = ids_of(tokenizer, pair)
        logits, _ = in_numpy(model, source, read, monkeypatch)
        monkeypatch.undo()
        kept = entry.header["predictions"]
        assert len(kept) == len(predicted)
        for row, token, one in zip(logits[0], predicted, kept, strict=True):
            expected = oracle.softmax(row)
            assert one["p"] == pytest.approx(expected[token], abs=1e-5)
            order = [t for t in np.argsort(-expected) if t != token][:5]
            assert [text for text, _ in one["others"]] == [tokenizer.id_to_token(t) for t in order]
            np.testing.assert_allclose([p for _, p in one["others"]], expected[order], atol=1e-5)
        assert np.std([one["p"] for one in kept]) > 1e-3


@pytest.mark.backends("torch")
def test_only_the_shown_pairs_are_predicted_and_what_is_suppressed_is_not(tokenizer):
    unwanted = tokenizer.encode("Hund")[0]
    options = {**SIZES, "suppressed_token_ids": (unwanted,)}
    model = randomized(Transformer(tokenizer.vocabulary_size, **options, seed=5))
    first, second = attention_entries(model, tokenizer, PAIRS, predicted=1)
    assert second.header["predictions"] is None
    assert first.header["value_norms"].keys() == set(KINDS)
    assert second.header["value_norms"] is None
    ids = tokenizer.encode(PAIRS[0][1])
    own = [one["p"] for token, one in zip(ids, first.header["predictions"], strict=False)]
    assert [p for token, p in zip(ids, own, strict=True) if token == unwanted] == [
        0.0 for token in ids if token == unwanted
    ]
    texts = {text for one in first.header["predictions"] for text, _ in one["others"]}
    assert tokenizer.id_to_token(unwanted) not in texts
    (none,) = attention_entries(model, tokenizer, PAIRS[:1], predicted=0)
    assert none.header["predictions"] is None and none.header["value_norms"] is None


@pytest.mark.backends("torch")
def test_alternatives_of_the_beam_are_kept(model, tokenizer):
    beam = [Translation("ein Hund", -1.5, (3,), True), Translation("der Hund", -2.25, (4,), False)]
    (entry,) = attention_entries(model, tokenizer, PAIRS[1:], target="output", alternatives=[beam])
    assert Entry.from_blobs(entry.to_blobs()).header["alternatives"] == [
        {"text": "ein Hund", "score": -1.5, "is_finished": True},
        {"text": "der Hund", "score": -2.25, "is_finished": False},
    ]
    with pytest.raises(ValueError, match="alternatives"):
        attention_entries(model, tokenizer, PAIRS[1:], alternatives=[["ein Hund"]])


@pytest.mark.backends("torch")
def test_layers_that_compute_something_else_have_no_norms(tokenizer):
    gated = MultiHeadAttention(2, 4, use_gate=True)
    x = np.ones((1, 3, 8), "float32")
    gated(x, x)
    assert value_norms(gated, x) is None
    model = WeightedTransformer(tokenizer.vocabulary_size, **SIZES)
    (entry,) = attention_entries(model, tokenizer, PAIRS[1:])
    assert entry.header["value_norms"].keys() == {"decoder"}
    cells = Transformer(tokenizer.vocabulary_size, **SIZES, decoder_cell="ssru")
    (entry,) = attention_entries(cells, tokenizer, PAIRS[1:])
    assert entry.header["value_norms"].keys() == {"encoder", "cross"}


@pytest.mark.backends("torch")
def test_pre_norm_and_biases_count(tokenizer):
    """The norms explain the layer's own output: one head, one position, so weight 1."""
    options = {**SIZES, "num_heads": 1, "normalize_first": True, "use_attention_bias": True}
    model = randomized(Transformer(tokenizer.vocabulary_size, **options, dropout=0.0, seed=5))
    block = model.encoder_blocks[0]
    source, read = np.array([[tokenizer.end_token_id]]), np.array([[tokenizer.start_token_id]])
    x = block.self_attention_residual.normalization(
        model._add_positions(model.token_embedding(source), "encoder", False)
    )
    output = block.self_attention(x, x) - block.self_attention.output_dense.bias
    expected = np.linalg.norm(keras.ops.convert_to_numpy(output)[0, 0])
    norms = keras.ops.convert_to_numpy(
        model.attention_details(source, read).value_norms["encoder"][0]
    )
    assert norms.shape == (1, 1, 1)
    assert norms[0, 0, 0] == pytest.approx(expected, rel=1e-5)
