"""Draws a run's curves from its TensorBoard logs: `python -m keras_attention.visualization.run_curves`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from keras_attention.visualization.event_reader import read_events
from keras_attention.visualization.figures import Canvas
from keras_attention_viewer.index import join_curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def read_scalars(folder: str | os.PathLike[str]) -> dict[str, list[tuple[int, float]]]:
    """Read the curves of TensorBoard event files.

    Args:
        folder: The folder with the event files, such as `logs/` of a run.

    Returns:
        A list of (update, value) for each tag, sorted by update.

    Raises:
        FileNotFoundError: If there is no event file.
    """
    curves: dict[str, list[tuple[int, float]]] = {}
    for event in read_events(folder):
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value":
                curves.setdefault(value.tag, []).append((event.step, value.simple_value))
    return {tag: sorted(points) for tag, points in curves.items()}


def run_figure(folder: str | os.PathLike[str], title: str = "") -> Figure:
    """Draw training loss, learning rate, validation perplexity and BLEU of a run over its updates.

    Args:
        folder: The `logs/` folder of the run.
        title: Title of the picture.

    Returns:
        A `matplotlib.figure.Figure` with a panel for each of these curves in the logs.
    """
    curves = read_scalars(folder)
    # Runs of older versions have the names after the first.
    wanted = {
        ("quality/loss", "train/loss"): ("training loss", "smoothed, nats a token"),
        ("rate/learning_rate", "train/learning_rate"): ("learning rate", ""),
        ("quality/perplexity", "validation/perplexity"): ("validation perplexity", "a token"),
        ("quality/bleu", "validation/bleu"): ("validation BLEU", "0 to 100"),
    }
    # A run that was resumed with another version has both.
    joined = [
        (labels, join_curves([curves.get(tag, []) for tag in tags]))
        for tags, labels in wanted.items()
    ]
    panels = [(labels, points) for labels, points in joined if points]
    canvas = Canvas(3.8 * len(panels) + 0.3, 3.6 + 0.3 * bool(title))
    for index, ((name, unit), points) in enumerate(panels):
        axes = canvas.axes(0.8 + 3.8 * index, 0.4 + 0.3 * bool(title), 2.9, 2.5)
        updates, values = zip(*points, strict=True)
        axes.plot(updates, values, marker="." if len(points) < 100 else None, linewidth=1)
        axes.set(xlabel="update", ylabel=unit, title=name)
        if min(values) > 0 and max(values) > 20 * min(values):
            axes.set_yscale("log")
    canvas.write(title, "")
    return canvas.figure


def main(arguments: list[str]) -> None:
    """Draw the logs in `arguments[0]` into the picture `arguments[1]`."""
    if len(arguments) != 2:
        raise SystemExit("usage: python -m keras_attention.visualization.run_curves LOGS PICTURE")
    run_figure(arguments[0], title=Path(arguments[0]).resolve().parent.name).savefig(arguments[1])


if __name__ == "__main__":
    main(sys.argv[1:])
