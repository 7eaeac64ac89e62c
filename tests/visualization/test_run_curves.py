"""Curves read back from event files, and drawn."""

import numpy as np
import pytest

from keras_attention.visualization import SummaryWriter
from keras_attention.visualization.run_curves import main, read_scalars, run_figure

pytestmark = pytest.mark.backends("tensorflow")

CURVES = {
    "quality/loss": [(10, 7.5), (20, 6.25), (30, 5.0)],
    "quality/perplexity": [(15, 900.0), (30, 8.0)],
    "quality/bleu": [(30, 12.5)],
    "rate/learning_rate": [(10, 0.5)],
}


# What runs of older versions call them.
OLDER = dict(
    zip(
        CURVES,
        "train/loss validation/perplexity validation/bleu train/learning_rate".split(),
        strict=True,
    )
)


def write(folder, names=None):
    # Two files, as a resumed run has.
    for part in (slice(0, 1), slice(1, None)):
        with SummaryWriter(folder) as writer:
            writer.image("picture", np.zeros((2, 3, 3), "uint8"), 5)
            for tag, points in CURVES.items():
                for step, value in points[part]:
                    writer.scalar((names or {}).get(tag, tag), value, step)


def test_reads_what_was_written(tmp_path):
    write(tmp_path)
    assert read_scalars(tmp_path) == CURVES


@pytest.mark.parametrize("names", [None, OLDER], ids=["new", "older"])
def test_draws_loss_rate_perplexity_and_bleu(tmp_path, names):
    write(tmp_path, names)
    figure = run_figure(tmp_path, title="mine")
    drawn = [axes.lines[0].get_xydata().tolist() for axes in figure.axes if axes.lines]
    order = "quality/loss rate/learning_rate quality/perplexity quality/bleu".split()
    assert drawn == [[list(point) for point in CURVES[tag]] for tag in order]
    assert all(axes.get_xlabel() == "update" for axes in figure.axes)
    # The headline stands above the panels' titles.
    figure.draw_without_rendering()
    (headline,) = figure.texts
    highest = max(axes.title.get_window_extent().y1 for axes in figure.axes)
    assert headline.get_window_extent().y0 >= highest
    scales = [axes.get_yscale() for axes in figure.axes if axes.lines]
    assert scales == ["linear", "linear", "log", "linear"]


def test_a_run_resumed_with_another_version_has_one_curve(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for step, value in [(10, 7.0), (20, 6.0), (30, 9.0)]:
            writer.scalar("train/loss", value, step)
    with SummaryWriter(tmp_path) as writer:
        for step, value in [(30, 5.0), (40, 4.0)]:
            writer.scalar("quality/loss", value, step)
    (axes,) = run_figure(tmp_path).axes
    assert axes.lines[0].get_xydata().tolist() == [[10, 7], [20, 6], [30, 5], [40, 4]]


def test_command(tmp_path):
    write(tmp_path)
    main([str(tmp_path), str(tmp_path / "curves.png")])
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no TensorBoard event file"):
        read_scalars(tmp_path)
