"""The fast decoder of a model: the backend's or, for few rows on a CPU, Numba's."""

from __future__ import annotations

import functools
import importlib.util
import math
from typing import Any

import keras
import numpy as np

# Rows (sentences times beams) up to which Numba's decoder is the faster.
FEW_ROWS = 10000
FEW_ROWS_PRECISIONS = ("float32", "bfloat16", "int8")


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
        is_everywhere = precision != "int8" or backend == "torch"
        self._backend = _backend_decoder(backend, form, precision if is_everywhere else "float32")
        few = FEW_ROWS if is_everywhere else math.inf
        has_few = precision in FEW_ROWS_PRECISIONS and self._backend.is_on_cpu() and _has_numba()
        self._most_rows_of_numba = few if has_few else 0
        if not is_everywhere and not has_few:
            raise ValueError(
                "precision='int8' needs a CPU, and PyTorch or Numba; the backend is "
                f"{backend!r}. Run pip install numba, set KERAS_BACKEND=torch, or decode in 'bfloat16' "
                "or 'float32'."
            )
        self._seen: Any = None
        self._fresh: list[Any] = []  # the decoders that have read the present weights

    @property
    def fixed_shapes(self) -> bool:
        """Whether each shape of a batch is compiled, so that there should be few."""
        return self._backend.fixed_shapes and self._most_rows_of_numba < math.inf

    def refresh(self) -> None:
        """Looks whether the model's weights have changed; a decoder reads them when it is used."""
        seen = self._backend.seen()
        if self._seen is None or seen != self._seen:
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
        return self._numba if rows <= self._most_rows_of_numba else self._backend

    @functools.cached_property
    def _numba(self) -> Any:
        # Imported where it is used: importing it takes a second.
        from keras_attention.kernels.numba_inference import NumbaDecoder

        return NumbaDecoder(self._form, self._precision)


def _has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def _backend_decoder(backend: str, form: Any, precision: str) -> Any:
    if backend == "torch":
        from keras_attention.kernels.torch_inference import TorchDecoder

        return TorchDecoder(form, precision)
    if backend == "tensorflow":
        from keras_attention.kernels.tensorflow_inference import TensorFlowDecoder

        return TensorFlowDecoder(form, precision)
    from keras_attention.kernels.jax_inference import JaxDecoder

    return JaxDecoder(form, precision)
