"""`keras_attention.Translator`, from text to text, on the backend of KERAS_BACKEND."""

from __future__ import annotations

from typing import Any

from peers.decoding.job import DecodingPeer


class KerasAttention(DecodingPeer):
    """The public way to translate: texts in, texts out, batches made by the `Translator`.

    Its precision `"plain"` is float32 by the plain search, which defines what the fast one must find.
    """

    def import_libraries(self) -> None:
        import keras

        from keras_attention import Tokenizer, Translator, tune_memory

        tune_memory()
        self.keras, self.tokenizer_class, self.translator_class = keras, Tokenizer, Translator

    def build(self) -> dict[str, Any]:
        job = self.job
        model = self.keras.saving.load_model(job.folder / "model.keras", compile=False)
        plain = self.precision == "plain"
        options = {"fast": False} if plain else {"precision": self.precision}
        self.translator = self.translator_class(
            model,
            self.tokenizer_class.load(job.folder / "tokenizer"),
            beam_size=job.beam_size,
            length_penalty=job.length_penalty,
            max_extra_length=job.extra_length,
            batch_size=self.batch_size,
            batch_tokens=self.batch_size * 1024,
            show_progress=False,
            **options,
        )
        return {"backend": self.keras.backend.backend(), "parameters": model.count_params()}

    def check(self) -> dict[str, Any]:
        """Of all sentences, so that every shape that will be timed is compiled here."""
        found = self.translator.translate(self.job.texts)
        translations = [list(best[0].token_ids) for best in found]
        return self.outputs(translations[: self.job.checked])

    def translate_all(self) -> None:
        self.translator([self.job.texts[row] for row in self.rows])
