"""The programs of `decode.py` do the job that is written for them."""

import pytest
from peers.decoding import make_job
from peers.decoding.ours import KerasAttention

pytestmark = pytest.mark.backends("torch")

SEARCH = {"extra_length": 3, "beam_size": 4, "length_penalty": 0.6}


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    settings = {"preset": "tiny_1_2", "vocabulary_size": 90, "run": None, "checked": 5, **SEARCH}
    model, tokenizer = make_job.random_model(settings, folder)
    make_job.write_job(folder, model, tokenizer, make_job.random_sentences(7, 90), settings)
    return str(folder)


@pytest.mark.parametrize("asked", ["auto", "torch", "plain"])
def test_ours_compiles_before_it_is_timed(job, asked):
    ours = KerasAttention(asked, folder=job, batch_size=1)
    facts = ours.prepare()
    # A chosen engine that is not compiled yet leaves the first texts to NumPy; one with a name does not.
    assert ours.translator.engine == facts["engine"] != "auto"
    assert asked in ("auto", facts["engine"])
    assert facts["work"]["sentences"] == 7
