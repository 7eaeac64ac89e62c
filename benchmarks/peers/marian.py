"""Hugging Face's Marian with the weights of a `Transformer`; its attention has biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

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

    width = config["hidden_dim"] // config["num_heads"]
    if config.get("normalize_first") or config.get("position_layout") == "learned":
        raise ValueError("HF Marian is post-norm with sinusoidal positions; this model is not.")
    if {config.get("key_dim"), config.get("value_dim")} - {None, width}:
        raise ValueError("HF Marian has heads of hidden_dim / num_heads; this model has not.")
    sizes: dict[str, Any] = {}
    depths = config["num_layers"]
    depths = [depths] * 2 if isinstance(depths, int) else depths
    for kind, depth in zip(("encoder", "decoder"), depths, strict=True):
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


def _copy_block(layer: Any, weights: Mapping[str, np.ndarray], block: str, epsilon: float) -> None:
    """Put our weights into a block of Marian's, within `torch.no_grad`."""
    import torch

    linears = {"feed_forward/inner": layer.fc1, "feed_forward/outer": layer.fc2}
    for part, name in ATTENTIONS.items():
        attention = getattr(layer, name, None)
        for ours, theirs in PROJECTIONS.items() if attention else ():
            linears[f"{part}/{ours}"] = getattr(attention, theirs)
    for name, linear in linears.items():
        # Ours is (inputs, outputs), and may have no bias.
        linear.weight.copy_(torch.from_numpy(weights[f"{block}/{name}/kernel"].T))
        bias = weights.get(f"{block}/{name}/bias")
        linear.bias.copy_(torch.zeros_like(linear.bias) if bias is None else torch.from_numpy(bias))
    for part, name in NORMS.items():
        if norm := getattr(layer, name, None):
            path = f"{block}/{part}_residual/normalization"
            norm.eps = epsilon
            norm.weight.copy_(torch.from_numpy(weights[f"{path}/gamma"]))
            norm.bias.copy_(torch.from_numpy(weights[f"{path}/beta"]))


def sinusoids(length: int, width: int, layout: str = "interleaved") -> np.ndarray:
    """Return the paper's positions, float32 `(length, width)`: sines and cosines in turn, or all sines first.

    All sines first is the layout `"halves"` of the authors' code, whose exponents end at 1.
    """
    if layout == "halves":
        exponents = np.arange(width // 2) / max(width // 2 - 1, 1)
        angles = np.arange(length)[:, None] / 10000.0**exponents
        parts = [np.sin(angles), np.cos(angles), np.zeros((length, width % 2))]
        return np.concatenate(parts, axis=1).astype("float32")
    columns = np.arange(width)
    angles = np.arange(length)[:, None] / 10000.0 ** (2 * (columns // 2) / width)
    return np.where(columns % 2 == 0, np.sin(angles), np.cos(angles)).astype("float32")
