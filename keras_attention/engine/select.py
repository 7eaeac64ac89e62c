"""The fast decoder of a model: Numba's where it is the faster on this CPU, else the backend's."""

from __future__ import annotations

import functools
import importlib.util
import math
from typing import Any

import keras
import numpy as np

NUMBA_PRECISIONS = ("float32", "bfloat16", "int8")
# Rows (sentences times beams) up to which Numba's decoder is the faster without AVX-512, too.
FEW_ROWS = 4


class FastDecoder:
    """Decodes with a model; what `start` returns is a `decoding.shared_search.Decoder`.

    Args:
        form: The model's `InferenceForm`.
        precision: `"float32"`, `"bfloat16"`, `"float16"` or `"int8"`.

    Raises:
        ValueError: A precision that nothing installed is fast in.
    """

    def __init__(self, form: Any, precision: str):
        self._form = form
        self._precision = precision
        backend = keras.backend.backend()
        self._has_own = precision != "int8" or backend == "torch"
        self._backend = _backend_decoder(backend, form, precision if self._has_own else "float32")
        self._can_use_numba = (
            precision in NUMBA_PRECISIONS and self._backend.is_on_cpu() and has_numba()
        )
        if not self._has_own and not self._can_use_numba:
            raise ValueError(
                "precision='int8' needs a CPU, and Numba or PyTorch; the backend is "
                f"{backend!r}. Run pip install numba, set KERAS_BACKEND=torch, or decode in 'bfloat16' "
                "or 'float32'."
            )
        self._seen: Any = None
        self._fresh: list[Any] = []  # the decoders that have read the present weights

    @property
    def fixed_shapes(self) -> bool:
        """Whether each shape of a batch is compiled, so that there should be few."""
        return self._backend.fixed_shapes and self._most_rows < math.inf

    def refresh(self) -> None:
        """Looks whether the model's weights have changed; a decoder reads them when it is used."""
        seen = self._backend.seen()
        if seen != self._seen:
            self._seen = seen
            self._fresh.clear()

    def needs_compiling(self, rows: int, beam_size: int, length: int) -> bool:
        """Whether a batch of this shape takes longer the first time."""
        return self._chosen(rows * beam_size).needs_compiling(rows, length)

    def start(self, token_ids: np.ndarray, beam_size: int, max_length: int) -> Any:
        """Reads the source ids (B, S)."""
        decoder = self._chosen(len(token_ids) * beam_size)
        if decoder not in self._fresh:
            decoder.read_weights()
            self._fresh.append(decoder)
        return decoder.start(token_ids, beam_size, max_length)

    def _chosen(self, rows: int) -> Any:
        return self._numba if rows <= self._most_rows else self._backend

    @functools.cached_property
    def _most_rows(self) -> float:
        """The largest batch for Numba."""
        if not self._can_use_numba:
            return 0
        # Importing it takes a second, and is not done before it is used.
        from keras_attention.engine.numba.tiles import has_features

        return math.inf if has_features("avx512f") or not self._has_own else FEW_ROWS

    @functools.cached_property
    def _numba(self) -> Any:
        from keras_attention.engine.numba.engine import NumbaDecoder

        return NumbaDecoder(self._form, self._precision)


def has_numba() -> bool:
    """Whether Numba is installed."""
    return importlib.util.find_spec("numba") is not None


def _backend_decoder(backend: str, form: Any, precision: str) -> Any:
    if backend == "torch":
        from keras_attention.engine.torch import TorchDecoder

        return TorchDecoder(form, precision)
    if backend == "tensorflow":
        from keras_attention.engine.tensorflow import TensorFlowDecoder

        return TensorFlowDecoder(form, precision)
    from keras_attention.engine.jax import JaxDecoder

    return JaxDecoder(form, precision)
