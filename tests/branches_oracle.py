"""Branched attention written out in NumPy, and exact gradients of it by complex numbers.

The derivative of an analytic f at x is the imaginary part of f(x + ih) / h, to the last digit for a
tiny h: nothing is subtracted. ReLU looks at the real part.
"""

import numpy as np


def relu(x):
    return np.where(x.real > 0, x, 0)


def softmax(scores):
    exponentials = np.exp(scores - scores.real.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def branched_attention(query, value, weights, networks, kappa, alpha):
    """Equations 5 to 7 of Ahmed et al. 2017, branch by branch, network by network.

    query (B,T,D), value (B,S,D); `weights` are kernels q, k, v (D,N,K), o (N,V,D), or each followed by its
    bias; `networks` one (W1, b1, W2, b2) for all branches, one for each, or none.
    """
    has_bias = len(weights) == 8
    kernels = weights[::2] if has_bias else weights
    biases = weights[1::2] if has_bias else None
    outputs = 0
    for i in range(len(kappa)):
        q, k, v = (
            x @ kernels[part][:, i] + (biases[part][i] if has_bias else 0)
            for part, x in enumerate((query, value, value))
        )
        head = softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])) @ v
        branch = kappa[i] * (head @ kernels[3][i] + (biases[3] if has_bias else 0))
        if networks:
            w1, b1, w2, b2 = networks[i % len(networks)]
            branch = relu(branch @ w1 + b1) @ w2 + b2
        outputs = outputs + alpha[i] * branch
    return outputs


def gradients(function, arrays):
    """Exact gradients of `function(*arrays)`, a real scalar, with respect to each array."""
    step = 1e-30
    found = []
    for position, array in enumerate(arrays):
        gradient = np.zeros(array.shape)
        for index in np.ndindex(array.shape):
            moved = array.astype(complex)
            moved[index] += 1j * step
            others = [*arrays[:position], moved, *arrays[position + 1 :]]
            gradient[index] = function(*others).imag / step
        found.append(gradient)
    return found
