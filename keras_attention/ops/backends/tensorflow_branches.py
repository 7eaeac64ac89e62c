"""The branches of the Weighted Transformer for TensorFlow: a loop over blocks of rows that fit the cache."""

from typing import Any

import tensorflow as tf

# On two CPUs so many hidden layers of float32 rows stay in the cache.
ROWS_AT_ONCE = 256
# So many branches' hidden layers are added in one pass over their sum.
BRANCHES_AT_ONCE = 2


@tf.custom_gradient
def relu_branches(inputs, kernels, biases, weights):
    """See `keras_attention.ops.branches.sum_of_branches`, for graphs and for ReLU."""
    width, dtype = kernels.shape[-1], inputs.dtype
    scale = tf.cast(weights, dtype)[:, None, None]
    # Weights are not below 0: w relu(z) = relu(w z). So the sum is all that is left to do.
    scaled = _with_bias(scale * kernels, scale[:, 0] * biases)
    blocks = _in_blocks(_with_ones(inputs))

    def sum_of_block(index, sums):
        total: list[Any] = []
        rows = _branches(blocks[index])
        for first in range(0, len(rows), BRANCHES_AT_ONCE):
            some = slice(first, first + BRANCHES_AT_ONCE)
            hidden = [
                tf.nn.relu(tf.matmul(_after(total, part), matrix))
                for part, matrix in zip(rows[some], scaled[some], strict=True)
            ]
            total = [tf.add_n([*total, *(tf.cast(part, "float32") for part in hidden)])]
        return index + 1, sums.write(index, tf.cast(total[0], dtype))

    outputs = _room_for(blocks, dtype, (width,))
    _, outputs = _for_each(blocks, sum_of_block, outputs)

    def gradient(upstream):
        matrices, parts = _with_bias(kernels, biases), tf.unstack(kernels)
        upstreams = _in_blocks(upstream)

        def gradients_of_block(index, to_rows, *to_matrices):
            products: list[Any] = []
            added: list[Any] = []
            for branch, rows in enumerate(_branches(blocks[index])):
                rows = _after([*products[-1:], *added[-1:]], rows)
                hidden = tf.matmul(rows, matrices[branch])
                slope = tf.raw_ops.ReluGrad(gradients=upstreams[index], features=hidden)
                products.append(tf.matmul(slope, parts[branch], transpose_b=True))
                product = tf.cast(tf.matmul(rows, slope, transpose_a=True), "float32")
                added.append(to_matrices[branch] + product)
            to_rows = to_rows.write(index, tf.stack(products, axis=1))
            return index + 1, to_rows, *added

        room = _room_for(blocks, dtype, inputs.shape[1:])
        zeros = [tf.zeros(matrix.shape) for matrix in matrices]
        _, to_rows, *to_matrices = _for_each(blocks, gradients_of_block, room, *zeros)
        to_matrices = tf.stack(to_matrices)
        # relu(z) = [z > 0] z, and z is linear in kernel and bias.
        to_weights = tf.reduce_sum(to_matrices * tf.cast(tf.stack(matrices), "float32"), (1, 2))
        to_matrices = tf.cast(to_matrices * weights[:, None, None], dtype)
        to_inputs = _joined(to_rows, inputs) * scale[:, 0]
        return to_inputs, to_matrices[:, :-1], to_matrices[:, -1], to_weights

    return _joined(outputs, inputs), gradient


def _with_bias(kernels, biases):
    """A branch's matrix ends with its bias, as its rows end with 1: no pass for biases or their gradients."""
    return tf.unstack(tf.concat([kernels, biases[:, None]], axis=1))


def _with_ones(inputs):
    return tf.concat([inputs, tf.ones_like(inputs[..., :1])], axis=-1)


def _in_blocks(rows):
    """(R, ..) as (R / block, block, ..), with zeros behind the last row."""
    missing = -tf.shape(rows)[0] % ROWS_AT_ONCE
    rows = tf.pad(rows, [[0, missing], *[[0, 0]] * (rows.shape.rank - 1)])
    return tf.reshape(rows, (-1, ROWS_AT_ONCE, *rows.shape[1:]))


def _branches(block):
    return tf.unstack(tf.transpose(block, (1, 0, 2)))


def _after(done, tensor):
    """The tensor, not before others are there: all branches at once would not fit the cache."""
    with tf.control_dependencies(done):
        return tf.identity(tensor)


def _room_for(blocks, dtype, shape):
    shape = (ROWS_AT_ONCE, *shape)
    return tf.TensorArray(dtype, tf.shape(blocks)[0], element_shape=shape)


def _for_each(blocks, body, *state: Any):
    number = tf.shape(blocks)[0]
    return tf.while_loop(lambda index, *_: index < number, body, (0, *state), parallel_iterations=1)


def _joined(found, inputs):
    rows = found.concat()[: tf.shape(inputs)[0]]
    return tf.ensure_shape(rows, (inputs.shape[0], *rows.shape[1:]))
