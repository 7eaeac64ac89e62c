"""What every test starts from: one backend, fixed seeds, a quiet log, the float32 policy."""

import os
import signal
from pathlib import Path

# Before Keras is imported: it reads these once.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Threads that wait sleep: beside another test process, spinning ones take most of the time.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# JAX: most of the time was compiling. Without most of XLA's optimisations, as in JAX' own tests; and what was
# compiled once, by whichever file of tests, is kept (the key is the program, the versions and the options).
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).resolve().parent.parent / ".pytest_cache/jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import keras
import numpy as np
import pytest

BACKEND = keras.backend.backend()
# Shells start background jobs that ignore Ctrl-C, and so would the programs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


TESTS = Path(__file__).resolve().parent
# Files and rooms in whose tests no tensor of the backend is computed: files on disk, text, numbers in
# NumPy, Numba's own machine code, pictures. Once, on TensorFlow, says all; elsewhere only who names them
# on the command line runs them.
ONE_BACKEND = (
    "benchmarks/test_harness.py",
    "benchmarks/test_results.py",
    "callbacks/test_metrics_log.py",
    "cli/test_scale.py",
    "data/test_archives.py",
    "data/test_batch_shards.py",
    "data/test_corpora.py",
    "data/test_download.py",
    "data/test_filters.py",
    "data/test_held_out.py",
    "data/test_killed.py",
    "data/test_parallel_text.py",
    "data/test_token_store.py",
    "data/test_treebanks.py",
    "data/test_trees.py",
    "data/test_wmt.py",
    "decoding/test_incremental_search.py",
    "decoding/test_without_keras.py",
    "engine/test_numba_kernels.py",
    "evaluation/test_bleu.py",
    "evaluation/test_bracketing.py",
    "evaluation/test_comparison.py",
    "evaluation/test_moses_bleu.py",
    "evaluation/test_report.py",
    "evaluation/test_training_cost.py",
    "examples/test_parsing_baselines.py",
    "examples/test_published.py",
    "examples/test_scripts.py",
    "recipes/test_bulk.py",
    "recipes/test_bulk_ray.py",
    "recipes/test_bulk_store.py",
    "test_architecture.py",
    "test_damage.py",
    "test_docs.py",
    "training/test_full_disk.py",
    "tools",
    "utils/test_checks.py",
    "utils/test_files.py",
    "utils/test_progress.py",
    "utils/test_run_folder.py",
    "viewer",
    "visualization/test_figures.py",
    "visualization/test_run_curves.py",
    "visualization/test_summary_writer.py",
)

# Tests for which XLA compiles for minutes, though their code (Keras' operations, arrays) is the same on every
# backend. On JAX, too, they run only if they are named.
NOT_ON_JAX = (
    "cli/test_commands.py",
    "engine/test_ctranslate2_engine.py",
    "evaluation/test_head_importance.py",
    "examples/test_table1_layer_complexity.py",
    "examples/test_table1_layers.py",
    "examples/test_table3_positions.py",
    "interop/test_ctranslate2.py",
    "visualization/test_attention_entries.py",
)
LEFT_OUT = {
    "tensorflow": (),
    "torch": ONE_BACKEND,
    "jax": ONE_BACKEND + NOT_ON_JAX,
}[BACKEND]


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


def pytest_ignore_collect(collection_path, config):
    """Leaves out what the lists above say, unless it is named."""
    if not collection_path.is_relative_to(TESTS):
        return None
    if collection_path.relative_to(TESTS).as_posix() not in LEFT_OUT:
        return None
    given = [Path(argument.split("::")[0]).resolve() for argument in config.args]
    return None if any(path.is_relative_to(collection_path) for path in given) else True


def pytest_collection_modifyitems(items):
    """Skips `@pytest.mark.tensorflow_only` tests on the other backends."""
    # Gzip's bytes hold the time of day: the processes of pytest-xdist would find unlike tests.
    unlike = [item.nodeid for item in items if r"\x1f\x8b" in item.nodeid]
    if unlike:
        raise pytest.UsageError(f"Tests whose names hold gzip's bytes; give them `ids`: {unlike}")
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
    """A module's `rng` restarts for each test: its numbers do not depend on the tests that ran before."""
    if isinstance(getattr(request.module, "rng", None), np.random.Generator):
        monkeypatch.setattr(request.module, "rng", np.random.default_rng(20170612))
