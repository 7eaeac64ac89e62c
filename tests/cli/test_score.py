"""`keras-attention score`: probabilities of pairs of lines, and of a corpus in chunks."""

import pytest

from tests.helpers import log_probabilities

pytestmark = pytest.mark.backends("torch")

LINES = ["The dog sleeps.", "", "A woman sees the small house."]


def test_scores_are_sums_of_log_probabilities(run, translator, command, refused):
    """The oracle: a softmax in NumPy over the logits, one pair at a time, without padding."""
    pairs = [
        ("The dog sleeps.", "Der Hund"),
        ("A woman sees it.", "Eine Frau sieht den kleinen Hund."),
    ]
    tokenizer, expected = translator.tokenizer, []
    for pair in pairs:
        ids = [[*tokenizer.encode(text), tokenizer.end_token_id] for text in pair]
        expected.append(log_probabilities(translator.model, *ids).sum())
    shown = command("score", run, typed=map("\t".join, pairs)).out
    assert list(map(float, shown.splitlines())) == pytest.approx(expected, abs=1e-3)
    error = refused("score", run, typed=["no tab"])
    assert "line 1 must be a source, one tab and a translation" in error


def test_a_corpus_is_scored_in_chunks(run, tmp_path, command, refused):
    pairs = {"a": LINES, "b": [*LINES[::-1], "A dog\u2028sleeps."]}
    for name, lines in pairs.items():
        (tmp_path / f"{name}.en").write_text("\n".join(lines), "utf-8")
        (tmp_path / f"{name}.de").write_text("\n".join(lines[::-1]), "utf-8")
    files = ["--source-file", tmp_path / "*.en", "--target-file", tmp_path / "*.de"]
    out = tmp_path / "out"
    bulk = ["score", run, *files, "--output-dir", out, "--chunk-lines", 2]
    shown = command(*bulk).out
    assert shown.splitlines() == [str(out / "a.de"), str(out / "b.de")]
    for name, lines in pairs.items():
        sides = tmp_path / f"{name}.en", tmp_path / f"{name}.de"
        alone = command("score", run, "--source-file", sides[0], "--target-file", sides[1]).out
        found = [float(value) for value in (out / f"{name}.de").read_text().split()]
        assert len(found) == len(lines)
        assert found == pytest.approx(list(map(float, alone.split())), abs=1e-4)
    # Of translating and scoring, each refuses the other's folder.
    error = refused("translate", run, "--input", tmp_path / "*.de", "--output-dir", out)
    assert "work: 'score' there, 'translate' asked for" in error


@pytest.mark.parametrize(
    "files, message",
    [
        (["--source-file", "?", "--target-file", "a"], "Received: 2 and 1 files"),
        (["--source-file", "a", "--target-file", "b"], "'a' has 1 lines, 'b' has 2"),
    ],
)
def test_files_that_are_no_pairs(run, tmp_path, monkeypatch, refused, files, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("A dog.\n")
    (tmp_path / "b").write_text("Ein Hund.\nJa.\n")
    assert message in refused("score", run, *files, "--output-dir", "out")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
