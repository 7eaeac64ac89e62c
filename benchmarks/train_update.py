"""How fast is training, compared with other programs and with what the machine can do?

Trains the same model from the same weights on the same batches: this package on each installed backend,
through `compile` and `fit`, and its peers. Each program has its own process, and they take turns. Before
anything is timed, the losses of one batch without dropout are compared. Large matrix products take turns with
the programs; their speed is the upper limit.

    python benchmarks/train_update.py                         # base, 64 pairs of 32 tokens, float32
    python benchmarks/train_update.py --dtype mixed_bfloat16 --record --plot run.png
    python benchmarks/train_update.py --workload small --data-dir multi30k     # whole epochs
    python benchmarks/train_update.py --against weighted     # the cost of branches
    python benchmarks/train_update.py --baseline ../before --against none      # another checkout of ours
    python benchmarks/train_update.py --workload paper --batch-tokens 25000 --backends jax \\
        --dtype mixed_bfloat16 --peak-tflops 989              # a GPU; no TensorFlow needed

Peers (`--against`): hf is Marian of Hugging Face transformers, and torch is torch.nn.Transformer, both with
PyTorch's fused Adam. kerashub is KerasHub's layers on each of our backends, on TensorFlow without XLA;
kerashub-xla has XLA, Keras' own choice. Peers that are not installed are named. `--against weighted` is our
Weighted Transformer, with a branch for each head.
"""

import argparse
import dataclasses
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import (
    Outcome,
    Spec,
    Worker,
    best_ceiling,
    compare,
    missing_text,
    plot_ratios,
    run_facts,
    split_by_presence,
    table,
    write_json,
)
from harness.compare import differing_output
from harness.machine import usable_cpus
from peers.backends import BACKENDS
from peers.training.profiles import profile_text
from peers.training.subjects import PEERS, ceilings, is_ours, subjects
from peers.training.workloads import (
    WORKLOADS,
    Workload,
    chosen_workload,
    make_batches,
    workload_text,
)
from peers.weights import Sizes
from records import record_path

UPDATES = 100_000  # Of the paper's base model.


def main(arguments: list[str] | None = None) -> int:
    """Compare and print; returns 1 if one of our own subjects has failed."""
    options = parse(arguments)
    workload = chosen_workload(options)
    facts = run_facts()
    print(f"{workload_text(options, workload)}\n{machine_text(facts, options)}\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batches.npz"
        workload, data = make_batches(options, workload, path)
        present, missing = split_by_presence(subjects(options, workload, path))
        if missing:
            print(missing_text(missing), flush=True)
        if options.profile:
            return print_profile(present, options)
        tolerance = 1e-4 if options.dtype == "float32" else 2e-2
        outcomes = compare(
            [*present, *ceilings(options, present)],
            workload.rounds,
            workload.count,
            threads=options.threads,
            prepare_limit=options.time_limit,
            run_limit=options.time_limit,
            differing=lambda one, other: differing_output(one, other, tolerance),
            check_after=True,
            log=lambda text: print(text, file=sys.stderr, flush=True),
        )
    report(options, workload, data, facts, outcomes)
    ours = [outcome for outcome in outcomes if is_ours(outcome)]
    return int(any(outcome.failure for outcome in ours) or not outcomes)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--workload", choices=WORKLOADS, default="base")
    add(
        "--against",
        type=names(PEERS),
        default=tuple(name for name in PEERS if name != "weighted"),
        metavar="LIST",
        help=f"of {', '.join(PEERS)}, or none",
    )
    add(
        "--backends",
        type=names(tuple(BACKENDS)),
        metavar="LIST",
        help="ours; default: all installed",
    )
    add(
        "--baseline",
        type=Path,
        metavar="DIR",
        help="another checkout of this package, which takes turns with this one",
    )
    add("--dtype", choices=("float32", "mixed_bfloat16"), default="float32")
    add("--rounds", type=int, help="number of rounds; each program has one turn per round")
    add("--count", type=int, help="updates or epochs per turn")
    add("--threads", type=int, help="CPUs of each process; default: all")
    add("--time-limit", type=float, default=900.0, help="seconds for any one step of a subject")
    data = parser.add_argument_group("the batches")
    data.add_argument("--pairs", type=int, default=64, help="base: pairs per batch")
    data.add_argument("--length", type=int, default=32, help="base: tokens per sentence")
    data.add_argument(
        "--data-dir", help="small: folder of the real Multi30K; default: similar random ids"
    )
    data.add_argument(
        "--batch-tokens", type=int, help="small, paper: positions on each side of a batch"
    )
    data.add_argument("--epoch-pairs", type=int, help="small, paper: pairs per epoch; 0 for all")
    data.add_argument("--max-shapes", type=int, help="small, paper: most batch shapes")
    data.add_argument(
        "--num-batches", type=int, default=0, help="small, paper: only the first N batches"
    )
    model = parser.add_argument_group("the model")
    for field in dataclasses.fields(Sizes):
        option = f"--{field.name.replace('_', '-')}"
        model.add_argument(option, type=float if field.name == "dropout" else int)
    model.add_argument("--accumulation-steps", type=int, default=1, help="ours")
    model.add_argument("--jit-compile", choices=("true", "false", "auto"), help="ours")
    results = parser.add_argument_group("results")
    results.add_argument(
        "--ceiling-size",
        type=int,
        default=2048,
        help="size of the square matrix products; 0 for none",
    )
    results.add_argument("--peak-tflops", type=float, help="peak of the data sheet, for the MFU")
    results.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    results.add_argument(
        "--record",
        action="store_true",
        help="also write a record to benchmarks/results/, for the tables",
    )
    results.add_argument(
        "--profile",
        action="store_true",
        help="instead, show where our package spends its time on TensorFlow and PyTorch",
    )
    results.add_argument("--plot", type=Path, metavar="FILE.png")
    return parser.parse_args(arguments)


def names(known: tuple[str, ...]) -> Any:
    """Return a parser of a comma list of known names; "none" is the empty one."""

    def parsed(text: str) -> tuple[str, ...]:
        chosen = tuple(part.strip() for part in text.split(",") if part.strip() not in ("", "none"))
        if unknown := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown)}; known: {', '.join(known)}, or none"
            )
        return chosen

    return parsed


