"""The index that a viewer reads first: its runs, sentences and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from keras_attention_viewer.codec import VERSION, parse_tag

# Curve that is drawn over the steps -> its possible tags in TensorBoard, the best first. Tags in one group
# name the same numbers in several versions, so their points are joined; of the groups, the first is drawn.
SCALAR_TAGS = {
    "loss": (
        ("quality/loss", "train/loss"),
        ("train/epoch_loss",),
        ("epoch/loss",),
        ("epoch_loss",),
        ("loss",),
    ),
    "bleu": (("quality/bleu", "validation/bleu"), ("bleu",)),
    "perplexity": (("quality/perplexity", "validation/perplexity"), ("perplexity",)),
}
Curve = Sequence[Sequence[float]]


def join_curves(curves: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the points of curves that a run has under several names, the best first, sorted by step.

    >>> join_curves([[(20, 2.0), (30, 1.0)], [(10, 4.0), (20, 3.0)]])
    [(10, 4.0), (20, 2.0), (30, 1.0)]
    """
    steps: set[Any] = set()
    points: list[Any] = []
    for curve in curves:
        points += [point for point in curve if point[0] not in steps]
        steps.update(point[0] for point in curve)
    return sorted(points, key=lambda point: point[0])


def make_index(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the index of a viewer, from what `run_index` returned for each run."""
    return {"version": VERSION, "runs": list(runs)}


def run_index(
    name: str,
    sentences: Sequence[Mapping[str, Any]],
    curves: Mapping[str, Curve] | None = None,
    problems: Sequence[str] = (),
    title: str | None = None,
) -> dict[str, Any]:
    """Return a run in the index, with what `sentence_index` returned and a title, by default its name.

    `curves` are pairs of step and value by name, `problems` sentences about what could not be read.
    """
    return {
        "name": name,
        "title": name if title is None else title,
        "sentences": sorted(sentences, key=lambda one: (one["number"], one["target"] == "output")),
        "scalars": {key: [list(point) for point in curve] for key, curve in (curves or {}).items()},
        "problems": list(problems),
    }


def sentence_index(
    tag: str,
    header: Mapping[str, Any],
    steps: Sequence[int],
    written: Sequence[float] | None = None,
) -> dict[str, Any]:
    """Return a sentence in the index, of an `entry_tag`, with the header of its first entry.

    Steps ascend; `written` is for each of them when it was written, None if none is ever written again.
    """
    parts = parse_tag(tag)
    assert parts is not None  # Others are left out before.
    return {
        "tag": tag,
        "number": parts[0],
        "target": parts[1],
        "text": header["source_text"],
        "target_text": header["target_text"],
        "steps": list(steps),
        **({} if written is None else {"written": list(written)}),
    }
