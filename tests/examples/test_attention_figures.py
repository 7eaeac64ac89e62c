"""The figures of a run: which heads they show, that no two are one picture, what is refused."""

import itertools
import json

import attention_figures
import numpy as np
import pytest
from attention_figures import interesting_heads

from keras_attention import Tokenizer, Transformer
from tests.recipes.small_runs import untrained_run

pytestmark = pytest.mark.backends("torch")

SENTENCE = "The niece eats up every pear quietly every morning."


def test_the_heads_are_different_ones():
    """Heads 1 and 2 are the sharpest, and 1 and 4 would differ most: figures 4 and 5 were one picture."""
    scores = np.full((5, 3, 3), 1 / 3)
    scores[1] = [[1, 0, 0], [1, 0, 0], [1, 0, 0]]
    scores[2] = [[0.1, 0.9, 0], [0.1, 0.9, 0], [0.1, 0.9, 0]]
    scores[4] = [[0, 0, 1], [0, 0, 1], [0.6, 0.4, 0]]
    scores[3] = [[0.4, 0.3, 0.3], [0.4, 0.3, 0.3], [0.4, 0.3, 0.3]]
    assert interesting_heads(scores, [2]) == [1, 2, 3, 4]
    # Of heads 0, 3, 4 the most different pair, by enumeration.
    apart = {
        pair: np.abs(scores[pair[0]] - scores[pair[1]]).sum()
        for pair in itertools.combinations((0, 3, 4), 2)
    }
    assert max(apart, key=apart.get) == (3, 4)
    for count in (1, 2, 3, 4):
        assert sorted(interesting_heads(scores[:count], [0])) == list(range(count))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose model has one layer of four heads."""
    folder = untrained_run(tmp_path_factory.mktemp("run"))
    sizes = {"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 12, "num_heads": 4}
    size = Tokenizer.load(folder / "tokenizer").vocabulary_size
    Transformer(size, **sizes, seed=3).save(folder / "model.keras")
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"preset": "tiny", "model_arguments": sizes}
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


def start(folder, *arguments):
    options = attention_figures.parser().parse_args([*map(str, arguments)])
    return attention_figures.main(options, folder)


def test_no_two_pictures_show_the_same(run, tmp_path):
    arguments = ["--run", run, "--sentence", SENTENCE, "--translation", "Die Nichte."]
    report = start(tmp_path / "a", *arguments)
    assert sorted(report["heads"]) == [1, 2, 3, 4]
    own = ["figure_3", "figure_4", "figure_4_word", "figure_5_1", "figure_5_2"]
    paper = ["figure_3", "figure_4", "figure_4_its", "figure_5_1", "figure_5_2"]
    names = [*own, *(f"paper_{name}" for name in paper)]
    assert {path.stem for path in (tmp_path / "a").glob("*.png")} == {*names}
    pixels = {(tmp_path / "a" / f"{name}.png").read_bytes() for name in names}
    assert len(pixels) == len(names)
    given = start(tmp_path / "b", *arguments, "--heads", 4, 2, 1, 3, "--word", "pear")
    assert (given["heads"], given["word"].replace("▁", "").replace(" ", "")) == (
        [4, 2, 1, 3],
        "pear",
    )
    with pytest.raises(ValueError, match="other settings .word: None there, 'pear' asked for"):
        start(tmp_path / "a", *arguments, "--word", "pear")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--sentence", " \u200b"], "--sentence has no words"),
        (["--translation", "\u00ad"], "--translation has no words"),
        (["--heads", "2", "3", "2", "4"], "--heads must be 4 different heads from 1 to 4"),
        (["--heads", "1", "2"], "--heads must be 4 different heads from 1 to 4"),
        (["--layer", "2"], "`--layer` must be an int from 1 to 1"),
        (["--word", "apple"], "--word: the sentence has no word 'apple'. Its words: The, niece"),
        (
            ["--sentence", "pear " * 401],
            "--sentence has [0-9,]+ tokens, and a picture has room for 400",
        ),
        (["--translation", "Birne " * 401], "The translation has [0-9,]+ tokens"),
    ],
)
def test_what_cannot_be_drawn_is_refused(run, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        given = ("--run", run, "--sentence", SENTENCE, "--translation", "Die Nichte.")
        start(tmp_path / "out", *given, *arguments)
    assert not (tmp_path / "out").exists()
