"""One flipped bit in each of many random places of each kind of file: none is used silently."""

import json

import keras
import numpy as np
import pytest

from keras_attention import Tokenizer, TokenStore, load_corpus
from keras_attention.data import demo
from keras_attention.training import load_checkpoint
from keras_attention.training.checkpoint_store import write_checkpoint
from keras_attention.utils.files import DamagedFile
from keras_attention.utils.run_folder import RunFolder
from tests.data.counting_text import NumberTokenizer, number_text

pytestmark = pytest.mark.backends("torch")

PLACES = 40


def check_flipped_bits(path, read, seed=1, begin=0):
    """`read` must refuse the file by name or, where the bit has no meaning, give what it gave before."""
    content, expected = path.read_bytes(), read()
    random = np.random.default_rng(seed)
    refused = 0
    for position in random.integers(begin, len(content), PLACES):
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
    return refused


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    text = number_text([(3, 5), (7, 4), (5, 13)])
    return TokenStore.build(tmp_path_factory.mktemp("store"), text, NumberTokenizer()).folder


@pytest.mark.parametrize(
    "name", ["source.ids", "target.ids", "source.offsets", "target.offsets", "metadata.json"]
)
def test_token_store(store, name):
    def read():
        opened = TokenStore.open(store)
        return opened.metadata, [opened.source(i).tolist() for i in range(len(opened))]

    refused = check_flipped_bits(store / name, read)
    assert refused == PLACES or name == "metadata.json"
    assert refused > 0.7 * PLACES


@pytest.mark.parametrize("name", ["tokenizer.model", "tokenizer.json"])
def test_tokenizer(tmp_path, name):
    texts = ["the quick brown fox", "der schnelle braune Fuchs"]
    Tokenizer.train(texts, 290).save(tmp_path)

    def read():
        tokenizer = Tokenizer.load(tmp_path)
        return tokenizer.encode(texts), tokenizer.vocabulary_size, tokenizer.algorithm

    refused = check_flipped_bits(tmp_path / name, read)
    # Most of `tokenizer.json` decides nothing here.
    assert refused == PLACES or (name == "tokenizer.json" and refused > 0.3 * PLACES)


@pytest.mark.parametrize("name", ["model.weights.h5", "manifest.json"])
def test_checkpoint(tmp_path, name):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    write_checkpoint(tmp_path / "saved", model, {"epoch": 3, "updates": 17})

    def read():
        manifest = load_checkpoint(model, tmp_path / "saved")
        return json.dumps(manifest), [weights.tolist() for weights in model.get_weights()]

    refused = check_flipped_bits(tmp_path / "saved" / name, read)
    assert refused == PLACES or name == "manifest.json"
    assert refused > 0.7 * PLACES


def test_saved_model(tmp_path):
    """Keras alone reads `model.keras` of a run, a zip archive with a checksum of each member."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    run = RunFolder(tmp_path)
    model.save(run.model)

    def read():
        return [one.tolist() for one in keras.saving.load_model(run.trained_model()).get_weights()]

    # The archive's own dates and flags have no meaning.
    assert check_flipped_bits(run.model, read) > 0.7 * PLACES
    content = run.model.read_bytes()
    for size in (0, 10, len(content) - 1):
        run.model.write_bytes(content[:size])
        with pytest.raises(DamagedFile, match="model.keras' is damaged.*writes both again"):
            run.trained_model()


def test_demo_corpus(tmp_path, monkeypatch):
    for file in demo.FOLDER.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(demo, "FOLDER", tmp_path)
    path = tmp_path / "test.tsv.gz"
    assert check_flipped_bits(path, lambda: load_corpus("demo").test.fingerprint()) == PLACES
