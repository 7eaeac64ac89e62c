"""What every test starts from: one backend, fixed seeds, a quiet log, the float32 policy."""

import os
import signal

# Before Keras is imported: it reads these once.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Threads that wait sleep: beside another test process, spinning ones take most of the time.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import keras
import numpy as np
import pytest

BACKEND = keras.backend.backend()
# Shells start background jobs that ignore Ctrl-C, and so would the programs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Skips `@pytest.mark.tensorflow_only` tests on the other backends."""
    if BACKEND == "tensorflow":
        return
    skip = pytest.mark.skip(reason=f"only TensorFlow has this; the backend is {BACKEND}")
    for item in items:
        if item.get_closest_marker("tensorflow_only"):
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def same_start():
    """Fixed seeds before each test, and the global dtype policy put back after it."""
    keras.utils.set_random_seed(20170612)
    policy = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(policy)


@pytest.fixture(autouse=True)
def own_random_numbers(request, monkeypatch):
    """A module's `rng` begins anew for each test: its numbers do not hang on which tests ran before."""
    if isinstance(getattr(request.module, "rng", None), np.random.Generator):
        monkeypatch.setattr(request.module, "rng", np.random.default_rng(20170612))
