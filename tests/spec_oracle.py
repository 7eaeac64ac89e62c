"""A Transformer from a spec, in NumPy: one sentence, no cache, loops where the paper has formulas."""

import math

import numpy as np

from keras_attention.spec.parts import (
    AttentionSpec,
    BlockSpec,
    DenseSpec,
    EmbeddingSpec,
    FeedForwardSpec,
    NormSpec,
    PositionsSpec,
    SSRUSpec,
    StackSpec,
)
from keras_attention.spec.transformer import SUPPRESSED, TransformerSpec

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0.0),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
    "gelu": lambda x: x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0))) / 2.0,
    "tanh": np.tanh,
}


class SpecOracle:
    """Computes logits and greedy translations.

    Args:
        spec: The spec, of NumPy arrays.
        dtype: What it computes in.
    """

    def __init__(self, spec, dtype="float64"):
        self.spec = spec.map_weights(lambda weight: np.asarray(weight).astype(dtype))
        self.dtype = dtype

    def encode(self, ids):
        """Source ids (S,) -> (S, D)."""
        return self._stack(self.spec.encoder, self._embed(self.spec.embedding, ids, "encoder"))

    def logits(self, memory, ids):
        """Encoder's output, target ids (T,) shifted right -> (T, V)."""
        table = self.spec.output_embedding
        x = self._stack(self.spec.decoder, self._embed(table, ids, "decoder"), memory)
        softmax = (
            table.embeddings.T if table.reverse_embeddings is None else table.reverse_embeddings
        )
        return x @ softmax + (0.0 if table.logits_bias is None else table.logits_bias)

    def log_probabilities(self, source, target):
        """Of each target token, after the start token."""
        logits = self.logits(self.encode(source), [self.spec.start_token_id, *target[:-1]])
        logits[:, list(self.spec.suppressed_token_ids)] = SUPPRESSED
        logits -= logits.max(-1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
        return logits[np.arange(len(target)), target]

    def greedy(self, source, most):
        """Best token after best token, without the end token."""
        memory, ids = self.encode(source), [self.spec.start_token_id]
        while len(ids) <= most:
            last = self.logits(memory, ids)[-1]
            last[list(self.spec.suppressed_token_ids)] = SUPPRESSED
            ids.append(int(last.argmax()))
            if ids[-1] == self.spec.end_token_id:
                return ids[1:-1]
        return ids[1:]

    def _embed(self, table, ids, stack):
        ids = np.asarray(ids)
        x = table.embeddings[ids] * math.sqrt(self.spec.hidden_dim)
        x[ids == table.pad_token_id] = 0.0
        positions = self.spec.positions(getattr(self.spec, stack), len(ids))
        return (x + positions).astype(self.dtype)

    def _stack(self, stack, x, memory=None):
        for block in stack.blocks:
            own = block.self_attention
            if isinstance(own, SSRUSpec):
                cell = self._ssru
                x = self._residual(
                    block, block.self_attention_norm, x, lambda y, c=cell, o=own: c(o, y)
                )
            else:
                causal = memory is not None
                x = self._residual(
                    block,
                    block.self_attention_norm,
                    x,
                    lambda y, o=own, c=causal: self._attend(o, y, y, c),
                )
            if memory is not None:
                cross = block.cross_attention
                x = self._residual(
                    block,
                    block.cross_attention_norm,
                    x,
                    lambda y, a=cross: self._attend(a, y, memory, False),
                )
            network = block.feed_forward
            x = self._residual(
                block, block.feed_forward_norm, x, lambda y, n=network: self._feed_forward(n, y)
            )
        return x if stack.norm is None else self._norm(stack.norm, x)

    def _residual(self, block, norm, x, layer):
        if block.normalize_first:
            return x + layer(self._norm(norm, x))
        return self._norm(norm, x + layer(x))

    @staticmethod
    def _norm(norm, x):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + norm.epsilon) * norm.gamma + norm.beta

    @staticmethod
    def _ssru(cell, x):
        gates = 1.0 / (1.0 + np.exp(-(x @ cell.forget.kernel + cell.forget.bias)))
        inner = x @ cell.inner.kernel
        if cell.inner.bias is not None:
            inner = inner + cell.inner.bias
        state, rows = np.zeros_like(x[0]), []
        for gate, value in zip(gates, inner, strict=True):
            state = gate * state + (1.0 - gate) * value
            rows.append(np.maximum(state, 0.0))
        return np.stack(rows)

    @staticmethod
    def _attend(attention, x, memory, causal):
        def heads(dense, inputs):
            result = np.tensordot(inputs, dense.kernel, 1)
            return result if dense.bias is None else result + dense.bias

        queries = heads(attention.query, x)
        keys, values = heads(attention.key, memory), heads(attention.value, memory)
        total = 0.0
        for head in range(queries.shape[1]):
            scores = queries[:, head] @ keys[:, head].T / math.sqrt(queries.shape[2])
            if causal:
                scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights = weights / weights.sum(-1, keepdims=True)
            total = total + weights @ values[:, head] @ attention.output.kernel[head]
        return total if attention.output.bias is None else total + attention.output.bias

    @staticmethod
    def _feed_forward(network, x):
        inner = ACTIVATIONS[network.activation](x @ network.inner.kernel + network.inner.bias)
        return inner @ network.outer.kernel + network.outer.bias


