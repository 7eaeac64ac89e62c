"""`keras_attention.Translator`, from text to text, on the backend of KERAS_BACKEND."""

from __future__ import annotations

from typing import Any

from peers.decoding.job import DecodingPeer


class KerasAttention(DecodingPeer):
    """The public way to translate: texts in, texts out, batches made by the `Translator`.

    Args:
        engine: Of the `Translator`; `"plain"` is the search that defines what the others must find.
        **job: Arguments of `DecodingPeer`.
    """

    def __init__(self, engine: str = "auto", **job: Any) -> None:
        self.engine = engine
        super().__init__(**job)

    def import_libraries(self) -> None:
        import keras

        from keras_attention import Tokenizer, Translator, tune_memory

        tune_memory()
        self.keras, self.tokenizer_class, self.translator_class = keras, Tokenizer, Translator

    def build(self) -> dict[str, Any]:
        job = self.job
        model = self.keras.saving.load_model(job.folder / "model.keras", compile=False)
        self.translator = self.translator_class(
            model,
            self.tokenizer_class.load(job.folder / "tokenizer"),
            beam_size=job.beam_size,
            length_penalty=job.length_penalty,
            max_extra_length=job.extra_length,
            batch_size=self.batch_size,
            batch_tokens=self.batch_size * 1024,
            show_progress=False,
            # The plain search computes in the model's own precision.
            precision=None if self.engine == "plain" else self.precision,
            engine=self.engine,
        )
        return {
            "backend": self.keras.backend.backend(),
            "engine": self.translator.engine_for(self.batch_size).name,
            "parameters": model.count_params(),
        }

    def check(self) -> dict[str, Any]:
        """Of all sentences, so that every shape that will be timed is compiled here."""
        found = self.translator.translate(self.job.texts)
        translations = [list(best[0].token_ids) for best in found]
        return self.outputs(translations[: self.job.checked])

    def translate_all(self) -> None:
        self.translator([self.job.texts[row] for row in self.rows])
