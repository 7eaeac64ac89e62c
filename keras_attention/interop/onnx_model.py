"""Run what `export_onnx` wrote, by onnxruntime.

Shape letters: B sentences, S source, T target positions, P earlier ones, D hidden_dim, V vocabulary.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from keras_attention.spec.parts import SpecError
from keras_attention.utils.files import DamagedFile
from keras_attention.utils.lazily import needed

# Inputs and outputs, with optimum's names.
IDS, MASK, ENCODED = "input_ids", "attention_mask", "encoder_hidden_states"
SOURCE_MASK, IS_CONTINUED = f"encoder_{MASK}", "use_cache_branch"
ENCODER_FILE, DECODER_FILE = "encoder_model.onnx", "decoder_model_merged.onnx"
# Name of our entry in a file's metadata.
SETTINGS = "keras_attention"
# What a search asks of a model.
SIZES = ("vocabulary_size", "target_vocabulary_size")
NAMES = (*SIZES, "pad_token_id", "start_token_id", "end_token_id")


def ids_of(spec: Any) -> dict[str, int]:
    """Return the sizes and special tokens of a model, by `NAMES`."""
    return {name: int(getattr(spec, name)) for name in NAMES}


class OnnxModel:
    """The files of a folder that `export_onnx` wrote, as `Translator` takes a model.

    Call it as a `Transformer`, with `{"encoder_token_ids": (B, S), "decoder_token_ids": (B, T)}`: it returns
    the logits (B, T, V) of all positions, in which tokens that are never produced are very low.

    Attributes:
        max_length: Number of positions.
        beam_size: Number of beams of the search settings.
    """

    name = "onnx"

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)
        self._open()
        settings = _settings(self.folder, (self._encoder, self._decoder))
        self.vocabulary_size, self.target_vocabulary_size = (settings[name] for name in SIZES)
        self.pad_token_id, self.start_token_id, self.end_token_id = (
            settings[name] for name in NAMES[2:]
        )
        self.max_length: int = settings["max_length"]
        self.beam_size: int = settings["beam_size"]
        self._outputs = [each.name for each in self._decoder.get_outputs()]
        # No past: one sentence, of length 0 where the length varies.
        self._nothing = {
            each.name: np.zeros([d if isinstance(d, int) else 0 for d in each.shape], "float32")
            for each in self._decoder.get_inputs()
            if each.name.startswith("past_key_values.")
        }

    def _open(self) -> None:
        self._encoder, self._decoder = (
            _session(self.folder / file) for file in (ENCODER_FILE, DECODER_FILE)
        )
        self._process = os.getpid()

    def options(self) -> NoReturn:
        """Refuse to be a spec: nothing but a search can be done with the files."""
        raise SpecError(
            f"'{self.folder}' holds ONNX files, which translate and score, and have no weights by name. Take "
            "the model that they were made of."
        )

    validate = options  # Whoever takes it for a spec begins with one of these.

    def __reduce__(self) -> Any:
        return OnnxModel, (self.folder,)

    def encode(self, token_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the encoder's output (B, S, D) of sources (B, S), and which tokens are real (B, S)."""
        if self._process != os.getpid():  # The threads of a session do not survive a fork.
            self._open()
        mask = (token_ids != self.pad_token_id).astype("int64")
        fed = {IDS: token_ids.astype("int64"), MASK: mask}
        return self._encoder.run(None, fed)[0], mask

    def decode(
        self,
        token_ids: np.ndarray,
        encoded: np.ndarray,
        mask: np.ndarray,
        past: Mapping[str, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Read target tokens.

        Args:
            token_ids: Ids (B, T).
            encoded: The encoder's output (B, S, D).
            mask: Which source tokens are real (B, S).
            past: What the last call returned, if the tokens go on behind those that it read.

        Returns:
            The logits (B, T, V), and the past of the next call: by name, with B in front.
        """
        fed = {
            IDS: token_ids.astype("int64"),
            ENCODED: encoded,
            SOURCE_MASK: mask,
            IS_CONTINUED: np.array([past is not None]),
            **(self._nothing if past is None else past),
        }
        logits, *present = self._decoder.run(self._outputs, fed)
        names = [name.replace("present.", "past_key_values.") for name in self._outputs[1:]]
        kept = dict(zip(names, present, strict=True))
        if past is not None:  # Those of the source stay what they were.
            kept.update((name, value) for name, value in past.items() if ".encoder." in name)
        return logits, kept

    def __call__(self, inputs: Mapping[str, np.ndarray], training: bool = False) -> np.ndarray:
        encoded, mask = self.encode(np.asarray(inputs["encoder_token_ids"]))
        return self.decode(np.asarray(inputs["decoder_token_ids"]), encoded, mask)[0]


def _settings(folder: Path, sessions: Sequence[Any]) -> dict[str, int]:
    """Return the settings in the metadata of both files, which must be equal."""
    maps = (session.get_modelmeta().custom_metadata_map for session in sessions)
    written, *others = (found.get(SETTINGS) for found in maps)
    if written is None or others != [written]:
        raise ValueError(
            f"'{folder}' holds ONNX files of another program, or of two exports; those that `export_onnx` "
            "wrote are read. Export the model again with `keras-attention export`, or use optimum."
        )
    settings = json.loads(written)
    names = (*NAMES, "max_length", "beam_size")
    if not isinstance(settings, dict) or any(type(settings.get(name)) is not int for name in names):
        raise DamagedFile(f"The metadata of '{folder / DECODER_FILE}' lacks one of {names}.")
    return settings


def _session(path: Path) -> Any:
    message = (
        f"'{path}' is run by onnxruntime, which is not installed: pip install 'onnxruntime>=1.23'."
    )
    onnxruntime = needed("onnxruntime", message)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if hasattr(os, "sched_getaffinity"):
        options.intra_op_num_threads = len(os.sched_getaffinity(0))
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has error types of its own, one for each status.
        if not path.is_file():
            raise FileNotFoundError(f"There is no '{path}'.") from None
        raise DamagedFile(
            f"'{path}' cannot be read: {str(error).splitlines()[0]}. Export it again."
        ) from None
