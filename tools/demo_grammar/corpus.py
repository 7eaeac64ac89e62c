"""The splits of the `demo` corpus: held-out parts combine words as the training part never does.

Which combinations those are is decided by a hash of the two words.
"""

from __future__ import annotations

import collections
import functools
import hashlib
from typing import NamedTuple

from tools.demo_grammar.links import Link, traced, unmarked, word_links
from tools.demo_grammar.sampler import Combination, Sampler
from tools.demo_grammar.sentences import WEIGHTED, finish

TRAINING_PAIRS = 10_000
HELD_OUT_PAIRS = {"validation": 400, "test": 500}
ENGLISH_WORDS = range(5, 21)
# One combination in so many is kept for the test, another for validation.
COMBINATIONS_PER_HELD_OUT = 40
# A held-out sentence has only word forms that occur so often in training, in its capitalisation.
MINIMUM_OCCURRENCES = 3


class DemoExample(NamedTuple):
    """A sentence pair and what the grammar knows of it.

    Attributes:
        source: English sentence.
        target: Its German translation.
        construction: What it was drawn from.
        combinations: Lexemes that it combines.
        marked: Both sentences with the marks of `links`.
    """

    source: str
    target: str
    construction: str
    combinations: frozenset[Combination]
    marked: tuple[str, str]

    @property
    def links(self) -> tuple[Link, ...]:
        """Which German word came from which English one: pairs of indices, first of an English word.

        Words are those between spaces; punctuation at their ends is a word of its own.
        """
        return word_links(*self.marked)


@functools.cache
def split_of(combination: Combination) -> str:
    """Part of the corpus that a combination is reserved for; "train" if for none.

    >>> split_of(Combination("attribute", "old", "king"))
    'train'
    """
    digest = hashlib.sha256(" ".join(combination).encode()).digest()
    bucket = int.from_bytes(digest[:4], "big") % COMBINATIONS_PER_HELD_OUT
    return {0: "test", 1: "validation"}.get(bucket, "train")


@functools.cache
def demo_examples(seed: int = 0) -> dict[str, tuple[DemoExample, ...]]:
    """Return the splits "train", "validation" and "test" of the demo corpus.

    Args:
        seed: Another seed gives other sentences with the same held-out combinations.

    Returns:
        Examples by split: 10,000, 400 and 500, all different.

    >>> splits = demo_examples()
    >>> {split: len(examples) for split, examples in splits.items()}
    {'train': 10000, 'validation': 400, 'test': 500}
    """
    sampler = Sampler(seed)
    splits: dict[str, list[DemoExample]] = {"train": [], "validation": [], "test": []}
    seen = set()
    while len(splits["train"]) < TRAINING_PAIRS or any(
        len(splits[split]) < 1.3 * size for split, size in HELD_OUT_PAIRS.items()
    ):
        example = _draw(sampler)
        if len(example.source.split()) in ENGLISH_WORDS and example[:2] not in seen:
            seen.add(example[:2])
            reserved = {split_of(combination) for combination in example.combinations}
            split = next(
                name for name in ("test", "validation", "train") if name in reserved | {"train"}
            )
            splits[split].append(example)
    train = tuple(splits["train"][:TRAINING_PAIRS])
    counts = collections.Counter(word for example in train for word in word_forms(example))
    known = {word for word, count in counts.items() if count >= MINIMUM_OCCURRENCES}
    held_out = {
        split: tuple(e for e in splits[split] if known.issuperset(word_forms(e)))[:size]
        for split, size in HELD_OUT_PAIRS.items()
    }
    return {"train": train, **held_out}


def word_forms(example: DemoExample) -> set[tuple[str, str]]:
    """Words of both sides, cased, without punctuation, marked by their side."""
    source, target = (text.rstrip(".?").replace(",", "").split() for text in example[:2])
    return {("source", word) for word in source} | {("target", word) for word in target}


def _draw(sampler: Sampler) -> DemoExample:
    sentence = None
    while sentence is None:
        sampler.combinations = set()
        construction = sampler.pick(WEIGHTED)
        with traced():
            sentence = construction(sampler)
    english, german = map(finish, sentence)
    return DemoExample(
        unmarked(english),
        unmarked(german),
        construction.__name__,
        frozenset(sampler.combinations),
        (english, german),
    )
