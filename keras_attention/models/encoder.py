"""The encoder alone, over vectors of any kind: sound, images, measurements (section 7 of the paper)."""

from typing import Any

import keras

from keras_attention.layers.arguments import Named, activation_config, checked, without_branches
from keras_attention.layers.door import Door
from keras_attention.layers.encoder_block import first_given
from keras_attention.models.parts import Parts, check_blocks
from keras_attention.models.stacks import EncoderStack
from keras_attention.spec.parts import Layout
from keras_attention.utils.arguments import Count, FromZero, Positive, Rate


@keras.saving.register_keras_serializable("keras_attention")
class TransformerEncoder(Door, EncoderStack, keras.layers.Layer):
    """A stack of encoder blocks over vectors: the encoder of a `Transformer` without its tokens.

    Section 7 of the paper plans "to extend the Transformer to problems involving input and output modalities
    other than text". The vectors may be frames of sound, pixels or measurements, projected to the width D by
    a layer of yours. Positions are added to them. With a causal `attention_mask` the stack is a language
    model without a source, as in the Image Transformer (Parmar et al. 2018).

    Args:
        num_layers: Number of blocks, the paper's N. Defaults to 6.
        intermediate_dim: Width F of the feed-forward networks, d_ff. Defaults to 2048.
        num_heads: Number of heads N, the paper's h. Defaults to 8.
        key_dim: Width K of a head's queries and keys, d_k. Defaults to `D // num_heads`.
        value_dim: Width U of a head's values, d_v. Defaults to `key_dim`.
        dropout: Dropout rate P_drop on each sub-layer's output, and on the sums of inputs and positions.
            Defaults to 0.1.
        attention_dropout: Dropout rate on the attention weights. Defaults to 0.
        activation_dropout: Dropout rate inside the feed-forward networks. Defaults to 0.
        activation: Activation of the feed-forward networks. Defaults to `"relu"`.
        normalize_first: True for pre-norm. Defaults to False, the paper's post-norm.
        final_normalization: Whether the stack ends with a layer normalisation. Defaults to
            `normalize_first`.
        use_attention_bias: Whether attention projections have biases. Defaults to False.
        layer_norm_epsilon: Added to the variance in each layer normalisation. Defaults to 1e-6.
        position_layout: `"interleaved"`, `"halves"` or `"learned"`; see `PositionalEncoding`.
        max_length: Number of learned positions. Sinusoids have no limit and ignore it.
        attention_window: Positions less than this far apart see each other: restricted self-attention (Table
            1) with r = 2 attention_window - 1. Defaults to None, no limit.
        recompute: Whether training keeps only the blocks' inputs and computes the rest again in the
            backward pass. Defaults to False.
        seed: Integer seed of the initial weights and the dropout, or None. Defaults to None.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor of shape `(B, S, D)`.
        padding_mask: Boolean `(B, S)`, True = real. Defaults to the implicit Keras mask.
        attention_mask: Boolean `(B, S, S)`, True = may attend; merged with the padding mask.
        training: Whether dropout is on.
        return_attention_scores: Whether to return the attention weights as well.

    Returns:
        Tensor of shape `(B, S, D)`; with `return_attention_scores`, a tuple of it and a list of weights
        `(B, N, S, S)`, one for each block.

    Raises:
        ValueError: If an argument is out of range, or `num_heads` does not divide D and there is no
            `key_dim`.

    Example:

    >>> import numpy as np
    >>> encoder = TransformerEncoder(num_layers=2, intermediate_dim=16, num_heads=2)
    >>> sound, is_real = np.ones((1, 3, 8)), np.array([[True, True, False]])
    >>> tuple(encoder(sound, padding_mask=is_real).shape)
    (1, 3, 8)
    """

    call_axes = {
        "inputs": "BSD",
        "padding_mask": "BS",
        "attention_mask": "BNSS",
        "mask": "BS",
        "inputs_mask": "BS",
    }

    def __init__(
        self,
        num_layers: Count = 6,
        intermediate_dim: Count = 2048,
        num_heads: Count = 8,
        key_dim: Count | None = None,
        value_dim: Count | None = None,
        dropout: Rate = 0.1,
        attention_dropout: Rate = 0.0,
        activation_dropout: Rate = 0.0,
        activation: Named = "relu",
        normalize_first: bool = False,
        final_normalization: bool | None = None,
        use_attention_bias: bool = False,
        layer_norm_epsilon: Positive = 1e-6,
        position_layout: Layout = "interleaved",
        max_length: Count = 256,
        attention_window: Count | None = None,
        recompute: bool = False,
        seed: FromZero | None = None,
        **kwargs: Any,
    ):
        config = checked(locals())
        config["activation"] = activation_config(activation)
        check_blocks(config)
        super().__init__(**kwargs)
        self._config: dict[str, Any] = config
        self.num_layers, self.num_heads = num_layers, num_heads
        self.final_normalization = normalize_first or bool(final_normalization)
        self.dropout, self.recompute = dropout, recompute
        self.supports_masking = True

    def known_sizes(self) -> dict[str, int | None]:
        return {**super().known_sizes(), "N": self.num_heads}

    def build(self, input_shape: Any) -> None:
        self._width = input_shape[-1]
        parts = Parts({**self._config, "hidden_dim": self._width}, self.dtype_policy)
        self.encoder_positions, self.encoder_dropout = parts.positions("encoder")
        self.encoder_blocks = parts.stack("encoder")
        if self.final_normalization:
            self.encoder_normalization = parts.final_normalization("encoder")
        self.built = True

    def call(
        self,
        inputs: Any,
        padding_mask: Any = None,
        attention_mask: Any = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        mask: Any = None,
        inputs_mask: Any = None,
    ) -> Any:
        # Keras passes the implicit mask as `inputs_mask` if another mask is given as well.
        masks = {
            "padding_mask": first_given(padding_mask, mask, inputs_mask),
            "attention_mask": attention_mask,
        }
        scores: list[Any] | None = [] if return_attention_scores else None
        x = self._run_encoder(inputs, training, scores, **masks)
        return (x, scores) if return_attention_scores else x

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def compute_output_spec(
        self, inputs: Any, return_attention_scores: bool = False, **_: Any
    ) -> Any:
        outputs = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return outputs
        batch, length, _ = inputs.shape
        shape = (batch, self.num_heads, length, length)
        weights = [keras.KerasTensor(shape, dtype=self.compute_dtype)] * self.num_layers
        return outputs, weights

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self._config}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return super().from_config(without_branches(config))
