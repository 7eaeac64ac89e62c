"""What the runs of several files begin from; a test that changes any of it makes a copy."""

import pytest

from tests.recipes.small_runs import small_corpus, untrained_run, write_files


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    return small_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """60 pairs of one's own."""
    return write_files(tmp_path_factory.mktemp("text"), "mine", 0, 60)


@pytest.fixture(scope="session")
def start(tmp_path_factory):
    """The folder of a run to train further."""
    return untrained_run(tmp_path_factory.mktemp("start"))
