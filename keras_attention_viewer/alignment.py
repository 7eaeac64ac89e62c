"""Word alignment from cross-attention: weights between words, links, and their error rate.

A row of cross-attention belongs to two words: the decoder reads one and predicts the next. `rows` selects
the word that a row stands for: `"read"` or `"predicted"`. With `"read"`, heads often align better
(Chen et al. 2020, [Accurate Word Alignment Induction from Neural Machine
Translation](https://arxiv.org/abs/2004.14837)).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from keras_attention_viewer.codec import Entry
from keras_attention_viewer.tokens import Token, word_text

Link = tuple[int, int]
ROWS = {"read": "decoder_input", "predicted": "decoder_output"}


def merge_words(
    weights: Any, row_tokens: Sequence[Token], column_tokens: Sequence[Token]
) -> np.ndarray:
    """Weights between words, from weights between pieces: rows still sum to 1.

    Weights are summed over the pieces of the word that is read, and averaged over the pieces of the word
    that reads, as in Clark et al. 2019, [What Does BERT Look At?](https://arxiv.org/abs/1906.04341) A
    special token is a word of its own.

    Args:
        weights: Weights (..., T, S).
        row_tokens: The T tokens of the rows.
        column_tokens: The S tokens of the columns.

    Returns:
        Weights (..., words of the rows, words of the columns), in the order of the sentence.

    Example:

    >>> rows = [{"word": 0}, {"word": 0}, {"word": None}]
    >>> columns = [{"word": 0}, {"word": 1}, {"word": 1}]
    >>> merge_words(np.array([[0.5, 0.25, 0.25], [0.1, 0.9, 0], [1, 0, 0]]), rows, columns).tolist()
    [[0.3, 0.7], [1.0, 0.0]]
    """
    row_sums, column_sums = _sums(row_tokens), _sums(column_tokens)
    means = row_sums / row_sums.sum(axis=1, keepdims=True)
    return means @ np.asarray(weights) @ column_sums.T


def group_words(tokens: Sequence[Token]) -> list[list[int]]:
    """Positions of the tokens of each word, in the order of the sentence."""
    groups: list[list[int]] = []
    for position, token in enumerate(tokens):
        same = groups and token["word"] is not None
        if same and tokens[position - 1]["word"] == token["word"]:
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


def alignment_error_rate(
    links: Iterable[Link], sure: Collection[Link], possible: Collection[Link] | None = None
) -> float | None:
    """Return the alignment error rate of Och and Ney: 0 is perfect, 1 is all wrong.

    `1 - (|A & S| + |A & P|) / (|A| + |S|)`, from [A Systematic Comparison of Various Statistical
    Alignment Models](https://aclanthology.org/J03-1002/) (2003).

    Args:
        links: The links A to judge: pairs of a source and a target word.
        sure: The sure links S of the true alignment.
        possible: The possible links P; sure ones count as possible. Default: no others.

    Returns:
        The rate, or None if there is no link at all.

    Example:

    >>> alignment_error_rate({(0, 0), (1, 1), (2, 1)}, sure={(0, 0)}, possible={(2, 1)})
    0.25
    """
    found, certain = set(links), set(sure)
    allowed = certain | set(possible or ())
    if not found and not certain:
        return None
    return 1 - (len(found & certain) + len(found & allowed)) / (len(found) + len(certain))


class Alignments:
    """The alignments of all cross-attention heads over several sentences.

    Only content words count, neither punctuation nor special tokens: most of the attention of a
    translation model goes to the end token and to punctuation. `heads` is their number over all layers;
    `rows`, `"read"` or `"predicted"`, the word that a row stands for.
    """

    def __init__(self, heads: int, rows: str):
        self.rows = rows
        self._right = np.zeros(heads)
        self._links = 0
        self._confidence, self._words = np.zeros(heads), 0
        self._coverage, self._sentences = np.zeros(heads), 0
        # Weight between words that are the same in both sentences: names, numbers, stops.
        self.same_words = np.zeros(heads)

    def add(self, weights: np.ndarray, entry: Entry) -> None:
        """Add a sentence; weights (heads, T, S)."""
        tokens = entry.header["tokens"]
        source, target = tokens["source"], tokens[ROWS[self.rows]]
        words = merge_words(weights, target, source)
        source_words = [[source[i] for i in group] for group in group_words(source)]
        target_words = [[target[i] for i in group] for group in group_words(target)]
        self._add_same_words(words, source_words, target_words)
        columns, rows = _content(source_words), _content(target_words)
        if not columns or not rows:
            return
        content = words[:, rows][:, :, columns]
        chosen = content.argmax(axis=-1)
        # One word alone, such as a Chinese text, is always aligned.
        if min(len(columns), len(rows)) > 1:
            sums = np.maximum(content.sum(axis=-1), 1e-9)
            self._confidence += (content.max(axis=-1) / sums).sum(axis=1)
            self._words += len(rows)
            covered = np.array([len(set(head)) for head in chosen.tolist()])
            self._coverage += covered / min(len(rows), len(columns))
            self._sentences += 1
        if entry.header["alignment"] is not None:
            names = [source_words[column][0]["word"] for column in columns]
            asking = [target_words[row][0]["word"] for row in rows]
            self._add_links(chosen, names, asking, entry.header["alignment"])

    def error_rates(self) -> np.ndarray | None:
        """Return the alignment error rate of each head; None if no sentence has a true alignment."""
        return 1 - 2 * self._right / self._links if self._links else None

    def scores(self) -> np.ndarray:
        """How much each head looks like an alignment, from 0 to 1, without a true one.

        That is its confidence, the mean weight on the chosen word as a share of that on all content
        words, times its coverage: a head that always chooses the same few words aligns nothing.
        """
        if not self._sentences:
            return np.zeros(len(self._confidence))
        return self._confidence / self._words * self._coverage / self._sentences

    def _add_same_words(self, words: np.ndarray, source: Any, target: Any) -> None:
        texts = [
            [None if word[0]["special"] else word_text(word).casefold() for word in sentence]
            for sentence in (target, source)
        ]
        same = np.array([[t is not None and t == s for s in texts[1]] for t in texts[0]], "float32")
        self.same_words += (words * same).sum(axis=(1, 2))

    def _add_links(self, chosen: np.ndarray, names: Any, asking: Any, gold: Any) -> None:
        sure = {(s, t) for s, t in gold if s in set(names) and t in set(asking)}
        for head, columns in enumerate(chosen.tolist()):
            links = {(names[column], t) for column, t in zip(columns, asking, strict=True)}
            self._right[head] += len(links & sure)
        self._links += len(asking) + len(sure)


def _content(words: Sequence[Sequence[Token]]) -> list[int]:
    """Return indices of the words that are neither special nor punctuation."""
    return [
        index
        for index, word in enumerate(words)
        if not word[0]["special"] and not all(token["punctuation"] for token in word)
    ]


def _sums(tokens: Sequence[Token]) -> np.ndarray:
    """Return a matrix (words, tokens) of zeros and ones."""
    groups = group_words(tokens)
    matrix = np.zeros((len(groups), len(tokens)), "float32")
    for index, group in enumerate(groups):
        matrix[index, group] = 1
    return matrix
