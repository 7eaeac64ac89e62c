"""Hugging Face transformers: the Marian model, the paper's architecture with attention biases."""

from __future__ import annotations

from typing import Any

from peers.marian import marian_model
from peers.training.torch_loop import TorchProgram


class Marian(TorchProgram):
    """`MarianMTModel` of our sizes, with its default attention."""

    def import_libraries(self) -> None:
        super().import_libraries()
        import transformers

        self.transformers = transformers

    def module(self, weights: dict[str, Any]) -> Any:
        longest = max(max(b[0].shape[1], b[2].shape[1]) for b in self.batches)
        return marian_model(self.sizes.as_options(), weights, max(512, longest))

    def build(self) -> dict[str, Any]:
        facts = super().build()
        facts["versions"]["transformers"] = self.transformers.__version__
        facts["attention"] = self.model.config._attn_implementation
        facts["differs"] = "its attention has biases (they start at 0)"
        return facts

    def logits(self, source: Any, decoder: Any) -> Any:
        outputs = self.model(
            input_ids=source,
            attention_mask=(source != 0).long(),
            decoder_input_ids=decoder,
            use_cache=False,
        )
        return outputs.logits
