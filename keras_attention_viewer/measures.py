"""Measures of what an attention head does, and labels that are derived from them.

Measures are means over the rows of all sentences of a step. In self-attention, only rows that see more than
one token count; the decoder's first token sees only itself. A label is a hypothesis: look at the numbers.
Sources: Voita et al. 2019, [Analyzing Multi-Head Self-Attention](https://arxiv.org/abs/1905.09418)
(confidence, positions, rare words); Clark et al. 2019, [What Does BERT Look
At?](https://arxiv.org/abs/1906.04341) (end token, punctuation, broad heads); Ghader and Monz 2017,
[What does Attention in Neural Machine Translation Pay Attention to?](https://arxiv.org/abs/1710.03348)
(entropy).
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keras_attention_viewer.alignment import Alignments
from keras_attention_viewer.codec import KINDS, Entry, dequantize
from keras_attention_viewer.examples import head_examples
from keras_attention_viewer.tokens import Token

# A label needs at least this many rows.
LABEL_ROWS = 100
MOST_LABELS = 2
# label -> (measure, its smallest value), most informative first. Voita et al. use 0.9 for positions.
LABELS = {
    "sink": ("sink", 0.5),
    "punctuation": ("punctuation", 0.5),
    "previous token": ("previous", 0.9),
    "next token": ("next", 0.9),
    "itself": ("self", 0.9),
    "alignment": ("alignment", 0.5),
    "diagonal": ("diagonal", 0.5),
    "rare words": ("rare", 0.5),
    "broad": ("entropy", 0.8),
}
POSITIONAL = {"previous token", "next token", "itself"}
OFFSETS = {"previous": -1, "next": 1, "self": 0}
# Largest |s/S - t/T| that counts as diagonal.
DIAGONAL_WIDTH = 0.1
# A sentence has a rare word if its rarest token is not among this many most frequent ones.
FREQUENT_TOKENS = 500


def measured(entries: Sequence[Entry], more: Sequence[Entry] = ()) -> list[Entry]:
    """Add the measures of heads to the entries of one step.

    Args:
        entries: Entries of one step and one model.
        more: Further entries of that step, which are measured but not shown: means need many rows.

    Returns:
        The entries, with `header["measures"]`: by kind, for each layer and head a dict of

        * `rows`: number of rows; `labels`: what the head seems to do, two words at most;
        * `confidence`: mean of a row's largest weight, special tokens left out;
        * `previous`, `next`, `self` (self-attention): share of rows whose largest weight is there;
        * `distance`: mean distance of the attended tokens, in tokens; in cross-attention, from the
          proportional position;
        * `entropy`: mean entropy of a row, as a share of the largest possible one;
        * `sink`, `punctuation`: mean weight on special tokens and on punctuation;
        * `diagonal`: mean weight near the proportional position, within a tenth of the sentence;
        * `rare` (source side): share of rows whose largest weight is on the rarest token, in sentences
          that have a rare one;
        * `aer`, `aer_row` (cross-attention with a true alignment): alignment error rate, and whether
          it is that of the word `"read"` or `"predicted"` in a row;
        * `alignment_score` (cross-attention): how much it looks like an alignment, without a true one;
        * `best_alignment`: True for the one cross-attention head that aligns best.

        Measures that do not apply are missing. `header["measured_sentences"]` is the number of sentences,
        `header["alignment_rows"]` says which word a row of the best head stands for, `header["gold"]`
        whether the head was chosen by a true alignment; `header["examples"]`, of the first entry alone,
        has some rows of each head in all sentences, see `head_examples`.

    Raises:
        ValueError: If there is no entry, or the entries come from models of different sizes.
    """
    everything = [*entries, *more]
    if not entries:
        raise ValueError("Expected at least one entry. Received: none")
    kinds = everything[0].header["kinds"]
    if any(entry.header["kinds"] != kinds for entry in everything):
        raise ValueError("Expected entries of one model. Received: entries of several sizes")
    found = {kind["name"]: _kind_measures(everything, kind["name"]) for kind in kinds}
    alignment = _add_alignment(found["cross"], everything) if "cross" in found else {}
    shaped: dict[str, Any] = {}
    for kind in kinds:
        heads = found[kind["name"]]
        for head in heads:
            head["labels"] = _labels(head)
        count = kind["heads"]
        shaped[kind["name"]] = [heads[i : i + count] for i in range(0, len(heads), count)]
    sentences = [entry.header["tokens"] for entry in everything]
    examples = {
        "sentences": [
            {name: [token["text"] for token in tokens] for name, tokens in lists.items()}
            for lists in sentences
        ],
        "heads": {
            kind["name"]: head_examples(
                kind,
                [lists[kind["columns"]] for lists in sentences],
                [entry.weights[kind["name"]] for entry in everything],
            )
            for kind in kinds
        },
    }
    fields = {"measures": shaped, "measured_sentences": len(everything), **alignment}
    headers: list[dict[str, Any]] = [{**entry.header, **fields} for entry in entries]
    headers[0]["examples"] = examples  # the same for all sentences, and large: one of them has it
    return [
        dataclasses.replace(entry, header=header)
        for entry, header in zip(entries, headers, strict=True)
    ]


def _kind_measures(entries: Sequence[Entry], kind: str) -> list[dict[str, Any]]:
    """Measures of all heads of all layers of a kind, in one list; means of no rows are absent."""
    sums: dict[str, Any] = collections.defaultdict(float)
    counts: dict[str, int] = collections.Counter()
    for entry in entries:
        for name, values in _sentence_measures(entry, kind):
            sums[name] = sums[name] + values.sum(axis=1, dtype="float64")
            counts[name] += values.shape[1]
    means = {name: sums[name] / count for name, count in counts.items() if count}
    return [
        {
            "rows": counts["distance"],
            **{name: round(float(mean[head]), 4) for name, mean in means.items()},
        }
        for head in range(len(sums["distance"]))
    ]


def _sentence_measures(entry: Entry, kind: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield what the means are of, by name: numbers (heads, rows), of the rows that count."""
    _, of_columns = KINDS[kind]
    columns: list[Token] = entry.header["tokens"][of_columns]
    weights = dequantize(entry.weights[kind])
    _, row_count, column_count = weights.shape
    visible = np.ones((row_count, column_count), bool)  # cells that may have a weight
    if kind == "decoder":
        visible = np.tril(visible)
    rows = np.flatnonzero(visible.sum(axis=1) > 1)
    counted, visible = weights[:, rows], visible[rows]
    # How far apart row and column are, as shares of their sentences.
    apart = np.abs(
        (rows[:, None] + 0.5) / row_count - (np.arange(column_count) + 0.5) / column_count
    )
    yield "distance", (counted * (apart * column_count)).sum(axis=2)
    yield "diagonal", (counted * (apart <= DIAGONAL_WIDTH)).sum(axis=2)
    special, punctuation = (
        np.array([token[name] for token in columns]) for name in ("special", "punctuation")
    )
    yield "sink", counted[:, :, special].sum(axis=2)
    yield "punctuation", counted[:, :, punctuation].sum(axis=2)
    entropy = -(counted * np.log(np.maximum(counted, 1e-9))).sum(axis=2)
    yield "entropy", entropy / np.log(visible.sum(axis=1))
    text = visible & ~special
    best_text = np.where(text, counted, 0).max(axis=2)
    yield "confidence", best_text[:, text.any(axis=1)]
    chosen = counted.argmax(axis=2)
    if kind != "cross":
        for name, offset in OFFSETS.items():
            there = rows + offset
            exists = (there >= 0) & (there < column_count)
            exists &= (kind != "decoder") | (offset <= 0)
            yield name, (chosen == there)[:, exists]
    rarest = _rarest(columns) if of_columns == "source" else None
    if rarest is not None:
        yield "rare", chosen == rarest


