"""Parsers to compare a Transformer with: right-branching trees, and a grammar read off a treebank.

Both are trained on trees from `strip_tree`, and called with the words of a sentence.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from parsing.trees import is_phrase

if TYPE_CHECKING:
    from nltk import Tree

# Separators in `nltk.Tree`'s Chomsky normal form: characters that no label of a treebank has.
FACTORED, UNARY, PARENT = "~", "+", "^"


class WordTags:
    """The most frequent tag of each word; for unknown words, the most frequent tag of their form.

    Args:
        trees: Training trees.
    """

    def __init__(self, trees: Iterable[Tree]) -> None:
        counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for tree in trees:
            for word, tag in tree.pos():
                counts[word][tag] += 1
        for word in [word for word, tags in counts.items() if tags.total() == 1]:
            counts[word_form(word)].update(counts[word])
        self._set({word: tags.most_common(1)[0][0] for word, tags in counts.items()})

    @classmethod
    def from_table(cls, of_word: Mapping[str, str]) -> WordTags:
        """Make it from a table of tags for words and forms, such as another's `of_word`."""
        self = cls.__new__(cls)
        self._set(of_word)
        return self

    def _set(self, of_word: Mapping[str, str]) -> None:
        self.of_word = dict(of_word)
        self.default = collections.Counter(self.of_word.values()).most_common(1)[0][0]

    def __call__(self, words: Sequence[str]) -> list[str]:
        """Return a tag for each word."""
        known = self.of_word
        return [known.get(word) or known.get(word_form(word), self.default) for word in words]


class RightBranching:
    """Every phrase begins one word later and ends with the sentence; punctuation begins no phrase.

    Labels are the most frequent ones in training, for the whole tree and for phrases that end with it.

    Args:
        trees: Training trees.

    >>> from nltk import Tree
    >>> parser = RightBranching([Tree.fromstring("(S (NP (PRP it)) (VP (VBZ rains)) (. .))")])
    >>> print(parser(["it", "rains", "."]))
    (S (PRP it) (VP (VBZ rains) (. .)))
    """

    def __init__(self, trees: Iterable[Tree]) -> None:
        trees = list(trees)
        roots = collections.Counter(tree.label() for tree in trees)
        inner = collections.Counter(label for tree in trees for label in _labels_of_the_end(tree))
        self.root = roots.most_common(1)[0][0]
        self.inner = inner.most_common(1)[0][0] if inner else self.root
        self.tags = WordTags(trees)

    def __call__(self, words: Sequence[str]) -> Tree:
        """Return the tree of a sentence."""
        from nltk import Tree

        root = last = Tree(self.root, [])
        for word, tag in zip(words, self.tags(words), strict=True):
            if last and tag[:1].isalpha():
                last.append(Tree(self.inner, []))
                last = last[-1]
            last.append(Tree(tag, [word]))
        return root


