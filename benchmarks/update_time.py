"""How long one update takes: a small Transformer, one batch of one shape, again and again.

Usage, on any backend; on TensorFlow also with TF_ENABLE_ONEDNN_OPTS=1 and =0:

    KERAS_BACKEND=jax python benchmarks/update_time.py
"""

import argparse
import statistics
import time

import keras
import numpy as np

from keras_attention import Adam, LabelSmoothedCrossentropy, LearningRateSchedule, Transformer


def main() -> None:
    """Print the median and the least of the times of an update."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=24)
    updates = parser.parse_args().updates
    rows, source, target, vocabulary_size = 80, 15, 16, 5000
    model = Transformer.from_preset("small", vocabulary_size, seed=1)
    model.compile(Adam(LearningRateSchedule(model.hidden_dim)), LabelSmoothedCrossentropy(0.1))
    ids = np.random.default_rng(0).integers(3, vocabulary_size, (rows, source + target))
    labels = ids[:, source:]
    inputs = {
        "encoder_token_ids": ids[:, :source],
        "decoder_token_ids": np.pad(labels[:, :-1], ((0, 0), (1, 0))),
    }
    seconds = []
    for _ in range(updates + 5):
        started = time.perf_counter()
        model.train_on_batch(inputs, labels)  # Returns the loss, so waits for it.
        seconds.append(time.perf_counter() - started)
    measured = seconds[5:]  # The first compile.
    median = statistics.median(measured)
    print(
        f"{keras.backend.backend()}: median {1e3 * median:.0f} ms, least {1e3 * min(measured):.0f} ms "
        f"of {updates} updates; {rows * (source + target) / median:,.0f} positions a second"
    )


if __name__ == "__main__":
    main()
