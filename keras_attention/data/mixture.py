"""How several corpora are mixed: weights, in stages."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from keras_attention.utils.checks import check_texts, did_you_mean

UNTIL = "until"


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of a training with its own mixture."""

    shares: dict[str, float]  # the share of each corpus in the updates; together 1
    until: int | None = None  # the update until which it holds; None for the rest of the training


def parse_mixture(words: Iterable[str], names: Iterable[str] | None = None) -> tuple[Stage, ...]:
    """Return the stages of a mixture.

    Args:
        words: `"name:weight"` for each corpus; after these `"until:update"` if another stage follows.
        names: The corpora that there are; None if they are not known yet.

    >>> parse_mixture(["clean:3", "web:1", "until:5000", "clean:1"])
    (Stage(shares={'clean': 0.75, 'web': 0.25}, until=5000), Stage(shares={'clean': 1.0}, until=None))
    """
    words = check_texts("mixture", words)
    stages: list[Stage] = []
    weights: dict[str, float] = {}
    for word in words:
        name, _, value = word.rpartition(":")
        if name == UNTIL:
            until = int(value) if value.isdecimal() else 0
            if until <= max((stage.until or 0 for stage in stages), default=0):
                raise ValueError(
                    f"`mixture` has '{word}': `until` names the last update of a stage, above that of the "
                    "stage before and above 0."
                )
            stages.append(Stage(_shares(weights, word), until))
            weights = {}
            continue
        try:
            weight = float(value)
        except ValueError:
            weight = math.nan
        if not name or not 0 <= weight < math.inf:
            raise ValueError(
                f"`mixture` has '{word}'. Each word is NAME:WEIGHT, with a weight of at least 0, or "
                "until:UPDATE after the words of a stage."
            )
        if name in weights:
            raise ValueError(f"`mixture` names '{name}' twice in a stage. Give it one weight.")
        weights[name] = weight
    if words:
        stages.append(Stage(_shares(weights, words[-1])))
    if stages and names is not None:
        _check_names(stages, list(names))
    return tuple(stages)


def _shares(weights: Mapping[str, float], word: str) -> dict[str, float]:
    total = sum(weights.values())
    if not weights:
        raise ValueError(
            f"`mixture` has a stage without a corpus, at '{word}'. After the last `until`, and before each, "
            "must stand the corpora of a stage."
        )
    if total == 0:
        raise ValueError(f"`mixture` has a stage whose weights are all 0: {', '.join(weights)}.")
    return {name: weight / total for name, weight in weights.items() if weight}


def _check_names(stages: Sequence[Stage], names: Sequence[str]) -> None:
    used = dict.fromkeys(name for stage in stages for name in stage.shares)
    for name in used:
        if name not in names:
            raise ValueError(
                f"`mixture` names '{name}', which is none of the corpora {', '.join(names) or '(none)'}."
                f"{did_you_mean(name, names)} Give the texts names: `--parts`, or a dict as `train` of "
                "`corpus_from_files`."
            )
    unused = [name for name in names if name not in used]
    if unused:
        raise ValueError(
            f"`mixture` never trains on {', '.join(unused)}. Give a weight above 0 in some stage, or leave "
            "out that text."
        )
