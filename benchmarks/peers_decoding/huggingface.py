"""Hugging Face's `MarianMTModel` with the very same weights, from ids to ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from peers_decoding.job import DecodingSubject, padded

# Our names, and Marian's, of an attention's projections.
PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
PARTS = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
NORMS = {
    "self_attention": "self_attn_layer_norm",
    "cross_attention": "encoder_attn_layer_norm",
    "feed_forward": "final_layer_norm",
}


class Marian(DecodingSubject):
    """`MarianMTModel.generate`."""

    def import_libraries(self) -> None:
        import torch
        import transformers

        self.torch, self.transformers = torch, transformers

    def load(self) -> dict[str, Any]:
        self.model = marian_model(self.job.config, self.job.weights())
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
    """The ids before the first end token."""
    return ids[: ids.index(end_token_id)] if end_token_id in ids else ids


def marian_model(config: dict[str, Any], weights: dict[str, np.ndarray]) -> Any:
    """A `MarianMTModel` that computes what the `Transformer` with these weights computes.

    Args:
        config: Of a post-norm `Transformer` with sinusoidal positions and `key_dim` times heads equal
            to `hidden_dim`.
        weights: From `make_job.weights_of`.
    """
    import torch
    from transformers import MarianConfig, MarianMTModel

    from keras_attention.layers.positional_encoding import sinusoid

    refuse_what_marian_is_not(config)
    layers, heads, inner = (config[k] for k in ("num_layers", "num_heads", "intermediate_dim"))
    settings: dict[str, Any] = {}
    for kind in ("encoder", "decoder"):
        settings |= {f"{kind}_layers": layers, f"{kind}_attention_heads": heads}
        settings |= {f"{kind}_ffn_dim": inner}
    model = MarianMTModel(
        MarianConfig(
            vocab_size=config["vocabulary_size"],
            d_model=config["hidden_dim"],
            activation_function=config["activation"],
            scale_embedding=True,
            max_position_embeddings=1024,
            pad_token_id=config["pad_token_id"],
            eos_token_id=config["end_token_id"],
            decoder_start_token_id=config["pad_token_id"],
            forced_eos_token_id=None,
            # The padding token embeds as zero, but has a logit.
            tie_word_embeddings=False,
            **settings,
        )
    ).eval()
    embedding = torch.from_numpy(weights["embedding"])
    positions = sinusoid(np.arange(1024), config["hidden_dim"], config["position_layout"])
    zeroed = embedding.clone()
    zeroed[config["pad_token_id"]] = 0.0
    with torch.no_grad():
        model.lm_head.weight.copy_(embedding)
        model.final_logits_bias.zero_()
        for stack, kind in ((model.model.encoder, "encoder"), (model.model.decoder, "decoder")):
            stack.embed_tokens.weight.copy_(zeroed)
            stack.embed_positions.weight.copy_(torch.from_numpy(positions))
            for index, layer in enumerate(stack.layers):
                _fill(layer, f"{kind}.{index}", weights, config["layer_norm_epsilon"])
    return model


def refuse_what_marian_is_not(config: dict[str, Any]) -> None:
    """Raise a ValueError for a model that Marian cannot express."""
    width = config["hidden_dim"] // config["num_heads"]
    if config["normalize_first"] or config["position_layout"] == "learned":
        raise ValueError("HF Marian is post-norm with sinusoidal positions; this model is not.")
    if {config["key_dim"], config["value_dim"]} - {None, width}:
        raise ValueError("HF Marian has heads of hidden_dim / num_heads; this model has not.")


def _fill(layer: Any, name: str, weights: dict[str, np.ndarray], epsilon: float) -> None:
    """Copy the weights of a block."""
    for part, norm_name in NORMS.items():
        if f"{name}.{part}.gamma" not in weights:
            continue
        norm = getattr(layer, norm_name)
        norm.eps = epsilon
        _copy(norm.weight, weights[f"{name}.{part}.gamma"])
        _copy(norm.bias, weights[f"{name}.{part}.beta"])
        if part == "feed_forward":
            _copy_dense(layer.fc1, f"{name}.{part}.inner", weights)
            _copy_dense(layer.fc2, f"{name}.{part}.outer", weights)
        else:
            for ours, theirs in PROJECTIONS.items():
                dense = getattr(getattr(layer, PARTS[part]), theirs)
                _copy_dense(dense, f"{name}.{part}.{ours}", weights)


def _copy_dense(linear: Any, name: str, weights: dict[str, np.ndarray]) -> None:
    _copy(linear.weight, weights[f"{name}.kernel"].T)
    bias = weights.get(f"{name}.bias")
    _copy(linear.bias, np.zeros(linear.bias.shape, "float32") if bias is None else bias)


def _copy(parameter: Any, array: np.ndarray) -> None:
    import torch

    parameter.copy_(torch.from_numpy(np.ascontiguousarray(array)))
