"""The branches of the Weighted Transformer for TensorFlow: few passes over hidden layers, made twice."""

from typing import Any

import tensorflow as tf

# So many branches' hidden layers are in memory at once, and are added in one pass over their sum.
BRANCHES_AT_ONCE = 2


@tf.custom_gradient
def relu_branches(inputs, kernels, biases, weights):
    """See `keras_attention.ops.reference.sum_of_branches`, for graphs and for ReLU."""
    number, dtype = kernels.shape[0], inputs.dtype
    scale = tf.cast(weights, dtype)[:, None, None]
    # Weights are not below 0: w relu(z) = relu(w z). So the sum is all that is left to do.
    rows, scaled = _with_ones(inputs, scale * kernels, scale[:, 0] * biases)
    total: list[Any] = []
    for first in range(0, number, BRANCHES_AT_ONCE):
        added = []
        for index in range(first, min(first + BRANCHES_AT_ONCE, number)):
            hidden = tf.nn.relu(tf.matmul(_after(total, rows[index]), scaled[index]))
            added.append(tf.cast(hidden, "float32"))
        total = [tf.add_n([*total, *added])]

    def gradient(upstream):
        rows, matrices = _with_ones(inputs, kernels, biases)
        to_rows: list[Any] = []
        to_matrices: list[Any] = []
        for index in range(number):
            part = _after([*to_rows[-1:], *to_matrices[-1:]], rows[index])
            hidden = tf.matmul(part, matrices[index])
            slope = tf.raw_ops.ReluGrad(gradients=upstream, features=hidden)
            to_rows.append(tf.matmul(slope, kernels[index], transpose_b=True))
            to_matrices.append(tf.matmul(part, slope, transpose_a=True))
        slopes = tf.cast(tf.stack(to_matrices), "float32")
        # relu(z) = [z > 0] z, and z is linear in kernel and bias.
        to_weights = tf.reduce_sum(slopes * tf.cast(tf.stack(matrices), "float32"), (1, 2))
        slopes = tf.cast(slopes * weights[:, None, None], dtype)
        to_inputs = tf.stack(to_rows, axis=1) * scale[:, 0]
        return to_inputs, slopes[:, :-1], slopes[:, -1], to_weights

    return tf.cast(total[0], dtype), gradient


def _with_ones(inputs, kernels, biases):
    """Return the branches' rows, ending with 1, and matrices, ending with the bias: no pass for biases."""
    rows = tf.transpose(inputs, (1, 0, 2))
    rows = tf.concat([rows, tf.ones_like(rows[:, :, :1])], axis=-1)
    return tf.unstack(rows), tf.unstack(tf.concat([kernels, biases[:, None]], axis=1))


def _after(done, tensor):
    """Return the tensor, not before others are there: all branches at once would all be in memory."""
    with tf.control_dependencies(done):
        return tf.identity(tensor)
