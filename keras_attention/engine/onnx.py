"""onnxruntime as an engine for what `export_onnx` wrote: the same search over the steps of the file.

Shape letters: B sentences, W beams, R = B W rows, S source length, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from keras_attention.engine.base import State, SteppingEngine
from keras_attention.engine.numpy import likeliest
from keras_attention.engine.select import EngineChoice
from keras_attention.interop.onnx_model import OnnxModel


class OnnxEngine(SteppingEngine):
    """Runs an `OnnxModel` in float32.

    It has no `cells`: a search need not know what the files keep.
    """

    name = "onnx"
    cells = ()
    spec: Any

    def __init__(self, model: OnnxModel):
        super().__init__(model, "float32")  # type: ignore[arg-type]

    def read_weights(self) -> None:
        """Do nothing: files stay as they are."""

    def start(self, token_ids: np.ndarray, beam_size: int, max_length: int) -> OnnxState:
        return OnnxState(self, token_ids, beam_size)


class OnnxState(State):
    """One search: what the file keeps of each beam, which is reordered when beams are."""

    masked = -1e9

    def __init__(self, engine: OnnxEngine, token_ids: np.ndarray, beam_size: int):
        super().__init__(engine, len(token_ids), beam_size)
        self._beam_size = beam_size
        encoded, mask = engine.spec.encode(token_ids)
        self._encoded, self._mask = (np.repeat(x, beam_size, axis=0) for x in (encoded, mask))
        self._past: dict[str, np.ndarray] | None = None

    def reorder(self, parents: np.ndarray) -> None:
        rows = self._rows(np.arange(len(parents)), parents)
        assert self._past is not None  # There was a step.
        if not np.array_equal(rows, np.arange(len(rows))):
            # The beams of a sentence have one source.
            self._past = {
                name: value if ".encoder." in name else value[rows]
                for name, value in self._past.items()
            }

    def step(self, token_ids, index, start, history_bias, width):
        shape = (*token_ids.shape, -1)
        logits, self._past = self.engine.spec.decode(
            token_ids.reshape(-1, 1), self._encoded, self._mask, self._past
        )
        if width is None:
            return logits.reshape(shape), None
        scores, ids = likeliest(logits[:, 0], width)
        return scores.reshape(shape), ids.reshape(shape)

    def compact(self, slots: np.ndarray, room: int) -> None:
        """Do nothing: each beam has its own history, without gaps."""

    def select_rows(self, rows: np.ndarray) -> None:
        kept = self._rows(rows, np.arange(self._beam_size)[None])
        self._encoded, self._mask = self._encoded[kept], self._mask[kept]
        if self._past is not None:
            self._past = {name: value[kept] for name, value in self._past.items()}

    def _rows(self, sentences: np.ndarray, beams: np.ndarray) -> np.ndarray:
        return (sentences[:, None] * self._beam_size + beams).reshape(-1)


class OnnxSelector:
    """The engine of an `OnnxModel`, as an `EngineSelector` for a spec; nothing else runs the files."""

    fixed_shapes = needs_compiling = False
    choice = EngineChoice("onnx", "The model is a file of ONNX, which onnxruntime runs.")

    def __init__(self, model: OnnxModel, precision: str | None, engine: str):
        if engine != "auto" or precision not in (None, "float32"):
            raise ValueError(
                "ONNX files are run by onnxruntime in float32: leave `engine` and `precision` out. Received: "
                f"engine={engine!r}, precision={precision!r}"
            )
        self._engine = OnnxEngine(model)

    def choice_for(self, rows: int) -> EngineChoice:
        return self.choice

    def engine(self, rows: float = math.inf) -> OnnxEngine:
        return self._engine
