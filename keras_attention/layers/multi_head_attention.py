"""Multi-head attention (section 3.2.2 of the paper)."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import keras
from keras import ops

from keras_attention.layers.arguments import checked
from keras_attention.layers.declared import check_declares_itself, dense_spec
from keras_attention.layers.door import Door
from keras_attention.layers.masks import causal_mask, combined_mask, merge_masks, nan_if_additive
from keras_attention.layers.seeds import part_initializer
from keras_attention.ops.operations import (
    dot_product_attention,
    dropout,
    joined_linear,
    linear,
    reshape,
)
from keras_attention.ops.reference import masked_softmax
from keras_attention.spec.parts import AttentionSpec, SpecError
from keras_attention.utils.arguments import Count, Rate
from keras_attention.utils.checks import check_numbers

State = dict[str, Any]


@keras.saving.register_keras_serializable("keras_attention")
class MultiHeadAttention(Door, keras.layers.MultiHeadAttention):
    """`keras.layers.MultiHeadAttention` with a float32 softmax, decoding state and two-dimensional products.

    A drop-in replacement for Keras' layer: constructor and call arguments, defaults, weights, masks,
    scores and errors are the same, with these differences:

    * the softmax runs in float32 under every dtype policy, and a row that may attend to nothing gives
      zeros, never NaN;
    * projections are products of two matrices; self-attention projects q, k and v in one product;
    * attention can reuse projected keys and values: see `cache` and `project_key_value`;
    * fused (flash) attention respects every mask, also runs on PyTorch's CPU, and is the default where
      it is faster; `return_attention_scores=True` works with it instead of raising an error;
    * `return_attention_scores=True` has the right symbolic shape `(B, N, T, S)`, even if T != S;
    * the error for a mask that does not fit names the shapes;
    * an initializer with an integer seed gives each projection different initial numbers.

    Equations of section 3.2.2: `Concat(head_1, ..., head_h) W^O` with
    `head_i = softmax(Q W_i^Q (K W_i^K)^T / sqrt(d_k)) V W_i^V`. The paper's formulas have no biases:
    pass `use_bias=False` for them.

    Args:
        num_heads: Number of heads, the paper's h.
        key_dim: Width of each head's queries and keys, d_k.
        value_dim: Width U of each head's values, d_v. Defaults to `key_dim`.
        dropout: Rate of the dropout on the attention weights, after the softmax. Defaults to 0.
        use_bias: Whether the projections have biases. Defaults to True.
        **kwargs: All other arguments of `keras.layers.MultiHeadAttention`: `output_shape`,
            `attention_axes`, `sliding_window`, `flash_attention`, initializers, regularizers,
            constraints, `use_gate`, `seed`, `name`, `dtype`.

    Call arguments:
        query: Tensor of shape `(B, T, D)`.
        value: Tensor of shape `(B, S, D)`. None if `cache` already holds everything to attend to.
        key: Tensor of shape `(B, S, D)`. Defaults to `value`.
        query_mask, value_mask, key_mask: Padding masks `(B, T)`, `(B, S)`, `(B, S)`. Default to the
            implicit Keras masks of the inputs.
        attention_mask: Boolean mask `(B, T, S)` or `(B, N, T, S)`, or broadcastable; True = may attend.
        return_attention_scores: Whether to return the weights after the softmax as well.
        training: Whether dropout is on.
        use_causal_mask: Whether position t attends only to positions up to t.
        cache: Projected keys and values, `{"key": (B, L, N, K), "value": (B, L, N, U)}`. If `value` is
            given, its projections are written at `start_index`, and queries attend to the cache up to
            their own position (masked self-attention, one or several positions at a time); the updated
            cache is returned last. Without `value`, queries attend to the whole cache (cross-attention).
            There may then be several query rows for each row of the cache: consecutive rows share one
            (the beams of a sentence share its memory).
        start_index: Position of the first query in the cache; an integer or a scalar tensor.
        head_mask: `(B, N)` factors for the heads' outputs, applied before the heads are combined; 0
            switches a head off ([Michel et al. 2019](https://arxiv.org/abs/1905.10650)).

    Returns:
        The outputs `(B, T, D)`; then, if asked for, the attention scores `(B, N, T, S)`; then, if keys
        and values were written to a cache, the new cache.

    Raises:
        ValueError: If a size is not a positive integer, a mask does not broadcast or is additive (as a
            tensor, it makes the outputs NaN instead), or neither `value` nor `cache` is given.

    Example:

    >>> import numpy as np
    >>> layer = MultiHeadAttention(num_heads=2, key_dim=4)
    >>> x, memory = np.ones((1, 3, 8)), np.ones((1, 5, 8))
    >>> outputs, scores = layer(x, memory, return_attention_scores=True)
    >>> tuple(outputs.shape), tuple(scores.shape)
    ((1, 3, 8), (1, 2, 3, 5))
    """

    call_axes = {
        "query": "BTD",
        "value": "BSE",
        "key": "BSF",
        "query_mask": "BT",
        "value_mask": "BS",
        "key_mask": "BS",
        "attention_mask": "BNTS",
        "head_mask": "BN",
    }
    _widths: tuple[int, ...] = ()  # of query, value and key
    _rank: int | None = None
    _projections_made = 0

    def __init__(
        self,
        num_heads: Count,
        key_dim: Count,
        value_dim: Count | None = None,
        dropout: Rate = 0.0,
        use_bias: bool = True,
        **kwargs: Any,
    ):
        super().__init__(**checked(locals()), **kwargs)

    def build(self, query_shape: Any, value_shape: Any, key_shape: Any = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        key_shape = value_shape if key_shape is None else key_shape
        self._widths = (query_shape[-1], value_shape[-1], key_shape[-1])
        self._rank = len(query_shape)

    def known_sizes(self) -> dict[str, int | None]:
        return {"N": self._num_heads, **dict(zip("DEF", self._widths, strict=False))}

    def axes_of(self, given: Mapping[str, Any]) -> Mapping[str, str]:
        if given.get("value") is None and given.get("cache") is None:
            raise ValueError(
                f"{self.name} needs `value`, or a `cache` with projected keys and values. "
                "Received: value=None, cache=None"
            )
        ranks = [len(getattr(given.get(name), "shape", "BSD")) for name in ("query", "value")]
        if (self._rank or min(ranks)) <= 3 and self._attention_axes in (None, (1,)):
            return self.call_axes
        return {
            name: "" if "mask" in name else f"...{letters[-1]}"
            for name, letters in self.call_axes.items()
        }

    def call(
        self,
        query: Any,
        value: Any = None,
        key: Any = None,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
        cache: State | None = None,
        start_index: Any = 0,
        head_mask: Any = None,
    ) -> Any:
        gate = self._gate_dense(query) if self._use_gate else None
        projected, written = self._project_all(query, value, key, cache, start_index)
        shared_rows = cache is not None and value is None
        queries, keys, values = projected
        masks = query_mask, value_mask, key_mask, attention_mask
        mask = combined_mask(
            ops.shape(queries)[1],
            ops.shape(values)[1],
            masks,
            is_causal=use_causal_mask or written is not None,
            window=self._sliding_window,
            start_index=start_index,
        )
        if shared_rows:  # (B W, T, N, K) to (B, W T, N, K), for W beams
            queries = reshape(queries, (ops.shape(keys)[0], -1, *queries.shape[2:]))
        outputs, scores = self._compute_attention(
            queries, keys, values, mask, training, return_attention_scores
        )
        if shared_rows:
            outputs = reshape(outputs, (*ops.shape(projected[0])[:-1], self._value_dim))
            if return_attention_scores:  # (B, N, W T, S) to (B W, N, T, S)
                rows, heads, _, sources = ops.shape(scores)
                length = ops.shape(projected[0])[1]
                scores = reshape(scores, (rows, heads, -1, length, sources))
                scores = reshape(ops.swapaxes(scores, 1, 2), (-1, heads, length, sources))
        if gate is not None:
            outputs = ops.multiply(outputs, gate)
        if head_mask is not None:
            axes = (-1, *[1] * (len(outputs.shape) - 3), self._num_heads, 1)
            outputs = ops.multiply(outputs, ops.reshape(ops.cast(head_mask, outputs.dtype), axes))
        outputs = nan_if_additive(outputs, *masks)
        results = [self._combine_heads(outputs, training)]
        results += [scores] if return_attention_scores else []
        results += [written] if written is not None else []
        return results[0] if len(results) == 1 else tuple(results)

    def project_key_value(self, value: Any, key: Any = None) -> State:
        """Return the projected keys and values of `value` (B, S, D), for `call(query, cache=...)`."""
        sizes = self.known_sizes()
        value = check_numbers("value", value, "...E", **sizes)
        key = value if key is None else check_numbers("key", key, "...F", **sizes)
        return self._project_memory(*(ops.cast(x, self.compute_dtype) for x in (value, key)))

    def spec(self) -> AttentionSpec:
        """Describe what this layer computes in inference."""
        check_declares_itself(self)
        if (
            self._use_gate
            or self._output_shape
            or self._attention_axes != (1,)
            or self._sliding_window is not None
        ):
            raise SpecError(
                f"{self.name!r} has a gate, a window, an `output_shape` or `attention_axes`, which a spec "
                "cannot describe."
            )
        return AttentionSpec(
            query=dense_spec(self.query_dense),
            key=dense_spec(self.key_dense),
            value=dense_spec(self.value_dense),
            output=dense_spec(self.output_dense),
        )

    def _combine_heads(self, outputs: Any, training: bool | None) -> Any:
        """`Concat(head_1, ..., head_h) W^O` for the heads' outputs `(B, T, N, U)`."""
        return project(self._output_dense, outputs, input_axes=2)

    def _project_all(
        self, query: Any, value: Any, key: Any, cache: State | None, start_index: Any
    ) -> tuple[tuple[Any, Any, Any], State | None]:
        """Project the inputs; return `(query, key, value)` and the cache if one was written."""
        if value is None:
            assert cache is not None  # `axes_of` has refused it.
            return (project(self._query_dense, query), cache["key"], cache["value"]), None
        if cache is None and value is query and (key is None or key is query):
            fused = self._project_self(query)
            if fused is not None:
                return fused, None
        state = self._project_memory(value, value if key is None else key)
        if cache is not None:
            start = (0, start_index, 0, 0)
            state = {
                name: ops.slice_update(cache[name], start, ops.cast(new, cache[name].dtype))
                for name, new in state.items()
            }
        projected = (project(self._query_dense, query), state["key"], state["value"])
        return projected, state if cache is not None else None

    def _project_memory(self, value: Any, key: Any) -> State:
        return {"key": project(self._key_dense, key), "value": project(self._value_dense, value)}

    def _project_self(self, inputs: Any) -> tuple[Any, Any, Any] | None:
        """Project queries, keys and values of one tensor in one product; None if that is impossible."""
        layers = (self._query_dense, self._key_dense, self._value_dense)
        if not all(_is_bare_projection(layer) for layer in layers):
            return None
        weights = [_kernel_and_bias(layer) for layer in layers]
        biases = [bias for _, bias in weights] if self._use_bias else None
        query, key, value = joined_linear(inputs, [kernel for kernel, _ in weights], biases)
        return query, key, value

    def _compute_attention(
        self,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> tuple[Any, Any]:
        """Attend with projected inputs `(B, T, N, K)`, `(B, S, N, K)`, `(B, S, N, U)`."""
        is_sequence = len(query.shape) == 4 and len(self._attention_axes) == 1
        if not is_sequence:
            return super()._compute_attention(
                query,
                key,
                value,
                attention_mask,
                training,
                return_attention_scores,
                use_causal_mask=use_causal_mask,
            )
        if use_causal_mask:
            causal = causal_mask(ops.shape(query)[1], ops.shape(key)[1])
            attention_mask = merge_masks(attention_mask, causal)
        mask = attention_mask
        if mask is not None and len(mask.shape) < 4:
            mask = ops.expand_dims(mask, axis=-3)
        drop = None
        if training and self._dropout > 0.0:
            drop = partial(dropout, rate=self._dropout, seed=self._dropout_layer.seed_generator)
        return dot_product_attention(
            query,
            key,
            value,
            mask=mask,
            scale=self._inverse_sqrt_key_dim,
            dropout=drop,
            flash=False if return_attention_scores or drop else self._flash_attention,
        )

    def _get_common_kwargs_for_sublayer(self) -> dict[str, Any]:
        """Override Keras' hook, called once per projection: kernels must not all start the same."""
        arguments = super()._get_common_kwargs_for_sublayer()
        self._projections_made += 1
        for name in ("kernel_initializer", "bias_initializer"):
            part = f"{name}_{self._projections_made}"
            arguments[name] = part_initializer(arguments[name], part)
        return arguments

    def _masked_softmax(self, attention_scores: Any, attention_mask: Any = None) -> Any:
        """Override Keras' hook for inputs of any rank, with the same float32 softmax."""
        if attention_mask is not None:
            heads_axis = -len(self._attention_axes) * 2 - 1
            while len(attention_mask.shape) < len(attention_scores.shape):
                attention_mask = ops.expand_dims(attention_mask, axis=heads_axis)
        axes = tuple(range(-len(self._attention_axes), 0))
        return masked_softmax(attention_scores, attention_mask, axes if len(axes) > 1 else -1)

    def compute_output_spec(
        self,
        query: Any,
        value: Any = None,
        key: Any = None,
        return_attention_scores: bool = False,
        cache: State | None = None,
        **_: Any,
    ) -> Any:
        attended = (cache["value"] if cache is not None else value).shape
        value_shape = attended if value is None else value.shape
        output_shape = self.compute_output_shape(
            query.shape, value_shape, None if key is None else key.shape
        )
        results: list[Any] = [keras.KerasTensor(output_shape, dtype=self.compute_dtype)]
        if return_attention_scores:
            shape = self._scores_shape(query.shape, attended)
            results.append(keras.KerasTensor(shape, dtype=self.compute_dtype))
        if cache is not None and value is not None:
            results.append({k: keras.KerasTensor(v.shape, dtype=v.dtype) for k, v in cache.items()})
        return results[0] if len(results) == 1 else tuple(results)

    def _scores_shape(self, query_shape: Any, value_shape: Any) -> tuple[int | None, ...]:
        axes = self._attention_axes or tuple(range(1, len(query_shape) - 1))
        batch = [size for i, size in enumerate(query_shape[:-1]) if i not in axes]
        targets = [query_shape[axis] for axis in axes]
        sources = [value_shape[axis] for axis in axes]
        return (*batch, self._num_heads, *targets, *sources)


def _is_bare_projection(layer: Any) -> bool:
    """Whether the projection is a plain product: no quantization, no activity regularizer."""
    return layer.quantization_mode is None and layer.activity_regularizer is None


def _kernel_and_bias(layer: Any) -> tuple[Any, Any]:
    """Return a projection's weights in its compute dtype."""
    kernel, bias, dtype = layer.kernel, layer.bias, layer.compute_dtype
    if dtype == layer.variable_dtype:
        return kernel, bias
    return ops.cast(kernel, dtype), None if bias is None else ops.cast(bias, dtype)


def project(layer: Any, inputs: Any, input_axes: int = 1) -> Any:
    """Apply a projection, an `EinsumDense` or a `Dense`, as one product of two matrices."""
    if not _is_bare_projection(layer):
        return layer(inputs)
    return linear(inputs, *_kernel_and_bias(layer), input_axes=input_axes)
