"""CTranslate2 with the very same weights, from tokens to tokens."""

from __future__ import annotations

import json
import os
from typing import Any

from peers.decoding.job import DecodingPeer


class CTranslate2(DecodingPeer):
    """`ctranslate2.Translator`; all CPUs work on one batch, as in the other programs."""

    def import_libraries(self) -> None:
        import ctranslate2

        self.library = ctranslate2

    def build(self) -> dict[str, Any]:
        folder = self.job.folder
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
        self.translator = self.library.Translator(
            str(folder / "ctranslate2"),
            compute_type=self.precision,
            intra_threads=threads,
            inter_threads=1,
        )
        names = json.loads((folder / "ctranslate2" / "shared_vocabulary.json").read_text("utf-8"))
        self.ids = {name: index for index, name in enumerate(names)}
        self.tokens = [[names[index] for index in row] for row in self.job.sentences]
        return {"compute_type": self.translator.compute_type, "threads": threads}

    def translate(self, rows: list[int], max_length: int) -> list[list[int]]:
        results = self.translator.translate_batch(
            [self.tokens[row] for row in rows],
            beam_size=self.job.beam_size,
            length_penalty=self.job.length_penalty,
            max_decoding_length=max_length,
        )
        return [[self.ids[token] for token in result.hypotheses[0]] for result in results]
