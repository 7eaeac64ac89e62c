"""The paper in NumPy, with loops: slow, plain, and independent of the package."""

import math

import numpy as np


def softmax(scores):
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def attend(query, keys, values, allowed):
    """One query of one head: (K,), (S, K), (S, V), (S,) -> (V,), (S,). Equation 1."""
    weights = np.zeros(len(keys))
    if allowed.any():
        scores = [query @ key / math.sqrt(len(query)) for key in keys[allowed]]
        weights[allowed] = softmax(np.array(scores))
    return weights @ values, weights


def multi_head_attention(query, value, weights, allowed, key=None):
    """Section 3.2.2. query (B,T,D), value and key (B,S,D), allowed (B,T,S).

    `weights` are Keras': q, k, v, o kernels (D,N,K), (D,N,K), (D,N,V), (N,V,D), or each followed by
    its bias.
    """
    has_bias = len(weights) == 8
    kernels = weights[::2] if has_bias else weights
    biases = weights[1::2] if has_bias else [0.0] * 4
    key = value if key is None else key
    heads, value_dim = kernels[2].shape[1:]
    batch, targets, sources = allowed.shape
    outputs = np.zeros((batch, targets, kernels[3].shape[-1]))
    scores = np.zeros((batch, heads, targets, sources))
    for b in range(batch):
        for t in range(targets):
            concatenated = np.zeros((heads, value_dim))
            for n in range(heads):

                def project(x, part, n=n):
                    bias = biases[part][n] if has_bias else 0.0
                    return x @ kernels[part][:, n] + bias

                concatenated[n], scores[b, n, t] = attend(
                    project(query[b, t], 0), project(key[b], 1), project(value[b], 2), allowed[b, t]
                )
            outputs[b, t] = np.einsum("nv,nvd->d", concatenated, kernels[3]) + biases[3]
    return outputs, scores


def layer_norm(x, gain, bias, epsilon):
    result = np.zeros_like(x)
    for index in np.ndindex(x.shape[:-1]):
        row = x[index]
        variance = ((row - row.mean()) ** 2).mean()
        result[index] = (row - row.mean()) / math.sqrt(variance + epsilon) * gain + bias
    return result


def rms_norm(x, gain, epsilon):
    """Equation 4 of Zhang and Sennrich 2019."""
    result = np.zeros_like(x)
    for index in np.ndindex(x.shape[:-1]):
        result[index] = x[index] / math.sqrt((x[index] ** 2).mean() + epsilon) * gain
    return result


def feed_forward(x, w1, b1, w2, b2):
    """Equation 2."""
    return np.maximum(0.0, x @ w1 + b1) @ w2 + b2


def swiglu(x, w1, b1, w2, b2, w3, b3):
    """Equation 6 of Shazeer 2020, with biases."""
    hidden = x @ w1 + b1
    return (hidden / (1.0 + np.exp(-hidden)) * (x @ w3 + b3)) @ w2 + b2


def position(pos, hidden_dim):
    """Section 3.5, one column at a time."""
    row = np.zeros(hidden_dim)
    for i in range(0, hidden_dim, 2):
        angle = pos / 10000 ** (i / hidden_dim)
        row[i] = math.sin(angle)
        if i + 1 < hidden_dim:
            row[i + 1] = math.cos(angle)
    return row


def smoothed_nll(logits, label, epsilon):
    """The authors' label smoothing for one token: 1 - eps, and eps / (V - 1) elsewhere."""
    log_probabilities = logits - (np.log(np.exp(logits - logits.max()).sum()) + logits.max())
    total = 0.0
    for v in range(len(logits)):
        weight = 1.0 - epsilon if v == label else epsilon / (len(logits) - 1)
        total -= weight * log_probabilities[v]
    return total


def transformer(source, target, get, num_layers, pad=0, epsilon=1e-6):
    """Section 3, post-norm. `get(path)` returns the named weight as a float64 array.

    source (B,S), target (B,T) shifted right; returns logits (B,T,V).
    """
    table = get("token_embedding/embeddings")
    hidden_dim = table.shape[1]

    def embed(ids):
        x = np.zeros((*ids.shape, hidden_dim))
        for b, t in np.ndindex(ids.shape):
            if ids[b, t] != pad:
                x[b, t] = table[ids[b, t]] * math.sqrt(hidden_dim)
            x[b, t] += position(t, hidden_dim)
        return x

    def attention(prefix, query, value, allowed):
        parts = ("query", "key", "value", "attention_output")
        weights = [get(f"{prefix}/{part}/kernel") for part in parts]
        return multi_head_attention(query, value, weights, allowed)[0]

    def norm(prefix, x):
        path = f"{prefix}_residual/normalization"
        return layer_norm(x, get(f"{path}/gamma"), get(f"{path}/beta"), epsilon)

    def inner(prefix, x):
        names = ("inner/kernel", "inner/bias", "outer/kernel", "outer/bias")
        return feed_forward(x, *(get(f"{prefix}/feed_forward/{name}") for name in names))

    sources, targets = source.shape[1], target.shape[1]
    real = source != pad
    encoder_mask = np.repeat(real[:, None, :], sources, axis=1)
    cross_mask = np.repeat(real[:, None, :], targets, axis=1)
    causal = np.array([[j <= i for j in range(targets)] for i in range(targets)])
    causal = np.repeat(causal[None], len(target), axis=0)

    x = embed(source)
    for layer in range(1, num_layers + 1):
        block = f"encoder_block_{layer}"
        x = norm(
            f"{block}/self_attention", x + attention(f"{block}/self_attention", x, x, encoder_mask)
        )
        x = norm(f"{block}/feed_forward", x + inner(block, x))
    memory, x = x, embed(target)
    for layer in range(1, num_layers + 1):
        block = f"decoder_block_{layer}"
        x = norm(f"{block}/self_attention", x + attention(f"{block}/self_attention", x, x, causal))
        x = norm(
            f"{block}/cross_attention",
            x + attention(f"{block}/cross_attention", x, memory, cross_mask),
        )
        x = norm(f"{block}/feed_forward", x + inner(block, x))
    return x @ table.T


def heads_taken_out(get, heads):
    """A `get` for `transformer` of the same model, from which some heads (kind, layer, head) are cut out."""
    names = {
        "encoder": "encoder_block_{}/self_attention",
        "decoder": "decoder_block_{}/self_attention",
        "cross": "decoder_block_{}/cross_attention",
    }
    off = {}
    for kind, layer, head in heads:
        off.setdefault(names[kind].format(layer + 1), []).append(head)

    def without(path):
        weight = get(path)
        attention, _, part = path.removesuffix("/kernel").rpartition("/")
        if attention not in off or part not in ("query", "key", "value", "attention_output"):
            return weight
        return np.delete(weight, off[attention], axis=0 if part == "attention_output" else 1)

    return without
