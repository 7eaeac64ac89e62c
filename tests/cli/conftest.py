"""The folder of a run for the commands to work on."""

import pytest

from tests.recipes.small_runs import untrained_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run's folder with three checkpoints of a model that has learned nothing."""
    return untrained_run(tmp_path_factory.mktemp("run"))
