"""Tables, folders that keep measurements, fitted exponents."""

import json

import numpy as np
import pytest

from keras_attention.experiments.fits import fitted_exponent
from keras_attention.experiments.tables import Measurements, Table, write_results

pytestmark = pytest.mark.backends("tensorflow")


def test_a_folder_goes_on_and_refuses_other_settings(tmp_path):
    calls = []
    for _ in range(2):
        kept = Measurements(tmp_path / "a", {"sizes": (1, 2)})
        with kept.locked():
            assert kept.get("x", lambda: calls.append(1) or {"seconds": (0.5, 0.25)}) == {
                "seconds": [0.5, 0.25]
            }
    assert calls == [1]
    with pytest.raises(ValueError, match=r"sizes: \[1, 2\] there, \[3\] asked for"):
        Measurements(tmp_path / "a", {"sizes": [3]})


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds no measurements"):
        Measurements(tmp_path, {})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_results_in_three_forms(tmp_path, capsys):
    table = Table("T", ["layer", "ms"], [["LSTM", "1.5"], ["attention", None]], ["A note."])
    write_results(tmp_path, "table", [table], {}, {"figure": 3})
    lines = ["T", "", "layer       ms", "LSTM       1.5", "attention", "", "A note.", ""]
    assert (tmp_path / "table.txt").read_text() == "\n".join(lines)
    assert "| layer | ms |\n|---|---|\n| LSTM | 1.5 |\n" in (tmp_path / "table.md").read_text()
    saved = json.loads((tmp_path / "table.json").read_text())
    assert saved["figure"] == 3 and "keras" in saved["environment"]
    assert "layer       ms" in capsys.readouterr().out


def test_the_exponent_of_noisy_times_lies_in_its_interval():
    generator = np.random.default_rng(5)
    sizes = [64, 128, 256, 512, 1024]
    times = [3e-6 * n**1.5 * np.exp(generator.normal(0, 0.05, 9)) for n in sizes]
    times[2][:3] *= 20  # Somebody else's work.
    fit = fitted_exponent(sizes, times)
    assert fit.low < 1.5 < fit.high
    assert fit.high - fit.low < 0.1
    with pytest.raises(ValueError, match="two different sizes"):
        fitted_exponent([4, 4], [[1.0], [1.0]])
