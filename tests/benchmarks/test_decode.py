"""The programs of `decode.py` do the job that is written for them."""

import pytest
from peers.decoding.make_job import JobMaker
from peers.decoding.programs import CTranslate2, KerasAttention

pytestmark = pytest.mark.backends("torch")

SEARCH = {"extra_length": 3, "beam_size": 4, "length_penalty": 0.6}


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("job"))
    assert JobMaker(folder, "tiny_1_2", None, 7, 90, 5, **SEARCH).prepare() == {
        "vocabulary_size": 90
    }
    return {"folder": folder, "batch_size": 1}


@pytest.mark.parametrize("asked", ["auto", "torch", "plain"])
def test_ours_compiles_before_it_is_timed(job, asked):
    ours = KerasAttention(asked, **job)
    facts = ours.prepare()
    # A chosen engine that is not compiled yet leaves the first texts to NumPy; one with a name does not.
    assert ours.translator.engine == facts["engine"] != "auto"
    assert asked in ("auto", facts["engine"])
    assert facts["work"]["sentences"] == 7


def test_ctranslate2_writes_as_many_tokens_as_are_forced(job):
    pytest.importorskip("ctranslate2")
    theirs = CTranslate2(**job)
    assert theirs.prepare()["work"] == {"sentences": 7} and len(theirs.run(2)) == 2
    lengths = [len(row) + 1 + 3 for row in theirs.job.sentences[:5]]
    assert [len(row) for row in theirs.check()["translations"]] == lengths
