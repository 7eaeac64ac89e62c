"""Example rows of each head: where it reads most surely, and some that were drawn by chance.

Only a few of the measured sentences are shown; these rows come from all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_attention_viewer.thoughts import has_form, is_index, is_probability
from keras_attention_viewer.tokens import Token

STRONGEST_ROWS = 4
RANDOM_ROWS = 3
MOST_READ = 3  # columns of a row that are kept, the strongest
FAINTEST = 0.005
GROUPS = ("strongest", "random")


def head_examples(
    kind: Mapping[str, Any],
    columns: Sequence[Sequence[Token]],
    stored: Sequence[Sequence[np.ndarray]],
) -> list[list[dict[str, Any]]]:
    """Return example rows, for each layer and head of a kind.

    Args:
        kind: The kind, as it stands in a header.
        columns: The tokens that are read, of sentences of one step and one model.
        stored: The weights of each sentence, as an `Entry` has them.

    Returns:
        For each layer and head a dict of `"strongest"`, the rows with the largest weights on a token that is
        not special, and `"random"`, rows by chance: the same for all heads and,
        for sentences of the same lengths, at each step. A row is `[sentence, row, [[column, weight], ...]]`,
        the largest weights first.
    """
    first = 1 if kind["name"] == "decoder" else 0  # the decoder's first token sees only itself
    strengths, places = [], []
    for number, (tokens, layers) in enumerate(zip(columns, stored, strict=True)):
        weights = np.concatenate(layers)[:, first:]
        is_text = [not token["special"] for token in tokens]
        strengths.append(weights[:, :, is_text].max(axis=2, initial=0))
        places += [(number, row) for row in range(first, first + weights.shape[1])]
    order = np.argsort(-np.concatenate(strengths, axis=1).astype("int32"), axis=1, kind="stable")
    drawn = np.sort(np.random.default_rng(0).permutation(len(places))[:RANDOM_ROWS])

    def rows_of(layer: int, head: int, indices: np.ndarray) -> list[Any]:
        found = [places[index] for index in indices]
        return [[n, row, _most_read(stored[n][layer][head, row])] for n, row in found]

    return [
        [
            {
                "strongest": rows_of(
                    layer, head, order[layer * kind["heads"] + head][:STRONGEST_ROWS]
                ),
                "random": rows_of(layer, head, drawn),
            }
            for head in range(kind["heads"])
        ]
        for layer in range(kind["layers"])
    ]


def _most_read(weights: np.ndarray) -> list[list[Any]]:
    """Return the columns with the largest of some stored weights (S,), and these weights."""
    best = np.argsort(-weights.astype("int32"), kind="stable")[:MOST_READ]
    pairs = [
        [int(column), round(int(weights[column]) / np.iinfo("uint16").max, 2)] for column in best
    ]
    return [pair for pair in pairs if pair[1] >= FAINTEST]


def example_problem(header: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the examples of a header; None if nothing is, or there are none."""
    examples = header.get("examples")
    if examples is None:
        return None
    if not has_form(examples, {"sentences": list, "heads": dict}):
        return "its examples should have sentences and heads."
    sentences, heads, names = examples["sentences"], examples["heads"], set(header["tokens"])
    if not all(isinstance(one, dict) and set(one) == names for one in sentences):
        return f"each sentence of its examples should have the lists {sorted(names)}."
    if not has_form(sentences, [dict.fromkeys(names, [str])]):
        return "the tokens of its examples should be texts."
    kinds = {kind["name"]: kind for kind in header["kinds"]}
    if not set(heads) <= set(kinds):
        return "its examples are of kinds that it does not have."
    fit = all(_fits(layers, kinds[name], sentences) for name, layers in heads.items())
    return None if fit else "an example should be a row of a sentence and what it reads."


def _fits(layers: Any, kind: Mapping[str, Any], sentences: list[Any]) -> bool:
    """Whether the examples of a kind point at tokens that are there."""
    rows = "decoder_input" if kind["rows"] == "decoder" else kind["rows"]

    def is_row(row: Any) -> bool:
        read = [(is_index, is_probability)]
        if not has_form(row, (is_index, is_index, read)) or row[0] >= len(sentences):
            return False
        sentence = sentences[row[0]]
        return (
            row[1] < len(sentence[rows])
            and len(sentence["decoder_input"]) == len(sentence["decoder_output"])
            and all(column < len(sentence[kind["columns"]]) for column, _ in row[2])
        )

    return (
        has_form(layers, [[dict.fromkeys(GROUPS, [is_row])]])
        and len(layers) == kind["layers"]
        and all(len(layer) == kind["heads"] for layer in layers)
    )
