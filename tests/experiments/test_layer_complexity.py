"""Table 1 is measured, written, and resumed."""

import json
import os

import numpy as np
import pytest

from keras_attention.experiments import layer_complexity
from keras_attention.experiments.layer_complexity import Series, measure_layers

pytestmark = pytest.mark.backends("tensorflow")


def test_exponents_tables_pictures_and_resuming(tmp_path, monkeypatch):
    series = (
        Series("self_attention", "n", (16, 32, 64), 2, core=True, d=4),
        Series("restricted_self_attention", "r", (2, 4), 1, core=True, n=24, d=4),
    )
    asked = []

    def times(one, size, repeats):
        asked.append((one.axis, size))
        return [1e-6 * size**2 if one.axis == "n" else 1e-6 * (2 * size - 1)] * repeats

    monkeypatch.setattr(layer_complexity, "_times", times)
    options = {"repeats": 3, "memory_sizes": (), "path_sizes": (8,)}
    result = measure_layers(tmp_path / "out", series, **options)
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
    measure_layers(tmp_path / "out", series, **options)
    assert len(asked) == 15


def test_a_point_is_timed_and_a_peak_is_measured():
    for kind in ("separable", "self_attention"):
        assert len(layer_complexity._times(Series(kind, "n", (8,), 1, d=4), 8, 2)) == 2
    # Scores of 3,000 positions, explicitly: 34 MiB, and as many weights.
    assert layer_complexity._memory_elsewhere("self_attention", 3000) > 34
