"""What is the peak memory of an update, for this package and for Hugging Face's Marian?

The programs run one after the other, each in its own process, and train two updates on the same batch. The
peak is the kernel's high-water mark of the process, Python and libraries included. Our package runs plainly,
with blocks recomputed, and in slices.

    python benchmarks/peak_memory.py                                # base, 25,000 + 25,000 tokens, bfloat16
    python benchmarks/peak_memory.py --dtype float32 --tokens 4000 --layers 2   # minutes less
    KERAS_BACKEND=jax python benchmarks/peak_memory.py --variants plain
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import SubjectFailed, Worker, add_record_option, run_facts, write_record
from peers.backends import keras_environment
from peers.training.batches import random_batch, write_batches
from peers.weights import Sizes

# Class and its options; Marian first, so that the others can be set against it.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "hf": ("Marian", {}),
    "plain": ("KerasAttention", {}),
    "recompute": ("KerasAttention", {"model_options": {"recompute": True}}),
    "sliced": ("KerasAttention", {"accumulation_steps": 4}),
    "weighted": ("WeightedTransformer", {}),
}
BASE = Sizes(37_000, 6, 512, 2048, 8)


def main() -> int:
    """Measure and print; returns 1 if a program of ours has failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    variants = "hf: Marian, in PyTorch; weighted: ours with a branch for each head"
    add("--variants", nargs="+", choices=VARIANTS, default=[*VARIANTS][:4], help=variants)
    add("--dtype", choices=("float32", "mixed_bfloat16"), default="mixed_bfloat16")
    add("--tokens", type=int, default=25_000, help="tokens on each side of a batch")
    add("--length", type=int, default=32, help="tokens per sentence")
    add("--layers", type=int, default=BASE.num_layers)
    add("--hidden-dim", type=int, default=BASE.hidden_dim)
    add("--vocabulary-size", type=int, default=BASE.vocabulary_size)
    add("--updates", type=int, default=2, help="the first compiles")
    add("--time-limit", type=float, default=7200.0, help="seconds per program")
    add_record_option(parser)
    options = parser.parse_args()
    pairs = options.tokens // options.length // 4 * 4  # Slices have as many rows each.
    if pairs < 1:
        parser.error("--tokens must be at least four times --length.")
    width, heads = options.hidden_dim, max(1, options.hidden_dim // 64)
    sizes = Sizes(options.vocabulary_size, options.layers, width, 4 * width, heads)
    backend, facts = os.environ.get("KERAS_BACKEND", "tensorflow"), run_facts()
    print(f"{pairs} pairs of {options.length} + {options.length} tokens, {sizes}, {backend}\n")
    heads_of_table = ("", "peak GiB", "of it libraries", "an update s", "of Marian's")
    print(("{:<28}" + "{:>18}" * 4).format(*heads_of_table))
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batches.npz"
        batch = random_batch(pairs, options.length, sizes.vocabulary_size, seed=1)
        write_batches(path, [batch], {})
        given = {"sizes": sizes.as_options(), "batches": str(path), "dtype": options.dtype}
        for variant in filter(options.variants.__contains__, VARIANTS):
            found[variant] = measured(variant, given, options, backend)
            print(f"{variant:<28}{text_of(found[variant], found.get('hf', {}))}", flush=True)
    case = {"model": "base", "dtype": options.dtype, "tokens": options.tokens}
    case |= {"backend": backend} if backend != "tensorflow" else {}
    case |= dict(sizes.as_options().items() - BASE.as_options().items())
    peaks = {
        name: each["peak_bytes"] / 2**30 for name, each in found.items() if "failure" not in each
    }
    figures = {**peaks, "details": found}
    write_record(options.record, facts, "peak_memory", case, figures=figures)
    return int(any("failure" in found[variant] for variant in found if variant != "hf"))


def measured(
    variant: str, given: dict[str, Any], options: argparse.Namespace, backend: str
) -> dict[str, Any]:
    """Bytes and seconds of a variant, or why it failed."""
    name, own = VARIANTS[variant]
    target, limit = f"peers.training.programs:{name}", options.time_limit
    try:
        with Worker(target, {**given, **own}, keras_environment(backend), None, limit) as worker:
            worker.call("prepare", limit)
            ran = worker.call("run", limit, count=options.updates)
            libraries = worker.started["resident_bytes"]
    except SubjectFailed as failure:
        return {"failure": str(failure)}
    peak = ran["memory"]["peak_bytes"]
    return {"peak_bytes": peak, "libraries_bytes": libraries, "seconds": ran["seconds"]}


def text_of(found: dict[str, Any], marian: dict[str, Any]) -> str:
    """Return the figures of a line of the table."""
    if "failure" in found:
        return f"failed: {found['failure'].splitlines()[0]}"
    cells = [found["peak_bytes"] / 2**30, found["libraries_bytes"] / 2**30, found["seconds"][-1]]
    cells += [found["peak_bytes"] / marian["peak_bytes"]] if "peak_bytes" in marian else []
    return "".join(f"{cell:>18.2f}" for cell in cells)


if __name__ == "__main__":
    sys.exit(main())
