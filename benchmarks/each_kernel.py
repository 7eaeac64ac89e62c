"""What does each kernel save? The time of an update without it, divided by the time with all.

    KERAS_BACKEND=torch python benchmarks/each_kernel.py tiny
    KERAS_BACKEND=torch python benchmarks/each_kernel.py base --rounds 9 --names linear dropout

Updates with and without a kernel take turns in one process. Times are those of the processor (on PyTorch on
one thread). Single pairs spread by a fifth: what is near 1 for all workloads, in several runs, need not be.
"""

import argparse
import statistics
import sys
import time
from typing import Any

import keras
import numpy as np

from keras_attention import Adam, LabelSmoothedCrossentropy, Transformer
from keras_attention.ops import dispatch
from keras_attention.ops.reference import DEFINITIONS

# Where kernels and definitions themselves stand.
OWN = ("keras_attention.ops.reference", "keras_attention.ops.backends")
# Updates a turn, rows of a batch, tokens of a row, and the model.
WORKLOADS: dict[str, tuple[int, int, int, dict[str, Any]]] = {
    "base": (1, 32, 32, {"vocabulary_size": 8000, "num_layers": 1}),
    "tiny": (
        3,
        64,
        24,
        {
            "vocabulary_size": 2000,
            "num_layers": 2,
            "hidden_dim": 128,
            "intermediate_dim": 512,
            "num_heads": 4,
        },
    ),
    "small": (
        10,
        2,
        8,
        {
            "vocabulary_size": 1000,
            "num_layers": 6,
            "hidden_dim": 64,
            "intermediate_dim": 128,
            "num_heads": 4,
        },
    ),
}


class Batches(keras.utils.PyDataset):
    """The same random batch, some times."""

    def __init__(self, count: int, rows: int, length: int, vocabulary_size: int):
        super().__init__()
        rng = np.random.default_rng(0)
        source, target, labels = rng.integers(2, vocabulary_size, (3, rows, length), dtype="int32")
        self.batch = ({"encoder_token_ids": source, "decoder_token_ids": target}, labels)
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.batch


def main() -> None:
    """Measure and print a line for each kernel."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--names", nargs="+", default=sorted(dispatch.kernels()))
    parser.add_argument("--attention-dropout", type=float, default=0.0)
    parser.add_argument("--vocabulary-size", type=int, help="another one than the workload's")
    parser.add_argument("--dtype", default="float32", help="or mixed_bfloat16")
    options = parser.parse_args()
    keras.config.set_dtype_policy(options.dtype)
    backend = keras.backend.backend()
    if backend == "torch":
        import torch

        torch.set_num_threads(1)
    count, rows, length, size = WORKLOADS[options.workload]
    size["vocabulary_size"] = options.vocabulary_size or size["vocabulary_size"]
    batches = Batches(count, rows, length, size["vocabulary_size"])

    def compiled() -> Transformer:
        model = Transformer(**size, attention_dropout=options.attention_dropout, seed=1)
        model.compile(Adam(1e-4), LabelSmoothedCrossentropy(0.1))
        return model

    def seconds(model: Transformer, without: str = "") -> float:
        choose(without)
        start = time.process_time()
        model.fit(batches, verbose=0)
        return (time.process_time() - start) / count

    whole = compiled()
    seconds(whole)
    for name in options.names:
        lacking = compiled()  # A compiled update keeps the kernels of its first one.
        seconds(lacking, name)
        turns = [(seconds(whole), seconds(lacking, name)) for _ in range(options.rounds)]
        ratios = [without / with_all for with_all, without in turns]
        print(
            f"{backend}, {options.workload}, {name}: {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f}) of {statistics.median(x for x, _ in turns):.3f} s",
            flush=True,
        )


def choose(without: str) -> None:
    """Have all operations call their kernels, but one its definition."""
    for name, kernel in dispatch.kernels().items():
        both = kernel, DEFINITIONS[name]
        for module_name, module in list(sys.modules.items()):
            is_caller = module_name.startswith("keras_attention.")
            if is_caller and not module_name.startswith(OWN) and vars(module).get(name) in both:
                setattr(module, name, both[name == without])


if __name__ == "__main__":
    main()
