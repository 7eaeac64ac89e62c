"""Hugging Face's `MarianMTModel` with the very same weights, from ids to ids."""

from __future__ import annotations

from typing import Any

from peers.decoding.job import DecodingPeer, padded
from peers.marian import marian_model


class Marian(DecodingPeer):
    """`MarianMTModel.generate`."""

    def import_libraries(self) -> None:
        import torch
        import transformers

        self.torch, self.transformers = torch, transformers

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
        return [until(row[1:], end) for row in found.tolist()]


def until(ids: list[int], end_token_id: int) -> list[int]:
    """Return the ids before the first end token."""
    return ids[: ids.index(end_token_id)] if end_token_id in ids else ids
