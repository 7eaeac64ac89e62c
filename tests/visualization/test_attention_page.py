"""What a page of a finished model takes from its run."""

import base64
import gzip
import json
import re

import numpy as np
import pytest

from keras_attention import Tokenizer, Transformer, Translation, Translator
from keras_attention.visualization import SummaryWriter, attention_entries, save_attention
from keras_attention.visualization.attention_page import translated_entries
from keras_attention_viewer import measured
from keras_attention_viewer.codec import PLUGIN_NAME, entry_tag
from tests.visualization.test_attention_entries import PAIRS, Attending

pytestmark = pytest.mark.backends("torch")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([text for pair in PAIRS for text in pair], vocabulary_size=290)


class Reads:
    """Stands for a translator."""

    def __init__(self, tokenizer):
        self.model, self.tokenizer = Attending(0.08), tokenizer

    def translate(self, texts):
        raise AssertionError("the translation is given")


class Says(Reads):
    """Stands for a translator of one's own, without a beam, or with one."""

    def __init__(self, tokenizer, **options):
        super().__init__(tokenizer)
        self.__dict__.update(options)

    def translate(self, texts, n_best=1):
        ids = tuple(self.tokenizer.encode(PAIRS[0][1]))
        found = [Translation(PAIRS[0][1], -1.0, ids, True), Translation("x", -2.5, (3,), False)]
        return [found[:n_best] for _ in texts]


@pytest.mark.parametrize("text", ["", " ", "\u200b", "\ufeff\u00ad"])
def test_a_text_that_shows_nothing_is_empty(tokenizer, tmp_path, text):
    """Else the page shows the end of the sentence alone, as if it were one."""
    with pytest.raises(ValueError, match="`source` must be a text, or several, none empty"):
        save_attention(tmp_path / "a.html", Reads(tokenizer), [PAIRS[0][0], text], ["x", "y"])
    assert not (tmp_path / "a.html").exists()


def write_run(folder, tokenizer, steps=(10, 20), layers=1, scale=100, **options):
    """A run whose records measure ten times the pairs; the importance of the heads names the step."""
    with SummaryWriter(folder / "logs", **options) as writer:
        for step in steps:
            entry, *more = attention_entries(Attending(0.08), tokenizer, PAIRS * 10, step=step)
            if layers > 1:  # records of another model
                for kind in entry.header["kinds"]:
                    kind["layers"] = layers
                    kind["first_blob"] = 1 + layers * entry.header["kinds"].index(kind)
                    entry.weights[kind["name"]] *= layers
                more = []
            [entry] = measured([entry], more)
            entry.header["importance"] = {"cross": [[step / scale, 0.0]]}
            writer.blobs(entry_tag(0), entry.to_blobs(), step, PLUGIN_NAME)
    return writer.path


def header_of(path):
    """The header of the only entry of a page."""
    data = re.search(r'id="attention-data">(.*?)</script>', path.read_text("utf-8"))[1]
    [sentence] = json.loads(data)["entries"]["model"].values()
    [blobs] = sentence.values()
    return json.loads(gzip.decompress(base64.b64decode(blobs[0])))


def page_of(tmp_path, tokenizer, run):
    path = tmp_path / "page.html"
    return header_of(save_attention(path, Reads(tokenizer), *PAIRS[0], run=run, overwrite=True))


def test_roles_and_importance_are_those_of_the_last_record(tmp_path, tokenizer):
    write_run(tmp_path, tokenizer)
    alone, with_run = (page_of(tmp_path, tokenizer, run) for run in (None, tmp_path))
    [few, many] = (header["measures"]["encoder"][0][0] for header in (alone, with_run))
    assert few["rows"] < 100 <= many["rows"]
    assert few["labels"] == [] and many["labels"] == ["broad"]
    assert alone["importance"] is None
    assert with_run["importance"] == {"cross": [[0.2, 0.0]]}
    assert (alone["measured_sentences"], alone["gold"]) == (1, with_run["gold"])
    assert with_run["measured_sentences"] > 1 and with_run["measures_of"] == "run"
    of_run, own = (header["measures"]["cross"][0] for header in (with_run, alone))
    [[here, score]] = [
        (head.get("score_here"), mine["alignment_score"])
        for head, mine in zip(of_run, own, strict=True)
        if head.get("best_alignment")
    ]
    assert here == score
    others = "measures measured_sentences measures_of importance alignment_rows gold".split()
    assert {key for key in with_run if alone.get(key) != with_run[key]} <= {*others}


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({}, None),
        ({"beam_size": 2, "sampling": None}, [PAIRS[0][1], "x"]),
        ({"beam_size": 2, "sampling": "drawn"}, None),
    ],
)
def test_a_page_has_what_a_beam_search_found(tmp_path, tokenizer, options, texts):
    path = tmp_path / "page.html"
    header = header_of(save_attention(path, Says(tokenizer, **options), PAIRS[0][0]))
    assert header["target_text"] == PAIRS[0][1]
    found = header["alternatives"]
    assert (found and [one["text"] for one in found]) == texts


def test_a_run_that_has_no_such_record_changes_nothing(tmp_path, tokenizer):
    alone = page_of(tmp_path, tokenizer, None)
    assert page_of(tmp_path, tokenizer, tmp_path / "nowhere") == alone
    write_run(tmp_path / "deeper", tokenizer, layers=2)
    assert page_of(tmp_path, tokenizer, tmp_path / "deeper") == alone


@pytest.mark.parametrize(
    ("again", "is_damaged", "found"),
    [
        ({"resumes": True}, False, 0.01),
        ({"resumes": False}, False, 0.01),
        ({"resumes": True}, True, 0.05),
        (None, True, 0.1),
    ],
)
def test_the_last_whole_record_counts(tmp_path, tokenizer, again, is_damaged, found):
    """Of a run that was started again, whose older records go further, the later one of equal steps."""
    path = write_run(tmp_path, tokenizer, steps=(5, 10, 40) if again else (10, 20))
    if again:
        path = write_run(tmp_path, tokenizer, steps=(10,), scale=1000, **again)
    if is_damaged:
        content = bytearray(path.read_bytes())
        content[-30] ^= 0xFF  # in the last record
        path.write_bytes(content)
    assert page_of(tmp_path, tokenizer, tmp_path)["importance"] == {"cross": [[found, 0.0]]}


def test_a_translator_without_keras_shows_what_that_of_the_model_does():
    light = Translator.from_preset("demo_en_de", engine="numpy")
    model = Transformer.from_preset("demo_en_de")
    found = [
        translated_entries(each, "The dog sleeps.")[0]
        for each in (light, Translator(model, light.tokenizer, engine="plain"))
    ]
    assert found[0].header["tokens"] == found[1].header["tokens"] and len(found[0].weights) == 3
    for kind, layers in found[0].weights.items():
        for ours, theirs in zip(layers, found[1].weights[kind], strict=True):
            assert ours.max() > 2**14  # of 65,535, which is a weight of 1
            np.testing.assert_allclose(ours.astype(int), theirs.astype(int), atol=2)
