"""Word alignments and token scores of translations, against loops over words and a softmax in NumPy."""

import copy
import dataclasses
import types

import keras
import numpy as np
import pytest

from keras_attention import Tokenizer, Transformer, Translation, Translator
from keras_attention.recipes.aligning import alignment_figures, with_details
from tests.helpers import log_probabilities

pytestmark = pytest.mark.backends(
    "torch"
)  # the attention of each backend: ../models/test_transformer.py

TEXTS = ["the old house", "", "a dog, asleep", "cats and dogs see the old red house"]
TRAINING = [*TEXTS, "das alte Haus", "ein Hund, der schläft"]


@pytest.fixture(scope="module")
def translator():
    keras.utils.set_random_seed(3)
    tokenizer = Tokenizer.train(TRAINING * 3, vocabulary_size=310)
    model = Transformer(
        tokenizer.vocabulary_size, num_layers=2, hidden_dim=16, intermediate_dim=24, num_heads=4
    )
    random = np.random.default_rng(5)
    for weight in model.weights:
        if "seed" not in weight.path:
            mean = float(weight.path.endswith("gamma"))
            weight.assign(mean + random.normal(0.0, 0.4, weight.shape))
    return Translator(
        model,
        tokenizer,
        beam_size=3,
        max_extra_length=4,
        engine=keras.backend.backend(),
        show_progress=False,
    )


def words_of(tokenizer, ids, side):
    """The positions of each word between spaces: those of its pieces, from "▁" to the next."""
    words = []
    for position, token in enumerate(ids):
        piece = tokenizer.id_to_token(token, side)
        if token == tokenizer.end_token_id:
            continue
        if piece.startswith("▁") or not words:
            words.append([])
        words[-1].append(position)
    return words


def expected_links(translator, text, translation, head):
    model, tokenizer = translator.model, translator.tokenizer
    source = [*tokenizer.encode(text), 1]
    target = [*translation.token_ids, 1]
    layers = model.attention_scores(np.array([source]), np.array([[0, *target]]))["cross"]
    heads = np.stack([keras.ops.convert_to_numpy(layer)[0] for layer in layers])
    weights = heads.mean(axis=(0, 1)) if head is None else heads[head]
    links = []
    for number, word in enumerate(words_of(tokenizer, target, "target")):
        sums = []
        for read in words_of(tokenizer, source, "source"):
            sums.append(sum(weights[t + 1, s] for t in word for s in read) / len(word))
        links.append((int(np.argmax(sums)), number))
    return tuple(links)


def expected_scores(translator, text, translation):
    target = [*translation.token_ids, 1]
    count = len(target) - (not translation.is_finished)
    source = [*translator.tokenizer.encode(text), 1]
    return log_probabilities(translator.model, source, target)[:count]


def test_links_and_scores(translator):
    linked = 0
    for head in (None, (0, 1), (0, 3), (1, 2)):
        linked += check_details(translator, head)
    assert linked  # Else one source word would do for all.


def check_details(translator, head):
    """How many translations are linked with several source words."""
    tokenizer = translator.tokenizer
    # What an untrained model says is one long word.
    said = [
        ("das alte Haus", True),
        ("", True),
        ("ein Hund, der schläft", False),
        ("alte Haus", True),
    ]
    found = [
        [Translation(text, 0.0, tuple(tokenizer.encode(text)), finished), *best[:1]]
        for (text, finished), best in zip(said, translator.translate(TEXTS), strict=True)
    ]
    detailed = with_details(translator, TEXTS, found, head)
    linked = 0
    for text, plain, rows in zip(TEXTS, found, detailed, strict=True):
        assert [(row.text, row.score, row.token_ids) for row in rows] == [
            (row.text, row.score, row.token_ids) for row in plain
        ]
        for row in rows:
            if not text:
                assert row.alignment == row.token_scores == ()
                continue
            assert row.alignment == expected_links(translator, text, row, head)
            expected = expected_scores(translator, text, row)
            np.testing.assert_allclose(row.token_scores, expected, rtol=1e-3, atol=1e-5)
            if row.score:
                penalty = ((5 + len(expected)) / 6) ** 0.6 if row.is_finished else 1
                assert sum(row.token_scores) / penalty == pytest.approx(row.score, rel=1e-3)
            linked += len({source for source, _ in row.alignment}) > 1
    return linked


def best_head(translator, pair, links):
    """The head and the rows that have just the links of this pair."""
    corpus = types.SimpleNamespace(
        alignments={pair: links}, splits={"validation": [pair], "test": [pair]}
    )
    found = alignment_figures(corpus, "test", translator.model, translator.tokenizer, None)
    assert found["error_rate"] == 0.0 and found["sentences"] == 1
    return found["head"], found["rows"]


