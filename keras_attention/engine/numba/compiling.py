"""Compiling with Numba: the options of every function, the processor, and the cache on disk."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba

from keras_attention.utils.cache import cache_folder

# Sums may be formed in any order, that is, in vectors.
ANY_ORDER = {"reassoc", "contract", "nsz"}
# Linux lets a process use AMX when it asks for the tile registers.
ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18


def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorate a function that Numba compiles.

    Compiled code allocates no array, so Numba need not count references (`_nrt`): the threads would
    contend for the counters at every call and every slice.
    """
    # Some functions hold assembly, which LLVM must be able to read also when they come from the disk.
    llvm.initialize_native_asmparser()
    return numba.njit(function, nogil=True, error_model="numpy", _nrt=False, **options)


@functools.cache
def compiled(function: Callable[..., Any], signature: tuple[Any, ...]) -> Any:
    """Compile a function for argument types, or load what an earlier process compiled.

    Only functions that Python calls are cached: their machine code includes that of all that they call.
    """
    dispatcher = _dispatcher(function, signature)
    dispatcher.compile(signature)
    dispatcher.disable_compile()
    return dispatcher


def is_on_disk(function: Callable[..., Any], signature: tuple[Any, ...]) -> bool:
    """Return whether an earlier process has compiled a function for argument types, from this very file."""
    folder = _dispatcher(function, signature).stats.cache_path
    return folder is not None and any(Path(folder).glob("*.nbi"))


def _dispatcher(function: Callable[..., Any], signature: tuple[Any, ...]) -> Any:
    """Return what compiles a function, or loads it from the cache."""
    folder, given = _cache_folder(function, signature), numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder or given)
    try:
        return njit(function, cache=folder is not None)
    finally:
        numba.config.CACHE_DIR = given


def _cache_folder(function: Callable[..., Any], signature: tuple[Any, ...]) -> Path | None:
    """Return the folder of one function, signature, processor and version; None if none is writable.

    Numba numbers the files of a folder by an index. Two processes that compile at once for different
    types would use the same number, so a later process would run code for the wrong types. In a folder
    of one signature all processes write the same. Numba also compares only the file of the function
    itself, so the name covers the content of all modules here.
    """
    name = f"{function.__qualname__} {signature} {_processor()} {numba.__version__}"
    content = hashlib.sha256(name.encode())
    for file in sorted(Path(__file__).parent.glob("*.py")):
        content.update(file.read_bytes())
    folder = Path(numba.config.CACHE_DIR or cache_folder("numba"))
    folder /= f"keras_attention-{content.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return None
    return folder


def _processor() -> tuple[str, str]:
    """Return the name and LLVM's features of the processor that Numba compiles for."""
    name, features = numba.config.CPU_NAME, numba.config.CPU_FEATURES
    if features is None:
        features = "" if name else llvm.get_host_cpu_features().flatten()
    return name or llvm.get_host_cpu_name(), features


@functools.cache
def has_features(*names: str) -> bool:
    """Return whether Numba compiles for a processor that has all these features of LLVM's."""
    return {f"+{name}" for name in names} <= set(_processor()[1].split(","))


def has_amx(precision: str) -> bool:
    """Return whether this process may multiply tiles of `"bfloat16"` or `"int8"` by AMX."""
    feature = {"bfloat16": "amx-bf16", "int8": "amx-int8"}[precision]
    if platform.system() != "Linux" or not has_features("amx-tile", feature):
        return False
    return ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA) == 0
