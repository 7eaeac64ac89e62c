"""Hugging Face's Marian with the weights of a `Transformer`; its attention has biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from peers.weights import depths_of, sinusoids

# Our names of a block's parts, and Marian's.
ATTENTIONS = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
PROJECTIONS = {
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "attention_output": "out_proj",
}
NORMS = {
    "self_attention": "self_attn_layer_norm",
    "cross_attention": "encoder_attn_layer_norm",
    "feed_forward": "final_layer_norm",
}


def marian_model(
    config: Mapping[str, Any],
    weights: Mapping[str, np.ndarray],
    longest: int = 1024,
    pad_embeds_as_zero: bool = False,
) -> Any:
    """Return a `MarianMTModel` that computes what the `Transformer` with these weights computes.

    Args:
        config: Sizes and options of a post-norm `Transformer` with sinusoids whose heads are
            `hidden_dim / num_heads` wide; what is missing has the default of `Transformer`.
        weights: By the names of `weights.weight_shapes`; attention biases that are missing are 0.
        longest: Positions of the tables.
        pad_embeds_as_zero: Whether the padding token has a row in the softmax matrix that is not zero,
            though it embeds as zero: the two matrices are then not tied.

    Raises:
        ValueError: Marian cannot express the model.
    """
    import torch
    from transformers import MarianConfig, MarianMTModel

    refuse_what_marian_is_not(config)
    sizes: dict[str, Any] = {}
    for kind, depth in zip(("encoder", "decoder"), depths_of(config["num_layers"]), strict=True):
        sizes[f"{kind}_layers"] = depth
        sizes[f"{kind}_attention_heads"] = config["num_heads"]
        sizes[f"{kind}_ffn_dim"] = config["intermediate_dim"]
    pad = config.get("pad_token_id", 0)
    model = MarianMTModel(
        MarianConfig(
            vocab_size=config["vocabulary_size"],
            d_model=config["hidden_dim"],
            dropout=config["dropout"],
            activation_function=config.get("activation", "relu"),
            scale_embedding=True,
            max_position_embeddings=longest,
            pad_token_id=pad,
            decoder_start_token_id=pad,
            eos_token_id=config.get("end_token_id", 1),
            forced_eos_token_id=None,
            tie_word_embeddings=not pad_embeds_as_zero,
            **sizes,
        )
    )
    # Its own positions have all sines first: ours, so that the outputs are comparable.
    layout = config.get("position_layout", "interleaved")
    positions = torch.from_numpy(sinusoids(longest, config["hidden_dim"], layout))
    embedding = torch.from_numpy(weights["token_embedding/embeddings"])
    epsilon = config.get("layer_norm_epsilon", 1e-6)
    with torch.no_grad():
        model.lm_head.weight.copy_(embedding)
        model.final_logits_bias.zero_()
        for kind, stack in (("encoder", model.model.encoder), ("decoder", model.model.decoder)):
            stack.embed_tokens.weight.copy_(embedding)
            if pad_embeds_as_zero:
                stack.embed_tokens.weight[pad] = 0.0
            stack.embed_positions.weight.copy_(positions)
            for number, layer in enumerate(stack.layers, start=1):
                _copy_block(layer, weights, f"{kind}_block_{number}", epsilon)
    return model


def refuse_what_marian_is_not(config: Mapping[str, Any]) -> None:
    """Raise a ValueError for a model that Marian cannot express."""
    width = config["hidden_dim"] // config["num_heads"]
    if config.get("normalize_first") or config.get("position_layout") == "learned":
        raise ValueError("HF Marian is post-norm with sinusoidal positions; this model is not.")
    if {config.get("key_dim"), config.get("value_dim")} - {None, width}:
        raise ValueError("HF Marian has heads of hidden_dim / num_heads; this model has not.")


def _copy_block(layer: Any, weights: Mapping[str, np.ndarray], block: str, epsilon: float) -> None:
    for part, name in NORMS.items():
        if hasattr(layer, name):
            norm = f"{block}/{part}_residual/normalization"
            copy_normalization(getattr(layer, name), weights, norm, epsilon)
    for part, name in ATTENTIONS.items():
        if hasattr(layer, name):
            for ours, theirs in PROJECTIONS.items():
                copy_linear(
                    getattr(getattr(layer, name), theirs), weights, f"{block}/{part}/{ours}"
                )
    copy_linear(layer.fc1, weights, f"{block}/feed_forward/inner")
    copy_linear(layer.fc2, weights, f"{block}/feed_forward/outer")


def copy_linear(linear: Any, weights: Mapping[str, np.ndarray], name: str) -> None:
    """Put our kernel `(inputs, outputs)` and bias, or a bias of 0, into a `torch.nn.Linear`."""
    import torch

    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(weights[f"{name}/kernel"].T))
        bias = weights.get(f"{name}/bias")
        linear.bias.copy_(torch.zeros_like(linear.bias) if bias is None else torch.from_numpy(bias))


def copy_normalization(
    norm: Any, weights: Mapping[str, np.ndarray], name: str, epsilon: float = 1e-6
) -> None:
    """Put our gamma, beta and epsilon into a `torch.nn.LayerNorm`."""
    import torch

    norm.eps = epsilon
    with torch.no_grad():
        norm.weight.copy_(torch.from_numpy(weights[f"{name}/gamma"]))
        norm.bias.copy_(torch.from_numpy(weights[f"{name}/beta"]))