class Pcfg:
    """The most probable tree under a probabilistic context-free grammar read off trees (Johnson 1998).

    nltk converts the trees to Chomsky normal form and lists their productions. Their probabilities are
    relative frequencies. nltk's own parsers try each production on each span in Python, which takes minutes
    per sentence with a grammar of this size. Here NumPy fills the table, with all productions at once.

    Args:
        trees: Training trees.
        horizontal: How many sisters a symbol remembers when a long production is split.
        vertical: How many parents a label remembers.

    >>> from nltk import Tree
    >>> trees = ["(S (NP (DT a) (NN dog)) (VP (VBZ runs)))", "(S (NP (DT a) (NN cat)) (VP (VBZ runs)))"]
    >>> print(Pcfg(map(Tree.fromstring, trees))(["a", "fish", "runs"]))
    (S (NP (DT a) (NN fish)) (VP (VBZ runs)))
    """

    def __init__(self, trees: Iterable[Tree], horizontal: int = 1, vertical: int = 0) -> None:
        trees = [tree.copy(deep=True) for tree in trees]
        self._fallback = RightBranching(trees)
        self._rare = _rare_words(trees)
        rules: collections.Counter[tuple[str, ...]] = collections.Counter()
        roots: collections.Counter[str] = collections.Counter()
        lexical: collections.Counter[tuple[str, str]] = collections.Counter()
        for tree in trees:
            for place in tree.treepositions("leaves"):
                if tree[place] in self._rare:
                    tree[place] = word_form(tree[place])
            tree.collapse_unary(collapsePOS=True, collapseRoot=True, joinChar=UNARY)
            tree.chomsky_normal_form(
                horzMarkov=horizontal, vertMarkov=vertical, childChar=FACTORED, parentChar=PARENT
            )
            roots[tree.label()] += 1
            for rule in tree.productions():
                if rule.is_lexical():
                    lexical[str(rule.lhs()), rule.rhs()[0]] += 1
                else:
                    rules[str(rule.lhs()), *map(str, rule.rhs())] += 1
        self._read_counts(roots, lexical, rules)

    def _read_counts(
        self,
        roots: collections.Counter[str],
        lexical: collections.Counter[tuple[str, str]],
        rules: collections.Counter[tuple[str, ...]],
    ) -> None:
        """Convert symbols to numbers, and binary productions to arrays, ordered by their left-hand side."""
        totals: collections.Counter[str] = collections.Counter()
        for rule, count in (*rules.items(), *lexical.items()):
            totals[rule[0]] += count
        self._names = sorted(totals)
        number = {name: place for place, name in enumerate(self._names)}
        self._starts = np.full(len(number), -np.inf)
        for name, count in roots.items():
            self._starts[number[name]] = math.log(count / roots.total())
        self._words: dict[str, list[tuple[int, float]]] = collections.defaultdict(list)
        for (tag, word), count in lexical.items():
            self._words[word].append((number[tag], math.log(count / totals[tag])))
        # For words whose form was never seen.
        self._any_tag = [(number[tag], 0.0) for tag in {tag for tag, _ in lexical}]
        table = np.array(
            sorted((*(number[symbol] for symbol in rule), count) for rule, count in rules.items()),
            "int64",
        ).reshape(-1, 4)
        self._left, self._right = table[:, 1], table[:, 2]
        of_made = np.array([totals[name] for name in self._names])[table[:, 0]]
        self._scores = np.log(table[:, 3] / of_made)
        self._made, self._first_rule = np.unique(table[:, 0], return_index=True)

    def __call__(self, words: Sequence[str]) -> Tree:
        """Return the tree of a sentence; right-branching if the grammar has none."""
        length, symbols = len(words), len(self._names)
        best = np.full((length + 1, length + 1, symbols), -np.inf)
        for place, word in enumerate(words):
            for tag, score in self._tags_of(word):
                best[place, place + 1, tag] = max(best[place, place + 1, tag], score)
        for width in range(2, length + 1):
            for start in range(length - width + 1):
                self._fill(best, start, start + width)
        scores = best[0, length] + self._starts
        if length and self._first_rule.size and np.isfinite(scores.max()):
            tree = self._tree(best, words, 0, length, int(scores.argmax()))
            tree.un_chomsky_normal_form(
                expandUnary=True, childChar=FACTORED, parentChar=PARENT, unaryChar=UNARY
            )
            return tree
        return self._fallback(words)

    def _tags_of(self, word: str) -> list[tuple[int, float]]:
        known = self._words.get(word) if word not in self._rare else None
        return known or self._words.get(word_form(word)) or self._any_tag

    def _fill(self, best: np.ndarray, start: int, end: int) -> None:
        """Find the best way to make each symbol over a span: over all cuts and productions."""
        if not self._first_rule.size:
            return
        left = best[start, start + 1 : end]
        right = best[start + 1 : end, end]
        made = (left[:, self._left] + right[:, self._right]).max(axis=0) + self._scores
        best[start, end, self._made] = np.maximum.reduceat(made, self._first_rule)

    def _tree(
        self, best: np.ndarray, words: Sequence[str], start: int, end: int, symbol: int
    ) -> Tree:
        """Follow the production and the cut that gave a symbol its score, down to the words."""
        from nltk import Tree

        if end - start == 1:
            return Tree(self._names[symbol], [words[start]])
        row = int(np.searchsorted(self._made, symbol))
        first = self._first_rule[row]
        last = self._first_rule[row + 1] if row + 1 < len(self._made) else len(self._scores)
        left, right = self._left[first:last], self._right[first:last]
        ways = best[start, start + 1 : end][:, left] + best[start + 1 : end, end][:, right]
        cut, rule = divmod(int((ways + self._scores[first:last]).argmax()), int(last - first))
        middle = start + 1 + cut
        return Tree(
            self._names[symbol],
            [
                self._tree(best, words, start, middle, int(left[rule])),
                self._tree(best, words, middle, end, int(right[rule])),
            ],
        )


def word_form(word: str) -> str:
    """Make a stand-in for words that are too rare to be counted: capitals, digits, the last two letters.

    >>> word_form("Running"), word_form("3.5"), word_form("well-known")
    ('<A:ng>', '<0:>', '<a-:wn>')
    """
    kinds = ("A" if word[:1].isupper() else "a") if any(map(str.isalpha, word)) else ""
    kinds += "0" if any(map(str.isdigit, word)) else ""
    kinds += "-" if "-" in word[1:] else ""
    return f"<{kinds}:{word[-2:].lower() if word[-2:].isalpha() else ''}>"


def _rare_words(trees: Iterable[Tree]) -> set[str]:
    counts = collections.Counter(word for tree in trees for word in tree.leaves())
    return {word for word, count in counts.items() if count == 1}


def _labels_of_the_end(tree: Tree) -> list[str]:
    """Labels of the phrases below the root that end with it, ignoring punctuation."""
    labels: list[str] = []
    node = tree
    while True:
        children = [c for c in node if is_phrase(c) or c.label()[:1].isalpha()]
        if not children or not is_phrase(children[-1]):
            return labels
        node = children[-1]
        labels.append(node.label())
