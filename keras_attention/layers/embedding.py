"""The token embedding, one table for source, target and softmax (section 3.4 of the paper)."""

import threading
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_attention.layers.arguments import Configured, checked
from keras_attention.layers.declared import check_declares_itself, check_has_plain_weights
from keras_attention.layers.door import Door
from keras_attention.layers.masks import padding_mask
from keras_attention.ops.ids import one_if_ids
from keras_attention.ops.operations import (
    fold_leading_axes,
    linear,
    unfold_leading_axes,
)
from keras_attention.ops.reference import matmul
from keras_attention.spec.parts import EmbeddingSpec, SpecError
from keras_attention.utils.arguments import Count, FromZero
from keras_attention.utils.checks import check_integer

# The largest number up to which all whole numbers are exact.
EXACT_UP_TO = {"float16": 2048, "bfloat16": 256}


class LastCall(threading.local):
    """Whether this thread's last call was of hidden states: Keras does not tell `compute_mask`."""

    reverses = False


_last_call = LastCall()


@keras.saving.register_keras_serializable("keras_attention")
class TokenEmbedding(Configured, Door, keras.layers.ReversibleEmbedding):
    """The token embedding of the paper: scaled, zero for padding, and tied to the softmax.

    Section 3.4: rows are multiplied by `sqrt(hidden_dim)` on lookup. The same table, unscaled and, in the
    paper, without a bias, projects hidden states to logits. As in the authors' code, the embedding of the
    padding token is the zero vector, and the decoder starts from it.

    Args:
        vocabulary_size: Number of rows V.
        hidden_dim: Width D of the rows.
        pad_token_id: Id whose embedding is zero, or None for no such id. Defaults to 0.
        tie_weights: Whether the softmax projection uses the same table. Defaults to True.
        embeddings_initializer: Defaults to a normal distribution with standard deviation
            `hidden_dim ** -0.5`, which gives scaled embeddings of unit variance.
        use_logits_bias: Whether a trained bias, at first zero, is added to the logits. Defaults to False.
        **kwargs: Keyword arguments of `keras.layers.ReversibleEmbedding`. With `mask_zero=True` the
            embeddings carry the implicit Keras mask of the real tokens.

    Call arguments:
        inputs: Token ids `(B, T)`; hidden states `(B, T, D)` if `reverse=True`.
        reverse: Whether to project hidden states to logits. Defaults to False.

    Returns:
        Embeddings `(B, T, D)`, or logits `(B, T, V)`. An id outside the vocabulary gives NaN, or an
        error on backends that check it.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> import numpy as np
    >>> from keras import ops
    >>> embedding = TokenEmbedding(vocabulary_size=11, hidden_dim=4)
    >>> x = embedding(np.array([[7, 0]]))
    >>> float(ops.max(ops.abs(x[0, 1])))
    0.0
    >>> tuple(embedding(x, reverse=True).shape)
    (1, 2, 11)
    """

    call_axes = {"inputs": "..."}
    reverse_dtype: Any  # Attributes of Keras' layer.
    lora_rank: Any

    def __init__(
        self,
        vocabulary_size: Count,
        hidden_dim: Count,
        pad_token_id: FromZero | None = 0,
        tie_weights: bool = True,
        embeddings_initializer: Any = None,
        use_logits_bias: bool = False,
        **kwargs: Any,
    ):
        own = checked(locals())
        vocabulary_size, hidden_dim = own["vocabulary_size"], own["hidden_dim"]
        if pad_token_id is not None:
            check_integer("pad_token_id", pad_token_id, least=0, most=vocabulary_size - 1)
        if embeddings_initializer is None:
            embeddings_initializer = keras.initializers.RandomNormal(stddev=hidden_dim**-0.5)
        super().__init__(
            vocabulary_size,
            hidden_dim,
            tie_weights=tie_weights,
            embeddings_initializer=embeddings_initializer,
            **kwargs,
        )
        if self.reverse_dtype is None:
            # Keras' embeddings do not autocast: their table would make the product float32.
            self.reverse_dtype = self.compute_dtype
        of_keras = ("tie_weights", "embeddings_initializer")
        self._keep({name: own[name] for name in own if name not in of_keras})

    def build(self, input_shape: Any = None) -> None:
        # Keras adds LoRA's matrices, which a saved layer had, first, and then takes no other weight.
        rank, self.lora_rank = self.lora_rank, None
        super().build(input_shape)
        self.logits_bias = None
        if self.use_logits_bias:
            self.logits_bias = self.add_weight(
                name="logits_bias", shape=(self.vocabulary_size,), initializer="zeros"
            )
        if rank:
            self.enable_lora(rank, self.lora_alpha)

    @property
    def variable_serialization_spec(self) -> dict[Any, list[str]]:
        """Names of the weights that are saved, by quantization mode: Keras' hook, with the bias."""
        bias = ["logits_bias"] if self.use_logits_bias else []
        return {k: [*names, *bias] for k, names in super().variable_serialization_spec.items()}

    def known_sizes(self) -> dict[str, int | None]:
        return {"D": self.hidden_dim}

    def axes_of(self, given: Mapping[str, Any]) -> Mapping[str, str]:
        _last_call.reverses = bool(given.get("reverse"))
        return {"inputs": "...D"} if _last_call.reverses else self.call_axes

    def call(self, inputs: Any, reverse: bool = False) -> Any:
        if reverse:
            return unfold_leading_axes(self._project(fold_leading_axes(inputs)), inputs)
        ids = self._exact_ids(inputs)
        embedded = ops.take(self.embeddings, ids, axis=0)
        return self._scaled(ops.cast(embedded, self.compute_dtype), ids, inputs)

    def quantize(self, mode: Any = None, type_check: bool = True, config: Any = None) -> None:
        """Keras' `quantize` of the table; `type_check` refuses a subclass, which may compute otherwise."""
        if type_check and type(self) is not TokenEmbedding:
            raise NotImplementedError(
                f"{self.name!r} is a {type(self).__name__}, a subclass that may compute something else. It "
                "stays as it is. Pass `type_check=False` if it does not."
            )
        super().quantize(mode, type_check=False, config=config)

    def quantized_call(self, inputs: Any, reverse: bool = False) -> Any:
        """Keras' hook: its lookup or product in integers, with the scale, padding and bias of `call`."""
        if not reverse:
            ids = self._exact_ids(inputs)
            embedded = super().quantized_call(ids)
            return self._scaled(ops.cast(embedded, self.compute_dtype), ids, inputs)
        logits = ops.cast(super().quantized_call(inputs, reverse=True), self.reverse_dtype)
        if self.logits_bias is None:
            return logits
        return ops.add(logits, ops.cast(self.logits_bias, self.reverse_dtype))

    def _exact_ids(self, inputs: Any) -> Any:
        """Return ids as int32; a ValueError where their dtype has rounded some to other ids."""
        dtype = keras.backend.standardize_dtype(inputs.dtype)
        if self.vocabulary_size > EXACT_UP_TO.get(dtype, self.vocabulary_size):
            raise ValueError(
                f"Token ids came to {self.name!r} as {dtype}, which rounds those above {EXACT_UP_TO[dtype]}. "
                "Pass integers; a `Sequential` begins with keras.Input((None,), dtype='int32'), else its "
                "first layer gets them in the compute dtype."
            )
        return ops.cast(inputs, "int32")

    def _scaled(self, embedded: Any, ids: Any, given: Any) -> Any:
        """Return rows of the table times `sqrt(D)`, zero for padding, NaN for what is no id."""
        # As a Python number it would be float32 for float64, too.
        scale = ops.convert_to_tensor(self.hidden_dim**0.5, embedded.dtype)
        # A graph cannot raise: an id outside the vocabulary gives NaN, never another word's row.
        scale = scale * one_if_ids(given, self.vocabulary_size, embedded.dtype)
        if self.pad_token_id is not None:
            scale = ops.where(ops.equal(ids, self.pad_token_id), 0.0 * scale, scale)
        return ops.multiply(embedded, scale[..., None])

    def _project(self, rows: Any) -> Any:
        bias = None if self.logits_bias is None else ops.cast(self.logits_bias, self.reverse_dtype)
        if self.logit_soft_cap is not None:
            logits = super().call(rows, reverse=True)
            return logits if bias is None else ops.add(logits, bias)
        table = self.embeddings if self.tie_weights else self.reverse_embeddings
        rows, table = (ops.cast(x, self.reverse_dtype) for x in (rows, table))
        if not self.tie_weights:
            return linear(rows, table, bias)
        logits = matmul(rows, ops.transpose(table))
        return logits if bias is None else logits + bias

    def spec(self) -> EmbeddingSpec:
        """Describe what this layer computes."""
        check_declares_itself(self)
        check_has_plain_weights(self)
        if self.logit_soft_cap is not None or self.pad_token_id is None:
            raise SpecError(
                f"A spec needs a padding token, and logits without a cap. {self.name!r} has: "
                f"logit_soft_cap={self.logit_soft_cap}, pad_token_id={self.pad_token_id}"
            )
        reverse = None if self.tie_weights else self.reverse_embeddings
        return EmbeddingSpec(self.embeddings, reverse, self.logits_bias, self.pad_token_id)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        # Ids may be floats: those of a `Sequential` without an `Input` are.
        is_float = keras.backend.is_float_dtype(keras.backend.standardize_dtype(inputs.dtype))
        is_hidden = is_float and _last_call.reverses
        if self.mask_zero and not is_hidden and self.pad_token_id is not None:
            return padding_mask(inputs, self.pad_token_id)
        return mask

    def compute_output_spec(self, inputs: Any, reverse: bool = False) -> keras.KerasTensor:
        shape = (
            (*inputs.shape[:-1], self.vocabulary_size)
            if reverse
            else (*inputs.shape, self.hidden_dim)
        )
        dtype = self.reverse_dtype if reverse else self.compute_dtype
        return keras.KerasTensor(shape, dtype=dtype)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {name: config[name] for name in config if name not in ("input_dim", "output_dim")}
