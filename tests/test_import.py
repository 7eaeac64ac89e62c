"""What `import keras_attention` pulls in, and which room imports which.

Each import runs in a process of its own: in this one the tests have loaded nearly everything.
"""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    os.environ["KERAS_BACKEND"] != "tensorflow",
    reason="starts interpreters on each backend by itself: once is enough",
)

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "keras_attention"

# Modules that only a feature somebody asked for may load.
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


# room -> rooms of the package that it may import besides itself. Data flows one way.
ALLOWED = {
    "utils": set(),
    "spec": set(),
    "ops": {"utils"},
    "layers": {"ops", "spec"},
    "models": {"layers", "ops", "spec", "utils"},
    "engine": {"ops", "spec", "utils"},
    "decoding": {"data", "engine", "ops", "spec", "utils"},
    "interop": {"spec", "utils"},
    "data": {"utils"},
    "training": {"ops", "utils"},
    "evaluation": {"ops", "training", "utils"},
    "visualization": set(),
    "callbacks": {"evaluation", "training", "utils", "visualization"},
}


def imported_modules(path):
    """Names of all modules that a file imports, anywhere in it, relative ones resolved."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_rooms_import_only_downwards(room):
    files = sorted((PACKAGE / room).rglob("*.py"))
    assert files, f"no such room: {room}"
    for path in files:
        for module in imported_modules(path):
            parts = module.split(".")
            if parts[0] == "keras_attention" and len(parts) > 1 and (PACKAGE / parts[1]).is_dir():
                assert parts[1] in ALLOWED[room] | {room}, f"{path.name} imports {module}"


def test_nobody_uses_private_keras():
    for path in [*PACKAGE.rglob("*.py"), *(ROOT / "examples").glob("*.py")]:
        private = [name for name in imported_modules(path) if name.startswith("keras.src")]
        assert not private, f"{path.name} imports {private}"


def test_a_bare_import_lets_keras_load_saved_models():
    report = (
        "import keras, keras_attention; "
        "names = ('Transformer', 'MultiHeadAttention', 'LearningRateSchedule', 'Adam'); "
        "print(all(keras.saving.get_registered_object(f'keras_attention>{n}') for n in names))"
    )
    assert run_python(report, "torch") == ["True"]
