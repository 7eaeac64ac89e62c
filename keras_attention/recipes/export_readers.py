"""Exports, read by the programs that they were made for: the seam between `check_export` and a format.

A format is checked if `READERS` has a way to read it. A reader takes a folder and the search settings, and
returns a `LoadedExport`: text in, text and numbers out, since tokens have other numbers in other programs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from keras_attention.data.presets import read_preset
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.decoding.translator import Translator
from keras_attention.engine.select import is_installed
from keras_attention.interop.export_folder import (
    TARGET_TOKENIZER_FOLDER,
    TOKENIZER_FOLDER,
    quantization_of,
)
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.backend import check_backend
from keras_attention.utils.sides import encode_side, end_of, piece_of, target_size_of

# Pairs whose probability is computed together.
ROWS = 16


class Search(NamedTuple):
    """How all programs search, as far as they can.

    Attributes:
        beam_size: Number of beams; with 1 all programs have the same rules.
        length_penalty: The paper's alpha.
        max_extra_length: Largest number of tokens that a translation may have more than its source.
    """

    beam_size: int
    length_penalty: float
    max_extra_length: int


class LoadedExport(Protocol):
    """What a program has read.

    Attributes:
        precision: `"float32"`, or what else the weights are rounded to.
    """

    precision: str

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Return the translation of each text."""

    def score(self, texts: Sequence[str], translations: Sequence[str]) -> list[float]:
        """Return log P(translation | text) of each pair: the sum over its tokens, end token included."""


class Reader(NamedTuple):
    """A program that reads a format.

    Attributes:
        load: Reads a folder.
        libraries: What must be installed.
        searches_alike: Whether it searches by the same rules with more than one beam, too.
        is_optional: Whether it is left out if a library is missing, as another program reads the format.
    """

    load: Callable[[Path, Search], LoadedExport]
    libraries: tuple[str, ...] = ()
    searches_alike: bool = False
    is_optional: bool = False

    def missing(self) -> list[str]:
        """Return the libraries that are not installed."""
        return [name for name in self.libraries if not is_installed(name)]


class Ours:
    """What `Translator.from_preset` reads."""

    precision = "float32"

    def __init__(self, preset: Any, search: Search):
        options = {"show_progress": False, "longest_source": None, **search._asdict()}
        preset = read_preset(preset)
        if isinstance(preset.spec, TransformerSpec):  # Programs compute in float32.
            preset = preset._replace(spec=dataclasses.replace(preset.spec, dtype="float32"))
        self._translator = Translator.from_preset(preset, **options)

    def translate(self, texts: Sequence[str]) -> list[str]:
        return self._translator(texts)

    def score(self, texts: Sequence[str], translations: Sequence[str]) -> list[float]:
        model, tokenizer = self._translator.model, self._translator.tokenizer
        suppressed: tuple[int, ...] = ()
        if isinstance(model, TransformerSpec):
            check_backend()
            from keras_attention.models.transformer import Transformer

            suppressed, model = model.suppressed_token_ids, Transformer.from_spec(model)
        sources, targets = (
            [[*row, *end_of(tokenizer, side)] for row in encode_side(tokenizer, given, side)]
            for side, given in (("source", texts), ("target", translations))
        )

        def logits(source: np.ndarray, target: np.ndarray) -> np.ndarray:
            start = np.full((len(target), 1), tokenizer.start_token_id, "int32")
            inputs = np.concatenate([start, target[:, :-1]], axis=1)
            found = model(
                {"encoder_token_ids": source, "decoder_token_ids": inputs}, training=False
            )
            if not isinstance(found, np.ndarray):
                from keras import ops

                found = ops.convert_to_numpy(ops.cast(found, "float32"))
            found = found.copy()
            found[..., list(suppressed)] = -np.inf
            return found

        return _sums(sources, targets, tokenizer.pad_token_id, logits)


class Transformers:
    """transformers, of a MarianMT or Pegasus folder."""

    precision = "float32"

    def __init__(self, folder: Path, search: Search):
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        self._search = search

    def translate(self, texts: Sequence[str]) -> list[str]:
        import torch

        sources, search = self._tokenizer(list(texts))["input_ids"], self._search
        results = [""] * len(texts)
        for rows, length in _of_one_length(sources):
            given = torch.tensor([sources[row] for row in rows])
            with torch.no_grad():
                found = self._model.generate(
                    input_ids=given,
                    attention_mask=torch.ones_like(given),
                    num_beams=search.beam_size,
                    length_penalty=search.length_penalty,
                    max_new_tokens=length + search.max_extra_length,
                    do_sample=False,
                )
            texts_found = self._tokenizer.batch_decode(found, skip_special_tokens=True)
            for row, text in zip(rows, texts_found, strict=True):
                results[row] = text
        return results

    def score(self, texts: Sequence[str], translations: Sequence[str]) -> list[float]:
        import torch

        sources = self._tokenizer(list(texts))["input_ids"]
        targets = self._tokenizer(text_target=list(translations))["input_ids"]
        config = self._model.config
        pad, start = config.pad_token_id, config.decoder_start_token_id

        def logits(source: np.ndarray, target: np.ndarray) -> np.ndarray:
            inputs = np.concatenate([np.full((len(target), 1), start), target[:, :-1]], axis=1)
            with torch.no_grad():
                found = self._model(
                    input_ids=torch.tensor(source),
                    attention_mask=torch.tensor(source != pad),
                    decoder_input_ids=torch.tensor(inputs),
                )
            return found.logits.numpy()

        return _sums(sources, targets, pad, logits)


