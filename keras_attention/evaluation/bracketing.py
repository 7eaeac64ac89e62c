"""Labelled bracketing F1 by the rules of EVALB (Sekine & Collins), the measure of the paper's Table 4.

A bracket is a phrase: its label, and the words that it spans. Punctuation and traces are deleted first,
labels lose their functions, and brackets are matched as multisets. Totals are over all brackets, not means
over sentences.

EVALB leaves sentences without a valid parse out of its totals, so a parser can gain by failing. Both
figures are given: EVALB's own, and one in which a failed sentence counts as having no brackets.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from keras_attention.utils.checks import check_has, check_iterable

TRACE = "-NONE-"
# The words of EVALB's repair of 2006: they are deleted if they are tagged as quotation marks, else kept.
QUOTES = ("'", '"', "/")


@dataclasses.dataclass(frozen=True)
class BracketingRules:
    """The rules of EVALB's parameter file; by default `COLLINS.prm`, with the quotation marks of `new.prm`.

    Attributes:
        deleted_labels: Words with such a tag are left out, and phrases with such a label do not count. The
            outermost bracket, which has no label in the Penn Treebank, is included.
        equal_labels: Maps a label to the label that it counts as.
        equal_words: Maps a word to the word that it counts as.
        quote_tags: Tags of quotation marks. If they make the number of words differ, a word that only one
            of the two trees deletes is put back.
        longest: Most words of a sentence in the second table; traces do not count.
    """

    deleted_labels: frozenset[str] = frozenset({"", "TOP", TRACE, ",", ":", "``", "''", "."})
    equal_labels: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: MappingProxyType({"PRT": "ADVP"})
    )
    equal_words: Mapping[str, str] = dataclasses.field(default_factory=dict)
    quote_tags: frozenset[str] = frozenset({"``", "''", "POS", "NN", "CD", "VBZ", ":"})
    longest: int = 40


COLLINS = BracketingRules()


@dataclasses.dataclass(frozen=True)
class SentenceScore:
    """One sentence: a line of EVALB's table.

    Attributes:
        status: `"valid"`, `"error"` where the words are not those of the gold tree, `"skipped"` where
            there is no parse.
        length: Words of the gold tree, punctuation counted.
        matched, gold, parsed: Brackets in both trees, in the gold tree, in the parse. If the sentence is
            not valid, only `gold` is above 0.
        crossing: Brackets of the parse that cross one of the gold tree.
        words, correct_tags: Words after deletion, and those with the right tag.
    """

    status: Literal["valid", "error", "skipped"]
    length: int
    matched: int
    gold: int
    parsed: int
    crossing: int
    words: int
    correct_tags: int


@dataclasses.dataclass(frozen=True)
class BracketingScore:
    """Totals over sentences. Ratios are in percent.

    Attributes:
        sentences, errors, skipped: Number of sentences, and how many of them are not valid.
        matched, gold, parsed: Brackets of the valid sentences.
        gold_of_failed: Brackets in the gold trees of the other sentences.
        complete, crossing, no_crossing, few_crossing: Sentences with all brackets right; crossing brackets;
            sentences with no crossing bracket, and with at most two.
        words, correct_tags: Of the valid sentences.
    """

    sentences: int
    errors: int
    skipped: int
    matched: int
    gold: int
    parsed: int
    gold_of_failed: int
    complete: int
    crossing: int
    no_crossing: int
    few_crossing: int
    words: int
    correct_tags: int

    @classmethod
    def of(cls, scores: Iterable[SentenceScore]) -> BracketingScore:
        """Totals of some sentences."""
        scores = list(scores)
        valid = [score for score in scores if score.status == "valid"]
        number = collections.Counter(score.status for score in scores)
        names = ("matched", "gold", "parsed", "crossing", "words", "correct_tags")
        return cls(
            sentences=len(scores),
            errors=number["error"],
            skipped=number["skipped"],
            gold_of_failed=sum(score.gold for score in scores) - sum(s.gold for s in valid),
            complete=sum(score.matched == score.gold == score.parsed for score in valid),
            no_crossing=sum(score.crossing == 0 for score in valid),
            few_crossing=sum(score.crossing <= 2 for score in valid),
            **{name: sum(getattr(score, name) for score in valid) for name in names},
        )

    @property
    def valid(self) -> int:
        """Sentences that count in EVALB's totals."""
        return self.sentences - self.errors - self.skipped

    @property
    def recall(self) -> float:
        """Matched brackets among those of the gold trees."""
        return _percent(self.matched, self.gold)

    @property
    def precision(self) -> float:
        """Matched brackets among those of the parses."""
        return _percent(self.matched, self.parsed)

    @property
    def f1(self) -> float:
        """EVALB's F: the harmonic mean of recall and precision, over valid sentences only."""
        return _percent(2 * self.matched, self.gold + self.parsed)

    @property
    def f1_of_all(self) -> float:
        """F over all sentences: a failed sentence counts as a parse without brackets."""
        return _percent(2 * self.matched, self.gold + self.gold_of_failed + self.parsed)

    @property
    def tagging_accuracy(self) -> float:
        """Right tags, punctuation left out."""
        return _percent(self.correct_tags, self.words)

    def summary(self) -> dict[str, float | int]:
        """EVALB's summary, and `f1_of_all`."""
        return {
            "sentences": self.sentences,
            "errors": self.errors,
            "skipped": self.skipped,
            "valid": self.valid,
            "recall": self.recall,
            "precision": self.precision,
            "f1": self.f1,
            "f1_of_all": self.f1_of_all,
            "complete_match": _percent(self.complete, self.valid),
            "average_crossing": self.crossing / self.valid if self.valid else 0.0,
            "no_crossing": _percent(self.no_crossing, self.valid),
            "two_or_less_crossing": _percent(self.few_crossing, self.valid),
            "tagging_accuracy": self.tagging_accuracy,
        }


