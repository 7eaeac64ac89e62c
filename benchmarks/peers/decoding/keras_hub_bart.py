"""KerasHub's way: a BART of the same sizes and its `BeamSampler`, from ids to ids. Random weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from peers.decoding.job import DecodingPeer, padded


class Bart(DecodingPeer):
    """`BartSeq2SeqLM.generate`; it is another model, so its translations are not compared."""

    def import_libraries(self) -> None:
        import keras
        import keras_hub

        self.keras, self.library = keras, keras_hub

    def build(self) -> dict[str, Any]:
        config = self.job.config
        if not isinstance(config["num_layers"], int):
            raise ValueError("KerasHub's BART has stacks of one depth.")
        backbone = self.library.models.BartBackbone(
            vocabulary_size=config["vocabulary_size"],
            num_layers=config["num_layers"],
            num_heads=config["num_heads"],
            hidden_dim=config["hidden_dim"],
            intermediate_dim=config["intermediate_dim"],
            max_sequence_length=256,
        )
        self.model = self.library.models.BartSeq2SeqLM(backbone)
        self.model.compile(sampler=self.library.samplers.BeamSampler(num_beams=self.job.beam_size))
        return {
            "backend": self.keras.backend.backend(),
            "parameters": backbone.count_params(),
            "weights": "its own, random",
        }

    def check(self) -> dict[str, Any]:
        return {}

    def translate(self, rows: list[int], max_length: int) -> list[list[int]]:
        config = self.job.config
        source = padded([[*self.job.sentences[row], config["end_token_id"]] for row in rows], 0)
        # The start token, and a place for each token to come.
        target = np.zeros((len(rows), 1 + max_length), "int32")
        target[:, 0] = config["end_token_id"]
        inputs = {
            "encoder_token_ids": source,
            "encoder_padding_mask": source != 0,
            "decoder_token_ids": target,
            "decoder_padding_mask": np.arange(1 + max_length) < np.ones((len(rows), 1), int),
        }
        found = self.model.generate(inputs, stop_token_ids=None)["decoder_token_ids"]
        return np.asarray(found)[:, 1:].tolist()
