"""CTranslate2 as an engine, for who has it installed: the same weights, its own search and results.

`interop.ctranslate2.export_ctranslate2` says how its search differs. Tokens are numbers here, since text
never comes this far.

Shape letters: B sentences, S source length, W beams, L longest output.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ctranslate2
import numpy as np

from keras_attention.engine.base import Beams, SearchingEngine
from keras_attention.interop.ctranslate2 import MODEL_FILE, write_model
from keras_attention.spec.parts import as_array
from keras_attention.utils.cache import cache_folder
from keras_attention.utils.files import atomic_folder

MAX_POSITIONS = 4096  # written of sinusoids, which have no limit


class CTranslate2Engine(SearchingEngine):
    """Runs a spec by `ctranslate2.Translator` on a CPU, in `"float32"` or `"int8"`.

    A spec of NumPy arrays, which stay as they are, is written once, into the cache, under a name
    made of its weights and of CTranslate2's version; one whose weights change goes into a folder that
    is deleted.
    """

    name = "ctranslate2"

    def read_weights(self) -> None:
        weights = self.spec.weights()
        if all(isinstance(weight, np.ndarray) for weight in weights.values()):
            folder = cache_folder("ctranslate2") / self._fingerprint(weights)
            if not (folder / MODEL_FILE).is_file():
                with atomic_folder(folder, replace=True) as partial:
                    self._write(partial)
            self._translator = self._read(folder)
            return
        with tempfile.TemporaryDirectory(prefix="keras_attention-") as temporary:
            self._write(Path(temporary))
            self._translator = self._read(Path(temporary))

    def _write(self, folder: Path) -> None:
        sizes = (self.spec.vocabulary_size, self.spec.target_vocabulary_size)
        ids = {"unknown_token_id": 0, "end_token_id": self.spec.end_token_id}
        # Tokens are called by their numbers.
        source, target = (
            SimpleNamespace(vocabulary_size=size, id_to_token=str, **ids) for size in sizes
        )
        write_model(self.spec, source, folder, None, MAX_POSITIONS, target)

    def _read(self, folder: Path) -> Any:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
        return ctranslate2.Translator(
            str(folder), compute_type=self.precision, intra_threads=threads, inter_threads=1
        )

    def _fingerprint(self, weights: dict[str, Any]) -> str:
        """Hex sha256 of all that decides what is written."""
        settings = (self.spec.options(), self.spec.start_token_id, MAX_POSITIONS)
        digest = hashlib.sha256(f"{ctranslate2.__version__} {settings}".encode())
        for path, weight in weights.items():
            digest.update(f"{path} {weight.shape} ".encode())
            digest.update(np.ascontiguousarray(as_array(weight)).data)
        return digest.hexdigest()

    def search(self, token_ids, limits, options, made=None) -> Beams:
        beam_size, max_length, alpha, *_ = options
        shape = (len(token_ids), beam_size)
        scores = np.full((2, *shape), -np.inf, "float32")
        sequences = np.full((2, *shape, max_length), self.spec.pad_token_id, "int32")
        rows = np.flatnonzero(limits > 0)
        found = self._found(token_ids[rows], int(limits.max(initial=0)), beam_size, alpha)
        # CTranslate2 has one limit for a call. A search whose hypotheses all ended before a sentence's own
        # limit was over there; the others are made again, so that a batch changes nothing.
        late = [i for i, row in enumerate(rows) if not _is_over(found[i], limits[row], beam_size)]
        for limit in sorted({int(limits[rows[i]]) for i in late}):
            again = [i for i in late if limits[rows[i]] == limit]
            others = self._found(token_ids[rows[again]], limit, beam_size, alpha)
            for i, one in zip(again, others, strict=True):
                found[i] = one
        for row, one in zip(rows, found, strict=True):
            for slot, (tokens, score, is_finished) in enumerate(one):
                # Of one that was cut off the plain log-probability is wanted.
                scale = 1.0 if is_finished else max(1, len(tokens)) ** alpha
                scores[int(is_finished), row, slot] = score * scale
                sequences[int(is_finished), row, slot, : len(tokens)] = tokens
        return Beams(sequences[0], scores[0], sequences[1], scores[1])

    def _found(
        self, token_ids: np.ndarray, limit: int, beam_size: int, alpha: float
    ) -> list[list[tuple[list[int], float, bool]]]:
        """Tokens, score and whether it ended of the hypotheses of each sentence, best first."""
        spec = self.spec
        if not len(token_ids):
            return []
        if spec.max_length is None and max(token_ids.shape[1], limit) > MAX_POSITIONS:
            raise ValueError(
                f"engine='ctranslate2' has {MAX_POSITIONS:,} positions; a sentence of "
                f"{token_ids.shape[1]:,} tokens may have {limit:,} in its translation. Split it."
            )
        # The end token is added to sources by CTranslate2.
        sources = [
            [str(token) for token in row[row != spec.pad_token_id][:-1]] for row in token_ids
        ]
        results = self._translator.translate_batch(
            sources,
            beam_size=beam_size,
            num_hypotheses=beam_size,
            length_penalty=alpha,
            max_decoding_length=limit,
            min_decoding_length=0,
            max_input_length=0,
            return_scores=True,
            return_end_token=True,
        )
        found, end = [], [spec.end_token_id]
        for result in results:
            hypotheses = [list(map(int, tokens)) for tokens in result.hypotheses]
            pairs = zip(hypotheses, result.scores, strict=True)
            found.append([(tokens, score, tokens[-1:] == end) for tokens, score in pairs])
        return found


def _is_over(found: Sequence[tuple[list[int], float, bool]], limit: int, beam_size: int) -> bool:
    """Whether a search that might have gone on ended within a limit: enough hypotheses have."""
    ended = [tokens for tokens, _, is_finished in found if is_finished and len(tokens) <= limit]
    return len(ended) == beam_size


ENGINE = CTranslate2Engine
