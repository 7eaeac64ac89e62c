"""Handles of hubs, with libraries that only pretend to download."""

import sys
import types

import pytest

from keras_attention.interop.hub import download, is_handle

pytestmark = pytest.mark.backends("torch")


class Hub(types.ModuleType):
    """Pretends to be huggingface_hub: a folder of files that a repository has, and one that is cached."""

    def __init__(self, folder, files, online=True, cached=False):
        super().__init__("huggingface_hub")
        self.folder, self.files, self.online, self.cached = folder, files, online, cached
        self.calls = []

    def snapshot_download(self, name, revision, allow_patterns, local_files_only):
        from fnmatch import fnmatch

        self.calls.append((name, revision, local_files_only))
        if not (self.cached if local_files_only else self.online):
            raise OSError("no route to host")
        for file in self.files:
            if any(fnmatch(file, pattern) for pattern in allow_patterns):
                (self.folder / file).write_text("")
        return str(self.folder)


def fake(monkeypatch, folder, *args, **kwargs):
    hub = Hub(folder, *args, **kwargs)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    return hub


def names(folder):
    return {file.name for file in folder.iterdir()}


NEEDED = ["config.json", "source.spm", "target.spm", "vocab.json", "generation_config.json"]


def test_safe_weights_are_taken_alone(monkeypatch, tmp_path):
    files = [*NEEDED, "model.safetensors", "pytorch_model.bin", "tf_model.h5", "rust_model.ot"]
    hub = fake(monkeypatch, tmp_path, files)
    assert download("hf://owner/opus-mt-en-de") == tmp_path
    assert names(tmp_path) == {*NEEDED, "model.safetensors"}
    assert hub.calls == [("owner/opus-mt-en-de", None, False)]


def test_old_weights_where_there_are_no_others(monkeypatch, tmp_path):
    hub = fake(monkeypatch, tmp_path, [*NEEDED, "pytorch_model.bin", "flax_model.msgpack"])
    assert download("hf://owner/name@v1.0") == tmp_path
    assert names(tmp_path) == {*NEEDED, "pytorch_model.bin"}
    assert hub.calls[0] == ("owner/name", "v1.0", False)


def test_firefox_and_ctranslate2_are_whole(monkeypatch, tmp_path):
    files = ["model.ende.intgemm.alphas.bin", "vocab.ende.spm", "lex.50.50.ende.s2t.bin"]
    fake(monkeypatch, tmp_path, files)
    download("hf://owner/name")
    assert names(tmp_path) == set(files[:2])


@pytest.mark.parametrize(
    ("mirror", "site"),
    [(None, "https://huggingface.co"), ("http://mirror:81/hub/", "http://mirror:81/hub")],
)
def test_without_network(monkeypatch, tmp_path, mirror, site):
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    if mirror is not None:
        monkeypatch.setenv("HF_ENDPOINT", mirror)
    hub = fake(monkeypatch, tmp_path, NEEDED, online=False, cached=True)
    assert download("hf://owner/name") == tmp_path
    assert hub.calls == [("owner/name", None, False), ("owner/name", None, True)]
    fake(monkeypatch, tmp_path, NEEDED, online=False)
    with pytest.raises(
        ConnectionError, match=f"no route to host.* of {site}/owner/name/tree/main by hand.*folder"
    ):
        download("hf://owner/name")


def test_kaggle(monkeypatch, tmp_path):
    kaggle = types.ModuleType("kagglehub")
    asked = []
    kaggle.model_download = lambda name: asked.append(name) or str(tmp_path)
    monkeypatch.setitem(sys.modules, "kagglehub", kaggle)
    assert download("kaggle://owner/model/keras/small/2") == tmp_path
    assert asked == ["owner/model/keras/small/2"]

    def fails(name):
        raise TimeoutError

    kaggle.model_download = fails
    with pytest.raises(
        ConnectionError, match="TimeoutError.*kaggle.com/models/owner/model/keras/a"
    ):
        download("kaggle://owner/model/keras/a")


@pytest.mark.parametrize(
    "handle, message",
    [
        ("hf://owner", "hf://owner/name"),
        ("hf://owner/../../etc", "hf://owner/name"),
        ("hf://", "hf://owner/name"),
        ("kaggle://owner/model", "kaggle://owner/model/framework/variation"),
    ],
)
def test_wrong_handles(handle, message):
    with pytest.raises(ValueError, match=message):
        download(handle)


@pytest.mark.parametrize(
    "handle, package", [("hf://owner/name", "huggingface_hub"), ("kaggle://a/b/c/d", "kagglehub")]
)
def test_says_what_to_install(handle, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"pip install {package}"):
        download(handle)


def test_handles_and_paths():
    assert is_handle("hf://a/b") and is_handle("kaggle://a/b/c/d")
    assert not any(map(is_handle, ["folder", "hf", "http://a/b", None, "hf:/a"]))
