"""PyTorch's own `torch.nn.Transformer`, with the embedding, positions and tied softmax that it lacks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from peers.marian import copy_linear, copy_normalization
from peers.training.torch_loop import TorchProgram
from peers.weights import sinusoids


class TorchTransformer(TorchProgram):
    """`torch.nn.Transformer`, post-norm."""

    def module(self, weights: dict[str, Any]) -> Any:
        nn, sizes = self.torch.nn, self.sizes
        longest = max(max(b[0].shape[1], b[2].shape[1]) for b in self.batches)
        layer = {
            "d_model": sizes.hidden_dim,
            "nhead": sizes.num_heads,
            "dim_feedforward": sizes.intermediate_dim,
            "dropout": sizes.dropout,
            "batch_first": True,
        }
        # Stacks of our own: by default it ends each post-norm stack with one more normalisation.
        encoder_layer = nn.TransformerEncoderLayer(**layer)
        decoder_layer = nn.TransformerDecoderLayer(**layer)
        model = nn.Transformer(
            sizes.hidden_dim,
            sizes.num_heads,
            custom_encoder=nn.TransformerEncoder(
                encoder_layer, sizes.num_layers, enable_nested_tensor=False
            ),
            custom_decoder=nn.TransformerDecoder(decoder_layer, sizes.num_layers),
            batch_first=True,
        )
        model.embedding = nn.Embedding(sizes.vocabulary_size, sizes.hidden_dim, padding_idx=0)
        table = self.torch.from_numpy(sinusoids(max(512, longest), sizes.hidden_dim))
        model.register_buffer("positions", table)
        model.embedding_dropout = nn.Dropout(sizes.dropout)
        self._copy(model, weights)
        return model

    def build(self) -> dict[str, Any]:
        facts = super().build()
        facts["differs"] = (
            "its attention has biases (they start at 0); dropout also on attention weights and "
            "inside the feed-forward networks, as its one rate says"
        )
        return facts

    def logits(self, source: Any, decoder: Any) -> Any:
        torch, model = self.torch, self.model
        padding = source == 0
        length = decoder.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=self.device).triu(1)
        encoded = model.encoder(self._embed(source), src_key_padding_mask=padding)
        x = model.decoder(
            self._embed(decoder),
            encoded,
            tgt_mask=future,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return torch.nn.functional.linear(x, model.embedding.weight)

    def _embed(self, ids: Any) -> Any:
        model = self.model
        x = model.embedding(ids) * math.sqrt(self.sizes.hidden_dim)
        return model.embedding_dropout(x + model.positions[: ids.shape[1]])

    def _copy(self, model: Any, weights: dict[str, Any]) -> None:
        with self.torch.no_grad():
            table = self.torch.from_numpy(weights["token_embedding/embeddings"])
            model.embedding.weight.copy_(table)
        for kind, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
            for number, layer in enumerate(stack.layers, start=1):
                self._copy_layer(layer, weights, f"{kind}_block_{number}")

    def _copy_layer(self, layer: Any, weights: dict[str, Any], block: str) -> None:
        torch = self.torch
        attentions = {"self_attention": layer.self_attn}
        if hasattr(layer, "multihead_attn"):
            attentions["cross_attention"] = layer.multihead_attn
        norms = [layer.norm1, layer.norm2, getattr(layer, "norm3", None)]
        for name, norm in zip((*attentions, "feed_forward"), norms, strict=False):
            copy_normalization(norm, weights, f"{block}/{name}_residual/normalization")
        for name, attention in attentions.items():
            kernels = [
                weights[f"{block}/{name}/{part}/kernel"].T for part in ("query", "key", "value")
            ]
            with torch.no_grad():
                attention.in_proj_weight.copy_(torch.from_numpy(np.concatenate(kernels)))
                attention.in_proj_bias.zero_()
            copy_linear(attention.out_proj, weights, f"{block}/{name}/attention_output")
        for ours, theirs in (("inner", layer.linear1), ("outer", layer.linear2)):
            copy_linear(theirs, weights, f"{block}/feed_forward/{ours}")
