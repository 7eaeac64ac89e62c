"""Every kind of folder: no damage is used silently, nothing of others is replaced, a kill loses nothing."""

import functools
import os
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attention import Tokenizer, TokenStore, Transformer, Translator, load_corpus
from keras_attention.data import demo
from keras_attention.data.formats import run as run_format
from keras_attention.data.formats.own_preset import PRESET
from keras_attention.data.presets import load
from keras_attention.data.saved_tokenizer import SAVED
from keras_attention.data.token_store import STORE
from keras_attention.interop.export_folder import EXPORT
from keras_attention.spec.files import SPEC, load_spec, save_spec
from keras_attention.spec.parts import as_array
from keras_attention.training import load_checkpoint, save_average
from keras_attention.training.checkpoint_store import write_checkpoint
from keras_attention.training.checkpoints import AVERAGE
from keras_attention.utils.files import (
    DamagedFile,
    OccupiedPath,
    remove_leftovers,
    write_signed_json,
)
from keras_attention.utils.folder import Folder, OtherFolder, claimed
from keras_attention.utils.run_folder import CHECKPOINT, RunFolder
from tests.data.counting_text import NumberTokenizer, number_text
from tests.helpers import contents
from tests.killing import CAN_FORK, killed_at

pytestmark = pytest.mark.backends("torch")