def _add_alignment(heads: list[dict[str, Any]], entries: Sequence[Entry]) -> dict[str, Any]:
    """Add alignment to the measures of the cross-attention, and says how the best head was found."""
    read, predicted = Alignments(len(heads), "read"), Alignments(len(heads), "predicted")
    for entry in entries:
        weights = dequantize(entry.weights["cross"])
        read.add(weights, entry)
        predicted.add(weights, entry)
    scores = np.maximum(read.scores(), predicted.scores())
    for head, score in zip(heads, scores, strict=True):
        head["alignment_score"] = round(float(score), 4)
    of_read, of_predicted = read.error_rates(), predicted.error_rates()
    if of_read is not None and of_predicted is not None:
        for head, *rates in zip(heads, of_read, of_predicted, strict=True):
            head["aer"] = round(float(min(rates)), 4)
            head["aer_row"] = "read" if rates[0] <= rates[1] else "predicted"
        best = min(range(len(heads)), key=lambda head: heads[head]["aer"])
        rows = heads[best]["aer_row"]
    else:
        best = int(scores.argmax())
        # Without a true alignment, words that are the same in both languages tell.
        is_predicted = predicted.same_words[best] > read.same_words[best]
        rows = "predicted" if is_predicted else "read"
    heads[best]["best_alignment"] = True
    return {"alignment_rows": rows, "gold": of_read is not None}


def _labels(head: dict[str, Any]) -> list[str]:
    """At most two labels, the most telling first."""
    if head["rows"] < LABEL_ROWS:
        return []
    values = dict(head)
    if head.get("best_alignment"):
        values["alignment"] = 1 - head["aer"] if "aer" in head else head["alignment_score"]
    found = [label for label, (name, least) in LABELS.items() if values.get(name, -1.0) >= least]
    if POSITIONAL & set(found) and "diagonal" in found:
        found.remove("diagonal")  # it says less than the position
    return found[:MOST_LABELS]


def _rarest(tokens: Sequence[Token]) -> int | None:
    ranks = [-1 if token.get("rank") is None else token["rank"] for token in tokens]
    best = max(range(len(ranks)), key=ranks.__getitem__)
    return best if ranks[best] >= FREQUENT_TOKENS else None
