"""A `TransformerSpec` computed in NumPy, in float64, from the papers: no code of the package runs.

Vaswani et al. 2017 for all but the decoder's cell, which is Kim et al. 2019 ("From Research to Production
and Back: Ludicrously Fast Neural Machine Translation"), and branches, which are Ahmed et al. 2017. Plain
products of matrices, one position of a cell after the other.
"""

import math

import numpy as np


def erf(x):
    return np.vectorize(math.erf)(x)


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu": lambda x: 0.5 * x * (1.0 + erf(x / math.sqrt(2.0))),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
    "tanh": np.tanh,
    "linear": lambda x: x,
}


def array(weight):
    """Any weight of a spec as float64."""
    value = getattr(weight, "value", weight)
    if hasattr(value, "detach"):
        value = value.detach().cpu().double().numpy()
    value = np.asarray(value)
    return value if value.dtype == "float64" else value.astype("float64")


def dense(x, part):
    """`x kernel + bias` with the last axis of x; the kernel's other axes follow."""
    y = np.tensordot(x, array(part.kernel), axes=1)
    return y if part.bias is None else y + array(part.bias)


def norm(x, part):
    if part.beta is None:  # RMSNorm, Zhang and Sennrich 2019
        root = np.sqrt((x**2).mean(axis=-1, keepdims=True) + part.epsilon)
        return x / root * array(part.gamma)
    centered = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centered**2).mean(axis=-1, keepdims=True) + part.epsilon)
    return centered / deviation * array(part.gamma) + array(part.beta)


def heads(queries, memory, part, allowed):
    """Section 3.2.2 without W^O, of queries (B, T, D), memory (B, S, D), allowed (B, T, S).

    Returns the heads' outputs (B, T, N, U) and their weights (B, N, T, S).
    """
    q, k, v = dense(queries, part.query), dense(memory, part.key), dense(memory, part.value)
    scores = np.einsum("btnk,bsnk->bnts", q, k) / math.sqrt(q.shape[-1])
    scores = np.where(allowed[:, None], scores, -1e300)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True)) * allowed[:, None]
    weights = weights / np.maximum(weights.sum(axis=-1, keepdims=True), 1e-300)
    return np.einsum("bnts,bsnu->btnu", weights, v), weights


def attention(queries, memory, part, allowed, scores):
    """Multi-head attention, with the branches of a Weighted Transformer if it has them.

    The heads' weights are added to the list `scores`.
    """
    found, weights = heads(queries, memory, part, allowed)
    scores.append(weights)
    kernel, bias = array(part.output.kernel), part.output.bias
    bias = 0.0 if bias is None else array(bias)
    if not hasattr(part, "kappa"):
        return np.einsum("btnu,nud->btd", found, kernel) + bias
    total = 0.0
    for n, (kappa, alpha) in enumerate(zip(array(part.kappa), array(part.alpha), strict=True)):
        x = kappa * (found[:, :, n] @ kernel[n] + bias)
        if part.feed_forwards:
            x = feed_forward(x, part.feed_forwards[n % len(part.feed_forwards)])
        total = total + alpha * x
    return total


def ssru(x, part):
    """Kim et al. 2019, one position after the other, from a state of zeros."""
    state, outputs = np.zeros((len(x), x.shape[-1])), np.zeros_like(x)
    for t in range(x.shape[1]):
        forget = 1.0 / (1.0 + np.exp(-dense(x[:, t], part.forget)))
        state = forget * state + (1.0 - forget) * dense(x[:, t], part.inner)
        outputs[:, t] = np.maximum(state, 0.0)
    return outputs


def feed_forward(x, part):
    hidden = ACTIVATIONS[part.activation](dense(x, part.inner))
    if getattr(part, "gate", None) is not None:  # Shazeer 2020
        hidden = hidden * dense(x, part.gate)
    return dense(hidden, part.outer)


