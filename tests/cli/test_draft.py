"""`keras-attention draft`, and `translate --draft` with what it saved."""

import re
import shutil

import pytest

from keras_attention.decoding import DraftHeads, LexicalDraft
from keras_attention.decoding.drafts import load_draft

pytestmark = pytest.mark.backends("torch")

LINES = ["The dog sleeps.", "The cat sits on the mat."]


@pytest.fixture
def own(run, tmp_path):
    """A copy of the run, and the options of the command for two files."""
    shutil.copytree(run, tmp_path / "own")
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("The dog sleeps.\nA cat sits.\n")
    target.write_text("Der Hund schläft.\nEine Katze sitzt.\n")
    return tmp_path / "own", ["--source-file", source], ["--target-file", target]


def test_a_draft_changes_no_translation(own, command):
    run, source, target = own
    greedy = ["translate", run, "--beam-size", 1, "--engine", "numpy"]
    plain = command(*greedy, typed=LINES).out
    for options, kind in (([*source, *target], LexicalDraft), ([*source, "--heads"], DraftHeads)):
        assert f"draft: wrote '{run}/draft.npz'" in command("draft", run, *options).err
        assert isinstance(load_draft(run / "draft.npz"), kind)
        found = command(*greedy, "--draft", typed=LINES)
        assert found.out == plain
        # Lines of a file, too, are drafted for.
        assert re.search(r"in [1-9]\d* passes.* of [1-9]\d* proposed tokens accepted", found.err)
        assert "without drafts" not in found.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--beam-size", "1"], "--draft: there is none in"),
        (["--beam-size", "3"], "--draft needs --beam-size 1.*Received: 3"),
        (["--beam-size", "1", "--sample"], "--sample cannot be combined with --draft"),
        (["--beam-size", "1", "--ban", "x"], "--ban cannot be combined with --draft"),
    ],
)
def test_what_takes_no_draft_is_refused(run, refused, options, message):
    shown = " ".join(refused("translate", run, "--draft", *options).split())
    assert re.search(message, shown), shown


def test_only_runs_and_pairs_give_drafts(own, tmp_path, refused):
    assert "RUN must be the folder of a run" in refused("draft", "demo_en_de", *own[1])
    longer = tmp_path / "longer"
    longer.write_text("Ein Hund.\n" * 3)
    options = ["--target-file", longer, "--pairs", "1"]
    assert "longer" in refused("draft", own[0], *own[1], *options)
    longer.write_text(" \n\n")
    assert "has no text" in refused("draft", own[0], "--source-file", longer)
