"""The programs that translate a job: ours, CTranslate2, Hugging Face's Marian and KerasHub's BART."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
from harness.records import usable_cpus
from harness.subject import timed

from peers.decoding.job import DecodingPeer, padded
from peers.marian import marian_model

# Sentences of a trial of how many threads are best.
TRIED = 32


class KerasAttention(DecodingPeer):
    """`keras_attention.Translator` on the backend of `KERAS_BACKEND`, from text to text: batches are its own.

    Args:
        engine: Of the `Translator`; `"plain"` is the search that defines what the others must find.
        **job: Arguments of `DecodingPeer`.
    """

    def __init__(self, engine: str = "auto", **job: Any) -> None:
        self.engine = engine
        super().__init__(**job)

    def import_libraries(self) -> None:
        from keras_attention import Tokenizer, Transformer, Translator, tune_memory

        tune_memory()
        self.tokenizer_class, self.translator_class = Tokenizer, Translator
        self.model_class = Transformer

    def build(self) -> dict[str, Any]:
        import keras

        job = self.job
        model = keras.saving.load_model(job.folder / "model.keras", compile=False)
        translator = self.translator_class(
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
        # Asked for by its name, an engine is compiled before it translates: chosen, it may leave the first
        # texts to NumPy.
        engine = translator.engine_for(self.batch_size).name
        if engine != "plain":
            translator = dataclasses.replace(translator, engine=engine)
        self.translator = translator
        return {
            "backend": keras.backend.backend(),
            "engine": engine,
            "parameters": model.count_params(),
        }

    def check(self) -> dict[str, Any]:
        """Of all sentences, so that every shape that will be timed is compiled here."""
        found = self.translator.translate(self.job.texts)
        translations = [list(best[0].token_ids) for best in found]
        return self.outputs(translations[: self.job.checked])

    def translate_all(self, rows: list[int]) -> None:
        self.translator([self.job.texts[row] for row in rows])


class CTranslate2(DecodingPeer):
    """`ctranslate2.Translator` with the very same weights, from tokens to tokens, at its best threads.

    One batch at a time, as in the other programs, either by all CPUs or by one: OpenMP's threads wait for
    each other after every operation, and small models are the slower for it.
    """

    def import_libraries(self) -> None:
        import ctranslate2

        self.library = ctranslate2

    def build(self) -> dict[str, Any]:
        folder = self.job.folder / "ctranslate2"
        names = json.loads((folder / "shared_vocabulary.json").read_text("utf-8"))
        self.ids = {name: index for index, name in enumerate(names)}
        self.tokens = [[names[index] for index in row] for row in self.job.sentences]
        rows, tried = self.rows[:: max(1, len(self.rows) // TRIED)], {}
        for threads in dict.fromkeys((usable_cpus(), 1)):
            self.translator = self.library.Translator(
                str(folder), compute_type=self.precision, inter_threads=1, intra_threads=threads
            )
            seconds = timed(lambda: self.translate_all(rows), 3)
            tried[threads] = (min(seconds[1:]), self.translator)
        threads = min(tried, key=lambda each: tried[each][0])
        self.translator = tried[threads][1]
        return {
            "compute_type": self.translator.compute_type,
            "threads": threads,
            "tried": {threads: seconds for threads, (seconds, _) in tried.items()},
        }

    def translate(self, rows: list[int], max_length: int) -> list[list[int]]:
        results = self.translator.translate_batch(
            [self.tokens[row] for row in rows],
            beam_size=self.job.beam_size,
            length_penalty=self.job.length_penalty,
            max_decoding_length=max_length,
        )
        return [[self.ids[token] for token in result.hypotheses[0]] for result in results]


class Marian(DecodingPeer):
    """Hugging Face's `MarianMTModel.generate` with the very same weights, from ids to ids."""

    def import_libraries(self) -> None:
        import torch
        import transformers  # noqa: F401

        self.torch = torch

    def build(self) -> dict[str, Any]:
        model = marian_model(self.job.config, self.job.weights(), pad_embeds_as_zero=True)
        self.model = model.eval()
        self.model.to(getattr(self.torch, self.precision))
        parameters = sum(weight.numel() for weight in self.model.parameters())
        return {"parameters": parameters, "threads": self.torch.get_num_threads()}

    def translate(self, rows: list[int], max_length: int) -> list[list[int]]:
        config = self.job.config
        end, pad = config["end_token_id"], config["pad_token_id"]
        ids = padded([[*self.job.sentences[row], end] for row in rows], pad)
        source = self.torch.from_numpy(ids).long()
        with self.torch.inference_mode():
            found = self.model.generate(
                input_ids=source,
                attention_mask=(source != pad).long(),
                num_beams=self.job.beam_size,
                length_penalty=self.job.length_penalty,
                max_new_tokens=max_length,
                do_sample=False,
                early_stopping=False,
            )
        return [row[: row.index(end)] if end in row else row for row in found[:, 1:].tolist()]


class Bart(DecodingPeer):
    """KerasHub's `BartSeq2SeqLM.generate` of the same sizes with its `BeamSampler`, from ids to ids.

    It is another model with weights of its own, so its translations are not compared.
    """

    def import_libraries(self) -> None:
        import keras_hub

        self.library = keras_hub

    def build(self) -> dict[str, Any]:
        config = self.job.config
        if not isinstance(config["num_layers"], int):
            raise ValueError("KerasHub's BART has stacks of one depth.")
        names = ("vocabulary_size", "num_layers", "num_heads", "hidden_dim", "intermediate_dim")
        sizes = {name: config[name] for name in names}
        backbone = self.library.models.BartBackbone(**sizes, max_sequence_length=256)
        self.model = self.library.models.BartSeq2SeqLM(backbone)
        self.model.compile(sampler=self.library.samplers.BeamSampler(num_beams=self.job.beam_size))
        return {"parameters": backbone.count_params(), "weights": "its own, random"}

    def check(self) -> dict[str, Any]:
        return {}

    def translate(self, rows: list[int], max_length: int) -> list[list[int]]:
        end = self.job.config["end_token_id"]
        source = padded([[*self.job.sentences[row], end] for row in rows], 0)
        # The start token, and a place for each token to come.
        target = np.zeros((len(rows), 1 + max_length), "int32")
        target[:, 0] = end
        inputs = {
            "encoder_token_ids": source,
            "encoder_padding_mask": source != 0,
            "decoder_token_ids": target,
            "decoder_padding_mask": np.arange(1 + max_length) < np.ones((len(rows), 1), int),
        }
        found = self.model.generate(inputs, stop_token_ids=None)["decoder_token_ids"]
        return np.asarray(found)[:, 1:].tolist()
