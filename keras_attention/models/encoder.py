"""The encoder alone, over vectors of any kind: sound, images, measurements (section 7 of the paper)."""

from typing import Any

import keras

from keras_attention.layers.arguments import options_in, takes
from keras_attention.layers.encoder_block import OverVectors, first_given
from keras_attention.models.parts import Parts
from keras_attention.models.stacks import EncoderStack
from keras_attention.spec.options import StackOptions


@keras.saving.register_keras_serializable("keras_attention")
class TransformerEncoder(OverVectors, EncoderStack, keras.layers.Layer):
    """A stack of encoder blocks over vectors: the encoder of a `Transformer` without its tokens.

    Section 7 of the paper plans "to extend the Transformer to problems involving input and output modalities
    other than text". The vectors may be frames of sound, pixels or measurements, projected to the width D by
    a layer of yours. Positions are added to them. With a causal `attention_mask` the stack is a language
    model without a source, as in the Image Transformer (Parmar et al. 2018).

    Args:
        **kwargs: The fields of `keras_attention.spec.StackOptions`, which says what they are; the first
            ones also by position. And the keyword arguments of `keras.layers.Layer`.

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

    @takes(StackOptions)
    def __init__(
        self,
        num_layers: int = StackOptions.num_layers,
        intermediate_dim: int = StackOptions.intermediate_dim,
        num_heads: int = StackOptions.num_heads,
        **kwargs: Any,
    ):
        options, others = options_in(StackOptions, locals())
        super().__init__(**others)
        self._take(options)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        self._width = input_shape[-1]
        parts = Parts(self.options, self._width, self.dtype_policy)
        self.encoder_positions, self.encoder_dropout = parts.positions("encoder")
        self.encoder_blocks = parts.stack("encoder")
        self._add_normalizations(parts, "encoder")
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

    def compute_output_spec(
        self, inputs: Any, return_attention_scores: bool = False, **_: Any
    ) -> Any:
        found = super().compute_output_spec(inputs, return_attention_scores)
        return (found[0], [found[1]] * self.num_layers) if return_attention_scores else found
