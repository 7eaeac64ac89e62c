"""What `import keras_attention` pulls in and does to the process.

Each import runs in a process of its own: in this one the tests have loaded nearly everything.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.backends("tensorflow")  # starts interpreters on each backend by itself

ROOT = Path(__file__).resolve().parent.parent

# Modules that only a feature that is used may load.
HEAVY = ["matplotlib", "sacrebleu", "sentencepiece", "keras_hub", "tensorboard", "tensorflow_text"]

# As if TensorFlow, and what comes with it, were not installed.
WITHOUT_TENSORFLOW = """
import sys
class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "tensorflow_text", "tensorboard"):
            return None
        return self.finder.find_spec(name, path, target)
sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
"""

TOUCH_EVERY_NAME = """
import keras_attention
assert len(keras_attention.__all__) > 10, keras_attention.__all__
for name in keras_attention.__all__:
    assert getattr(keras_attention, name) is not None, name
"""


def run_python(code, backend):
    """Runs code in a fresh interpreter; returns the words that it printed."""
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_other_backends_import_no_tensorflow(backend):
    """TensorFlow is installed here, yet neither the import nor any public name loads it."""
    report = "import sys; print('tensorflow' in sys.modules)"
    assert run_python(TOUCH_EVERY_NAME + report, backend) == ["False"]


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_works_where_tensorflow_is_not_installed(backend):
    report = "import keras; print(keras.backend.backend())"
    assert run_python(WITHOUT_TENSORFLOW + TOUCH_EVERY_NAME + report, backend) == [backend]


def test_hidden_tensorflow_cannot_be_imported():
    """The test above would pass if nothing were hidden; this one would not."""
    attempt = """
try:
    import tensorflow
except ModuleNotFoundError as error:
    print(error.name)
"""
    assert run_python(WITHOUT_TENSORFLOW + attempt, "jax") == ["tensorflow"]


@pytest.mark.parametrize("statements", ["import keras_attention", TOUCH_EVERY_NAME])
def test_import_is_light(statements):
    """Beyond what Keras itself loads (it loads matplotlib where it is installed), nothing heavy."""
    code = f"""
import sys
import keras
before = set(sys.modules)
{statements}
print(*sorted({{name.split(".")[0] for name in set(sys.modules) - before}}))
"""
    loaded = set(run_python(code, "tensorflow"))
    assert "keras_attention" in loaded
    assert loaded.isdisjoint(HEAVY), loaded & set(HEAVY)


def test_a_bare_import_lets_keras_load_saved_models():
    report = (
        "import keras, keras_attention; "
        "names = ('Transformer', 'MultiHeadAttention', 'LearningRateSchedule', 'Adam'); "
        "print(all(keras.saving.get_registered_object(f'keras_attention>{n}') for n in names))"
    )
    assert run_python(report, "torch") == ["True"]


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_importing_changes_nothing_in_the_process(backend):
    """No addresses are reserved and no allocator is set; memory is tuned on request alone."""
    code = TOUCH_EVERY_NAME.replace("import keras_attention", BEFORE, 1) + AFTER
    told, grown = run_python(code, backend)
    assert told == "False" and float(grown) < 4, grown  # GiB: Numba and the like are loaded, too


# What the backend itself takes is taken before.
BEFORE = """
import keras, re
keras.ops.ones(3) + 1
def addresses():
    return int(re.search(r"VmSize:\\s+([0-9]+)", open("/proc/self/status").read())[1]) / 2**20
before = addresses()
import keras_attention
"""
AFTER = """
from keras_attention.utils.memory import is_memory_tuned
import keras_attention.decoding.translator
print(is_memory_tuned(), addresses() - before)
"""


def test_a_backend_that_is_not_installed_is_named():
    """In Python and on the command line: a message, not Keras' long traceback."""
    message = (
        "Keras' backend is 'tensorflow', and the package 'tensorflow' is not installed. Install it: pip "
        "install tensorflow, or choose one that is installed: KERAS_BACKEND="
    )
    if not any(importlib.util.find_spec(name) for name in ("jax", "torch")):
        message = message.split(", or")[0]
    command = "from keras_attention_light import main; main(['train', '--steps', '3'])"
    for code in ("import keras_attention", command):
        result = subprocess.run(
            [sys.executable, "-c", WITHOUT_TENSORFLOW + code],
            cwd=ROOT,
            env={**os.environ, "KERAS_BACKEND": "tensorflow"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert result.returncode != 0 and message in result.stderr.splitlines()[-1]
        assert "site-packages/keras" not in result.stderr
    assert result.returncode == 2 and result.stderr.count("\n") == 1


def test_import_star_hides_no_module_of_the_user():
    program = (
        "from keras import layers, losses, models, ops, callbacks, utils\n"
        "mine = dict(globals())\n"
        "from keras_attention import *\n"
        "Transformer, Translator\n"
        "print([name for name, value in mine.items() if globals()[name] is not value])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