@pytest.mark.parametrize(("rows_are", "shift"), [("read", 1), ("predicted", 0)])
def test_the_head_that_aligns_best(translator, rows_are, shift):
    """The true links are those of one head and its rows, so its error rate is 0; no other has them."""
    text, target = "the old red house sees cats", "das alte rote Haus sieht Katzen"
    model, tokenizer = translator.model, translator.tokenizer
    source, ids = [*tokenizer.encode(text), 1], [*tokenizer.encode(target), 1]
    layers = model.attention_scores(np.array([source]), np.array([[0, *ids[:-1]]]))["cross"]
    weights = keras.ops.convert_to_numpy(layers[0])[0, 0]
    rows, columns = words_of(tokenizer, ids, "target"), words_of(tokenizer, source, "source")
    links = [
        (int(np.argmax([sum(weights[t + shift, s] for t in row for s in c) for c in columns])), n)
        for n, row in enumerate(rows)
    ]
    assert best_head(translator, (text, target), links) == ([0, 0], rows_are)
    found = [[Translation(target, 0.0, tuple(ids[:-1]), True)]]
    known = dataclasses.replace(translator, card={"alignment": {"head": [0, 0], "rows": rows_are}})
    # The card's rows are those of its head alone.
    for asked, options, is_same in (
        (known, {}, True),
        (known, {"head": (0, 0)}, True),
        (translator, {"head": (0, 0), "rows": rows_are}, True),
        (
            known,
            {"head": (0, 0), "rows": {"read": "predicted", "predicted": "read"}[rows_are]},
            False,
        ),
    ):
        [[detailed]] = with_details(asked, [text], found, **options)
        assert ([*detailed.alignment] == links) == is_same


def test_a_prefix_of_sources_is_no_word_of_them(translator):
    """Neither in the links of translations, nor in those that choose a head."""
    tokenizer = copy.copy(translator.tokenizer)
    tokenizer.source_prefix = "cats and"
    model, text, target = translator.model, "the old red house", "das alte Haus"
    ids = tokenizer.encode(target, side="target")
    found = [[Translation(target, 0.0, tuple(ids), True)]]
    prefixed = dataclasses.replace(translator, tokenizer=tokenizer)
    links = with_details(prefixed, [text], found, (0, 1))[0][0].alignment
    source = [*translator.tokenizer.encode(f"cats and {text}"), 1]
    layers = model.attention_scores(np.array([source]), np.array([[0, *ids]]))["cross"]
    weights = keras.ops.convert_to_numpy(layers[0])[0, 1]
    columns = words_of(tokenizer, source, "source")[2:]
    expected = [
        (int(np.argmax([sum(weights[t + 1, s] for t in row for s in c) for c in columns])), number)
        for number, row in enumerate(words_of(tokenizer, ids, "target"))
    ]
    assert list(links) == expected
    head, rows = best_head(prefixed, (text, target), expected)
    assert with_details(prefixed, [text], found, head, rows)[0][0].alignment == links


def test_translations_as_long_as_learned_positions_allow():
    tokenizer = Tokenizer.train(TRAINING * 3, vocabulary_size=310)
    model = Transformer(
        tokenizer.vocabulary_size,
        num_layers=1,
        hidden_dim=8,
        intermediate_dim=12,
        num_heads=2,
        position_layout="learned",
        max_length=10,
    )
    translator = Translator(model, tokenizer, show_progress=False)
    ids = tokenizer.encode("das alte Haus das alte Haus das alte Haus das alte Haus")
    for number, finished in ((9, True), (10, False)):
        given = Translation(tokenizer.decode(ids[:number]), -1.0, tuple(ids[:number]), finished)
        [[detailed]] = with_details(translator, ["a dog"], [[given]])
        assert len(detailed.token_scores) == 10
        assert len(detailed.alignment) == len(given.text.split())


def test_refusals(translator):
    found = translator.translate(TEXTS)
    with pytest.raises(ValueError, match="a layer from 0 to 1 and a head from 0 to 3"):
        with_details(translator, TEXTS, found, (2, 0))
    known = dataclasses.replace(translator, card={"alignment": {"head": 3, "rows": None}})
    for head in (3, None):
        with pytest.raises(ValueError, match="a layer from 0 to 1 and a head from 0 to 3"):
            with_details(known, TEXTS, found, head)
    with pytest.raises(ValueError, match="`rows` must be one of"):
        with_details(translator, TEXTS, found, (1, 0), "written")
    for texts, translations, named in (
        *((wrong, found, "`texts`") for wrong in (3, None, "a dog", [3])),
        *((TEXTS, wrong, "`translations") for wrong in (3, None, [3], [["ein Hund"]])),
    ):
        with pytest.raises(ValueError, match=named):
            with_details(translator, texts, translations, (1, 0))
    with pytest.raises(ValueError, match="4 texts, 1 lists"):
        with_details(translator, TEXTS, found[:1])
    light = Translator(
        translator.model.spec().map_weights(keras.ops.convert_to_numpy),
        translator.tokenizer,
        show_progress=False,
    )
    with pytest.raises(ValueError, match="whose attention can be read"):
        with_details(light, TEXTS, found)
