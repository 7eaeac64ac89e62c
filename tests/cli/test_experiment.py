"""The command lines of the experiments."""

import os

import pytest

from keras_attention.cli import experiment
from keras_attention.experiments import layer_complexity

pytestmark = pytest.mark.backends("tensorflow")


@pytest.fixture
def kept_to(monkeypatch):
    """The cores that this process was kept to, while a measurement of layers does nothing."""
    sets = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {5, 2, 7}, raising=False)
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda process, cores: sets.append(cores), raising=False
    )
    monkeypatch.setattr(layer_complexity, "measure_layers", lambda *args, **options: options)
    return sets


@pytest.mark.parametrize("arguments, cores", [([], [2]), (["--cores", "2"], [2, 5])])
def test_table_1_is_measured_on_one_core_or_as_many_as_asked_for(
    arguments, cores, kept_to, tmp_path
):
    options = experiment.run(
        "table1_layer_complexity", None, [*arguments, "--output-dir", str(tmp_path / "out")]
    )
    assert kept_to == [cores]
    assert "cores" not in options


@pytest.mark.parametrize("number", ["0", "4"])
def test_cores_that_are_not_there_are_refused(number, kept_to, tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        experiment.run(
            "table1_layer_complexity",
            None,
            ["--cores", number, "--output-dir", str(tmp_path / "out")],
        )
    assert left.value.code == 2
    message = capsys.readouterr().err
    assert f"`--cores` must be an int from 1 to 3. Received: --cores={number}" in message
    assert not kept_to and not (tmp_path / "out").exists()
