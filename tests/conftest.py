"""What every test starts from: one backend, fixed seeds, a quiet log, the float32 policy."""

import gc
import os
import re
import signal
from importlib.metadata import version
from pathlib import Path

# Before Keras is imported: it reads these once.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Threads that wait sleep: beside another test process, spinning ones take most of the time.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# JAX, and TensorFlow's `fit` and engine: most of the time was XLA's compiling. Without most of its
# optimisations, as in JAX' own tests, and without the emitter that takes longest: JAX 0.11 has no other, and
# ends at the flag, without a word.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    + (
        ""
        if os.environ["KERAS_BACKEND"] == "jax" and version("jaxlib") >= "0.11"
        else " --xla_cpu_use_fusion_emitters=false"
    ),
)
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# What was compiled once, by whichever file of tests, is kept (the key is the program, the versions and the
# options).
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).resolve().parent.parent / ".pytest_cache/jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import keras
import numpy as np
import pytest

BACKEND = keras.backend.backend()
# Searches for garbage took every twelfth second: they walk through all objects of the backend. They come
# seldom, and leave out what is there before the first test (`pytest_collection_finish`).
gc.set_threshold(50_000, 20, 50)
if BACKEND == "tensorflow":
    # Likewise: optimising each graph took a fifth of the time, and a graph of a test runs once or twice.
    import tensorflow

    tensorflow.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
# Shells start background jobs that ignore Ctrl-C, and so would the programs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


TESTS = Path(__file__).resolve().parent
# How a file says on which backends alone it runs; elsewhere it is not even imported. One in which nothing is
# computed on the backend (text, files, reports, pictures) or nothing of its own (commands, recipes, Numba's
# code) runs once: on TensorFlow or, where models are made or trained, on PyTorch, which compiles nothing and
# which .ci/run has in an environment with all packages.
BACKENDS_OF_FILE = re.compile(
    r"^pytestmark = (?:\[\s*)?pytest\.mark\.backends\(([^)]*)\)", re.MULTILINE
)


def pytest_sessionstart(session):
    """Empties our folder of what JAX compiled once it holds more than 512 MiB."""
    # JAX' own limit looks at all files for each one that it writes: 55 ms where there are 4,000.
    folder = TESTS.parent / ".pytest_cache/jax"
    if hasattr(session.config, "workerinput") or not folder.is_dir():
        return
    files = list(folder.iterdir())
    if sum(file.stat().st_size for file in files) > 512 * 2**20:
        for file in files:
            file.unlink(missing_ok=True)


def pytest_ignore_collect(collection_path):
    """Leaves out a file that runs on other backends only."""
    if collection_path.suffix != ".py" or not collection_path.is_relative_to(TESTS):
        return None
    named = BACKENDS_OF_FILE.search(collection_path.read_text("utf-8"))
    return True if named and f'"{BACKEND}"' not in named[1] else None


def pytest_collection_modifyitems(items):
    """Skips tests that are marked with the names of other `backends`."""
    # Gzip's bytes hold the time of day: the processes of pytest-xdist would find unlike tests.
    unlike = [item.nodeid for item in items if r"\x1f\x8b" in item.nodeid]
    if unlike:
        raise pytest.UsageError(f"Tests whose names hold gzip's bytes; give them `ids`: {unlike}")
    for item in items:
        for mark in item.iter_markers("backends"):
            if BACKEND not in mark.args:
                only = " and ".join(mark.args)
                item.add_marker(pytest.mark.skip(reason=f"runs on {only}, not on {BACKEND}"))


def pytest_collection_finish():
    """What is imported stays: no search for garbage looks at it."""
    gc.freeze()


@pytest.fixture(autouse=True)
def same_start():
    """Fixed seeds before each test, and the global dtype policy put back after it."""
    keras.utils.set_random_seed(20170612)
    policy = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(policy)


@pytest.fixture(autouse=True)
def own_random_numbers(request, monkeypatch):
    """A module's `rng` restarts for each test: its numbers do not depend on the tests that ran before."""
    if isinstance(getattr(request.module, "rng", None), np.random.Generator):
        monkeypatch.setattr(request.module, "rng", np.random.default_rng(20170612))


@pytest.fixture
def refused_by(capsys):
    """Calls what ends a program with 2; returns the error that it shows."""

    def call(work, *arguments, **options):
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            work(*arguments, **options)
        assert left.value.code == 2
        return capsys.readouterr().err

    return call
