"""Table 1 is measured, written, and resumed."""

import json
import os

import numpy as np
import pytest
import table1_layer_complexity
from matplotlib.colors import to_hex
from table1_layer_complexity import Series, all_series, fitted_exponent, measure, picture

pytestmark = pytest.mark.backends("torch")


def test_exponents_tables_pictures_and_resuming(tmp_path, monkeypatch):
    series = (
        Series("self_attention", "n", (16, 32, 64), 2, core=True, d=4),
        Series("restricted_self_attention", "r", (2, 4), 1, core=True, n=24, d=4),
    )
    asked = []

    def times(one, size, repeats):
        asked.append((one.axis, size))
        return [1e-6 * size**2 if one.axis == "n" else 1e-6 * (2 * size - 1)] * repeats

    monkeypatch.setattr(table1_layer_complexity, "times_of", times)
    result = measure(tmp_path / "out", series, 3, (), (8,))
    points = [("n", 16), ("n", 32), ("n", 64), ("r", 2), ("r", 4)]
    assert [sorted(asked[round : round + 5]) for round in (0, 5, 10)] == [points] * 3
    fits = {name: fit["value"] for name, fit in result["exponents"].items()}
    np.testing.assert_allclose(fits["self_attention core in n"], 2)
    np.testing.assert_allclose(fits["restricted_self_attention core in r"], 1)
    text = (tmp_path / "out" / "table1.txt").read_text()
    assert f"Measured on {len(os.sched_getaffinity(0))} core(s)." in text
    assert "O(n^2 d)" in text and "8 (8)" in text  # LSTM's path of 8 steps
    assert json.loads((tmp_path / "out" / "table1.json").read_text())["paths"]["8"]["dilated"] == [
        2,
        2,
    ]
    assert {path.suffix for path in (tmp_path / "out").glob("table1_time.*")} == {".png", ".svg"}
    measure(tmp_path / "out", series, 3, (), (8,))
    assert len(asked) == 15


def test_a_point_is_timed_and_a_peak_is_measured():
    for kind in ("separable", "self_attention"):
        assert len(table1_layer_complexity.times_of(Series(kind, "n", (8,), 1, d=4), 8, 2)) == 2
    # Scores of 3,000 positions, explicitly: 34 MiB, and as many weights.
    assert table1_layer_complexity.memory_elsewhere("self_attention", 3000) > 34


def test_a_type_of_layer_has_one_colour_in_all_panels():
    series = all_series(16_384)
    times = {f"{one.name} {size}": [1e-3 * size] for one in series for size in one.sizes}
    colors, panels = {}, {}
    for panel in picture(series, times).axes:
        for line in panel.lines:
            if ", " in line.get_label():
                kind = (
                    line.get_label().rpartition(",")[0].removesuffix(" core").removesuffix(" layer")
                )
                colors.setdefault(kind, set()).add(to_hex(line.get_color()))
                panels.setdefault(kind, set()).add(panel.get_xlabel())
    assert len(colors) == 6 and all(len(own) == 1 for own in colors.values())
    assert len(set.union(*colors.values())) == 6
    assert panels["self attention"] == {"n", "d"} and panels["convolutional"] == {"n", "d", "k"}


def test_the_exponent_of_noisy_times_lies_in_its_interval():
    generator = np.random.default_rng(5)
    sizes = [64, 128, 256, 512, 1024]
    times = [3e-6 * n**1.5 * np.exp(generator.normal(0, 0.05, 9)) for n in sizes]
    times[2][:3] *= 20  # Somebody else's work.
    fit = fitted_exponent(sizes, times)
    assert fit.low < 1.5 < fit.high
    assert fit.high - fit.low < 0.1
    exact = fitted_exponent([1, 2, 4], [[3.0], [12.0], [48.0]])
    np.testing.assert_allclose(exact, (2.0, 2.0, 2.0))
