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
from parsing.trees import unescape_word

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
        quote_tags: Tags of quotation marks. If the numbers of words differ, one that only one of the two
            trees deletes is put back.
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
        status: `"valid"`, `"error"` where the words are not those of the gold tree or a word has no tag of
            its own, `"skipped"` where there is no parse.
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
            Empty phrases do not count.
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
    """Count the brackets of one sentence; see `bracketing_f1`."""
    one, other = _Sentence(gold, rules), _Sentence(parse, rules)
    has_parse = bool(other.words)
    if has_parse and len(one.words) != len(other.words):
        _put_back_quotes(one, other, rules)
    gold_spans = _spans(one.brackets, rules)
    if not has_parse or not (one.is_whole and other.is_whole and _same_words(one, other, rules)):
        status: Literal["error", "skipped"] = "error" if has_parse else "skipped"
        return SentenceScore(status, one.length, 0, len(gold_spans), 0, 0, 0, 0)
    spans = _spans(other.brackets, rules)
    matched = collections.Counter(gold_spans) & collections.Counter(spans)
    tags = rules.equal_labels
    return SentenceScore(
        "valid",
        length=one.length,
        matched=matched.total(),
        gold=len(gold_spans),
        parsed=len(spans),
        crossing=sum(_crosses(span, gold_spans) for span in spans),
        words=len(one.words),
        correct_tags=sum(
            tags.get(a, a) == tags.get(b, b)
            for (_, a), (_, b) in zip(one.words, other.words, strict=True)
        ),
    )


@dataclasses.dataclass(eq=False)
class _Quote:
    """A quotation mark, deleted or not, with its tag.

    Attributes:
        place: Number of words before it, deleted ones not counted.
        above: Numbers of the brackets that it is in.
        before: Number of brackets that open before it.
    """

    word: str
    tag: str
    place: int
    above: tuple[int, ...]
    before: int


class _Sentence:
    """What EVALB reads of a tree.

    Attributes:
        words: Words with their tags; those with a deleted tag are left out.
        brackets: `[label, start, end]` over these words, in the order in which they open.
        quotes: Quotation marks, deleted or not.
        length: Number of words, punctuation counted.
        is_whole: Whether each word has a tag of its own. EVALB calls other sentences errors.
    """

    def __init__(self, tree: Any, rules: BracketingRules) -> None:
        self.words: list[tuple[str, str]] = []
        self.brackets: list[list[Any]] = []
        self.quotes: list[_Quote] = []
        self.length = 0
        self.is_whole = True
        roots = [] if tree is None else [tree] if hasattr(tree, "label") else tree
        for root in check_iterable("tree", roots):
            self._read(root, (), rules)

    def _read(self, node: Any, above: tuple[int, ...], rules: BracketingRules) -> None:
        if isinstance(node, str):
            self.is_whole = False
            return
        check_has("tree", node, "an nltk.Tree, a list of them, or None", "label")
        if len(node) == 1 and isinstance(node[0], str):
            self._read_word(node[0], node.label(), above, rules)
            return
        number, bracket = len(self.brackets), [node.label(), len(self.words), len(self.words)]
        self.brackets.append(bracket)
        for child in node:
            self._read(child, (*above, number), rules)
        bracket[2] = len(self.words)

    def _read_word(
        self, word: str, tag: str, above: tuple[int, ...], rules: BracketingRules
    ) -> None:
        self.length += tag != TRACE
        if word in QUOTES and tag in rules.quote_tags:
            quote = _Quote(word, tag, len(self.words), above, len(self.brackets))
            self.quotes.append(quote)
        if tag not in rules.deleted_labels:
            self.words.append((word, tag))

    def put_back(self, quote: _Quote) -> None:
        """Insert one of its quotation marks among the words."""
        self.words.insert(quote.place, (quote.word, quote.tag))
        for number, bracket in enumerate(self.brackets):
            is_later = number >= quote.before
            bracket[1] += is_later
            bracket[2] += is_later or number in quote.above
        for later in self.quotes[self.quotes.index(quote) :]:
            later.place += 1


def _put_back_quotes(one: _Sentence, other: _Sentence, rules: BracketingRules) -> None:
    """EVALB's repair of 2006, in its order: what one tree keeps is put back in the tree that deletes it."""
    for quote in other.quotes:
        place = quote.place
        for gold_quote in one.quotes:
            if gold_quote.place != place or gold_quote.tag == quote.tag:
                continue
            deleted = [q.tag in rules.deleted_labels for q in (gold_quote, quote)]
            if deleted == [True, False]:
                one.put_back(gold_quote)
            elif deleted == [False, True]:
                other.put_back(quote)


def _same_words(one: _Sentence, other: _Sentence, rules: BracketingRules) -> bool:
    """Whether both have the same words; `(` and the treebank's name for it are the same."""
    equal = rules.equal_words
    first, second = (
        [equal.get(word, word) for word in (unescape_word(w) for w, _ in sentence.words)]
        for sentence in (one, other)
    )
    return first == second


def _spans(brackets: Iterable[Sequence[Any]], rules: BracketingRules) -> list[tuple[str, int, int]]:
    """Return the brackets that count."""
    spans = []
    for whole, start, end in brackets:
        label = re.split("[-=]", whole, maxsplit=1)[0]
        # Of the label -LRB- nothing is left, but it is not that of the outermost bracket.
        is_deleted = label in rules.deleted_labels and bool(label or not whole)
        if start < end and not is_deleted:
            spans.append((rules.equal_labels.get(label, label), start, end))
    return spans


def _crosses(span: tuple[str, int, int], others: Iterable[tuple[str, int, int]]) -> bool:
    _, start, end = span
    return any(a < start < b < end or start < a < end < b for _, a, b in others)


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0
