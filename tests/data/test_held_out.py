"""Held-out parts: checked on sets of pairs, without the hash that chooses them."""

import pytest

from keras_attention.data.held_out import hold_out

pytestmark = pytest.mark.backends("tensorflow")


def numbered(count):
    return [(f"sentence {i}", f"Satz {i}") for i in range(count)]


def lists(parts):
    return {name: list(part) for name, part in parts.items()}


def test_parts_are_a_partition():
    pairs = numbered(400)
    parts = lists(hold_out(pairs, {"validation": 30, "test": 7}))
    assert {name: len(part) for name, part in parts.items()} == {
        "validation": 30, "test": 7, "train": 363,
    }  # fmt: skip
    assert sorted(parts["validation"] + parts["test"] + parts["train"]) == sorted(pairs)
    for part in parts.values():  # the order of the file is kept
        assert part == sorted(part, key=pairs.index)
    # Chosen all over the file, not from one end.
    positions = [pairs.index(pair) for pair in parts["validation"]]
    assert min(positions) < 100 and max(positions) > 300


def test_order_does_not_matter():
    pairs = numbered(200)
    sizes = {"validation": 11, "test": 13}
    forward, backward = lists(hold_out(pairs, sizes)), lists(hold_out(pairs[::-1], sizes))
    assert {name: set(part) for name, part in forward.items()} == {
        name: set(part) for name, part in backward.items()
    }
    assert forward["test"] == backward["test"][::-1]


def test_both_sides_count():
    same_source = [("one", f"Satz {i}") for i in range(100)]
    same_target = [(f"sentence {i}", "eins") for i in range(100)]
    for pairs in (same_source, same_target):
        assert len(list(hold_out(pairs, {"validation": 9})["validation"])) == 9


def test_equal_pairs_go_to_the_same_part():
    pairs = numbered(50) * 3
    parts = lists(hold_out(pairs, {"validation": 4, "test": 5}))
    sets = {name: set(part) for name, part in parts.items()}
    assert [len(sets[name]) for name in ("validation", "test", "train")] == [4, 5, 41]
    assert not sets["validation"] & sets["train"] and not sets["test"] & sets["train"]
    assert not sets["validation"] & sets["test"]
    assert len(parts["validation"]) == 12


def test_default_sizes():
    def held(count):
        parts = lists(hold_out(numbered(count), {"validation": None, "test": None}))
        return len(parts["validation"]), len(parts["test"]), len(parts["train"])

    assert held(3) == (1, 1, 1)
    assert held(300) == (15, 15, 270)
    assert held(21_000) == (1000, 1000, 19_000)


def test_blank_sides_are_never_held_out():
    pairs = [*numbered(30), *((" ", f"leer {i}") for i in range(20)), ("empty", "")]
    parts = lists(hold_out(pairs, {"validation": 6, "test": 0}))
    assert set(parts) == {"validation", "train"}
    assert all(source.strip() and target.strip() for source, target in parts["validation"])
    assert len(parts["validation"]) == 6 and len(parts["train"]) == 45


def test_lines_that_are_no_sentences_are_never_held_out():
    long = [(f"word {i} " + "x" * 2000, f"Wort {i}") for i in range(20)]
    pairs = [*numbered(30), *long, *((target, source) for source, target in long)]
    parts = lists(hold_out(pairs, {"validation": 6, "test": 5}))
    assert all(
        max(map(len, pair)) <= 2000 for name in parts if name != "train" for pair in parts[name]
    )
    assert {name: len(part) for name, part in parts.items()} == {
        "validation": 6, "test": 5, "train": 59,
    }  # fmt: skip


def test_nothing_to_hold_out():
    assert hold_out(numbered(5), {}) == {}
    assert hold_out(numbered(5), {"test": 0}) == {}


def test_too_few_pairs():
    with pytest.raises(ValueError, match="Cannot hold out 4 pairs.* only 4 different pairs"):
        hold_out(numbered(4) * 2, {"validation": 3, "test": 1})
    with pytest.raises(ValueError, match="only 1 different pairs"):
        hold_out(numbered(1), {"validation": None})
