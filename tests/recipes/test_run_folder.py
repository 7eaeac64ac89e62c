"""A run's folder: claimed once, never overwritten."""

import json

import pytest

from keras_attention.recipes.run_folder import RunFolder

CONFIG = {"preset": "tiny", "steps": 5, "languages": ("en", "de"), "train_fingerprint": "ab"}


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def started(tmp_path):
    """The folder of a run that has made something."""
    RunFolder(tmp_path / "run", CONFIG)
    (tmp_path / "run" / "weights").write_text("dear")
    return tmp_path / "run"


def test_a_new_or_empty_folder_is_claimed(tmp_path):
    for path in (tmp_path / "a" / "new", tmp_path / "empty"):
        if path.name == "empty":
            path.mkdir()
        folder = RunFolder(path, CONFIG)
        there = json.loads((path / "config.json").read_text())
        assert there == {**CONFIG, "languages": ["en", "de"]}
        assert folder.finished_report() is None


def test_the_same_configuration_goes_on(started):
    before = contents(started)
    RunFolder(started, CONFIG)
    assert contents(started) == before


@pytest.mark.parametrize(
    "change,message",
    [
        ({"steps": 6}, "steps: 5 there, 6 asked for"),
        ({"train_fingerprint": "cd"}, "train_fingerprint: 'ab' there, 'cd' asked for"),
        ({"more": 1}, "more: None there, 1 asked for"),
    ],
)
def test_another_configuration_is_refused_and_nothing_changes(started, change, message):
    before = contents(started)
    with pytest.raises(ValueError, match=rf"another configuration \({message}\).*Nothing was"):
        RunFolder(started, {**CONFIG, **change})
    assert contents(started) == before


def test_a_run_that_made_nothing_can_be_started_otherwise(tmp_path):
    RunFolder(tmp_path, CONFIG)
    RunFolder(tmp_path, {**CONFIG, "steps": 6})
    assert json.loads((tmp_path / "config.json").read_text())["steps"] == 6


@pytest.mark.parametrize(
    "name,text",
    [("thesis.txt", "dear"), ("config.json", '{"model_type": "t5"}'), ("config.json", "[1]"),
     ("config.json", "not JSON"), ("config.json", "")],
)  # fmt: skip
@pytest.mark.parametrize("alone", [False, True])
def test_a_foreign_folder_is_refused_and_nothing_changes(tmp_path, name, text, alone):
    (tmp_path / name).write_text(text)
    if not alone:
        (tmp_path / "other").write_text("x")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="is not the folder of a run. Nothing was changed"):
        RunFolder(tmp_path, CONFIG)
    assert contents(tmp_path) == before


def test_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("dear")
    with pytest.raises(ValueError, match="is not the folder of a run"):
        RunFolder(tmp_path / "file", CONFIG)
    assert (tmp_path / "file").read_text() == "dear"


def test_the_report_of_a_finished_run(started):
    folder = RunFolder(started, CONFIG)
    folder.report_file.write_text('{"bleu": 12.5, "text": "größer"}', "utf-8")
    assert RunFolder(started, CONFIG).finished_report() == {"bleu": 12.5, "text": "größer"}


def test_what_is_changeable_may_change_and_is_noted(started):
    changed = {**CONFIG, "steps": 6}
    RunFolder(started, changed, changeable=("steps",))
    assert json.loads((started / "config.json").read_text())["steps"] == 6
    with pytest.raises(ValueError, match="another configuration"):
        RunFolder(started, {**changed, "train_fingerprint": "cd"}, changeable=("steps",))


def test_a_second_process_is_kept_out(started):
    before = contents(started)
    with RunFolder(started, CONFIG).locked():
        with pytest.raises(ValueError, match="Another process works on the run"):
            with RunFolder(started, CONFIG).locked():
                pass
    with RunFolder(started, CONFIG).locked():
        assert contents(started) == before
