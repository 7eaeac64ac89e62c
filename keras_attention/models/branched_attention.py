"""The attention of the Weighted Transformer: heads that are branches, and the simplex of their weights."""

from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_attention.layers.arguments import Configured, checked
from keras_attention.layers.dropout import Dropout
from keras_attention.layers.feed_forward import FeedForward
from keras_attention.layers.multi_head_attention import MultiHeadAttention
from keras_attention.layers.seeds import part_initializer, part_seed
from keras_attention.ops.operations import linear
from keras_attention.ops.reference import at_least_float32, matmul
from keras_attention.utils.arguments import Count, Named, Rate
from keras_attention.utils.checks import check_integer

# How far a sum in float32 may be from 1.
TOLERANCE = 1e-6


def simplex_projection(vector: Any) -> Any:
    """Return the point of the simplex that is nearest to a vector (M,) (Duchi et al. 2008, figure 1).

    A vector that is on the simplex stays as it is, bit by bit.
    """
    vector = ops.convert_to_tensor(vector)
    numbers = at_least_float32(vector)
    is_there = ops.logical_and(
        ops.all(ops.greater_equal(numbers, 0.0)),
        ops.less_equal(ops.abs(ops.subtract(ops.sum(numbers), 1.0)), TOLERANCE / 4),
    )
    sorted_ = ops.flip(ops.sort(numbers))
    ranks = ops.arange(1, numbers.shape[0] + 1, dtype=numbers.dtype)
    offsets = ops.divide(ops.subtract(ops.cumsum(sorted_), 1.0), ranks)
    # The largest numbers stay above 0 if all lose as much as brings their sum to 1.
    stay = ops.sum(ops.cast(ops.greater(sorted_, offsets), "int32"))
    projected = ops.relu(ops.subtract(numbers, ops.take(offsets, ops.maximum(stay, 1) - 1)))
    # Large numbers lose digits in the difference: what is left of that goes over all.
    projected = ops.divide(projected, ops.sum(projected))
    return ops.cast(ops.where(is_there, numbers, projected), vector.dtype)


@keras.saving.register_keras_serializable("keras_attention")
class Simplex(keras.constraints.Constraint):
    """Keeps a vector (M,) on the probability simplex: after every update, its nearest point there."""

    has_own_learning_rate = True  # which `keras_attention.Adam` asks for

    def __call__(self, vector: Any) -> Any:
        return simplex_projection(vector)


@keras.saving.register_keras_serializable("keras_attention")
class RandomSimplex(keras.initializers.Initializer):
    """Uniform random numbers, divided by their sum: how others' code starts kappa and alpha."""

    def __init__(self, seed: int | None = None):
        self.seed = seed

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        numbers = keras.random.uniform(
            shape, minval=0.0, maxval=1.0, dtype="float32", seed=self.seed
        )
        numbers = ops.cast(numbers, "float64" if dtype == "float64" else "float32")
        numbers = ops.add(numbers, keras.config.epsilon())  # they are not all 0
        return ops.cast(ops.divide(numbers, ops.sum(numbers)), dtype or "float32")

    def get_config(self) -> dict[str, Any]:
        return {"seed": self.seed}


# One network for all branches, or one for each.
BranchFeedForward = Literal["shared", "split"]
# How far the sum of a stored kappa or alpha may be from 1, and an entry below 0.
STORED_TOLERANCE = 1e-5


