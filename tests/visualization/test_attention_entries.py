"""Entries of a model are its own scores, sentence by sentence, without padding."""

import keras
import numpy as np
import pytest

from keras_attention import Tokenizer, Transformer
from keras_attention.visualization import attention_entries, token_ranks

pytestmark = pytest.mark.backends("torch")

PAIRS = [
    ("the old dogs sleep.", "die alten Hunde schlafen."),
    ("a dog", "ein Hund"),
    ("a very old dog barks at the sleeping cats.", "ein Hund bellt."),
]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([text for pair in PAIRS for text in pair], vocabulary_size=290)


class Attending:
    """Stands for a model: two heads with the same weight everywhere."""

    def __init__(self, weight=0.01):
        self.weight = weight

    def attention_scores(self, source, target):
        (batch, s), t = source.shape, target.shape[1]
        shapes = {"encoder": (s, s), "decoder": (t, t), "cross": (t, s)}
        return {
            kind: [np.full((batch, 2, *shape), self.weight, "float32")]
            for kind, shape in shapes.items()
        }


def test_stored_weights_are_the_scores_of_each_sentence_alone(tokenizer):
    sizes = {"num_layers": 2, "hidden_dim": 12, "intermediate_dim": 16, "num_heads": 3}
    model = Transformer(tokenizer.vocabulary_size, **sizes, seed=5)
    entries = attention_entries(model, tokenizer, PAIRS[:2], step=40)
    for entry, (source, target) in zip(entries, PAIRS[:2], strict=True):
        ids = [[*tokenizer.encode(text), tokenizer.end_token_id] for text in (source, target)]
        read = [tokenizer.start_token_id, *ids[1][:-1]]
        scores = model.attention_scores(np.array([ids[0]]), np.array([read]))
        assert entry.header["step"] == 40
        assert (entry.header["source_text"], entry.header["target_text"]) == (source, target)
        for kind in ("encoder", "decoder", "cross"):
            for layer, stored in zip(scores[kind], entry.weights[kind], strict=True):
                expected = keras.ops.convert_to_numpy(layer)[0]
                assert stored.shape == expected.shape
                np.testing.assert_allclose(stored / 65535, expected, atol=2e-5)


def test_tokens_are_those_of_the_tokenizer(tokenizer):
    counts = np.random.default_rng(0).integers(0, 99, tokenizer.vocabulary_size)
    ranks = token_ranks(counts)
    entry = attention_entries(Attending(), tokenizer, PAIRS[1:2], token_ranks=ranks)[0]
    tokens = entry.header["tokens"]
    source = [*tokenizer.encode("a dog"), tokenizer.end_token_id]
    assert [token["text"] for token in tokens["source"][:-1]] == tokenizer.tokens("a dog")
    assert [token["rank"] for token in tokens["source"]] == [int(ranks[i]) for i in source]
    assert [token["special"] for token in tokens["source"]] == [False] * (len(source) - 1) + [True]
    assert tokens["decoder_input"][0]["text"] == "<start>"
    assert tokens["decoder_input"][0]["special"] is True
    assert tokens["decoder_input"][1:] == tokens["decoder_output"][:-1]
    assert sorted(ranks) == list(range(tokenizer.vocabulary_size))
    assert all(counts[np.argsort(ranks)][:-1] >= counts[np.argsort(ranks)][1:])


def test_ranks_of_each_side(tokenizer):
    size = tokenizer.vocabulary_size
    ranks = {"source": np.arange(size), "target": np.arange(size)[::-1]}
    entry = attention_entries(Attending(), tokenizer, PAIRS[1:2], token_ranks=ranks)[0]
    tokens = entry.header["tokens"]
    source, target = ([*tokenizer.encode(text), tokenizer.end_token_id] for text in PAIRS[1])
    assert [token["rank"] for token in tokens["source"]] == source
    assert [token["rank"] for token in tokens["decoder_output"]] == [size - 1 - i for i in target]
    for wrong in ({"source": ranks["source"]}, {**ranks, "target": [1, 2]}):
        with pytest.raises(ValueError, match=f"each token of the target, shape .{size},"):
            attention_entries(Attending(), tokenizer, PAIRS[1:2], token_ranks=wrong)


def test_own_pieces_of_a_beam_search_are_kept(tokenizer):
    letters = [i for letter in "Hund" for i in tokenizer.encode(letter)]
    entry = attention_entries(
        Attending(), tokenizer, PAIRS[1:2], target="output", target_ids=[letters]
    )[0]
    predicted = entry.header["tokens"]["decoder_output"]
    assert [token["text"] for token in predicted[:-1]] == [
        tokenizer.id_to_token(token) for token in letters
    ]
    empty = attention_entries(
        Attending(), tokenizer, [("a dog", "")], target="output", target_ids=[[]]
    )[0]
    assert empty.weights["cross"][0].shape[1] == 1


def test_alignments_are_kept_where_the_words_fit(tokenizer):
    model = Attending()
    links = [[(0, 0), (3, 3)], [(0, 0)], None]
    entries = attention_entries(model, tokenizer, PAIRS, alignments=links)
    assert [entry.header["alignment"] for entry in entries] == [[[0, 0], [3, 3]], [[0, 0]], None]
    others = attention_entries(
        model, tokenizer, PAIRS[1:2], target_ids=[tokenizer.encode("Hund")], alignments=[[(0, 0)]]
    )
    assert others[0].header["alignment"] is None  # one word was found, the text has two


def test_a_diverged_model_is_refused(tokenizer):
    with pytest.raises(FloatingPointError, match="diverged"):
        attention_entries(Attending(np.nan), tokenizer, PAIRS)
