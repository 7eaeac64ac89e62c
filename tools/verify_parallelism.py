"""Check parallel training: does one batch give the same gradient, however devices share it?

Makes logical devices from this machine's CPU (or uses its GPUs). Compares the gradients of one batch of
sentences of different lengths on 1, 2 and 8 devices, and in slices, with those of Keras' stock loss beside
them. Ends with an error if ours differ. Usage:

    KERAS_BACKEND=tensorflow python tools/verify_parallelism.py
    KERAS_BACKEND=jax python tools/verify_parallelism.py
    KERAS_BACKEND=torch python tools/verify_parallelism.py      # in slices only: a process has one device
"""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Before Keras, whose error is long if the backend is not installed.
from keras_attention import LabelSmoothedCrossentropy, Transformer  # isort: split

import keras
import numpy as np

from keras_attention.training import distribution_scope
from keras_attention.training.distribution import STRATEGIES

LARGEST_DIFFERENCE = 1e-5
VOCABULARY_SIZE, ROWS, SOURCE_LENGTH, TARGET_LENGTH = 11, 64, 7, 9


def main() -> None:
    """Run the check and print its report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    has_one_device = keras.backend.backend() == "torch"
    replicas = [1] if has_one_device else [1, 2, 8]
    parser.add_argument("--replicas", type=int, nargs="+", default=replicas)
    parser.add_argument("--accumulation-steps", type=int, default=8)
    parser.add_argument(
        "--gpus", action="store_true", help="use the machine's GPUs, not logical CPUs"
    )
    parser.add_argument("--json", type=Path, help="also write the report to this file")
    options = parser.parse_args()
    if not options.gpus:
        make_logical_cpus(max(options.replicas))

    model = Transformer(
        VOCABULARY_SIZE, num_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2, seed=3
    )
    given = (options.replicas, options.accumulation_steps)
    try:
        report = check_parallelism(model, uneven_batch(), *given)
    except ValueError as error:
        parser.error(str(error))
    print(report)
    if options.json:
        options.json.write_text(json.dumps(dataclasses.asdict(report)), "utf-8")
    sys.exit(not report.passed)


def make_logical_cpus(count: int) -> None:
    """Make the backend see this many devices on the CPU; possible only before it starts."""
    if keras.backend.backend() == "jax":
        import jax

        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={count}"
        jax.config.update("jax_platforms", "cpu")
    elif keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.get_logger().setLevel("ERROR")
        tf.config.set_visible_devices([], "GPU")
        cpu = tf.config.list_physical_devices("CPU")[0]
        devices = [tf.config.LogicalDeviceConfiguration()] * count
        tf.config.set_logical_device_configuration(cpu, devices)


def uneven_batch() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Random sentences: one token in the first eighth of the rows, the most tokens in the second eighth."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, TARGET_LENGTH + 1, ROWS)
    lengths[: ROWS // 8], lengths[ROWS // 8 : ROWS // 4] = 1, TARGET_LENGTH
    labels = sentences(rng, lengths, TARGET_LENGTH)
    source = sentences(rng, rng.integers(1, SOURCE_LENGTH + 1, ROWS), SOURCE_LENGTH)
    shifted = np.pad(labels, ((0, 0), (1, 0)))[:, :-1]
    return {"encoder_token_ids": source, "decoder_token_ids": shifted}, labels


def sentences(rng: np.random.Generator, lengths: np.ndarray, width: int) -> np.ndarray:
    """Random ids of these lengths, each ending with the end token, padded to a width."""
    ids = rng.integers(2, VOCABULARY_SIZE, (len(lengths), width))
    positions = np.arange(width)
    ids[positions == lengths[:, None] - 1] = 1
    return np.where(positions < lengths[:, None], ids, 0)


@dataclasses.dataclass(frozen=True)
class WayOfTraining:
    """One way to compute the gradient of the batch, and its difference from one device and one slice.

    Attributes:
        replicas: Number of devices that share the rows.
        accumulation_steps: Number of slices in which each device processes its rows.
        tokens: The fewest and the most real target tokens in one share of the rows.
        difference: max |g - g_ref| / max |g_ref| of a variable, the largest over all variables.
        stock_difference: The same for Keras' stock loss; None if Keras cannot train in this way.
    """

    replicas: int
    accumulation_steps: int
    tokens: tuple[int, int]
    difference: float
    stock_difference: float | None


@dataclasses.dataclass(frozen=True)
class ParallelismReport:
    """What `check_parallelism` found; printed, it is a table.

    Attributes:
        backend: The Keras backend.
        loss: Name of the loss.
        rows: Rows of the batch.
        tokens: Real target tokens of the batch.
        ways: The ways of training that were compared with one device and one slice.
    """

    backend: str
    loss: str
    rows: int
    tokens: int
    ways: tuple[WayOfTraining, ...]

    @property
    def largest_difference(self) -> float:
        """The largest difference of the given loss, over all ways."""
        return max(way.difference for way in self.ways)

    @property
    def passed(self) -> bool:
        """Whether no way's gradient differs by more than 1e-5."""
        return self.largest_difference < LARGEST_DIFFERENCE

    @property
    def stock_passed(self) -> bool:
        """Whether Keras' stock loss would pass too."""
        stock = [way.stock_difference for way in self.ways]
        return all(value is None or value < LARGEST_DIFFERENCE for value in stock)

    def __str__(self) -> str:
        lines = [
            f"Gradients of one batch of {self.rows} rows, {self.tokens} target tokens, on "
            f"{self.backend}: largest relative difference from one device, one slice",
            f"{'replicas':>8} {'slices':>7} {'tokens a share':>15} {self.loss:>27} {'Keras stock':>12}",
        ]
        for way in self.ways:
            stock = "-" if way.stock_difference is None else f"{way.stock_difference:.1e}"
            tokens = "{} to {}".format(*way.tokens)
            lines.append(
                f"{way.replicas:>8} {way.accumulation_steps:>7} {tokens:>15} "
                f"{way.difference:>27.1e} {stock:>12}"
            )
        verdicts = [f"{self.loss} {'passes' if self.passed else 'FAILS'}"]
        verdicts.append(f"Keras' stock loss {'passes' if self.stock_passed else 'fails'}")
        return "\n".join([*lines, f"Below {LARGEST_DIFFERENCE:.0e}? {', '.join(verdicts)}."])