def machine_text(facts: dict[str, Any], options: argparse.Namespace) -> str:
    """One line on where, when and with what."""
    cpu, versions = facts["cpu"], ", ".join(f"{n} {v}" for n, v in facts["versions"].items())
    device = ", ".join(facts["gpus"]) or f"{cpu['model']}, {options.threads or usable_cpus()} CPUs"
    return f"{device} ({' '.join(cpu['flags'])}); {facts['started']}; {versions}"


def report(
    options: argparse.Namespace,
    workload: Workload,
    data: dict[str, Any],
    facts: dict[str, Any],
    outcomes: list[Outcome],
) -> None:
    """Table, notes and files."""
    peak = options.peak_tflops and options.peak_tflops * 1e12
    ceiling = peak or best_ceiling(outcomes)
    rates = {"tokens": ("tokens/s", 1.0), "flop": ("GFLOP/s", 1e9)}
    ours = [outcome.spec.name for outcome in outcomes if is_ours(outcome)]
    print(table(outcomes, rates, workload.unit, ceiling, ratio_to=ours))
    print("\n" + "\n".join(notes(outcomes, data)))
    case = case_of(options, workload)
    record = record_path("train_update", case, facts) if options.record else None
    for path in filter(None, (options.json, record)):
        more = {
            "benchmark": "train_update",
            "case": case,
            "source": "measured",
            "workload": dataclasses.asdict(workload),
            "data": data,
            "ceiling_flop_per_s": ceiling,
            "options": {name: str(value) for name, value in vars(options).items()},
        }
        write_json(path, facts, outcomes, **more)
    if options.plot:
        title = f"{workload_text(options, workload)}\n{machine_text(facts, options).split(';')[0]}"
        peers = [o.spec.name for o in outcomes if not o.failure and o.spec.name == "HF Marian"]
        rate = ("tokens", "tokens/s (source + target)", 1.0)
        plot_ratios(options.plot, outcomes, rate, title, (peers or ours or [""])[0])


def print_profile(specs: list[Spec], options: argparse.Namespace) -> int:
    """Print what ours spend an update's time on, and how fast their products are."""
    ours = [spec for spec in specs if spec.target.startswith("peers.training.ours:")]
    ours = [spec for spec in ours if "jax" not in spec.requires]
    limit, count = options.time_limit, options.count or 20
    for spec in ours:
        ceiling = None
        for large in ceilings(options, [spec])[:1]:
            with worker_of(large, options) as worker:
                flop = worker.call("prepare", limit)["work"]["flop"]
                ceiling = flop / statistics.median(worker.call("run", limit, count=5)["seconds"])
        with worker_of(spec, options) as worker:
            flop = worker.call("prepare", limit)["work"]["flop"]
            worker.call("run", limit, count=4)  # The first compiles.
            found = worker.call("profile", limit, count=count)
        print(f"{spec.name}: {profile_text(found, flop, ceiling)}\n", flush=True)
    return int(not ours)


def worker_of(spec: Spec, options: argparse.Namespace) -> Worker:
    """Return a process of the subject."""
    return Worker(spec.target, spec.options, spec.environment, options.threads, options.time_limit)


def case_of(options: argparse.Namespace, workload: Workload) -> dict[str, Any]:
    """Return what was measured; with sizes of one's own it is a case of its own."""
    case: dict[str, Any] = {"workload": options.workload, "dtype": options.dtype}
    if workload.unit == "update":
        case |= {"pairs": options.pairs, "length": options.length}
    named = dataclasses.asdict(WORKLOADS[options.workload].sizes)
    sizes = dataclasses.asdict(workload.sizes)
    if workload.unit == "epoch":
        sizes["vocabulary_size"] = named["vocabulary_size"]  # Real text may have fewer pieces.
    other = {name: value for name, value in sizes.items() if value != named[name]}
    return {**case, **other}


def notes(outcomes: list[Outcome], data: dict[str, Any]) -> list[str]:
    """Return what the table does not say: the data, the losses, what differs, hours of a whole training."""
    lines = [", ".join(f"{name} {value}" for name, value in data.items())]
    for outcome in outcomes:
        if outcome.failure or outcome.spec.is_ceiling:
            continue
        facts, parts = outcome.facts, []
        if "loss" in outcome.outputs:
            parts.append(f"loss {outcome.outputs['loss']:.4f}")
        if "loss" in outcome.outputs_after:
            parts.append(f"at the end {outcome.outputs_after['loss']:.4f}")
        if facts["work"].get("updates", 1) > 1:
            hours = UPDATES * outcome.seconds.median / facts["work"]["updates"] / 3600
            parts.append(f"{UPDATES:,} such updates would take {hours:,.2f} hours")
        device_peak = outcome.memory.get("device_peak_bytes")
        parts += [f"peak of the GPU {device_peak / 2**30:.2f} GiB"] if device_peak else []
        parts += [facts["differs"]] if "differs" in facts else []
        if parts:
            lines.append(f"{outcome.spec.name}: {'; '.join(parts)}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
