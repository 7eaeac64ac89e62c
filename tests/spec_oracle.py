"""Models of other programs, as NumPy computes them from their specs; and specs of random weights."""

import numpy as np

from keras_attention import TransformerSpec
from keras_attention.spec import (
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
from tests.models.numpy_transformer import array, encode, logits_of, teacher_forced_logits


class SpecOracle:
    """Logits, probabilities and greedy translations of single sentences, by `numpy_transformer`.

    Args:
        spec: The spec, of NumPy arrays.
    """

    def __init__(self, spec):
        self.spec = spec.map_weights(array)  # once, and not in each product

    def logits(self, source, target):
        """Source ids (S,), target ids (T,) shifted right -> (T, V)."""
        return teacher_forced_logits(self.spec, [source], [target])[0]

    def log_probabilities(self, source, target):
        """Of each target token, after the start token."""
        logits = self.logits(source, [self.spec.start_token_id, *target[:-1]])
        logits[:, list(self.spec.suppressed_token_ids)] = -np.inf
        logits -= logits.max(-1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
        return logits[np.arange(len(target)), target]

    def greedy(self, source, most):
        """Best token after best token, without the end token."""
        memory, ids = encode(self.spec, [source]), [self.spec.start_token_id]
        while len(ids) <= most:
            last = logits_of(self.spec, *memory, [ids])[0, -1]
            last[list(self.spec.suppressed_token_ids)] = -np.inf
            ids.append(int(last.argmax()))
            if ids[-1] == self.spec.end_token_id:
                return ids[1:-1]
        return ids[1:]


def random_spec(vocabulary=23, depth=(2, 1), dim=12, heads=3, widths=(4, 4), seed=6, **options):
    """A spec of random weights.

    Args:
        vocabulary: Number of tokens.
        depth: Blocks of encoder and decoder.
        dim: Hidden width.
        heads: Number of heads.
        widths: Of a head's keys and values.
        seed: Of the weights.
        options: `activation`, `normalize_first`, `bias` (of attention), `epsilon`, `layout`, `tied`,
            `ssru` (True, or "biased"), `logits_bias`, `final_norm`, `embedding_norm`, `gated`, `rms`,
            `target_vocabulary`, `pad_token_id` (that of the start), and fields of the spec.
    """
    random = np.random.default_rng(seed)
    settings = {
        "activation": "relu",
        "normalize_first": False,
        "bias": False,
        "epsilon": 1e-6,
        "layout": "interleaved",
        "tied": True,
        "ssru": False,
        "logits_bias": False,
        "gated": False,
        "rms": False,
        "embedding_norm": False,
        "final_norm": options.get("normalize_first", False),
        "target_vocabulary": None,
        "pad_token_id": options.get("start_token_id", 0),
    }
    for name in settings:
        settings[name] = options.pop(name, settings[name])
    inner = dim + 6

    def array(*shape, scale=0.6):
        return random.normal(0.0, scale, shape).astype("float32")

    def dense(inputs, outputs, bias=True):
        return DenseSpec(array(*inputs, *outputs), array(*outputs) if bias else None)

    def norm():
        gamma = array(dim, scale=1.0)
        beta = None if settings["rms"] else array(dim, scale=0.2)
        return NormSpec(gamma, beta, settings["epsilon"])

    def attention():
        parts = [
            dense((dim,), (heads, width), settings["bias"])
            for width in (widths[0], widths[0], widths[1])
        ]
        return AttentionSpec(*parts, dense((heads, widths[1]), (dim,), settings["bias"]))

    def block(is_decoder):
        network = FeedForwardSpec(
            dense((dim,), (inner,)),
            dense((inner,), (dim,)),
            settings["activation"],
            dense((dim,), (inner,)) if settings["gated"] else None,
        )
        cross = (attention(), norm()) if is_decoder else (None, None)
        own = attention()
        if is_decoder and settings["ssru"]:
            own = SSRUSpec(
                dense((dim,), (dim,), settings["ssru"] == "biased"), dense((dim,), (dim,))
            )
        return BlockSpec(own, norm(), network, norm(), *cross, settings["normalize_first"])

    def stack(count, is_decoder):
        layout = settings["layout"]
        positions = PositionsSpec(layout, array(15, dim) if layout == "learned" else None)
        norms = [norm() if settings[name] else None for name in ("final_norm", "embedding_norm")]
        return StackSpec(positions, tuple(block(is_decoder) for _ in range(count)), *norms)

    pad, size = settings["pad_token_id"], settings["target_vocabulary"] or vocabulary
    table = source = EmbeddingSpec(
        array(size, dim, scale=1.0),
        None if settings["tied"] else array(dim, size),
        array(size) if settings["logits_bias"] else None,
        pad,
    )
    if settings["target_vocabulary"]:
        source, options["target_embedding"] = (
            EmbeddingSpec(array(vocabulary, dim), None, None, pad),
            table,
        )
    spec = TransformerSpec(source, stack(depth[0], False), stack(depth[1], True), **options)
    spec.validate()
    return spec