PLACES = 60  # flipped bits in the files of a folder, together
TEXTS = ["the quick brown fox", "der schnelle braune Fuchs"]
TOKENIZERS = [Tokenizer.train(TEXTS, size) for size in (290, 295)]
SIZES = {"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 12, "num_heads": 2}


def transformer(number, tokenizer=TOKENIZERS[0]):
    return Transformer(tokenizer.vocabulary_size, seed=number, **SIZES)


@functools.cache
def spec_of(number, tokenizer=TOKENIZERS[0]):
    return transformer(number, tokenizer).spec().map_weights(as_array)


def weights_of(spec):
    return {path: as_array(weight).tolist() for path, weight in spec.weights().items()}


def dense(number=0):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    model.set_weights([np.full(weight.shape, number + 1.5) for weight in model.get_weights()])
    return model


def translator(number):
    return Translator(spec_of(number, TOKENIZERS[number]), TOKENIZERS[number], beam_size=2)


# How each kind is written into the folder at a path: one of two, with or without replacing what is there. A
# store is never replaced; a spec and a checkpoint always.


def write_store(path, number, overwrite):
    text = number_text([(3, 5), (7, 4), (5, 13)], seed=number)
    if not path.exists():
        TokenStore.build(path.parent, text, NumberTokenizer(), verbose=False).folder.rename(path)


SOURCES = {}  # of averages


def write_average(path, number, overwrite):
    if number not in SOURCES:
        SOURCES[number] = path.parent / "source"
        write_checkpoint(SOURCES[number], dense(number), {"updates": 3})
    save_average(dense(), path, [SOURCES[number]], overwrite)


def write_preset(path, number, overwrite):
    translator(number).save_to_preset(path, sample=[], overwrite=overwrite)


# And how it is read: as something that can be compared.


def read_store(path):
    store = TokenStore.open(path)
    return [(store.source(i).tolist(), store.target(i).tolist()) for i in range(len(store))]


def read_tokenizer(path):
    tokenizer = Tokenizer.load(path)
    return tokenizer.encode(TEXTS), tokenizer.vocabulary_size, tokenizer.algorithm


def read_checkpoint(path):
    model = dense(7)
    load_checkpoint(model, path, allow_average=True)
    return [weights.tolist() for weights in model.get_weights()]


def read_model(path):
    found = load(path)
    return weights_of(found.spec), found.tokenizer.fingerprint(), dict(found.options)


KINDS = {
    "store": (STORE, write_store, read_store),
    "tokenizer": (SAVED, lambda path, n, o: TOKENIZERS[n].save(path, o), read_tokenizer),
    "checkpoint": (
        CHECKPOINT,
        lambda path, n, o: write_checkpoint(path, dense(n), {"updates": 3}, replace=True),
        read_checkpoint,
    ),
    "average": (AVERAGE, write_average, read_checkpoint),
    "spec": (
        SPEC,
        lambda path, n, o: save_spec(spec_of(n), path),
        lambda path: weights_of(load_spec(path)),
    ),
    "preset": (PRESET, write_preset, read_model),
    "export": (
        EXPORT,
        lambda path, n, o: translator(n).export(path, "hugging_face", overwrite=o),
        lambda path: EXPORT.read(path) and read_model(path),
    ),
}


class Kind:
    """A kind of folder, with two of them that were written once."""

    def __init__(self, name, folder):
        self.name = name
        self.folder, self.write, self.read = KINDS[name]
        for number in (0, 1):
            (folder / str(number)).mkdir()
            self.write(folder / str(number) / "it", number, False)
        self.made = [folder / str(number) / "it" for number in (0, 1)]
        self.expected = [self.read(path) for path in self.made]
        assert self.expected[0] != self.expected[1]

    def copy(self, path):
        return shutil.copytree(self.made[0], path / "it")

    def resign(self, path, **changes):
        """Change the manifest and sign it again, as another version would, or somebody with bad intent."""
        manifest = {**self.folder.read(path), **changes}
        kept = {name: value for name, value in manifest.items() if value is not None}
        write_signed_json(path / self.folder.manifest, kept)


@pytest.fixture(scope="module", params=KINDS)
def kind(request, tmp_path_factory):
    if request.param == "export":
        pytest.importorskip("safetensors")
    return Kind(request.param, tmp_path_factory.mktemp(request.param))


def files_in(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def check_flipped_bits(path, read, number, seed=1):
    """`read` must refuse the file by name or, where the bit has no meaning, give what it gave before."""
    content, expected = path.read_bytes(), read()
    random = np.random.default_rng(seed)
    refused = 0
    for position in random.integers(0, len(content), number):
        damaged = bytearray(content)
        damaged[position] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        try:
            found = read()
        except ValueError as error:
            assert path.name in str(error), str(error)
            refused += 1
        else:
            assert found == expected, f"byte {position} of {path.name}"
    path.write_bytes(content)
    assert read() == expected
    return refused / number


def test_one_flipped_bit(kind, tmp_path):
    folder = kind.copy(tmp_path)
    files = files_in(folder)
    for file in files:
        refused = check_flipped_bits(file, lambda: kind.read(folder), PLACES // len(files))
        # White space of a manifest has no meaning.
        assert refused == 1 or (file.name == kind.folder.manifest and refused > 0.5), file


def test_what_is_cut_off_too_long_or_missing(kind, tmp_path):
    folder = kind.copy(tmp_path)
    for file in files_in(folder):
        content = file.read_bytes()
        for damaged in (content[:-2], content[: len(content) // 2], b"", content + b"}"):
            file.write_bytes(damaged)
            with pytest.raises(
                DamagedFile, match=f"'{file}' is damaged: it .*{kind.folder.remedy}"
            ):
                kind.read(folder)
        with file.open("r+b") as opened:
            opened.truncate(2**42)  # A terabyte that takes no room: its size is looked at first.
        with pytest.raises(
            DamagedFile, match=f"'{file}' is damaged: it has 4,398,046,511,104 bytes"
        ):
            kind.read(folder)
        file.unlink()
        if file.name != kind.folder.manifest:
            with pytest.raises(DamagedFile, match=f"'{file}' is damaged: it is missing"):
                kind.read(folder)
        elif kind.name != "export":  # It is a model of Hugging Face then.
            with pytest.raises(ValueError, match=f"'{folder}' is .* has no {file.name}"):
                kind.read(folder)
        file.write_bytes(content)
    assert kind.read(folder) == kind.expected[0]


def test_other_versions_and_other_kinds(kind, tmp_path):
    folder = kind.copy(tmp_path)
    manifest = kind.folder.read(folder)
    assert manifest["written_by"] == "keras_attention 0.1.0"
    version = None if kind.folder.version == 1 else kind.folder.version
    kind.resign(folder, size=None, written_by=None, format_version=version)  # as it was before
    assert kind.read(folder) == kind.expected[0]
    for changes, error, message in (
        (
            {"format_version": 99, "written_by": "ours 2"},
            OtherFolder,
            "version 99, of ours 2; .*Upd",
        ),
        ({"sha256": {"../it/x": "0"}, "size": {}}, DamagedFile, "'../it/x' is not a file in"),
        ({"sha256": {"x": "0"}, "size": {}}, DamagedFile, "x' is damaged: it is missing"),
        ({"sha256": []}, OtherFolder, f"does not say that '{folder}' is a"),
        ({"size": "many"}, OtherFolder, f"does not say that '{folder}' is a"),
        ({kind.folder.key: None}, OtherFolder, f"does not say that '{folder}' is a"),
    ):
        if kind.name == "average" and kind.folder.key in changes:
            continue  # It is a checkpoint then.
        write_signed_json(folder / kind.folder.manifest, manifest)
        kind.resign(folder, **changes)
        # A spec that cannot be read is a SpecError, for which Keras' own file takes its place.
        with pytest.raises(ValueError if kind.name == "spec" else error, match=message):
            kind.read(folder)


def test_nothing_but_one_of_these_is_replaced(kind, tmp_path, monkeypatch):
    if kind.name in ("store", "tokenizer", "checkpoint"):
        pytest.skip("is never replaced, or file by file, or always")
    folder = kind.copy(tmp_path)
    if kind.name != "spec":
        with pytest.raises(OccupiedPath, match="exists.*overwrite=True"):
            kind.write(folder, 1, False)
    kind.write(folder, 1, True)
    assert kind.read(folder) == kind.expected[1]
    refusing = pytest.raises(OccupiedPath, match="did not write it, or not all of it")
    for name in ("notes", "deep/notes", *contents(folder)):
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        content = file.read_bytes() if file.exists() else None
        file.write_bytes(b"mine" + (content or b""))
        before = contents(folder)
        with refusing:
            kind.write(folder, 0, True)
        assert contents(folder) == before
        file.unlink() if content is None else file.write_bytes(content)
    (folder / "link").symlink_to(tmp_path)
    with refusing:
        kind.write(folder, 0, True)
    for walk in ("rglob", "iterdir", "glob"):
        monkeypatch.setattr(Path, walk, lambda *_: pytest.fail("walks through a home"))
    (tmp_path / "home" / "deep").mkdir(parents=True)
    with refusing:
        kind.write(tmp_path / "home", 0, True)
    monkeypatch.chdir(tmp_path / "home")
    with pytest.raises(OccupiedPath, match="is the current folder"):
        kind.write(Path("."), 0, True)


def test_what_fails_leaves_what_was_there(kind, tmp_path, monkeypatch):
    folder = kind.copy(tmp_path)
    before = contents(tmp_path)

    def full(*_):
        raise OSError(28, "No space left")

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "seal", full)
        for path in (folder, tmp_path / "new"):
            if path.exists() and kind.name == "store":
                continue
            with pytest.raises(OSError, match="No space left"):
                kind.write(path, 1, True)
    assert contents(tmp_path) == before and os.listdir(tmp_path) == ["it"]
    kind.write(tmp_path / "new", 1, True)
    assert kind.read(tmp_path / "new") == kind.expected[1]


@pytest.mark.skipif(not CAN_FORK, reason="needs fork")
def test_a_kill_at_any_change_of_files_leaves_the_old_one_or_the_new(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # It takes most of the time; the disk goes on.
    if kind.name not in ("store", "tokenizer", "checkpoint"):
        pytest.skip("is written in one piece, as a checkpoint is")
    for change in range(1, 200):
        folder = tmp_path / str(change)
        folder.mkdir()
        path = folder / "it"
        if kind.name != "store":
            kind.copy(folder)
        was_killed = killed_at(change, folder, lambda path=path: kind.write(path, 1, True))
        remove_leftovers(folder)
        assert kind.name == "store" or kind.read(path) in kind.expected
        kind.write(path, 1, True)
        assert kind.read(path) == kind.expected[1] and os.listdir(folder) == ["it"]
        assert len(files_in(path)) == len(files_in(kind.made[1]))
        if not was_killed:
            break
    assert 9 < change < 199


def test_a_claim_keeps_others_out_until_it_ends(tmp_path):
    path = tmp_path / "made" / "work"
    with claimed(path, "texts"):
        with pytest.raises(ValueError, match=f"Another process works on the texts in '{path}'"):
            with claimed(path, "texts"):
                pytest.fail("it is taken")
    with claimed(path, "texts"):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="'.*file/work' of the texts cannot be written"):
        with claimed(tmp_path / "file" / "work", "texts"):
            pytest.fail("a file is no folder")


def test_saved_model(tmp_path):
    """Keras alone reads `model.keras` of a run, a zip archive with a checksum of each member."""
    run = RunFolder(tmp_path)
    dense().save(run.model)

    def read():
        return [one.tolist() for one in keras.saving.load_model(run.trained_model()).get_weights()]

    # The archive's own dates and flags have no meaning.
    assert check_flipped_bits(run.model, read, 40) > 0.7
    content = run.model.read_bytes()
    for size in (0, 10, len(content) - 1):
        run.model.write_bytes(content[:size])
        with pytest.raises(DamagedFile, match="model.keras' is damaged.*writes both again"):
            run.trained_model()
    entry = content.rindex(b"config.json") - 46  # Says a version, a password and a packing.
    for at in (6, 8, 10):
        run.model.write_bytes(content[: entry + at] + b"\xff" + content[entry + at + 1 :])
        with pytest.raises(DamagedFile, match="model.keras' is damaged.*Restore it"):
            run_format._model_options(run)


def test_demo_corpus(tmp_path, monkeypatch):
    for file in demo.FOLDER.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(demo, "FOLDER", tmp_path)
    path = tmp_path / "test.tsv.gz"
    assert check_flipped_bits(path, lambda: load_corpus("demo").test.fingerprint(), 40) == 1