def bracketing_f1(
    golds: Sequence[Any], parses: Sequence[Any], rules: BracketingRules = COLLINS
) -> dict[str, BracketingScore]:
    """Scores parses against gold trees.

    Args:
        golds: `nltk.Tree` of each sentence, as the treebank has it or stripped.
        parses: For each sentence a tree, a list of several trees side by side, or None without a parse.
        rules: What is deleted and what counts as equal.

    Returns:
        A dict: `"all"`, and `"short"` for the sentences of at most `rules.longest` words.

    Raises:
        ValueError: If their numbers differ, or there are none.

    >>> from nltk import Tree
    >>> gold = Tree.fromstring("(S (NP (NN Time)) (VP (VBZ flies)) (. .))")
    >>> parse = Tree.fromstring("(S (NP (NN Time) (NNS flies)) (. .))")
    >>> score = bracketing_f1([gold, gold], [parse, None])["all"]
    >>> score.f1, round(score.f1_of_all, 1)  # of 1 of 3, 2 brackets; 3 more in the second sentence
    (40.0, 25.0)
    """
    golds = list(check_iterable("golds", golds))
    parses = list(check_iterable("parses", parses))
    check_has("rules", rules, "BracketingRules", "deleted_labels", "longest")
    if len(golds) != len(parses) or not golds:
        raise ValueError(
            "A parse, or None, is needed for each gold tree, and at least one. "
            f"Received: {len(golds)} gold trees, {len(parses)} parses"
        )
    scores = [
        bracketing_counts(gold, parse, rules) for gold, parse in zip(golds, parses, strict=True)
    ]
    return {
        "all": BracketingScore.of(scores),
        "short": BracketingScore.of(score for score in scores if score.length <= rules.longest),
    }


def bracketing_counts(gold: Any, parse: Any, rules: BracketingRules = COLLINS) -> SentenceScore:
    """Counts the brackets of one sentence; see `bracketing_f1`."""
    gold_words, gold_brackets = _read(gold)
    words, brackets = _read(parse)
    kept_gold = [tag not in rules.deleted_labels for _, tag in gold_words]
    kept = [tag not in rules.deleted_labels for _, tag in words]
    if sum(kept_gold) != sum(kept) and len(kept_gold) == len(kept):
        _put_back(gold_words, words, kept_gold, kept, rules)
    gold_left = [pair for pair, keep in zip(gold_words, kept_gold, strict=True) if keep]
    left = [pair for pair, keep in zip(words, kept, strict=True) if keep]
    gold_spans = _spans(gold_brackets, kept_gold, rules)

    def failed(status: Literal["error", "skipped"]) -> SentenceScore:
        return SentenceScore(status, len(gold_words), 0, len(gold_spans), 0, 0, 0, 0)

    if not left:
        return failed("skipped")
    equal = rules.equal_words
    if [equal.get(w, w) for w, _ in gold_left] != [equal.get(w, w) for w, _ in left]:
        return failed("error")
    spans = _spans(brackets, kept, rules)
    matched = collections.Counter(gold_spans) & collections.Counter(spans)
    tags = rules.equal_labels
    return SentenceScore(
        "valid",
        length=len(gold_words),
        matched=matched.total(),
        gold=len(gold_spans),
        parsed=len(spans),
        crossing=sum(_crosses(span, gold_spans) for span in spans),
        words=len(left),
        correct_tags=sum(
            tags.get(a, a) == tags.get(b, b) for (_, a), (_, b) in zip(gold_left, left, strict=True)
        ),
    )


def _read(tree: Any) -> tuple[list[tuple[str, str]], list[tuple[str, int, int]]]:
    """Words with their tags, traces left out, and brackets over the places of the words."""
    words: list[tuple[str, str]] = []
    brackets: list[tuple[str, int, int]] = []

    def visit(node: Any) -> None:
        if isinstance(node[0], str):
            if node.label() != TRACE:
                words.append((node[0], node.label()))
            return
        place, start = len(brackets), len(words)
        brackets.append((node.label(), start, start))
        for child in node:
            visit(child)
        brackets[place] = (node.label(), start, len(words))

    if tree is not None:
        for root in [tree] if hasattr(tree, "label") else tree:
            visit(root)
    return words, brackets


def _put_back(
    gold_words: Sequence[tuple[str, str]],
    words: Sequence[tuple[str, str]],
    kept_gold: list[bool],
    kept: list[bool],
    rules: BracketingRules,
) -> None:
    """EVALB's repair of 2006: both trees keep quotation marks that only one of them deletes."""
    for place, ((word, gold_tag), (_, tag)) in enumerate(zip(gold_words, words, strict=True)):
        if word in QUOTES and gold_tag in rules.quote_tags and tag in rules.quote_tags:
            kept_gold[place] = kept[place] = kept_gold[place] or kept[place]


def _spans(
    brackets: Sequence[tuple[str, int, int]], kept: Sequence[bool], rules: BracketingRules
) -> list[tuple[str, int, int]]:
    """The brackets that count, over the words that are kept."""
    place = [0]  # of each word among those kept
    for keep in kept:
        place.append(place[-1] + keep)
    spans = []
    for label, start, end in brackets:
        label = re.split("[-=]", label, maxsplit=1)[0]
        if place[start] < place[end] and label not in rules.deleted_labels:
            spans.append((rules.equal_labels.get(label, label), place[start], place[end]))
    return spans


def _crosses(span: tuple[str, int, int], others: Iterable[tuple[str, int, int]]) -> bool:
    _, start, end = span
    return any(a < start < b < end or start < a < end < b for _, a, b in others)


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0