def position(pos, width, positions):
    """Section 3.5, or as tensor2tensor lays it out, or learned."""
    if positions.table is not None:
        return array(positions.table)[pos]
    row, half = np.zeros(width), width // 2
    if positions.layout == "interleaved":
        for i in range(width):
            angle = pos / 10000 ** (2 * (i // 2) / width)
            row[i] = math.cos(angle) if i % 2 else math.sin(angle)
    else:
        for i in range(half):
            angle = pos / 10000 ** (i / max(half - 1, 1))
            row[i], row[half + i] = math.sin(angle), math.cos(angle)
    return row


def embed(ids, table, stack):
    """Section 3.4: rows times sqrt(D), zero for padding; and the positions; normalised in mBART."""
    rows = array(table.embeddings)[ids] * math.sqrt(table.embeddings.shape[1])
    rows[ids == table.pad_token_id] = 0.0
    added = [position(t, rows.shape[-1], stack.positions) for t in range(ids.shape[1])]
    x = rows + np.array(added)
    return x if getattr(stack, "embedding_norm", None) is None else norm(x, stack.embedding_norm)


def sublayer(x, function, part, normalize_first):
    """A residual connection around a function."""
    if normalize_first:
        return x + function(norm(x, part))
    return norm(x + function(x), part)


def block(x, part, own_mask, memory=None, cross_mask=None, scores=None):
    scores = [] if scores is None else scores

    def own(y):
        if hasattr(part.self_attention, "forget"):
            return ssru(y, part.self_attention)
        return attention(y, y, part.self_attention, own_mask, scores)

    first = part.normalize_first
    x = sublayer(x, own, part.self_attention_norm, first)
    if memory is not None:
        x = sublayer(
            x,
            lambda y: attention(y, memory, part.cross_attention, cross_mask, scores),
            part.cross_attention_norm,
            first,
        )
    if part.feed_forward is None:
        return x
    return sublayer(x, lambda y: feed_forward(y, part.feed_forward), part.feed_forward_norm, first)


def teacher_forced_logits(spec, source, target):
    """Logits (B, T, V) of all positions, in float64.

    Args:
        spec: A `TransformerSpec`.
        source: Ids (B, S), padded.
        target: Ids (B, T) that the decoder reads, the start token first.
    """
    return logits_of(spec, *encode(spec, source), target)


def encode(spec, source):
    """The encoder's output (B, S, D), and which source tokens are real (B, 1, S)."""
    source = np.asarray(source)
    is_real = (source != spec.embedding.pad_token_id)[:, None, :]
    x = embed(source, spec.embedding, spec.encoder)
    for part in spec.encoder.blocks:
        x = block(x, part, np.repeat(is_real, source.shape[1], axis=1))
    return (x if spec.encoder.norm is None else norm(x, spec.encoder.norm)), is_real


def logits_of(spec, memory, is_real, target):
    """Logits (B, T, V) of what the decoder reads, from what `encode` returned."""
    target = np.asarray(target)
    table = spec.embedding if spec.target_embedding is None else spec.target_embedding
    x = embed(target, table, spec.decoder)
    length = target.shape[1]
    causal = np.tril(np.ones((length, length), bool))[None]
    for part in spec.decoder.blocks:
        x = block(x, part, causal, memory, np.repeat(is_real, length, axis=1))
    if spec.decoder.norm is not None:
        x = norm(x, spec.decoder.norm)
    reverse = table.reverse_embeddings
    logits = x @ (array(table.embeddings).T if reverse is None else array(reverse))
    return logits if table.logits_bias is None else logits + array(table.logits_bias)


def greedy(spec, source, length):
    """Tokens (B, length) chosen greedily; what follows the end token is padding."""
    target = np.full((len(source), 1), spec.start_token_id)
    ended = np.zeros(len(source), bool)
    for _ in range(length):
        logits = teacher_forced_logits(spec, source, target)[:, -1]
        logits[:, list(spec.suppressed_token_ids)] = -np.inf
        chosen = np.where(ended, spec.embedding.pad_token_id, logits.argmax(axis=-1))
        ended |= chosen == spec.end_token_id
        target = np.concatenate([target, chosen[:, None]], axis=1)
    return target[:, 1:]
