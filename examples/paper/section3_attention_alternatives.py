"""Section 3.2.1: additive attention and unscaled dot products beside the paper's scaled dot products.

The paper says in words: additive attention, whose scores come from a network with one hidden layer (Bahdanau
et al. 2015), takes more time and memory than dot products; with large d_k it is better than dot products
without the scale, which have variance d_k (footnote 4) and so leave the softmax gradients next to nothing.
This measures each of these. A stopped measurement continues.

What to expect, written before the first run: the variance is d_k within 5 %. From d_k = 64 on, an update of
the additive layer takes more than twice the time. Without the scale, the softmax's gradient at d_k = 512 is
below a fifth of that with it. The task is learned by all three at d_k = 8; at d_k = 512 the unscaled layer is
the worst, and additive and scaled attention are alike.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import common
import numpy as np

from keras_attention.utils.progress import Progress

if TYPE_CHECKING:
    import keras

KINDS = ("additive", "unscaled", "scaled")
WIDTH, POSITIONS, CLASSES = 32, 64, 8
BATCH, NOISE = 64, 0.3
TEST = 1000
SIZES, QUICK_SIZES = (8, 64, 512), (8, 32)


def parser() -> argparse.ArgumentParser:
    """Make the parser of the options."""
    made = common.new_parser(__doc__, __file__)
    made.add_argument("--quick", action="store_true", help="a small part, in less than two minutes")
    made.add_argument("--seeds", type=int, nargs="+", metavar="N", default=[1, 2, 3])
    made.add_argument("--steps", type=common.at_least(1), metavar="N", default=1000)
    return made


def main(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure the scores by formula, the layers' time, and how a small task is learned with each."""
    common.start_keras()
    sizes = QUICK_SIZES if options.quick else SIZES
    seeds = options.seeds[:1] if options.quick else options.seeds
    steps = min(options.steps, 30) if options.quick else options.steps
    results = common.Results(folder, {"sizes": sizes, "seeds": seeds, "steps": steps})
    found: dict[str, Any] = {"scores": {}, "seconds": {}, "accuracy": {}}
    work = [(kind, size, seed) for size in sizes for kind in KINDS for seed in seeds]
    with results.claimed(), Progress(len(work), "training", "models") as progress:
        for size in sizes:
            found["scores"][size] = results.get(f"scores {size}", partial(scores_of, size))
            found["seconds"][size] = results.get(f"seconds {size}", partial(seconds_of, size))
        for kind, size, seed in work:
            accuracy = results.get(
                f"accuracy {kind} {size} {seed}",
                partial(accuracy_of, kind, size, seed, steps),
            )
            found["accuracy"].setdefault(size, {}).setdefault(kind, []).append(accuracy)
            progress.add(1)
        tables = [scores_table(found), accuracy_table(found["accuracy"], steps)]
        common.write(folder, "section3", tables, {"section3": picture(found)}, found)
    return found


def layer_of(kind: str, key_dim: int, num_heads: int = 1) -> keras.layers.Layer:
    """Return a layer of attention whose scores are computed in one of the three ways."""
    import keras
    from keras import ops

    from keras_attention import MultiHeadAttention

    class Unscaled(MultiHeadAttention):
        """Attention without the factor 1 / sqrt(d_k)."""

        def _compute_attention(self, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any):
            return super()._compute_attention(query * key_dim**0.5, key, value, *args, **kwargs)

    class Additive(MultiHeadAttention):
        """Attention with scores `w . tanh(q + k)`; the projections of q and k are the hidden layer's."""

        def build(self, query_shape: Any, value_shape: Any, key_shape: Any = None) -> None:
            super().build(query_shape, value_shape, key_shape)
            normal = keras.initializers.RandomNormal(stddev=key_dim**-0.5)
            self.direction = self.add_weight(shape=(num_heads, key_dim), initializer=normal)

        def _compute_attention(self, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any):
            hidden = ops.tanh(query[:, :, None] + key[:, None])  # (B, T, S, N, K)
            scores = ops.transpose(ops.sum(hidden * self.direction, axis=-1), (0, 3, 1, 2))
            weights = ops.softmax(scores, axis=-1)
            return ops.einsum("bnts,bsnu->btnu", weights, value), weights

    classes = {"additive": Additive, "unscaled": Unscaled, "scaled": MultiHeadAttention}
    # Projections keep the variance of their inputs, as footnote 4 assumes.
    return classes[kind](num_heads, key_dim, WIDTH, kernel_initializer="lecun_normal")


def model_of(kind: str, key_dim: int) -> Any:
    """Return a compiled model: a query finds its key among others, and reads the class beside it."""
    import keras

    query = keras.Input((None, WIDTH))
    memory = keras.Input((POSITIONS, WIDTH + CLASSES))
    logits = keras.layers.Dense(CLASSES)(layer_of(kind, key_dim)(query, memory))
    model = keras.Model([query, memory], logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.003), loss, metrics=["accuracy"])
    return model


def examples(number: int, seed: int, queries: int = 1) -> tuple[list[np.ndarray], np.ndarray]:
    """Return queries and memories of random keys with their classes, and the classes to be found."""
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(number, POSITIONS, WIDTH)).astype("float32")
    classes = rng.integers(CLASSES, size=(number, POSITIONS))
    places = rng.integers(POSITIONS, size=(number, queries))
    rows = np.arange(number)[:, None]
    asked = keys[rows, places] + NOISE * rng.normal(size=(number, queries, WIDTH))
    marks = np.eye(CLASSES, dtype="float32")[classes]
    return [asked.astype("float32"), np.concatenate([keys, marks], -1)], classes[rows, places]


