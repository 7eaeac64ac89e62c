"""Beam search with a model: fast where there is a fast decoder, plain else.

Shape letters: B sentences, S source length, K beams, L longest output.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_attention.decoding.beam_search import BeamSearchResult, beam_search
from keras_attention.decoding.incremental_search import shared_search
from keras_attention.engine.select import FastDecoder
from keras_attention.ops.compile import compiled

PRECISIONS = ("float32", "bfloat16", "float16", "int8")


class ModelSearch:
    """Searches the translations of batches of source ids.

    The plain search runs `beam_search` over the model's `decode_step`, compiled for each shape of
    batches. The fast one finds the same; it is taken where the model has an `inference_form`.

    Args:
        model: The model, as `Translator` takes it.
        beam_size: K.
        length_penalty: alpha.
        max_extra_length: Tokens that a translation may have more than its source.
        precision: Precision of the fast search, None for the model's.
        fast: False for the plain search.

    Raises:
        ValueError: A precision that is unknown, or that cannot be had.
    """

    def __init__(
        self,
        model: Any,
        beam_size: int,
        length_penalty: float,
        max_extra_length: int,
        precision: str | None = None,
        fast: bool = True,
    ):
        if precision not in (None, *PRECISIONS):
            raise ValueError(f"precision must be one of {PRECISIONS}, or None; got {precision!r}.")
        self._model = model
        self._max_extra_length = max_extra_length
        self._options = {
            "beam_size": beam_size,
            "start_token_id": model.start_token_id,
            "end_token_id": model.end_token_id,
            "pad_token_id": model.pad_token_id,
            "length_penalty": length_penalty,
        }
        make_form = getattr(model, "inference_form", None)
        form = make_form() if fast and make_form is not None else None
        if form is None and precision is not None:
            raise ValueError(
                f"precision={precision!r} needs the fast decoding of a Transformer with plain blocks; "
                f"got {type(model).__name__} with fast={fast}. Leave precision=None."
            )
        self._decoder = None if form is None else FastDecoder(form, precision or form.dtype)
        self._compiled_shapes: set[tuple[tuple[int, int], bool]] = set()

    @property
    def fixed_shapes(self) -> bool:
        """Whether each shape (B, S) of a batch is compiled, so that there should be few."""
        return self._decoder is None or self._decoder.fixed_shapes

    def refresh(self) -> None:
        """Has the model's present weights read."""
        if self._decoder is not None:
            self._decoder.refresh()

    def needs_compiling(self, shape: tuple[int, int], n_best: int) -> bool:
        """Whether the next search of this shape is the first."""
        if self._decoder is not None:
            return self._decoder.needs_compiling(shape[0], self._options["beam_size"], shape[1])
        is_compiled = keras.backend.backend() != "torch"
        return is_compiled and (shape, n_best == 1) not in self._compiled_shapes

    def __call__(
        self, sources: Sequence[Sequence[int]], shape: tuple[int, int], n_best: int = 1
    ) -> BeamSearchResult:
        """Searches the translations of at most B sources.

        Args:
            sources: Source ids, the end token included, at most S each.
            shape: (B, S), to which they are padded.
            n_best: How many hypotheses must be certain.

        Returns:
            A `BeamSearchResult` of NumPy arrays, with empty slots for dummy rows.
        """
        encoder_token_ids = np.full(shape, self._model.pad_token_id, "int32")
        max_lengths = np.zeros(shape[0], "int32")  # 0 ends the search of a dummy row at once
        for row, source in enumerate(sources):
            encoder_token_ids[row, : len(source)] = source
            max_lengths[row] = len(source) + self._max_extra_length
        if self._decoder is not None:
            return self._search_fast(encoder_token_ids, max_lengths, _stop(n_best))
        self._compiled_shapes.add((shape, n_best == 1))
        search = self._search_best if n_best == 1 else self._search_n_best
        return keras.tree.map_structure(
            keras.ops.convert_to_numpy, search(encoder_token_ids, max_lengths)
        )

    def _search_fast(
        self, encoder_token_ids: np.ndarray, max_lengths: np.ndarray, stop: str
    ) -> BeamSearchResult:
        assert self._decoder is not None
        max_length = self._longest(encoder_token_ids.shape[1])
        beam_size: int = self._options["beam_size"]
        return shared_search(
            self._decoder.start(encoder_token_ids, beam_size, max_length),
            max_lengths,
            stop=stop,
            max_length=max_length,
            **self._options,
        )

    # Two programs: only who wants the n best must pay for the certainty of the others.
    @functools.cached_property
    def _search_best(self) -> Callable[..., Any]:
        return compiled(functools.partial(self._search_plain, stop=_stop(1)), self._model)

    @functools.cached_property
    def _search_n_best(self) -> Callable[..., Any]:
        return compiled(functools.partial(self._search_plain, stop=_stop(2)), self._model)

    def _search_plain(self, encoder_token_ids: Any, max_lengths: Any, stop: str) -> Any:
        """Encoder and beam search of one batch: (B, S) and (B,) to a `BeamSearchResult`."""
        rows, source_length = encoder_token_ids.shape
        max_length = self._longest(source_length)
        memory = self._model.encode(encoder_token_ids)

        def step(token_ids, index, cache):
            return self._model.decode_step(token_ids, index, memory, cache)

        return beam_search(
            step,
            self._model.initial_cache(rows, self._options["beam_size"], max_length),
            max_lengths,
            stop=stop,
            max_length=max_length,
            **self._options,
        )

    def _longest(self, source_length: int) -> int:
        """L, the most tokens of any translation of sources of a padded length."""
        longest = source_length + self._max_extra_length
        return longest if self._model.max_length is None else min(longest, self._model.max_length)


def _stop(n_best: int) -> str:
    return "best" if n_best == 1 else "n_best"
