"""What `import keras_attention` pulls in and does to the process.

Each backend is imported in a process of its own: in this one the tests have loaded nearly everything.
"""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from tests.helpers import ROOT, python
from tests.visualization.event_files import read_values

# Starts interpreters on each backend by itself, so where all of them are installed.
pytestmark = pytest.mark.backends("torch")

# Modules that only a feature that is used may load.
HEAVY = {"matplotlib", "sacrebleu", "sentencepiece", "keras_hub", "tensorboard", "tensorflow_text"}

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

# What Keras loads (matplotlib, where it is installed) and the backend takes is loaded and taken before.
TELL = f"""
import json, re, sys
import keras
keras.ops.ones(3) + 1
def loaded():
    return {{name.split(".")[0] for name in sys.modules}}
def addresses():
    return int(re.search(r"VmSize:\\s+([0-9]+)", open("/proc/self/status").read())[1]) / 2**20
loaded_before, before = loaded(), addresses()
import keras_attention
names = "Transformer", "MultiHeadAttention", "LearningRateSchedule", "Adam"
registered = [name for name in names if keras.saving.get_registered_object(f"keras_attention>{{name}}")]
{TOUCH_EVERY_NAME}
loaded_by_names = sorted(loaded() - loaded_before)
from keras_attention.utils.memory import is_memory_tuned
import keras_attention.decoding.translator
grown = addresses() - before
users = {{}}
exec("from keras import layers, losses, models, ops, callbacks, utils", users)
mine = dict(users)
exec("from keras_attention import *; Transformer, Translator", users)
model = users["Transformer"](11, num_layers=1, hidden_dim=8, intermediate_dim=6, num_heads=2)
import numpy as np
from keras_attention.visualization import SummaryWriter, attention_figure
with SummaryWriter(sys.argv[1]) as writer:
    writer.scalar("a", 1.0, step=1)
attention_figure(np.ones((1, 1, 1)), ["word"])
print(json.dumps({{
    "registered": registered,
    "loaded": loaded_by_names,
    "tuned": is_memory_tuned(),
    "grown": grown,
    "hidden": [name for name, value in mine.items() if users[name] is not value],
    "tensorflow": "tensorflow" in sys.modules,
}}))
"""


def run_python(code, backend, *arguments):
    """Runs code in a fresh interpreter; returns what it printed."""
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    environment = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    return python("-c", code, *arguments, environment=environment).stdout


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_the_import_is_light_and_changes_nothing(backend, tmp_path):
    """Also once every public name was asked for, and on other backends without TensorFlow, also in a log.

    No addresses are reserved and no allocator is set: memory is tuned on request alone. A bare import lets
    Keras load saved models, and `import *` hides no module of the user.
    """
    told = json.loads(run_python(TELL, backend, tmp_path))
    loaded, grown = {*told.pop("loaded")}, told.pop("grown")
    assert told == {
        "registered": ["Transformer", "MultiHeadAttention", "LearningRateSchedule", "Adam"],
        "tuned": False,
        "hidden": [],
        "tensorflow": backend == "tensorflow",
    }
    assert "keras_attention" in loaded and not loaded & HEAVY
    assert grown < 4  # GiB: Numba and the like are loaded, too
    assert list(read_values(tmp_path)) == ["a"]


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_works_where_tensorflow_is_not_installed(backend):
    report = "import importlib.util as u, keras; print(keras.backend.backend(), u.find_spec('tensorflow'))"
    told = run_python(WITHOUT_TENSORFLOW + TOUCH_EVERY_NAME + report, backend).split()
    assert told == [backend, "None"]  # else nothing would have been hidden


def test_a_backend_that_is_not_installed_is_named():
    """In Python and on the command line: a message, not Keras' long traceback."""
    message = (
        "Keras' backend is 'tensorflow', and the package 'tensorflow' is not installed. Install it: pip "
        "install tensorflow, or choose one that is installed: KERAS_BACKEND="
    )
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
