"""Attention and feed-forward network in one, by weighted branches (Ahmed et al. 2017)."""

from typing import Any

import keras
from keras import ops

from keras_attention.layers.arguments import Configured, Named, checked
from keras_attention.layers.declared import check_declares_itself
from keras_attention.layers.dropout import Dropout
from keras_attention.layers.feed_forward import FeedForward
from keras_attention.layers.multi_head_attention import MultiHeadAttention
from keras_attention.layers.seeds import part_initializer, part_seed
from keras_attention.ops.operations import linear, sum_of_branches
from keras_attention.ops.reference import matmul
from keras_attention.ops.simplex import RandomSimplex, Simplex
from keras_attention.spec.parts import BranchedAttentionSpec, BranchFeedForward, check_on_simplex
from keras_attention.utils.arguments import Count, Rate
from keras_attention.utils.checks import check_integer


@keras.saving.register_keras_serializable("keras_attention")
class BranchedAttention(Configured, MultiHeadAttention):
    """The Weighted Transformer's attention: each head is a branch with a feed-forward network behind it.

    Ahmed, Keskar and Socher 2017, "Weighted Transformer Network for Machine Translation", equations 5
    to 7: `head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)`, `hbar_i = kappa_i head_i W_i^O`, and the
    output is `sum_i alpha_i FFN(hbar_i)`. The M = `num_heads` numbers of kappa and of alpha are learned,
    at least 0 and of sum 1: `Simplex` projects them back after every update. The layer takes the place
    of an attention and of the feed-forward network behind it.

    The paper's equations say one network for all branches, `"shared"`: 2 M parameters more than
    attention and network have without branches. Its clock, and others' code, say that it may have been
    one network of width F / M for each branch, `"split"`.

    The layer computes this formula with its products in another order. With `C_i = W_i^O W_1`,
    `sum_i alpha_i FFN(hbar_i) = (sum_i alpha_i relu(kappa_i head_i C_i + b_1)) W_2 + b_2`. That is as
    much work as without branches. The branches' hidden layers, M F numbers for each position, are never
    in memory together.

    Args:
        num_heads: Number of heads, which are the branches M.
        key_dim: Width of a head's queries and keys.
        intermediate_dim: Width F of the feed-forward network, of all branches together if split.
        branch_feed_forward: `"shared"`, `"split"`, or None for no network: then it is multi-head
            attention whose heads have weights, `sum_i alpha_i kappa_i head_i W_i^O`.
        activation: Activation of the network.
        activation_dropout: Rate behind the activation; one mask for the sum of the branches.
        **kwargs: Every other argument of `MultiHeadAttention`. A bias of the attention's output is one
            of every `hbar_i`, and so it is multiplied by kappa.

    Call arguments and outputs are those of `MultiHeadAttention`.

    Raises:
        ValueError: For arguments out of their range, and for stored kappa or alpha off the simplex.

    Example:

    >>> import numpy as np
    >>> layer = BranchedAttention(num_heads=2, key_dim=4, intermediate_dim=16)
    >>> tuple(layer(np.ones((1, 3, 8)), np.ones((1, 5, 8))).shape)
    (1, 3, 8)
    >>> round(float(ops.sum(layer.kappa)), 4), tuple(layer.alpha.shape)
    (1.0, (2,))
    """

    def __init__(
        self,
        num_heads: Count,
        key_dim: Count,
        intermediate_dim: Count | None = None,
        branch_feed_forward: BranchFeedForward | None = "shared",
        activation: Named = "relu",
        activation_dropout: Rate = 0.0,
        **kwargs: Any,
    ):
        own = checked(locals())
        super().__init__(own.pop("num_heads"), own.pop("key_dim"), **kwargs)
        if branch_feed_forward is not None:
            check_integer("intermediate_dim", intermediate_dim, least=1)
            check_split(branch_feed_forward, intermediate_dim, num_heads)
        self._keep(own)

    def build(self, query_shape: Any, value_shape: Any, key_shape: Any = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        self.kappa = self._branch_weights("kappa")
        self.alpha = self._branch_weights("alpha")
        self.feed_forwards = []
        networks = {None: 0, "shared": 1, "split": self.num_heads}[self.branch_feed_forward]
        for index in range(networks):
            part = f"feed_forward_{index + 1}"
            layer = FeedForward(
                self.intermediate_dim // networks,
                activation=self.activation,
                kernel_initializer=part_initializer(self._kernel_initializer, part),
                dtype=self.dtype_policy,
                name=part,
            )
            layer.build((*query_shape[:-1], self.output_dense.kernel.shape[-1]))
            self.feed_forwards.append(layer)
        self.activation_dropout_layer = Dropout(
            self.activation_dropout,
            seed=part_seed(self.seed, "activation_dropout"),
            dtype=self.dtype_policy,
            name="activation_dropout",
        )

    def _branch_weights(self, name: str) -> Any:
        seed = getattr(self._kernel_initializer, "seed", None)
        seed = part_seed(seed, name) if isinstance(seed, int) else None
        # float32, unless the policy has float64: in half precision nothing sums to 1 to six digits.
        return self.add_weight(
            shape=(self.num_heads,),
            dtype="float64" if self.variable_dtype == "float64" else "float32",
            autocast=False,
            initializer=RandomSimplex(seed),
            constraint=Simplex(),
            aggregation="mean",
            name=name,
        )

    def _combine_heads(self, outputs: Any, training: bool | None) -> Any:
        """`sum_i alpha_i FFN(kappa_i head_i W_i^O)` of the heads' outputs `(B, T, N, V)`."""
        heads, width = self.num_heads, self.value_dim
        kappa, alpha = (ops.convert_to_tensor(part) for part in (self.kappa, self.alpha))
        dtype, output = outputs.dtype, self.output_dense
        if self.branch_feed_forward is None:
            kappa = ops.multiply(kappa, alpha)
        scale = ops.cast(kappa, dtype)
        kernel = ops.multiply(ops.cast(output.kernel, dtype), scale[:, None, None])
        bias = None
        if output.bias is not None:
            bias = ops.multiply(ops.cast(output.bias, dtype), scale[:, None])
        if self.branch_feed_forward is None:
            return linear(outputs, kernel, None if bias is None else ops.sum(bias, 0), input_axes=2)
        layers = self.feed_forwards
        inner = [ops.cast(layer.inner.kernel, dtype) for layer in layers]
        inner_bias = [ops.cast(layer.inner.bias, dtype) for layer in layers]
        outer = [ops.cast(layer.outer.kernel, dtype) for layer in layers]
        outer_bias = [ops.cast(layer.outer.bias, dtype) for layer in layers]
        rows = ops.reshape(outputs, (-1, heads, width))
        if self.branch_feed_forward == "shared":
            kernels = linear(kernel, inner[0])
            biases = ops.broadcast_to(inner_bias[0], (heads, self.intermediate_dim))
            if bias is not None:
                biases = ops.add(biases, linear(bias, inner[0]))
            hidden = sum_of_branches(rows, kernels, biases, alpha, self.activation)
            hidden = self.activation_dropout_layer(hidden, training=training)
            last = ops.multiply(outer_bias[0], ops.cast(ops.sum(alpha), dtype))
            y = linear(hidden, outer[0], last)
        else:
            hidden = [matmul(rows[:, i], matmul(kernel[i], inner[i])) for i in range(heads)]
            added = inner_bias
            if bias is not None:
                added = [
                    ops.add(b, matmul(bias[i : i + 1], inner[i])[0]) for i, b in enumerate(added)
                ]
            hidden = ops.add(ops.stack(hidden, axis=1), ops.stack(added))
            hidden = self.activation(hidden)
            hidden = self.activation_dropout_layer(hidden, training=training)
            weights = ops.cast(alpha, dtype)
            kernel = ops.multiply(ops.stack(outer), weights[:, None, None])
            last = matmul(weights[None], ops.stack(outer_bias))[0]
            y = linear(hidden, kernel, last, input_axes=2)
        return ops.reshape(y, (*ops.shape(outputs)[:-2], y.shape[-1]))

    def spec(self) -> BranchedAttentionSpec:
        """Return what this layer computes in inference, declared."""
        check_declares_itself(self)
        plain = super().spec()
        return BranchedAttentionSpec(
            query=plain.query,
            key=plain.key,
            value=plain.value,
            output=plain.output,
            kappa=self.kappa,
            alpha=self.alpha,
            feed_forwards=tuple(layer.spec() for layer in self.feed_forwards),
        )

    _refused: ValueError | None = None

    def load_own_variables(self, store: Any) -> None:
        try:
            weights = store["0"], store["1"]
        except KeyError:
            # Keras visits a layer that was refused again, with an empty store, and tells the last error.
            if self._refused is None:
                raise
            raise self._refused from None
        try:
            for name, values in zip(("kappa", "alpha"), weights, strict=True):
                check_on_simplex(f"{self.name}: `{name}`", values)
        except ValueError as error:
            self._refused = error
            raise
        self._refused = None
        super().load_own_variables(store)


def check_split(branch_feed_forward: str | None, intermediate_dim: Any, num_heads: int) -> None:
    """Refuse a network that cannot be cut into one for each branch."""
    if branch_feed_forward == "split" and intermediate_dim % num_heads:
        raise ValueError(
            "With branch_feed_forward='split' each branch has a network of width intermediate_dim / "
            f"num_heads, so the one must be a multiple of the other. Received: intermediate_dim="
            f"{intermediate_dim}, num_heads={num_heads}"
        )
