"""Rows of heads: the strongest and some by chance, found here by going through all of them."""

import numpy as np
import pytest

from keras_attention_viewer import measured
from keras_attention_viewer.codec import RecordError, decode_header, encode_header
from keras_attention_viewer.examples import RANDOM_ROWS, STRONGEST_ROWS
from tests.viewer.entries import SOURCE, random_entry

pytestmark = pytest.mark.backends("torch")

SENTENCES, LAYERS, HEADS = 5, 2, 3


def made():
    rng = np.random.default_rng(40)
    return [random_entry(rng, layers=LAYERS, heads=HEADS) for _ in range(SENTENCES)]


def examples_of(entries):
    first, second = measured(entries[:2], entries[2:])
    assert "examples" not in second.header  # they are the same for all sentences
    return first.header["examples"]


def rows_by_strength(entries, kind, layer, head):
    """All rows of a head: [(strength, sentence, row, weights)], where a strength is that of a word."""
    found = []
    for number, entry in enumerate(entries):
        weights = entry.weights[kind][layer][head] / 65535
        for row, line in enumerate(weights):
            if kind == "decoder":
                words = line[1:]  # the start token is no word
                if row == 0:
                    continue  # and it can only read itself
            else:
                words = line[: len(SOURCE) - 1]  # the end token is none
            found.append((words.max(), number, row, line))
    return sorted(found, key=lambda one: -one[0])


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_strongest_rows_and_what_they_read(kind):
    entries = made()
    examples = examples_of(entries)
    assert len(examples["sentences"]) == SENTENCES
    assert examples["sentences"][0]["source"] == SOURCE
    for layer in range(LAYERS):
        for head in range(HEADS):
            strongest = examples["heads"][kind][layer][head]["strongest"]
            wanted = rows_by_strength(entries, kind, layer, head)[:STRONGEST_ROWS]
            assert [row[:2] for row in strongest] == [[n, row] for _, n, row, _ in wanted]
            for (_, _, read), (*_, line) in zip(strongest, wanted, strict=True):
                best = np.argsort(-line)[: len(read)]
                assert [column for column, _ in read] == best.tolist()
                np.testing.assert_allclose([weight for _, weight in read], line[best], atol=0.0051)


def test_rows_by_chance_are_the_same_for_all_heads_and_from_several_sentences():
    entries = made()
    heads = [head for layer in examples_of(entries)["heads"]["cross"] for head in layer]
    places = [[row[:2] for row in head["random"]] for head in heads]
    assert len(heads) == LAYERS * HEADS
    assert all(one == places[0] for one in places)
    assert len({tuple(place) for place in places[0]}) == RANDOM_ROWS
    assert len({sentence for sentence, _ in places[0]}) > 1
    assert places[0] == [row[:2] for row in examples_of(entries)["heads"]["cross"][0][0]["random"]]
    assert len({str(head["random"]) for head in heads}) == len(heads)  # each reads something else


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one.update(sentences=3), "sentences and heads"),
        (lambda one: one["sentences"][0].pop("source"), "should have the lists"),
        (lambda one: one["sentences"][1]["source"].append(7), "should be texts"),
        (lambda one: one["heads"].update(other=[]), "kinds that it does not have"),
        (lambda one: one["heads"]["cross"].pop(), "a row of a sentence"),
        (lambda one: one["heads"]["cross"][0][0].pop("random"), "a row of a sentence"),
        (lambda one: one["heads"]["cross"][0][1]["random"][0].__setitem__(0, SENTENCES), "a row"),
        (lambda one: one["heads"]["cross"][0][1]["random"][0].__setitem__(1, -1), "a row"),
        (
            lambda one: one["heads"]["encoder"][1][2]["strongest"][0][2].append([len(SOURCE), 0.1]),
            "a row",
        ),
        (lambda one: one["heads"]["encoder"][1][2]["strongest"][0][2].append([0, 1.5]), "a row"),
    ],
)
def test_damaged_examples_are_refused(change, message):
    header = measured(made())[0].header
    decode_header(encode_header(header))
    change(header["examples"])
    with pytest.raises(RecordError, match=message):
        decode_header(encode_header(header))
