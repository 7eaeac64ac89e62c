"""Check parallel training: does one batch give the same gradient, however devices share it?

Makes logical devices from this machine's CPU (or uses its GPUs). Compares the gradients of one batch of
sentences of different lengths on 1, 2 and 8 devices, and in slices; see
`keras_attention.training.check_parallelism`. Ends with an error if they differ. Usage:

    KERAS_BACKEND=tensorflow python tools/verify_parallelism.py
    KERAS_BACKEND=jax python tools/verify_parallelism.py
    KERAS_BACKEND=torch python tools/verify_parallelism.py --replicas 1
"""

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path

import numpy as np

VOCABULARY_SIZE, ROWS, SOURCE_LENGTH, TARGET_LENGTH = 11, 64, 7, 9


def main() -> None:
    """Run the check and print its report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 8])
    parser.add_argument("--accumulation-steps", type=int, default=8)
    parser.add_argument(
        "--gpus", action="store_true", help="use the machine's GPUs, not logical CPUs"
    )
    parser.add_argument("--json", type=Path, help="also write the report to this file")
    options = parser.parse_args()
    if not options.gpus:
        make_logical_cpus(max(options.replicas))

    from keras_attention import Transformer
    from keras_attention.training.parallelism import check_parallelism

    model = Transformer(
        VOCABULARY_SIZE, num_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2, seed=3
    )
    report = check_parallelism(model, uneven_batch(), options.replicas, options.accumulation_steps)
    print(report)
    if options.json:
        options.json.write_text(json.dumps(dataclasses.asdict(report)), "utf-8")
    sys.exit(not report.passed)


def make_logical_cpus(count: int) -> None:
    """Make the backend see this many devices on the CPU; possible only before it starts."""
    if os.environ.get("KERAS_BACKEND", "tensorflow") == "jax":
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={count}"
        os.environ["JAX_PLATFORMS"] = "cpu"
    elif os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
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


if __name__ == "__main__":
    main()