def accuracy_of(kind: str, key_dim: int, seed: int, steps: int) -> float:
    """Train a model for so many updates; return the share of test queries that it answers."""
    import keras

    keras.utils.set_random_seed(seed)
    model = model_of(kind, key_dim)
    model.fit(*examples(BATCH * steps, seed), batch_size=BATCH, verbose=0)
    return model.evaluate(*examples(TEST, 10_000 + seed), verbose=0, return_dict=True)["accuracy"]


def seconds_of(key_dim: int) -> dict[str, float]:
    """Return the median time of an update of each layer, all positions asking; they take turns."""
    data = examples(8, 0, POSITIONS)
    models = {kind: model_of(kind, key_dim) for kind in KINDS}
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for turn in range(12):
        for kind, model in models.items():
            began = time.perf_counter()
            model.train_on_batch(*data)
            if turn > 1:  # The first ones compile.
                taken[kind].append(time.perf_counter() - began)
    return {kind: statistics.median(times) for kind, times in taken.items()}


def scores_of(key_dim: int) -> dict[str, float]:
    """Return the variance of q . k, and the mean trace of the softmax's Jacobian without and with the scale.

    Components of q and k are independent, with mean 0 and variance 1. The trace is the sum of p (1 - p).
    """
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(2, 1024, POSITIONS, key_dim))
    scores = np.einsum("bd,bsd->bs", queries[:, 0], keys)
    traces = {}
    for kind, scale in (("unscaled", 1.0), ("scaled", key_dim**-0.5)):
        powers = np.exp(scale * (scores - scores.max(axis=1, keepdims=True)))
        weights = powers / powers.sum(axis=1, keepdims=True)
        traces[kind] = float((weights * (1 - weights)).sum(axis=1).mean())
    return {"variance": float(scores.var()), **traces}


def scores_table(found: Mapping[str, Any]) -> common.Table:
    """Make the table of variances, gradients and times."""
    rows = []
    for size, scores in found["scores"].items():
        seconds = found["seconds"][size]
        times = [f"{1000 * seconds[kind]:.1f}" for kind in KINDS]
        traces = [f"{scores[kind]:.3f}" for kind in KINDS[1:]]
        ratio = f"{seconds['additive'] / seconds['scaled']:.1f}"
        hidden = f"{size * POSITIONS**2:,} / {POSITIONS**2:,}"
        rows.append([f"{size}", f"{scores['variance']:.1f}", *traces, *times, ratio, hidden])
    columns = [
        *("d_k", "variance of q.k", "softmax gradient, unscaled", "scaled"),
        *(f"ms, {kind}" for kind in KINDS),
        *("additive / scaled", "numbers a head keeps for scores: additive / dot product"),
    ]
    notes = [
        f"Gradient: the mean trace of the softmax's Jacobian over {POSITIONS} keys, at most 0.98. Time: an "
        f"update of the layer, 8 x {POSITIONS} queries, medians of 10 in turns.",
        "The paper: dot products are much faster and take less memory in practice; q . k has variance d_k.",
    ]
    return common.Table("Section 3.2.1 and footnote 4: scores by d_k", columns, rows, notes)


def accuracy_table(found: Mapping[int, Mapping[str, Sequence[float]]], steps: int) -> common.Table:
    """Make the table of what was learned."""
    rows = []
    for size, kinds in found.items():
        difference = common.Paired.of(kinds["additive"], kinds["unscaled"])
        cells = [
            common.spread([100 * value for value in kinds[kind]], ".1f", ".1f") for kind in KINDS
        ]
        rows.append([f"{size}", *cells, f"{100 * difference.mean:+.1f}", difference.verdict])
    columns = ["d_k", *KINDS, "additive - unscaled", "verdict"]
    notes = [
        f"Accuracy in %: a noisy key is found among {POSITIONS}, and its class read; {steps} updates of "
        f"{BATCH} queries. Chance: {100 / CLASSES:.1f}.",
        "The paper: alike for small d_k; additive attention outperforms unscaled dot products for larger "
        "d_k. Seeds are paired. Resolved: the 95 % interval excludes 0.",
    ]
    return common.Table("A small task, learned with each", columns, rows, notes)


def picture(found: Mapping[str, Any]) -> Any:
    """Draw gradients and accuracies by d_k."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    colors = dict(zip(KINDS, ("C2", "C1", "C0"), strict=True))
    sizes = list(found["scores"])
    for kind in KINDS[1:]:
        traces = [found["scores"][size][kind] for size in sizes]
        left.plot(sizes, traces, "o-", color=colors[kind], label=kind)
    for kind in KINDS:
        seeds = [found["accuracy"][size][kind] for size in sizes]
        means = [100 * statistics.fmean(values) for values in seeds]
        right.plot(sizes, means, "o-", color=colors[kind], label=kind)
    left.set(xscale="log", ylim=(0, 1), xlabel="d_k", ylabel="gradient of the softmax (trace)")
    right.set(xscale="log", ylim=(0, 100), xlabel="d_k", ylabel="accuracy in %")
    for axes in (left, right):
        axes.set_xticks(sizes, [str(size) for size in sizes], minor=False)
        axes.minorticks_off()
        axes.legend()
    return figure


if __name__ == "__main__":
    common.run(main, parser())