@keras.saving.register_keras_serializable("keras_attention")
class BranchedAttention(Configured, MultiHeadAttention):
    """The Weighted Transformer's attention: each head is a branch with a feed-forward network behind it.

    Ahmed, Keskar and Socher 2017, "Weighted Transformer Network for Machine Translation", equations 5
    to 7: `head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)`, `hbar_i = kappa_i head_i W_i^O`, and the
    output is `sum_i alpha_i FFN(hbar_i)`. The M = `num_heads` numbers of kappa and of alpha are learned,
    at least 0 and of sum 1: `Simplex` projects them back after every update. The layer takes the place
    of an attention and of the feed-forward network behind it.

    The products come in another order: with `C_i = W_i^O W_1` it is
    `(sum_i alpha_i relu(kappa_i head_i C_i + b_1)) W_2 + b_2`, as much work as without branches, and the
    branches' hidden layers are never in memory together.

    Args:
        num_heads: Number of heads, which are the branches M.
        key_dim: Width of a head's queries and keys.
        intermediate_dim: Width F of the feed-forward network, of all branches together if split.
        branch_feed_forward: `"shared"`, one network for all branches, as the equations say; `"split"`, one
            of width F / M for each, which the paper's clock suggests; or None for no network: then it is
            multi-head attention whose heads have weights, `sum_i alpha_i kappa_i head_i W_i^O`.
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
            width = check_integer("intermediate_dim", intermediate_dim, least=1)
            if branch_feed_forward == "split" and width % num_heads:
                raise ValueError(
                    "With branch_feed_forward='split' each branch has a network of width intermediate_dim "
                    "/ num_heads, so the one must be a multiple of the other. Received: intermediate_dim="
                    f"{intermediate_dim}, num_heads={num_heads}"
                )
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

    def branch_weights(self) -> tuple[Any, Any]:
        """Return what branches are multiplied by, kappa and alpha (M,); a subclass may compute others."""
        return ops.convert_to_tensor(self.kappa), ops.convert_to_tensor(self.alpha)

    def _combine_heads(self, outputs: Any, training: bool | None) -> Any:
        """`sum_i alpha_i FFN(kappa_i head_i W_i^O)` of the heads' outputs `(B, T, N, V)`."""
        heads, layers, dtype = self.num_heads, self.feed_forwards, outputs.dtype
        self._check_not_quantized()
        kappa, alpha = self.branch_weights()
        scale = ops.cast(kappa if layers else ops.multiply(kappa, alpha), dtype)
        kernel = ops.multiply(ops.cast(self.output_dense.kernel, dtype), scale[:, None, None])
        bias = self.output_dense.bias
        if bias is not None:
            bias = ops.multiply(ops.cast(bias, dtype), scale[:, None])
        if not layers:
            return linear(outputs, kernel, None if bias is None else ops.sum(bias, 0), input_axes=2)
        inner = [ops.cast(layer.inner.kernel, dtype) for layer in layers]
        added = [ops.cast(layer.inner.bias, dtype) for layer in layers]
        outer = [ops.cast(layer.outer.kernel, dtype) for layer in layers]
        last = [ops.cast(layer.outer.bias, dtype) for layer in layers]
        rows = ops.reshape(outputs, (-1, heads, self.value_dim))
        if self.branch_feed_forward == "shared":
            biases = ops.broadcast_to(added[0], (heads, self.intermediate_dim))
            if bias is not None:
                biases = ops.add(biases, linear(bias, inner[0]))
            kernels = linear(kernel, inner[0])
            hidden = _sum_of_branches(rows, kernels, biases, alpha, self.activation)
            joined, total = outer[0], ops.multiply(last[0], ops.cast(ops.sum(alpha), dtype))
        else:
            if bias is not None:
                added = [added[i] + matmul(bias[i : i + 1], inner[i])[0] for i in range(heads)]
            hidden = [matmul(rows[:, i], matmul(kernel[i], inner[i])) for i in range(heads)]
            hidden = self.activation(ops.add(ops.stack(hidden, axis=1), ops.stack(added)))
            weights = ops.cast(alpha, dtype)
            joined = ops.multiply(ops.stack(outer), weights[:, None, None])
            total = matmul(weights[None], ops.stack(last))[0]
        hidden = self.activation_dropout_layer(hidden, training=training)
        y = linear(hidden, joined, total, input_axes=len(joined.shape) - 1)
        return ops.reshape(y, (*ops.shape(outputs)[:-2], y.shape[-1]))

    def _check_not_quantized(self) -> None:
        """Refuse kernels of eight bits, which mean nothing in a product with other kernels."""
        parts = [part for layer in self.feed_forwards for part in (layer.inner, layer.outer)]
        names = [x.name for x in (self.output_dense, *parts) if x.quantization_mode is not None]
        if names:
            raise ValueError(
                f"{self.name} multiplies its kernels with each other, which it cannot if they are quantized. "
                f"Received: quantized {', '.join(names)}. Make the model again, and leave them out: "
                f"model.quantize(mode, filters=lambda layer: layer.name not in {names})"
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
                _check_on_simplex(f"{self.name}: `{name}`", values)
        except ValueError as error:
            self._refused = error
            raise
        self._refused = None
        super().load_own_variables(store)


def _check_on_simplex(name: str, values: Any) -> None:
    """Refuse kappa or alpha (N,) with an entry below 0 or a sum other than 1."""
    values = np.asarray(values, "float64")
    least, total = float(values.min()), float(values.sum())
    if not (least >= -STORED_TOLERANCE and abs(total - 1.0) <= STORED_TOLERANCE):
        raise ValueError(
            f"{name} must be numbers of at least 0 that sum to 1. Received: the smallest is {least:.6g}, "
            f"the sum {total:.6g}. If you changed them, divide them by their sum."
        )


def _sum_of_branches(inputs: Any, kernels: Any, biases: Any, weights: Any, activation: Any) -> Any:
    """Return `sum_i weights_i activation(inputs_i kernels_i + biases_i)` (R, F)."""

    def branch(rows: Any, kernel: Any, bias: Any, weight: Any) -> Any:
        hidden = activation(ops.add(matmul(rows, kernel), bias))
        return ops.multiply(ops.cast(hidden, weight.dtype), weight)

    # The backward pass computes a branch's hidden layer again.
    branch = keras.remat(branch)
    total: Any = 0.0
    for index in range(kernels.shape[0]):
        part = branch(inputs[:, index], kernels[index], biases[index], weights[index])
        total = ops.add(total, part)
    return ops.cast(total, inputs.dtype)
