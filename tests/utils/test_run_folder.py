"""A run's folder: claimed once, never overwritten."""

import pytest

from keras_attention.utils.agreed import agreed
from keras_attention.utils.files import PARTIAL, DamagedFile, write_json
from keras_attention.utils.run_folder import RunFolder
from tests.helpers import contents

pytestmark = pytest.mark.backends("tensorflow")

CONFIG = {"preset": "tiny", "steps": 5, "languages": ("en", "de"), "train_fingerprint": "ab"}


@pytest.fixture
def started(tmp_path):
    """The folder of a run that has trained."""
    run = RunFolder(tmp_path / "run")
    run.claim(CONFIG)
    checkpoint = run.checkpoints / "update-00000001"
    checkpoint.mkdir(parents=True)
    (checkpoint / "weights").write_text("dear")
    return run


def test_a_new_or_empty_folder_is_claimed(tmp_path):
    for path in (tmp_path / "a" / "new", tmp_path / "empty"):
        if path.name == "empty":
            path.mkdir()
        run = RunFolder(path)
        run.claim(CONFIG)
        assert run.settings() == {**CONFIG, "languages": ["en", "de"]}
        assert run.finished_report() is None


def test_looking_changes_nothing(tmp_path):
    run = RunFolder(tmp_path / "run")
    run.check(CONFIG)
    assert run.finished_report() is None
    with pytest.raises(ValueError, match="is not the folder of a run"):
        run.settings()
    assert not list(tmp_path.iterdir())


def test_the_same_configuration_goes_on(started):
    before = contents(started.path)
    started.claim(CONFIG)
    assert contents(started.path) == before


@pytest.mark.parametrize(
    "change,message",
    [
        ({"steps": 6}, "steps: 5 there, 6 asked for"),
        ({"train_fingerprint": "cd"}, "the train text differs"),
        ({"test_fingerprint": "cd"}, "only one has a test text"),
        ({"more": 1}, "more: None there, 1 asked for"),
        ({"guided_alignment_sha256": "cd"}, "only one has a file of word alignments"),
    ],
)
def test_another_configuration_is_refused_and_nothing_changes(started, change, message):
    before = contents(started.path)
    with pytest.raises(ValueError, match=rf"another configuration \({message}\).*Nothing was"):
        started.claim({**CONFIG, **change})
    assert contents(started.path) == before


@pytest.mark.parametrize(
    "change,stays",
    [({"steps": 6}, True), ({"vocabulary_size": 99}, False), ({"languages": ["en", "fr"]}, False)],
)
def test_a_run_that_has_not_trained_can_be_started_otherwise(tmp_path, change, stays):
    """The tokenizer stays if nothing that decides about it has changed."""
    run = RunFolder(tmp_path / "run")
    run.claim(CONFIG)
    for folder in (run.tokenizer, run.store):
        folder.mkdir()
    run.claim({**CONFIG, **change})
    assert run.settings() == {**CONFIG, "languages": ["en", "de"], **change}
    assert (run.tokenizer.exists(), run.store.exists()) == (stays, stays)


def test_a_start_that_was_killed_while_it_wrote_its_settings(tmp_path):
    (tmp_path / f"{PARTIAL}config.json").write_text('{"ste')
    run = RunFolder(tmp_path)
    run.claim(CONFIG)
    assert run.settings()["steps"] == 5


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
    for path in (tmp_path, tmp_path / name):  # a file is refused as well
        with pytest.raises(ValueError, match="is not the folder of a run. Nothing was changed"):
            RunFolder(path).claim(CONFIG)
    assert contents(tmp_path) == before


def test_the_report_of_a_finished_run(started):
    started.report.write_text('{"bleu": 12.5, "text": "größer"}', "utf-8")
    assert RunFolder(started.path).finished_report() == {"bleu": 12.5, "text": "größer"}


def test_a_setting_that_another_version_did_not_write_is_named(started):
    assert started.settings(["steps"])["steps"] == 5
    with pytest.raises(ValueError, match=r"config.json' lacks beam_size, dtype: another version"):
        started.settings(["beam_size", "steps", "dtype"])


def test_what_is_changeable_may_change_and_is_noted(started):
    changed = {**CONFIG, "steps": 6}
    started.claim(changed, changeable=("steps",))
    assert started.settings()["steps"] == 6
    with pytest.raises(ValueError, match="another configuration"):
        started.claim({**changed, "train_fingerprint": "cd"}, changeable=("steps",))


def test_a_second_process_is_kept_out(started, monkeypatch):
    (started.path / "sub").mkdir()
    link = started.path.with_name("link")
    link.symlink_to(started.path)
    monkeypatch.chdir(started.path)
    with RunFolder(started.path).locked():
        before = contents(started.path)
        for name in (started.path, link, ".", "sub/.."):  # one folder, whatever it is called
            with pytest.raises(ValueError, match="Another process works on the run"):
                with RunFolder(name).locked():
                    pass
        assert contents(started.path) == before
    with RunFolder(started.path).locked():
        assert contents(started.path) == before


@pytest.mark.parametrize("place", ["file/run", "/proc/run"])
def test_a_place_where_nothing_can_be_written_is_no_other_process(tmp_path, place):
    (tmp_path / "file").write_text("mine")
    run = RunFolder(tmp_path / place)  # an absolute path stays one
    if not run.path.parent.exists():
        pytest.skip("there is no such folder on this system")
    with pytest.raises(
        OSError, match=f"folder '.*{place}' of the run cannot be written: .*another output"
    ):
        with run.locked():
            pass


@pytest.mark.parametrize("name", ["config", "report"])
def test_a_damaged_file_is_named(started, name):
    write_json(started.report, {"steps": 5})
    file = getattr(started, name)
    file.write_text(file.read_text().replace("{", "", 1))
    for use in (lambda: started.claim(CONFIG), started.finished_report):
        if (name == "report") == (use == started.finished_report):
            with pytest.raises(DamagedFile, match=f"{file.name}' is damaged"):
                use()


def test_a_refused_start_leaves_nothing(tmp_path):
    (tmp_path / "empty").mkdir()
    for place in ("run", "runs/of/demo", "empty"):
        run = RunFolder(tmp_path / place)
        with pytest.raises(ValueError, match="too small"), run.locked():
            run.claim(CONFIG)
            for folder in (run.tokenizer, run.store):
                folder.mkdir()
            raise ValueError("too small")
        assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


def failing_start(run, error):
    with pytest.raises(type(error)), run.locked():
        run.claim(CONFIG)
        run.tokenizer.mkdir(exist_ok=True)
        raise error


def test_a_start_that_fails_leaves_what_was_there_or_is_of_use(tmp_path):
    def names():
        return sorted(path.name for path in run.path.iterdir())

    elsewhere = agreed(ValueError("Process 1 could not go on"), is_told_here=False)
    for number, error in enumerate((KeyboardInterrupt(), OSError(28, "full"), elsewhere)):
        run = RunFolder(tmp_path / f"runs{number}" / "new")
        failing_start(run, error)
        assert names() == ["config.json", "tokenizer"]
    failing_start(run, ValueError("too small"))  # it is no longer new
    assert names() == ["config.json", "tokenizer"]
    run = RunFolder(tmp_path / "trained")
    with pytest.raises(ValueError), run.locked():
        run.claim(CONFIG)
        run.logs.mkdir()
        raise ValueError("in training")
    assert names() == ["config.json", "logs"]
