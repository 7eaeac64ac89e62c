"""Plots of the positional encoding and of learning-rate schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_attention.utils.arguments import Count, checked
from keras_attention.visualization.figures import Canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@checked
def positional_encoding_figure(encoding: Any, title: str = "Positional encoding") -> Figure:
    """Draw a positional encoding (section 3.5 of the paper); row t is position t.

    Args:
        encoding: Array or tensor of shape `(T, D)`.
        title: Title of the picture. Defaults to "Positional encoding".

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If `encoding` is not of shape `(T, D)`.

    Example:

    >>> positions, rates = np.arange(50)[:, None], 10000 ** -np.linspace(0, 1, 16)
    >>> figure = positional_encoding_figure(np.sin(positions * rates))
    >>> figure.axes[0].get_ylabel()
    'position'
    """
    try:
        values = np.asarray(keras.ops.convert_to_numpy(encoding)).astype("float32")
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"`encoding` must have the shape (T, D). Received: shape {values.shape}")
    limit = max(float(np.abs(values).max()), 1e-6)
    canvas = Canvas(7.0, 4.6)
    axes = canvas.axes(0.7, 0.5, 5.1, 3.5)
    image = axes.imshow(values, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
    axes.set(xlabel="dimension", ylabel="position")
    canvas.figure.colorbar(image, cax=canvas.axes(6.0, 0.5, 0.15, 3.5))
    canvas.write(title, "")
    return canvas.figure


@checked
def learning_rate_figure(
    schedules: Mapping[str, Callable[[int], Any]], steps: Count, title: str = "Learning rate"
) -> Figure:
    """Draws learning-rate schedules (equation 3 of the paper) over the updates of a training.

    Args:
        schedules: Schedules by name, such as `LearningRateSchedule`: functions of Keras' `iterations`, the
            number of updates done so far.
        steps: Number of updates to draw.
        title: Title of the picture. Defaults to "Learning rate".

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If there is nothing to draw, or an argument is invalid.

    Example:

    >>> figure = learning_rate_figure({"constant": lambda iterations: 0.001}, steps=100)
    >>> figure.axes[0].lines[0].get_label()
    'constant'
    """
    if not schedules:
        raise ValueError("`schedules` must hold at least one schedule. Received: schedules={}")
    iterations = np.unique(np.linspace(0, steps - 1, min(steps, 500)).astype(int))
    canvas = Canvas(7.0, 4.6)
    axes = canvas.axes(0.9, 0.5, 5.8, 3.5)
    for name, schedule in schedules.items():
        rates = [float(keras.ops.convert_to_numpy(schedule(int(i)))) for i in iterations]
        axes.plot(iterations + 1, rates, label=name)
    axes.set(xlabel="update", ylabel="learning rate", ylim=(0, None))
    axes.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    for text in axes.legend(frameon=False).get_texts():
        text.set_parse_math(False)  # A name such as "$" is no formula.
    canvas.write(title, "")
    return canvas.figure
