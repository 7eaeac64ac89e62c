"""Runs of known matrices, for the tests that look at pages."""

import dataclasses

import numpy as np

from tests.viewer.entries import sentence_entry

SOURCE = ["▁der", "▁Hund", "e", "▁schläft", ".", "</s>"]
TARGET = ["▁the", "▁dog", "▁sleeps", "</s>"]


def entry(
    weights, source=SOURCE, target=TARGET, step=0, version="reference", measures=None, **options
):
    """An entry; `measures`: what its header says about its heads, by kind."""
    made = sentence_entry(weights, source, target, step, **{"target": version, **options})
    if measures is None:
        return made
    return dataclasses.replace(made, header={**made.header, "measures": measures})


def pointing(columns, width, weight=1.0):
    """A map whose row t has `weight` in column `columns[t]`, and the rest spread over the others."""
    rest = (1 - weight) / (width - 1)
    rows = np.full((len(columns), width), rest)
    rows[np.arange(len(columns)), columns] = weight
    return rows


def cross(*heads, layers=1):
    """The weights of a model that has cross-attention only: the same heads in each layer."""
    return {"cross": [np.stack(heads)] * layers}


def self_attention(*heads):
    """The weights of a model that has one encoder layer only."""
    return {"encoder": [np.stack(heads)]}
