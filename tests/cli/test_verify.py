"""`keras-attention verify`: each damaged file of a run is named, with what to do."""

import shutil

import pytest

from keras_attention.callbacks.metrics_log import MetricsLog
from keras_attention.cli.main import main
from keras_attention.decoding.translator import Translator
from keras_attention.utils.signed_archive import sign_archive

pytestmark = pytest.mark.backends("torch")


@pytest.fixture
def whole(run, tmp_path):
    """A copy of a run, with the checksums that a training writes."""
    folder = shutil.copytree(run, tmp_path / "run")
    sign_archive(folder / "model.keras")
    MetricsLog(folder / "metrics.jsonl").write({"update": 5, "loss": 4.5})
    return folder


def flip(path, place=0.5):
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)


def test_an_undamaged_run(whole, capsys):
    main(["verify", str(whole)])
    said = capsys.readouterr().out
    # The model; tokenizer; two stores; three checkpoints.
    assert said.startswith(f"{1 + 2 + 2 * 5 + 3 * 2} files compared, 0 damaged; 7 other files")


@pytest.mark.parametrize(
    ("pattern", "remedy"),
    [
        ("model.keras", "writes both again"),
        ("tokenizer/tokenizer.model", "Restore it from a copy"),
        ("tokenizer/tokenizer.json", "Restore it from a copy"),
        ("store/*/source.ids", "builds it again"),
        ("store/*/metadata.json", "builds it again"),
        ("checkpoints/update-00000004/model.weights.h5", "continues from the one before"),
        ("checkpoints/update-00000004/manifest.json", "continues from the one before"),
    ],
)
def test_a_damaged_file_is_named(whole, capsys, pattern, remedy):
    path = sorted(whole.glob(pattern))[0]
    flip(path)
    with pytest.raises(SystemExit) as left:
        main(["verify", str(whole)])
    assert left.value.code == 1
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2 and f"'{path}' is damaged" in said[0] and remedy in said[0]
    assert ", 1 damaged" in said[1]


def test_a_damaged_model_is_not_used(whole):
    flip(whole / "model.keras")
    with pytest.raises(ValueError, match=r"model\.keras' is damaged.*writes both again"):
        Translator.from_run(whole)


def test_a_missing_folder_is_refused(tmp_path, refused):
    assert "There is no" in refused("verify", tmp_path / "nothing")


def test_a_url_is_refused(refused):
    error = refused("verify", "s3://bucket/translated")
    assert "'s3://bucket/translated' to this" in error
