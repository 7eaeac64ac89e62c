"""How long one update of the Multi30K recipe takes, and on what: one batch of one shape, again and again.

Usage, on any backend; on TensorFlow also with TF_ENABLE_ONEDNN_OPTS=1 and =0:

    KERAS_BACKEND=jax python benchmarks/update_time.py
    KERAS_BACKEND=torch python benchmarks/update_time.py --profile     # which operations take the time
"""

import argparse
import statistics
import time
from collections.abc import Callable

import keras
import numpy as np

from keras_attention import (
    Adam,
    LabelSmoothedCrossentropy,
    LearningRateSchedule,
    Transformer,
    matmul_peak,
)
from keras_attention.recipes import RECIPES

RECIPE = RECIPES["multi30k"]
ROWS, SOURCE, TARGET = 96, 15, 16  # a batch of that recipe
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")  # whose FLOPs PyTorch's profiler counts


def main() -> None:
    """Print the median and the least of the times of an update, and the profile if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=24)
    parser.add_argument("--profile", action="store_true", help="PyTorch alone")
    options = parser.parse_args()
    if options.profile and keras.backend.backend() != "torch":
        parser.error("--profile needs KERAS_BACKEND=torch")
    update = one_update()
    measured = [_timed(update) for _ in range(options.updates + 5)][5:]  # The first compile.
    median = statistics.median(measured)
    print(
        f"{keras.backend.backend()}: median {1e3 * median:.0f} ms, least {1e3 * min(measured):.0f} ms "
        f"of {options.updates} updates; {ROWS * (SOURCE + TARGET) / median:,.0f} positions a second"
    )
    if options.profile:
        print_profile(update, options.updates)


def one_update() -> Callable[[], object]:
    """A function that trains on the batch once and returns the loss, so waits for it."""
    model = Transformer.from_preset(
        RECIPE.preset, RECIPE.vocabulary_size, seed=1, **RECIPE.model_arguments
    )
    model.compile(Adam(LearningRateSchedule(model.hidden_dim)), LabelSmoothedCrossentropy(0.1))
    ids = np.random.default_rng(0).integers(3, RECIPE.vocabulary_size, (ROWS, SOURCE + TARGET))
    labels = ids[:, SOURCE:]
    inputs = {
        "encoder_token_ids": ids[:, :SOURCE],
        "decoder_token_ids": np.pad(labels[:, :-1], ((0, 0), (1, 0))),
    }
    return lambda: model.train_on_batch(inputs, labels)


def print_profile(update: Callable[[], object], updates: int) -> None:
    """The share of the matrix products, their speed beside that of large ones, and the other operations."""
    import torch

    with torch.profiler.profile(with_flops=True) as profiler:
        for _ in range(updates):
            update()
    events = profiler.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    products = [event for event in events if event.key.removeprefix("aten::") in PRODUCTS]
    microseconds = sum(event.self_cpu_time_total for event in products)
    flops = sum(event.flops for event in products)
    print(
        f"matrix products: {microseconds / total:.0%} of the time, at {flops / microseconds / 1e3:.0f} "
        f"GFLOP/s; large ones reach {matmul_peak() / 1e9:.0f} GFLOP/s"
    )
    for event in sorted(events, key=lambda event: -event.self_cpu_time_total)[:15]:
        milliseconds = event.self_cpu_time_total / updates / 1e3
        print(
            f"{milliseconds:7.1f} ms {event.self_cpu_time_total / total:4.0%}  "
            f"{event.count / updates:5.0f} x {event.key}"
        )


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