def random_spec(vocabulary=23, depth=(2, 1), dim=12, heads=3, widths=(4, 4), **options):
    """A spec of random weights.

    Args:
        vocabulary: Number of tokens.
        depth: Blocks of encoder and decoder.
        dim: Hidden width.
        heads: Number of heads.
        widths: Of a head's keys and values.
        options: `activation`, `normalize_first`, `bias` (of attention), `epsilon`, `layout`, `tied`,
            `ssru`, `logits_bias`, `final_norm`, and fields of the spec.
    """
    random = np.random.default_rng(6)
    settings = {
        "activation": "relu",
        "normalize_first": False,
        "bias": False,
        "epsilon": 1e-6,
        "layout": "interleaved",
        "tied": True,
        "ssru": False,
        "logits_bias": False,
        "final_norm": options.get("normalize_first", False),
    }
    for name in settings:
        settings[name] = options.pop(name, settings[name])
    inner = dim + 6

    def array(*shape, scale=0.6):
        return random.normal(0.0, scale, shape).astype("float32")

    def dense(inputs, outputs, bias=True):
        return DenseSpec(array(*inputs, *outputs), array(*outputs) if bias else None)

    def norm():
        return NormSpec(array(dim, scale=1.0), array(dim, scale=0.2), settings["epsilon"])

    def attention():
        parts = [
            dense((dim,), (heads, width), settings["bias"])
            for width in (widths[0], widths[0], widths[1])
        ]
        return AttentionSpec(*parts, dense((heads, widths[1]), (dim,), settings["bias"]))

    def block(is_decoder):
        network = FeedForwardSpec(
            dense((dim,), (inner,)), dense((inner,), (dim,)), settings["activation"]
        )
        cross = (attention(), norm()) if is_decoder else (None, None)
        own = attention()
        if is_decoder and settings["ssru"]:
            own = SSRUSpec(dense((dim,), (dim,), False), dense((dim,), (dim,)))
        return BlockSpec(own, norm(), network, norm(), *cross, settings["normalize_first"])

    def stack(count, is_decoder):
        layout = settings["layout"]
        positions = PositionsSpec(layout, array(15, dim) if layout == "learned" else None)
        final = norm() if settings["final_norm"] else None
        return StackSpec(positions, tuple(block(is_decoder) for _ in range(count)), final)

    table = EmbeddingSpec(
        array(vocabulary, dim, scale=1.0),
        None if settings["tied"] else array(dim, vocabulary),
        array(vocabulary) if settings["logits_bias"] else None,
        options.get("start_token_id", 0),
    )
    spec = TransformerSpec(table, stack(depth[0], False), stack(depth[1], True), **options)
    spec.validate()
    return spec
