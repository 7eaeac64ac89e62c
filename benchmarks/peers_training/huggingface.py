"""Hugging Face transformers: the Marian model, the paper's architecture with attention biases."""

from __future__ import annotations

from typing import Any

from peers_training.torch_loop import TorchProgram, copy_linear, copy_normalization
from peers_training.weights import sinusoids


class Marian(TorchProgram):
    """`MarianMTModel` of our sizes, with its default attention."""

    def load(self) -> None:
        super().load()
        import transformers

        self.transformers = transformers

    def module(self, weights: dict[str, Any]) -> Any:
        sizes, longest = self.sizes, max(max(b[0].shape[1], b[2].shape[1]) for b in self.batches)
        config = self.transformers.MarianConfig(
            vocab_size=sizes.vocabulary_size,
            max_position_embeddings=max(512, longest),
            **{f"{side}_layers": sizes.num_layers for side in ("encoder", "decoder")},
            **{f"{side}_ffn_dim": sizes.intermediate_dim for side in ("encoder", "decoder")},
            **{f"{side}_attention_heads": sizes.num_heads for side in ("encoder", "decoder")},
            activation_function="relu",
            d_model=sizes.hidden_dim,
            dropout=sizes.dropout,
            scale_embedding=True,
            pad_token_id=0,
            decoder_start_token_id=0,
            eos_token_id=1,
            forced_eos_token_id=None,
        )
        model = self.transformers.MarianMTModel(config)
        self._copy(model.model, weights)
        return model

    def build(self, weights: dict[str, Any]) -> dict[str, Any]:
        facts = super().build(weights)
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

    def _copy(self, model: Any, weights: dict[str, Any]) -> None:
        torch = self.torch
        with torch.no_grad():
            table = torch.from_numpy(weights["token_embedding/embeddings"])
            model.shared.weight.copy_(table)
            for side in (model.encoder, model.decoder):
                # Its own positions have all sines first: our order, so that the outputs are comparable.
                positions = side.embed_positions.weight
                positions.copy_(torch.from_numpy(sinusoids(*positions.shape)))
        for kind, side in (("encoder", model.encoder), ("decoder", model.decoder)):
            for number, layer in enumerate(side.layers, start=1):
                self._copy_layer(layer, weights, f"{kind}_block_{number}")

    def _copy_layer(self, layer: Any, weights: dict[str, Any], block: str) -> None:
        torch = self.torch
        parts = {"self_attention": (layer.self_attn, layer.self_attn_layer_norm)}
        if hasattr(layer, "encoder_attn"):
            parts["cross_attention"] = (layer.encoder_attn, layer.encoder_attn_layer_norm)
        for name, (attention, norm) in parts.items():
            for ours, theirs in (
                ("query", attention.q_proj),
                ("key", attention.k_proj),
                ("value", attention.v_proj),
                ("attention_output", attention.out_proj),
            ):
                copy_linear(torch, theirs, weights, f"{block}/{name}/{ours}/kernel")
            copy_normalization(torch, norm, weights, f"{block}/{name}_residual/normalization")
        for ours, theirs in (("inner", layer.fc1), ("outer", layer.fc2)):
            name = f"{block}/feed_forward/{ours}"
            copy_linear(torch, theirs, weights, f"{name}/kernel", f"{name}/bias")
        name = f"{block}/feed_forward_residual/normalization"
        copy_normalization(torch, layer.final_layer_norm, weights, name)