def check_parallelism(
    model: keras.Model, batch: Any, replicas: Sequence[int], accumulation_steps: int = 8
) -> ParallelismReport:
    """Compare the gradients of one batch on one device, on many, and in slices.

    Each way is a real training step with a copy of the model, without dropout and in float32. The gradient
    is the one that the optimizer receives. Keras' stock loss,
    `SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)`, is compared in the same ways, with
    Keras' own gradient accumulation. That loss is a mean over the tokens of each replica or slice. If
    their numbers of tokens differ, its gradient is wrong. On JAX it is right on several devices, which
    compute on one array of all rows, but not in slices.

    Args:
        model: A `Transformer`; it is not changed.
        batch: Inputs and labels. The number of rows must be a multiple of the largest number of replicas
            times `accumulation_steps`.
        replicas: Numbers of devices to compare.
        accumulation_steps: Number of slices, on one device and on the largest number of replicas.

    Raises:
        ValueError: If there are fewer devices than asked for, or the rows cannot be shared evenly.
    """
    inputs, labels = keras.tree.map_structure(np.asarray, batch)
    strategy = next(
        (s for s, names in STRATEGIES.items() if keras.backend.backend() in names), None
    )
    _check_shares(len(labels), max(replicas), accumulation_steps)
    if max(replicas) > 1:
        with distribution_scope(strategy, max(replicas)):
            pass  # Too few devices are refused before anything is trained.
    loss = LabelSmoothedCrossentropy()
    stock = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)

    def gradients(loss, replicas=None, steps=1, **options):
        with distribution_scope(None if replicas is None else strategy, replicas):
            return _gradients(model, inputs, labels, loss, steps, **options)

    reference, stock_reference = gradients(loss), gradients(stock)
    ways = []
    steps_to_try = [1] if accumulation_steps == 1 else [1, accumulation_steps]
    plan = [(count, 1) for count in replicas]
    plan += [(count, steps_to_try[-1]) for count in sorted({1, max(replicas)}) if steps_to_try[1:]]
    for count, steps in plan:
        # One device needs no strategy, but with one it is one more way to compare.
        on = None if count == 1 and (strategy is None or steps > 1) else count
        stock_difference = None
        # All rows in one share cannot differ, and Keras does not slice on several replicas.
        if (count == 1) != (steps == 1):
            kept = gradients(stock, on, steps, by_keras=True)
            stock_difference = _difference(kept, stock_reference)
        difference = _difference(gradients(loss, on, steps), reference)
        tokens = _tokens_of_shares(labels, count, steps)
        ways.append(WayOfTraining(count, steps, tokens, difference, stock_difference))
    return ParallelismReport(
        keras.backend.backend(), loss.name, len(labels), int((labels != 0).sum()), tuple(ways)
    )


