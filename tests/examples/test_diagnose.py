"""Errors of the search and of the model, with a search whose results are known and a softmax in NumPy."""

import json
import sys

import diagnose as example
import keras
import pytest
from diagnose import diagnose

from keras_attention import Tokenizer, Transformer, Translation, Translator
from tests.helpers import log_probabilities
from tests.recipes.small_runs import untrained_run

pytestmark = pytest.mark.backends(
    "torch"
)  # scores of each backend: ../evaluation/test_perplexity.py

SOURCES = ["the old house", "a dog", "cats and dogs", "the old dog"]
REFERENCES = ["das alte Haus", "ein Hund", "Katzen und Hunde", "der alte Hund"]
TEXTS = {
    2: ["das alte Haus", "das alte Haus", "Hunde", "der Hund"],
    8: ["das Haus", "das alte Haus", "Hunde", "ein alter Hund"],
}
# Of the references: far below, far above, far below, far below. The wider beam is better for the last.
SCORES = {2: [-1.0, -1e6, -1.0, -1.0], 8: [-0.5, -1e6, -1.0, -0.2]}


@pytest.fixture(scope="module")
def translator():
    tokenizer = Tokenizer.train([*SOURCES, *REFERENCES] * 2, vocabulary_size=290)
    keras.utils.set_random_seed(1)
    model = Transformer(
        tokenizer.vocabulary_size, num_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2
    )
    return Translator(model, tokenizer, beam_size=2, show_progress=False)


def expected_score(translator, source, reference):
    read, written = ([*translator.tokenizer.encode(text), 1] for text in (source, reference))
    scores = log_probabilities(translator.model, read, written)
    return scores.sum() / ((5 + len(written)) / 6) ** 0.6


def test_kinds(translator, monkeypatch):
    def translate(self, texts, **_):
        size = self.beam_size
        return [
            [Translation(text, score, (), True)]
            for text, score in zip(TEXTS[size], SCORES[size], strict=True)
        ]

    monkeypatch.setattr(Translator, "translate", translate)
    found = diagnose(translator, SOURCES, REFERENCES, wider_beam=8)
    assert [one.kind for one in found] == ["right", "search", "model", "search"]
    for one, source, reference in zip(found, SOURCES, REFERENCES, strict=True):
        expected = expected_score(translator, source, reference)
        assert one.reference_score == pytest.approx(expected, rel=1e-4)


def test_a_found_translation_is_never_worse_scored_than_itself(translator):
    """The score of a reference is that of the search, so its own translation is no error of the search."""
    engine = Translator(
        translator.model,
        translator.tokenizer,
        beam_size=2,
        max_extra_length=4,
        engine=keras.backend.backend(),
        show_progress=False,
    )
    own = engine.translate(SOURCES)
    found = diagnose(engine, SOURCES, [best[0].text for best in own], wider_beam=3)
    assert {one.kind for one in found} == {"right"}


def test_what_was_cut_off_is_compared_by_the_same_measure(translator, monkeypatch):
    """Its score is a plain log-probability, which a length penalty makes larger."""
    ids = tuple(range(5, 25))
    penalty = (25 / 6) ** 0.6

    def translate(self, texts, **_):
        is_finished = self.beam_size > 2
        score = -20.0 / penalty if is_finished else -20.0
        return [[Translation("Hunde", score, ids, is_finished)] for _ in texts]

    monkeypatch.setattr(Translator, "translate", translate)
    [one] = diagnose(translator, SOURCES[1:2], REFERENCES[1:2], wider_beam=5)
    assert one.score == pytest.approx(one.wider_score) == pytest.approx(-20.0 / penalty)


def test_command(tmp_path, capsys, monkeypatch):
    (tmp_path / "run").mkdir()
    run = untrained_run(tmp_path / "run")
    for name, lines in (("s", ["The dog sleeps.", "A cat."]), ("t", ["Der Hund.", "Eine Katze."])):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    output = tmp_path / "rows.jsonl"
    words = [run, tmp_path / "s", tmp_path / "t", "--output", output]
    monkeypatch.setattr(sys, "argv", ["diagnose.py", *map(str, words)])
    example.main()
    printed = capsys.readouterr().out.splitlines()
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    kinds = [row["kind"] for row in rows]
    assert [line.split()[:2] for line in printed[:3]] == [
        [kind, str(kinds.count(kind))] for kind in ("right", "search", "model")
    ]
    assert printed[3].startswith("BLEU ") and rows[0]["reference"] == "Der Hund."
