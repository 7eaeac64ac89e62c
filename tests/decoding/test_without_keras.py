"""A finished run translates in a process that imports neither Keras nor a backend."""

import ctypes
import json
import shutil

import numpy as np
import pytest

from keras_attention import Tokenizer, Transformer, Translator
from keras_attention.recipes.order import save_model
from keras_attention.spec import SpecError
from keras_attention.utils.run_folder import RunFolder
from keras_attention_light import load_translator
from tests.decoding.test_demo_preset import SENTENCES, TRANSLATIONS
from tests.helpers import python

pytestmark = pytest.mark.backends("torch")

TEXTS = ["ein kleines Haus", "", "das Haus ist klein und der Hund sieht es", "ein Hund"]
HEAVY = ["keras", "tensorflow", "torch", "jax"]
SEARCH = {"beam_size": 3, "length_penalty": 0.8}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "run")
    folder.claim({"train_fingerprint": "ab", **SEARCH})
    tokenizer = Tokenizer.train([*TEXTS, "a small house"], vocabulary_size=290)
    tokenizer.save(folder.tokenizer)
    sizes = {"num_layers": 2, "hidden_dim": 24, "intermediate_dim": 40, "num_heads": 3}
    model = Transformer(tokenizer.vocabulary_size, **sizes, seed=5)
    random = np.random.default_rng(11)
    for weight in model.trainable_weights:
        weight.assign(weight + 0.2 * random.standard_normal(weight.shape))
    save_model(model, folder)
    return folder


def test_the_same_translations_as_with_keras(run):
    # First: it compiles, and the other process finds that done, in place of NumPy standing in.
    expected = Translator.from_run(run.path, engine="numba").translate(TEXTS, n_best=2)
    program = (
        "import json, sys\n"
        "from keras_attention_light import load_translator\n"
        f"translator = load_translator({str(run.path)!r}, engine='numba')\n"
        f"found = translator.translate({TEXTS!r}, n_best=2)\n"
        "print(json.dumps([[(t.text, t.score, t.token_ids) for t in best] for best in found]))\n"
        "print(json.dumps(translator.engine_for(2)))\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
        "import keras_attention\n"
        f"print(type(keras_attention.Translator.from_run({str(run.path)!r}).model).__name__)\n"
        "print(keras_attention.Transformer.__name__, 'keras' in sys.modules)\n"
    )
    found, engine, imported, loaded, at_last = python("-c", program).stdout.splitlines()
    assert imported == "[]" and loaded == "Transformer" and at_last == "Transformer True"
    assert json.loads(engine)[0] == "numba"
    assert json.loads(found) == [
        [[one.text, one.score, list(one.token_ids)] for one in best] for best in expected
    ]
    assert len({best[0].text for best in expected}) == 4


def test_numba_is_imported_only_where_there_is_enough_to_do(run):
    """A text that NumPy ends sooner than that import does not wait for it; its translation is the same."""
    program = (
        "import sys\n"
        "from keras_attention.engine import select\n"
        "from keras_attention_light import load_translator\n"
        f"translator = load_translator({str(run.path)!r}, show_progress=False)\n"
        f"found = [translator({TEXTS!r}), 'numba' in sys.modules]\n"
        "select.VERY_FEW_MULTIPLICATIONS = 0\n"
        f"found += [translator({TEXTS!r}), 'numba' in sys.modules]\n"
        "print(found[0] == found[2], found[1::2])\n"
    )
    assert python("-c", program).stdout == "True [False, True]\n"


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_nothing_is_written_beside_its_own_memory(run, precision):
    """glibc checks its memory at each call: compiled code that writes to freed memory ends the process."""
    checker = "libc_malloc_debug.so.0"
    try:
        ctypes.CDLL(checker)
    except OSError:
        pytest.skip(f"the C library has no {checker}")
    program = (
        "from keras_attention_light import load_translator\n"
        f"translator = load_translator({str(run.path)!r}, engine='numba', precision={precision!r})\n"
        f"texts = {TEXTS!r} * 16\n"
        "for number in [1, 2, 3, 5, 7, 20, 33, 64] * 4:\n"
        "    found = translator(texts[:number])\n"
        "print(len(found))\n"
    )
    checked = {"LD_PRELOAD": checker, "MALLOC_CHECK_": "3"}
    assert python("-c", program, environment=checked).stdout == "64\n"


def test_the_command_and_a_tokenizer_need_no_keras():
    program = (
        "import sys, keras_attention_light\n"
        "from keras_attention import Tokenizer\n"  # with its `from_preset`, though nothing else is imported
        "print(Tokenizer.from_preset('demo_en_de').vocabulary_size)\n"
        "keras_attention_light.main(['translate', 'demo_en_de'])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = python("-c", program, input="\n".join(SENTENCES))
    assert done.stdout.splitlines() == ["2000", *TRANSLATIONS, "[]"]


def test_what_needs_keras_says_so(run, tmp_path):
    for options in ({"engine": "plain"}, {"engine": "torch"}, {"precision": "float16"}):
        with pytest.raises(SpecError, match=f"{next(iter(options.values()))}.*from_run"):
            load_translator(run.path, **options)
    old = tmp_path / "old"
    shutil.copytree(run.path, old)
    shutil.rmtree(old / "spec")
    with pytest.raises(SpecError, match=r"no spec\.json.*from_run"):
        load_translator(old)
    (old / "model.keras").unlink()
    with pytest.raises(ValueError, match="not finished"):
        load_translator(old)


def test_the_spec_is_never_that_of_another_model(run, tmp_path, monkeypatch):
    """A training that is killed while it saves leaves no old spec beside a new model."""
    folder = RunFolder(tmp_path / "again")
    shutil.copytree(run.path, folder.path)
    model = Translator.from_run(run.path).model
    monkeypatch.setattr(type(model), "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        save_model(model, folder)
    assert not folder.spec.exists() and folder.model.exists()