class CTranslate2:
    """CTranslate2, which takes and gives subwords."""

    def __init__(self, folder: Path, search: Search):
        import ctranslate2

        self._search = search
        self._tokenizer = self._target = Tokenizer.load(folder / TOKENIZER_FOLDER)
        if (folder / TARGET_TOKENIZER_FOLDER).is_dir():
            self._target = Tokenizer.load(folder / TARGET_TOKENIZER_FOLDER)
        self._translator = ctranslate2.Translator(str(folder), compute_type="default")
        # Rounded weights stay so where it computes in float32.
        rounded, computed = quantization_of(folder), self._translator.compute_type
        self.precision = rounded if rounded and computed == "float32" else computed

    def translate(self, texts: Sequence[str]) -> list[str]:
        ids = range(target_size_of(self._target))
        ids_of = {piece_of(self._target, i, "target"): i for i in ids}
        sources, search = self._pieces(texts, "source"), self._search
        results = [""] * len(texts)
        for rows, length in _of_one_length(sources):
            found = self._translator.translate_batch(
                [sources[row] for row in rows],
                beam_size=search.beam_size,
                length_penalty=search.length_penalty,
                # The end token of the source counts for ours.
                max_decoding_length=length + 1 + search.max_extra_length,
                min_decoding_length=0,
                max_input_length=0,
            )
            for row, result in zip(rows, found, strict=True):
                best = [ids_of[piece] for piece in result.hypotheses[0]]
                results[row] = str(self._target.decode(best))
        return results

    def score(self, texts: Sequence[str], translations: Sequence[str]) -> list[float]:
        sides = self._pieces(texts, "source"), self._pieces(translations, "target")
        # All at once would hold the logits of all.
        found = self._translator.score_batch(*sides, max_batch_size=ROWS, max_input_length=0)
        return [float(sum(each.log_probs)) for each in found]

    def _pieces(self, texts: Sequence[str], side: str) -> list[list[str]]:
        tokenizer = self._tokenizer if side == "source" else self._target
        ids = encode_side(tokenizer, texts, side)
        return [[piece_of(tokenizer, i, side) for i in row] for row in ids]


class SavedModel:
    """TensorFlow with tensorflow-text, which take and give text."""

    precision = "float32"

    def __init__(self, folder: Path, search: Search):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  It has the operations of SentencePiece.

        self._constant = tf.constant
        self._signatures = tf.saved_model.load(str(folder)).signatures
        self._search = search

    def translate(self, texts: Sequence[str]) -> list[str]:
        sizes = {
            name: self._constant(value)
            for name, value in (("beam_size", self._search.beam_size), ("n_best", 1))
        }
        results: list[str] = []
        for first in range(0, len(texts), ROWS):
            given = self._constant(list(texts[first : first + ROWS]))
            found = self._signatures["translate"](texts=given, **sizes)["translations"]
            results += [text.decode("utf-8") for text in found[:, 0].numpy()]
        return results

    def score(self, texts: Sequence[str], translations: Sequence[str]) -> list[float]:
        results: list[float] = []
        for first in range(0, len(texts), ROWS):
            sides = (list(side[first : first + ROWS]) for side in (texts, translations))
            sources, targets = map(self._constant, sides)
            found = self._signatures["score"](sources=sources, targets=targets)
            results += found["log_probabilities"].numpy().tolist()
        return results


READERS: dict[str, dict[str, Reader]] = {
    "ctranslate2": {"CTranslate2": Reader(CTranslate2, ("ctranslate2",))},
    "hugging_face": {
        "keras_attention": Reader(Ours, ("safetensors",), searches_alike=True),
        "transformers": Reader(Transformers, ("transformers", "torch"), is_optional=True),
    },
    "saved_model": {
        "TensorFlow": Reader(SavedModel, ("tensorflow", "tensorflow_text"), searches_alike=True)
    },
    "onnx": {"onnxruntime": Reader(Ours, ("onnxruntime",), searches_alike=True)},
}


def _of_one_length(sources: Sequence[Sequence[Any]]) -> Iterator[tuple[list[int], int]]:
    """Yield the rows of sources of one length, and that: a program has one limit for a batch."""
    lengths = np.array([len(source) for source in sources])
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length).tolist()
        yield from ((rows[i : i + ROWS], int(length)) for i in range(0, len(rows), ROWS))


def _sums(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    pad: int,
    logits: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> list[float]:
    """Return the sums of the log-probabilities of targets, from a function that returns (B, T, V)."""
    sums = np.zeros(len(sources))
    order = np.argsort(
        [len(source) + len(target) for source, target in zip(sources, targets, strict=True)]
    )
    for first in range(0, len(order), ROWS):
        rows = order[first : first + ROWS]
        source, target = (_padded([side[row] for row in rows], pad) for side in (sources, targets))
        found = logits(source, target).astype("float64")
        highest = found.max(axis=-1)
        total = highest + np.log(np.exp(found - highest[..., None]).sum(axis=-1))
        chosen = np.take_along_axis(found, target[..., None], axis=-1)[..., 0]
        is_real = np.arange(target.shape[1]) < [[len(targets[row])] for row in rows]
        sums[rows] = np.where(is_real, chosen - total, 0.0).sum(axis=-1)
    return sums.tolist()


def _padded(rows: Sequence[Sequence[int]], pad: int) -> np.ndarray:
    longest = max(map(len, rows))
    return np.array([[*row, *[pad] * (longest - len(row))] for row in rows], "int64")
