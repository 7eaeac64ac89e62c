"""Small entries for the tests of the viewer."""

import numpy as np

from keras_attention_viewer import describe_tokens, make_entry

SOURCE = ["▁the", "▁old", "▁dog", "s", "▁sleep", ".", "</s>"]
TARGET = ["▁alte", "▁Hunde", "▁schlafen", ".", "</s>"]


def softmax_weights(rng, heads, rows, columns, causal=False):
    """Random attention weights of shape (heads, rows, columns)."""
    scores = rng.normal(size=(heads, rows, columns)) * 2
    if causal:
        scores = np.where(np.tril(np.ones((rows, columns), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def sentence_entry(weights, source=SOURCE, translation=TARGET, step=0, ranks=None, **options):
    """An entry of a sentence whose last source and target tokens are the end."""
    return make_entry(
        step,
        "".join(source[:-1]).replace("▁", " ").strip(),
        "".join(translation[:-1]).replace("▁", " ").strip(),
        describe_tokens(source, [len(source) - 1], ranks),
        describe_tokens(["<start>", *translation[:-1]], [0]),
        describe_tokens(translation, [len(translation) - 1]),
        weights,
        **options,
    )


def random_entry(rng, step=0, layers=2, heads=3, **options):
    """An entry with random weights of all kinds, of SOURCE and TARGET."""
    s, t = len(SOURCE), len(TARGET)
    weights = {
        "encoder": [softmax_weights(rng, heads, s, s) for _ in range(layers)],
        "decoder": [softmax_weights(rng, heads, t, t, causal=True) for _ in range(layers)],
        "cross": [softmax_weights(rng, heads, t, s) for _ in range(layers)],
    }
    return sentence_entry(weights, step=step, **options)
