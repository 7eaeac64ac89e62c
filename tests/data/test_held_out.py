"""Held-out parts: checked on sets of pairs, without the hash that chooses them."""

import unicodedata

import pytest

from keras_attention import ParallelText, corpus_from_files
from keras_attention.data import FilteredText, Filters
from keras_attention.data.held_out import found_in, hold_out
from keras_attention.recipes.messages import corpus_text

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


def test_sources_count_alone():
    same_target = [(f"sentence {i}", "eins") for i in range(100)]
    assert len(list(hold_out(same_target, {"validation": 9})["validation"])) == 9
    translated_twice = numbered(40) + [(source, f"anders {source}") for source, _ in numbered(40)]
    parts = lists(hold_out(translated_twice, {"validation": 6, "test": 5}))
    assert {name: len(part) for name, part in parts.items()} == {
        "validation": 12, "test": 10, "train": 58,
    }  # fmt: skip
    assert not {pair[0] for pair in parts["train"]} & {pair[0] for pair in parts["test"]}


def test_tags_are_no_part_of_a_source():
    tagged = [
        (f"{tag} {source}", f"{tag} {i}")
        for tag in ("<2de>", "\ufeff<2fr>\u200b<bt>\u2581", ">>ita<<")
        for i, (source, _) in enumerate(numbered(40))
    ]
    parts = lists(hold_out(tagged, {"validation": 6, "test": 5}))
    assert {name: len(part) for name, part in parts.items()} == {
        "validation": 18, "test": 15, "train": 87,
    }  # fmt: skip
    german, french = tagged[:40], tagged[40:80]
    assert found_in(german, {"test": french[:7]}) == {"test": {"different": 7, "trained": 7}}


def test_what_has_no_text_on_one_side_is_not_counted():
    pairs = list(numbered(40))
    empty = [(pairs[8][0], " "), ("", "x")]
    assert found_in(pairs[:8], {"test": [*empty, pairs[2]]})["test"]["different"] == 1
    assert found_in([*pairs[:8], *empty], {"test": pairs[6:]})["test"]["trained"] == 2


# Each shows the same sentence to a reader.
DISGUISES = {
    "trailing space": lambda text: f"{text} ",
    "leading space": lambda text: f"\u3000{text}",
    "double space": lambda text: text.replace(" ", "  "),
    "no-break space": lambda text: text.replace(" ", "\u00a0"),
    "tab": lambda text: text.replace(" ", "\t"),
    "NFD": lambda text: unicodedata.normalize("NFD", text),
    "zero width space": lambda text: text.replace("z", "z\u200b"),
    "byte order mark": lambda text: f"\ufeff{text}",
    "soft hyphen": lambda text: text.replace("z", "z\u00ad"),
    "direction mark": lambda text: f"\u200e{text}\u202c",
}


def zoo(count, disguise=str):
    return [(disguise(f"zoo\u00e9 im {i}"), disguise(f"\u00fcber zoo {i}")) for i in range(count)]


@pytest.mark.parametrize("disguise", DISGUISES.values(), ids=DISGUISES)
def test_a_pair_in_disguise_is_the_same_pair(disguise, tmp_path):
    other = zoo(200, disguise)
    assert not {*zoo(200)} & {*other}
    pairs = zoo(200) + other
    text = FilteredText(ParallelText("zoo", pairs), Filters(drop_duplicates=True))
    assert list(text) == zoo(200)
    files = write(tmp_path / "train", pairs)
    corpus = corpus_from_files(files, validation_size=9, test_size=40)
    assert [len(corpus.splits[name]) for name in ("train", "validation", "test")] == [302, 18, 80]
    numbers = {
        split: {source.rstrip("\u202c ").split()[-1] for source in part.sources()}
        for split, part in corpus.splits.items()
    }
    assert [len(found) for found in numbers.values()] == [151, 9, 40]
    assert not numbers["train"] & (numbers["validation"] | numbers["test"])
    assert corpus.also_trained["test"] == {"different": 40, "trained": 0}
    # Files of their own: what they share with the training text is counted, a copy of it refused.
    shared = write(tmp_path / "shared", [*other[:7], *((f"new {i}", "neu") for i in range(4))])
    corpus = corpus_from_files(write(tmp_path / "one", zoo(200)), validation_size=9, test=shared)
    (counts,) = [corpus.also_trained["test"]]
    held_out = {int(source.split()[-1]) for source in corpus.validation.sources()}
    assert counts == {"different": 11, "trained": len({*range(7)} - held_out)}
    assert f"{counts['trained']} of 11 test sources" in corpus_text(corpus)
    for part in ("validation", "test"):
        with pytest.raises(ValueError, match=f"`{part}` must not be .* Received: 30 different"):
            corpus_from_files(files, **{part: write(tmp_path / part, other[:30])})


def write(stem, pairs):
    files = stem.with_suffix(".en"), stem.with_suffix(".de")
    for side, file in enumerate(files):
        file.write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8", newline="")
    return files


def test_default_sizes():
    def held(count):
        parts = lists(hold_out(numbered(count), {"validation": None, "test": None}))
        return len(parts["validation"]), len(parts["test"]), len(parts["train"])

    assert held(3) == (1, 1, 1)
    assert held(300) == (15, 15, 270)
    assert held(21_000) == (1000, 1000, 19_000)


def test_blank_sides_are_never_held_out():
    blank = [("\u200b\ufeff", f"leer {i}") for i in range(20)]
    pairs = [*numbered(30), *blank, ("empty", ""), ("blank", " ")]
    parts = lists(hold_out(pairs, {"validation": 6, "test": 0}))
    assert set(parts) == {"validation", "train"}
    assert not {*parts["validation"]} - {*numbered(30)}
    assert len(parts["validation"]) == 6 and len(parts["train"]) == 46


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
    with pytest.raises(ValueError, match="Cannot hold out 4 pairs.* only 4 different sources"):
        hold_out(numbered(4) * 2, {"validation": 3, "test": 1})
    with pytest.raises(ValueError, match="only 1 different sources"):
        hold_out(numbered(1), {"validation": None})
