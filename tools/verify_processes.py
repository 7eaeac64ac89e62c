"""Do several processes train like one? On JAX and PyTorch, over loopback, on this machine's CPU.

Trains a small Transformer on the demo corpus, first in one process on one device, then in several processes.
Each of these reads its own rows of every batch. Compares the loss of every update and the final weights, and
ends with an error if they differ by more than 1e-5. Dropout is on with JAX and off with PyTorch, where each
process draws its own masks. Usage:

    KERAS_BACKEND=jax python tools/verify_processes.py --processes 2

On several machines, start it once on each, with these variables or with torchrun:

    KERAS_BACKEND=jax KERAS_DISTRIBUTION_JOB_ADDRESSES=10.0.0.1:1234 KERAS_DISTRIBUTION_NUM_PROCESSES=2 \\
        KERAS_DISTRIBUTION_PROCESS_ID=0 python tools/verify_processes.py --join --store FOLDER
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attention import (
    Adam,
    LabelSmoothedCrossentropy,
    LearningRateSchedule,
    TokenBatches,
    Tokenizer,
    TokenStore,
    Transformer,
    load_corpus,
)
from keras_attention.training.distribution import Strategy, distribution_scope

TOLERANCE = 1e-5


def main() -> None:
    """Train in one process and in several; print the losses side by side."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--accumulation-steps", type=int, default=2)
    parser.add_argument("--store", type=Path, help="folder of token ids; made if absent")
    parser.add_argument(
        "--join", action="store_true", help="run as one of the processes that the environment names"
    )
    options = parser.parse_args()
    if options.join:
        print(json.dumps(train(options, "data_parallel")))
        return
    with tempfile.TemporaryDirectory() as folder:
        options.store = make_store(options.store or Path(folder) / "store")
        alone = train(options, None)
        together = train_together(options)
    losses = [found["losses"] for found in (alone, *together)]
    print(f"{'update':>6} {'1 process':>12} " + f"{options.processes} processes".rjust(12))
    for update, (one, many) in enumerate(zip(*losses[:2], strict=True), start=1):
        print(f"{update:>6} {one:>12.7f} {many:>12.7f}")
    far = {name: max(difference(found, alone, name) for found in together) for name in alone}
    for name, largest in far.items():
        print(f"Largest relative difference of the {name}: {largest:.1e}; {TOLERANCE:.0e} expected")
    sys.exit(max(far.values()) > TOLERANCE)


def difference(found: dict[str, Any], expected: dict[str, Any], name: str) -> float:
    """Return the norm of the difference of two lists of numbers, relative to the norm of the second."""
    ours, theirs = np.array(found[name]), np.array(expected[name])
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


def make_store(folder: Path) -> Path:
    """Return the demo corpus' validation set as token ids."""
    text = load_corpus("demo").validation
    tokenizer = Tokenizer.train([*text.sources(), *text.targets()], vocabulary_size=500)
    return TokenStore.build(folder, text, tokenizer).folder


def train(options: argparse.Namespace, strategy: Strategy | None) -> dict[str, list[float]]:
    """Train; return the loss of every update, and all weights."""
    with distribution_scope(strategy) as devices:
        rows = options.processes * options.accumulation_steps
        batches = TokenBatches(
            # One shape of batches, to compile once.
            TokenStore(options.store),
            1024,
            seed=1,
            num_replicas=rows,
            length_multiple=64,
        )
        model = Transformer(
            batches.vocabulary_size,
            num_layers=1,
            hidden_dim=8,
            intermediate_dim=12,
            num_heads=2,
            dropout=0.1 if keras.backend.backend() == "jax" else 0.0,
            seed=3,
        )
        optimizer = Adam(LearningRateSchedule(model.hidden_dim, warmup_steps=4))
        model.compile(
            optimizer,
            LabelSmoothedCrossentropy(),
            accumulation_steps=options.accumulation_steps,
        )
        losses = LossOfEveryUpdate(options.updates)
        # Each process reads its own rows of every batch; all of them stop at the same update.
        own = batches.shard(devices.process_index, devices.num_processes)
        model.fit(own, shuffle=False, verbose=0, callbacks=[losses])
        weights = np.concatenate([weight.ravel() for weight in model.get_weights()]).tolist()
    return {"losses": losses.losses, "weights": weights}


def train_together(options: argparse.Namespace) -> list[dict[str, list[float]]]:
    """Train in several processes over loopback; return the report of each."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = [sys.executable, __file__, "--join", "--store", str(options.store)]
    for name in ("processes", "updates", "accumulation_steps"):
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    started = []
    flags = os.environ.get("XLA_FLAGS", "")
    try:
        for index in range(options.processes):
            environment = {
                **os.environ,
                "JAX_PLATFORMS": "cpu",
                "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=1",
                "KERAS_DISTRIBUTION_JOB_ADDRESSES": f"127.0.0.1:{port}",
                "KERAS_DISTRIBUTION_NUM_PROCESSES": str(options.processes),
                "KERAS_DISTRIBUTION_PROCESS_ID": str(index),
                # PyTorch's.
                "RANK": str(index),
                "LOCAL_RANK": str(index),
                "WORLD_SIZE": str(options.processes),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            started.append(
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            )
        outputs = [process.communicate(timeout=600)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    if any(process.returncode for process in started):
        raise RuntimeError("A process failed; its message stands above.")
    return [json.loads(output.splitlines()[-1]) for output in outputs]


class LossOfEveryUpdate(keras.callbacks.Callback):
    """Keeps the loss of each update, not its mean over the epoch, and stops after `updates` updates."""

    def __init__(self, updates: int):
        super().__init__()
        self.updates = updates
        self.losses: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.model.reset_metrics()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.losses.append(float(logs["loss"]))
        if len(self.losses) == self.updates:
            self.model.stop_training = True


if __name__ == "__main__":
    main()