class GradientRecorder(keras.optimizers.Optimizer):
    """An optimizer that records the gradients and changes no weights."""

    def __init__(self, **kwargs: Any):
        super().__init__(**{"learning_rate": 0.0, **kwargs})

    def build(self, variables: Any) -> None:
        if self.built:
            return
        super().build(variables)
        self.recorded = self.add_optimizer_variables(variables, "gradient")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        kept = self.recorded[self._get_variable_index(variable)]
        self.assign(kept, keras.ops.convert_to_tensor(gradient))


def _gradients(model, inputs, labels, loss, steps, by_keras=False):
    """Return the gradients of one update; `by_keras`: slices by Keras' own accumulation, over batches."""
    copy = _without_dropout(model)
    if by_keras and steps > 1:
        order = np.arange(len(labels)).reshape(-1, steps).T.ravel()
        inputs, labels = keras.tree.map_structure(lambda array: array[order], (inputs, labels))
        recorder = GradientRecorder(gradient_accumulation_steps=steps)
        copy.compile(recorder, loss)
        rows = len(labels) // steps
    else:
        recorder = GradientRecorder()
        rows = len(labels)
        copy.compile(recorder, loss, **({"accumulation_steps": steps} if steps > 1 else {}))
    copy.fit(inputs, labels, batch_size=rows, shuffle=False, verbose=0)
    return [keras.ops.convert_to_numpy(variable) for variable in recorder.recorded]


def _without_dropout(model: keras.Model) -> keras.Model:
    config = model.get_config()
    config.update({name: 0.0 for name in config if name.endswith("dropout")}, dtype="float32")
    copy = type(model).from_config(config)
    copy.set_weights(model.get_weights())
    return copy


def _difference(gradients: list[np.ndarray], reference: list[np.ndarray]) -> float:
    pairs = zip(gradients, reference, strict=True)
    return max(
        float(np.abs(g - r).max() / np.abs(r).max()) for g, r in pairs if np.abs(r).max() > 0
    )


def _check_shares(rows: int, replicas: int, steps: int) -> None:
    if rows % (replicas * steps):
        raise ValueError(
            f"The batch has {rows} rows, which cannot be shared evenly by {replicas} replica(s) of "
            f"{steps} accumulation steps each. Make it with TokenBatches(num_replicas="
            f"{replicas * steps}), or check fewer."
        )


def _tokens_of_shares(labels: np.ndarray, replicas: int, steps: int) -> tuple[int, int]:
    """Return the fewest and the most tokens of a share: rows are split over replicas, then sliced."""
    rows = labels.reshape(replicas, -1, steps, labels.shape[1])
    counts = (rows != 0).sum(axis=(1, 3))
    return int(counts.min()), int(counts.max())


if __name__ == "__main__":
    main()
