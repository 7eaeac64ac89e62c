"""Starts a backend without the log messages that its libraries write about processors and drivers."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from keras_attention.utils.backend import check_backend, running_backend
from keras_attention.utils.cache import cache_folder
from keras_attention.utils.progress import activity

MOST_COMPILED = 2**30  # bytes of what JAX keeps; it then drops what was not used for longest


def start_backend() -> None:
    """Import Keras, its backend and our classes without their log messages, unless there is an error.

    Environment variables do not silence TensorFlow's C++ logging before it is set up. Therefore the
    standard error is held back while the backend starts.
    """
    # TensorFlow leaves oneDNN off where a processor lacks VNNI; there, too, it is no slower.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Our files have locks of our own; HDF5's would refuse file systems that have none.
    os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")
    has_tensorflow = importlib.util.find_spec("tensorflow") is not None
    if "keras" in sys.modules and ("tensorflow" in sys.modules or not has_tensorflow):
        _register_classes()
        return
    is_first = "keras" not in sys.modules
    check_backend()
    # In this order, the progress line is not held back, too.
    with _held_back(), activity("starting Keras and its backend"):
        _register_classes()
        if is_first and running_backend() == "jax":
            _keep_compiled()
        if running_backend() == "tensorflow":
            import tensorflow as tf

            tf.config.list_logical_devices()  # Looking for devices writes more messages.
            tf.get_logger().setLevel("ERROR")  # It warns about retracing, which is intended here.
        else:
            # On the other backends, Keras imports TensorFlow to serialize a layer, if it is installed.
            with contextlib.suppress(ImportError):
                import tensorflow  # noqa: F401


def _register_classes() -> None:
    """Import our classes: Keras can load a saved model only if they are registered."""
    from keras_attention import layers, models, training  # noqa: F401


def _keep_compiled() -> None:
    """Have JAX keep what it compiles, so that the next start of a run does not compile for minutes again."""
    import jax

    if jax.config.jax_compilation_cache_dir:
        return  # The user has chosen a folder.
    # Code for one processor may not run on another that shares the folder.
    cpuinfo = Path("/proc/cpuinfo")
    told = cpuinfo.read_text("utf-8", "replace") if cpuinfo.exists() else platform.processor()
    flags = [line for line in told.splitlines() if line.startswith(("flags", "Features"))] or [told]
    processor = hashlib.sha256(flags[0].encode()).hexdigest()[:16]
    folder = cache_folder("jax") / f"{platform.machine()}-{processor}"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", MOST_COMPILED)


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Hold back what C libraries write to the standard error; write it only if there is an error."""
    sys.stderr.flush()
    python_stderr = sys.stderr
    terminal = os.dup(2)
    # Never closed: loggers that libraries set up here write to it later.
    shown = open(terminal, "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    with tempfile.TemporaryFile() as notes:
        os.dup2(notes.fileno(), 2)
        sys.stderr = shown  # What Python writes, such as progress, still appears.
        try:
            yield
        except Exception:  # Ctrl-C needs no explanation.
            notes.seek(0)
            os.write(terminal, notes.read())
            raise
        finally:
            os.dup2(terminal, 2)
            sys.stderr = python_stderr
