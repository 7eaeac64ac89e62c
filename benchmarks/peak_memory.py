"""What is the peak memory of an update, for this package and for Hugging Face's Marian?

The programs run one after the other, each in its own process, and train two updates on the same batch. The
peak is the kernel's high-water mark of the process, Python and libraries included. Our package runs plainly,
with blocks recomputed, and in slices.

    python benchmarks/peak_memory.py                                # base, 25,000 + 25,000 tokens, bfloat16
    python benchmarks/peak_memory.py --dtype float32 --tokens 4000 --layers 2   # minutes less
    KERAS_BACKEND=jax python benchmarks/peak_memory.py --variants plain --json run.json
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import SubjectFailed, Worker, run_facts
from peers.backends import BACKENDS, keras_environment
from peers.training.batches import random_batch, write_batches
from records import record_path, write_figures

VARIANTS = ("plain", "recompute", "sliced", "hf", "weighted")
VARIANTS_HELP = "hf: Marian, in PyTorch; weighted: ours with a branch for each head"


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; returns 1 if a program of ours has failed."""
    options = parse(arguments)
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    pairs = options.tokens // options.length
    pairs -= pairs % options.slices  # Slices have as many rows each.
    if pairs < 1:
        print(
            f"--tokens must be at least --length times --slices: {options.length * options.slices}"
        )
        return 2
    print(
        f"{pairs} pairs of {options.length} + {options.length} tokens, {options.layers} + "
        f"{options.layers} layers, V {options.vocabulary_size:,}, {options.dtype}; {BACKENDS[backend]}\n"
    )
    header = (
        "",
        "peak GiB",
        "of it libraries",
        "an update s",
        "of HF Marian's",
    )
    print(("{:<28}" + "{:>18}" * 4).format(*header))
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batches.npz"
        batch = random_batch(pairs, options.length, options.vocabulary_size, seed=1)
        write_batches(path, [batch], {})
        # Marian first, so that the others can be set against it.
        for variant in sorted(options.variants, key=("hf", *VARIANTS).index):
            figures[variant] = measured(variant, options, backend, path)
            print(row(variant, figures, options), flush=True)
    facts, case = run_facts(), case_of(options, backend)
    peaks = {n: f["peak_bytes"] / 2**30 for n, f in figures.items() if "peak_bytes" in f}
    record = record_path("peak_memory", case, facts) if options.record else None
    write_figures(facts, "peak_memory", case, {**peaks, "details": figures}, (options.json, record))
    return int(any("failure" in figures[variant] for variant in figures if variant != "hf"))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the command line; the defaults are the paper's base model and update."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--variants", nargs="+", choices=VARIANTS, default=VARIANTS[:4], help=VARIANTS_HELP)
    add("--dtype", choices=("float32", "mixed_bfloat16"), default="mixed_bfloat16")
    add("--tokens", type=int, default=25_000, help="tokens on each side of a batch")
    add("--length", type=int, default=32, help="tokens per sentence")
    add("--slices", type=int, default=4, help="accumulation steps of the sliced variant")
    add("--layers", type=int, default=6)
    add("--hidden-dim", type=int, default=512)
    add("--vocabulary-size", type=int, default=37_000)
    add("--updates", type=int, default=2, help="the first compiles")
    add("--time-limit", type=float, default=7200.0, help="seconds per program")
    add("--json", type=Path, metavar="FILE", help="write all figures to this file")
    add("--record", action="store_true", help="also write a record to benchmarks/results/")
    return parser.parse_args(arguments)


def case_of(options: argparse.Namespace, backend: str) -> dict[str, Any]:
    """Return what was measured; with sizes of one's own, or on another backend, it is a case of its own."""
    case = {"model": "base", "dtype": options.dtype, "tokens": options.tokens}
    base = {"vocabulary_size": 37_000, "num_layers": 6, "hidden_dim": 512}
    case |= {
        name: value for name, value in sizes(options).items() if base.get(name, value) != value
    }
    return case if backend == "tensorflow" else {**case, "backend": backend}


def sizes(options: argparse.Namespace) -> dict[str, Any]:
    """Return the paper's proportions: heads of width 64, feed-forward networks four times as wide."""
    return {
        "vocabulary_size": options.vocabulary_size,
        "num_layers": options.layers,
        "hidden_dim": options.hidden_dim,
        "intermediate_dim": 4 * options.hidden_dim,
        "num_heads": max(1, options.hidden_dim // 64),
    }


def measured(variant: str, options: argparse.Namespace, backend: str, path: Path) -> dict[str, Any]:
    """Bytes and seconds of a variant, or why it failed."""
    arguments = {"sizes": sizes(options), "batches": str(path), "dtype": options.dtype}
    target, environment = "peers.training.ours:KerasAttention", keras_environment(backend)
    if variant == "hf":
        target, environment = "peers.training.huggingface:Marian", {}
    elif variant == "recompute":
        arguments["model_options"] = {"recompute": True}
    elif variant == "weighted":
        target = "peers.training.ours:WeightedTransformer"
    elif variant == "sliced":
        arguments["accumulation_steps"] = options.slices
    try:
        with Worker(target, arguments, environment, time_limit=options.time_limit) as worker:
            worker.call("prepare", options.time_limit)
            ran = worker.call("run", options.time_limit, count=options.updates)
            libraries = worker.started["resident_bytes"]
    except SubjectFailed as failure:
        return {"failure": str(failure)}
    return {
        "peak_bytes": ran["memory"]["peak_bytes"],
        "libraries_bytes": libraries,
        "seconds": ran["seconds"],
    }


def row(variant: str, figures: dict[str, Any], options: argparse.Namespace) -> str:
    """Return a line of the table."""
    names = {"hf": "HF Marian", "sliced": f"accumulation_steps={options.slices}"}
    name, found = names.get(variant, variant), figures[variant]
    if "failure" in found:
        return f"{name:<28}failed: {found['failure'].splitlines()[0]}"
    cells = [found["peak_bytes"] / 2**30, found["libraries_bytes"] / 2**30, found["seconds"][-1]]
    line = f"{name:<28}" + "".join(f"{cell:>18.2f}" for cell in cells)
    if variant != "hf" and "peak_bytes" in figures.get("hf", {}):
        line += f"{found['peak_bytes'] / figures['hf']['peak_bytes']:>18.2f}"
    return line


if __name__ == "__main__":
    sys.exit(main())
