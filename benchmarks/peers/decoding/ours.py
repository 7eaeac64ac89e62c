"""`keras_attention.Translator`, from text to text, on the backend of KERAS_BACKEND."""

from __future__ import annotations

import dataclasses
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

        from keras_attention import Tokenizer, Translator

        try:
            from keras_attention import tune_memory
        except ImportError:  # a checkout of before this was asked for: importing did it
            pass
        else:
            tune_memory()
        self.keras, self.tokenizer_class, self.translator_class = keras, Tokenizer, Translator

    def build(self) -> dict[str, Any]:
        job = self.job
        model = self.model()
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
            # Other checkouts have `fast`, or no choice.
            **({} if self.engine == "auto" else {"engine": self.engine}),
        )
        # Asked for by its name, an engine is compiled before it translates: chosen, it may leave the first
        # texts to NumPy.
        name = self.translator.engine_for(self.batch_size).name
        if name != "plain":
            self.translator = dataclasses.replace(self.translator, engine=name)
        return {
            "backend": self.keras.backend.backend(),
            "engine": name,
            "parameters": model.count_params(),
        }

    def model(self) -> Any:
        """Return the job's model."""
        return self.keras.saving.load_model(self.job.folder / "model.keras", compile=False)

    def check(self) -> dict[str, Any]:
        """Of all sentences, so that every shape that will be timed is compiled here."""
        found = self.translator.translate(self.job.texts)
        translations = [list(best[0].token_ids) for best in found]
        return self.outputs(translations[: self.job.checked])

    def translate_all(self) -> None:
        self.translator([self.job.texts[row] for row in self.rows])


class WeightedTransformer(KerasAttention):
    """The same sizes with a branch for each head (Ahmed et al. 2017), from its own random weights."""

    def model(self) -> Any:
        from keras_attention import Transformer
        from peers.decoding.make_job import never_end

        if not self.job.forced:
            raise ValueError("Branches have random weights, so they need --presets and no --run.")
        model = Transformer(**{**self.job.config, "branch_feed_forward": "shared"})
        never_end(model)
        return model

    def check(self) -> dict[str, Any]:
        # Another model: its translations are others.
        return {**super().check(), "approximate": True}
