"""How fast is training, compared with other programs and with what the machine can do?

Trains the same model from the same weights on the same batches: this package on each installed backend,
through `compile` and `fit`, and its peers. Each program has its own process, and they take turns. Before
anything is timed, the losses of one batch without dropout are compared. Large matrix products take turns with
the programs; their speed is the upper limit.

    python benchmarks/train_update.py                         # base, 64 pairs of 32 tokens, float32
    python benchmarks/train_update.py --dtype mixed_bfloat16 --record
    python benchmarks/train_update.py --workload small --data-dir multi30k     # whole epochs
    python benchmarks/train_update.py --against weighted     # the cost of branches
    python benchmarks/train_update.py --baseline ../before --against none      # another checkout of ours
    python benchmarks/train_update.py --workload paper --batch-tokens 25000 --backends jax \\
        --dtype mixed_bfloat16 --peak-tflops 989              # a GPU; no TensorFlow needed

Peers (`--against`): hf is Marian of Hugging Face transformers, with PyTorch's fused Adam. kerashub is
KerasHub's layers on each of our backends, on TensorFlow without XLA, which on a CPU is often the slower one.
Peers that are not installed are named. weighted is our Weighted Transformer, with a branch for each head.
"""

import argparse
import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import (
    Outcome,
    Spec,
    Worker,
    add_record_option,
    best_ceiling,
    compare,
    comparison,
    installed,
    run_facts,
    table,
    write_record,
)
from harness.compare import differing_output
from harness.records import usable_cpus
from peers.backends import BACKENDS, installed_backends, keras_environment, keras_spec
from peers.training.batches import random_batch, write_batches
from peers.weights import Sizes

PEERS = ("hf", "kerashub", "weighted")
PROGRAMS = "peers.training.programs"
UPDATES = 100_000  # Of the paper's base model.


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is trained, on what, and how it is timed."""

    sizes: Sizes
    unit: str
    rounds: int
    count: int
    batch_tokens: int = 0
    epoch_pairs: int = 0
    max_shapes: int = 24
    lengths: str = "multi30k"


BASE = Sizes(37_000, 6, 512, 2048, 8)
WORKLOADS = {
    "base": Workload(BASE, "update", rounds=5, count=2),
    "tiny": Workload(Sizes(2_000, 2, 128, 512, 4), "update", rounds=5, count=20),
    # The preset `small` with Multi30K's vocabulary; `small` below is wider, as records have it.
    "small_update": Workload(Sizes(5_000, 4, 128, 256, 4, 0.3), "update", rounds=5, count=10),
    "small": Workload(Sizes(8_000, 4, 256, 1024, 4), "epoch", 3, 1, 3_000, 4_000),
    "paper": Workload(BASE, "epoch", 3, 1, 25_000, 40_000, max_shapes=8, lengths="wmt"),
}


def main(arguments: list[str] | None = None) -> int:
    """Compare and print; returns 1 if one of our own subjects has failed."""
    options = parse(arguments)
    workload = chosen_workload(options)
    facts = run_facts()
    cpu, versions = facts["cpu"], ", ".join(f"{n} {v}" for n, v in facts["versions"].items())
    device = ", ".join(facts["gpus"]) or f"{cpu['model']}, {options.threads or usable_cpus()} CPUs"
    print(workload_text(options, workload))
    print(f"{device} ({' '.join(cpu['flags'])}); {facts['started']}; {versions}\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batches.npz"
        workload, data = make_batches(options, workload, path)
        present = installed(subjects(options, workload, path))
        tolerance = 1e-4 if options.dtype == "float32" else 2e-2
        outcomes = compare(
            [*present, *ceilings(options, present)],
            workload.rounds,
            workload.count,
            # PyTorch's compiled update of a shape is made at its second batch.
            warmup=2 if workload.unit == "update" else 1,
            threads=options.threads,
            time_limit=options.time_limit,
            differing=lambda one, other: differing_output(one, other, tolerance),
        )
    peak = options.peak_tflops and options.peak_tflops * 1e12
    ceiling = peak or best_ceiling(outcomes)
    rates = {"tokens": ("tokens/s", 1.0), "flop": ("GFLOP/s", 1e9)}
    ours = [outcome for outcome in outcomes if is_ours(outcome)]
    names = [outcome.spec.name for outcome in ours]
    print(table(outcomes, rates, workload.unit, ceiling, ratio_to=names))
    print("\n" + "\n".join(notes(outcomes, data)))
    write_record(
        options.record,
        facts,
        "train_update",
        case_of(options, workload),
        **comparison(outcomes),
        workload=dataclasses.asdict(workload),
        data=data,
        ceiling_flop_per_s=ceiling,
    )
    return int(any(outcome.failure for outcome in ours) or not outcomes)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--workload", choices=WORKLOADS, default="base")
    against, chosen = f"of {', '.join(PEERS)}, or none", "ours; default: all installed"
    add("--against", type=names(PEERS), default=("hf", "kerashub"), metavar="LIST", help=against)
    add("--backends", type=names(tuple(BACKENDS)), metavar="LIST", help=chosen)
    add(
        "--baseline", type=Path, metavar="DIR", help="another checkout, which takes turns with this"
    )
    add("--dtype", choices=("float32", "mixed_bfloat16"), default="float32")
    add("--rounds", type=int, help="number of rounds; each program has one turn per round")
    add("--count", type=int, help="updates or epochs per turn")
    add("--threads", type=int, help="CPUs of each process; default: all")
    add("--time-limit", type=float, default=900.0, help="seconds for any one step of a subject")
    add("--ceiling-size", type=int, default=2048, help="of the square matrix products; 0 for none")
    add("--peak-tflops", type=float, help="peak of the data sheet, for the MFU")
    add_record_option(parser)
    add = parser.add_argument_group("the batches").add_argument
    add("--pairs", type=int, default=64, help="updates: pairs per batch")
    add("--length", type=int, default=32, help="updates: tokens per sentence")
    add("--data-dir", help="small: folder of the real Multi30K; default: similar random ids")
    add("--batch-tokens", type=int, help="epochs: positions on each side of a batch")
    add("--epoch-pairs", type=int, help="epochs: pairs; 0 for all")
    add("--max-shapes", type=int, help="epochs: most batch shapes")
    add("--num-batches", type=int, default=0, help="epochs: only the first N batches")
    add = parser.add_argument_group("the model").add_argument
    for field in dataclasses.fields(Sizes):
        option = f"--{field.name.replace('_', '-')}"
        add(option, type=float if field.name == "dropout" else int)
    add("--accumulation-steps", type=int, default=1, help="ours")
    add("--jit-compile", choices=("true", "false", "auto"), help="ours; true: hf, too")
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


def chosen_workload(options: argparse.Namespace) -> Workload:
    """Return the named workload with what the command line replaces."""
    workload = WORKLOADS[options.workload]

    def given(kind: type) -> dict[str, Any]:
        found = {
            field.name: getattr(options, field.name, None) for field in dataclasses.fields(kind)
        }
        return {name: value for name, value in found.items() if value is not None}

    sizes = dataclasses.replace(workload.sizes, **given(Sizes))
    return dataclasses.replace(workload, sizes=sizes, **given(Workload))


def workload_text(options: argparse.Namespace, workload: Workload) -> str:
    """One line on what is trained."""
    s, what = workload.sizes, f"updates of {options.pairs} pairs x {options.length} tokens"
    if workload.unit == "epoch":
        what = f"epochs of batches of {workload.batch_tokens:,} positions a side"
    layers = f"{s.num_layers}+{s.num_layers} layers of {s.hidden_dim}/{s.intermediate_dim}"
    return f"{layers}, V {s.vocabulary_size:,}, {options.dtype}; {what}"


def make_batches(
    options: argparse.Namespace, workload: Workload, path: Path
) -> tuple[Workload, dict[str, Any]]:
    """Write the batches; returns the workload with the vocabulary that they have, and their facts."""
    size = workload.sizes.vocabulary_size
    if workload.unit == "update":
        data = {"data": "random ids", "pairs": options.pairs, "length": options.length}
        batches = [random_batch(options.pairs, options.length, size, seed) for seed in range(4)]
        write_batches(path, batches, data)
        return workload, data
    maker = {
        "path": str(path),
        "vocabulary_size": size,
        "batch_tokens": workload.batch_tokens,
        "pairs": workload.epoch_pairs,
        "lengths": workload.lengths,
        "data_dir": options.data_dir,
        "max_shapes": workload.max_shapes,
        "length_multiple": 8 if options.workload == "paper" else 1,
        "num_batches": options.num_batches,
    }
    environment = keras_environment(installed_backends()[0])
    with Worker("peers.training.batches:BatchMaker", maker, environment) as worker:
        data = worker.call("prepare", options.time_limit)
    sizes = dataclasses.replace(workload.sizes, vocabulary_size=data["vocabulary_size"])
    return dataclasses.replace(workload, sizes=sizes), data


def subjects(options: argparse.Namespace, workload: Workload, path: Path) -> list[Spec]:
    """Ours first, of this checkout and of another, then the peers."""
    common = {
        "sizes": workload.sizes.as_options(),
        "batches": str(path),
        "unit": workload.unit,
        "dtype": options.dtype,
    }
    backends = options.backends
    if backends is None:
        lacks = ["tensorflow"] if options.workload == "paper" else []
        backends = [name for name in BACKENDS if name in installed_backends() and name not in lacks]
    ours = {**common, "accumulation_steps": options.accumulation_steps}
    if options.jit_compile:
        ours["jit_compile"] = {"true": True, "false": False}.get(options.jit_compile, "auto")
    specs = [
        keras_spec(
            f"keras_attention, {BACKENDS[each]}", each, f"{PROGRAMS}:KerasAttention", ours, checkout
        )
        for checkout in dict.fromkeys([None, options.baseline])
        for each in backends
    ]
    for peer in options.against:
        if peer == "hf":
            needs = {"torch": "torch", "transformers": "transformers"}
            specs.append(Spec("HF Marian", f"{PROGRAMS}:Marian", common, {}, needs))
            if options.jit_compile == "true":
                compiled = {**common, "jit_compile": True}
                specs.append(Spec("HF Marian, compiled", f"{PROGRAMS}:Marian", compiled, {}, needs))
            continue
        for each in backends:
            title, target, more, needs = "weighted", "WeightedTransformer", common, {}
            if peer == "kerashub":
                title, target, needs = "KerasHub", "KerasHub", {"keras_hub": "keras-hub"}
                more = {**common, "jit_compile": False if each == "tensorflow" else "auto"}
            target = f"{PROGRAMS}:{target}"
            specs.append(keras_spec(f"{title}, {BACKENDS[each]}", each, target, more, **needs))
    return specs


def ceilings(options: argparse.Namespace, present: list[Spec]) -> list[Spec]:
    """Return large products on each framework that runs."""
    dtype = "bfloat16" if options.dtype == "mixed_bfloat16" else "float32"
    used = {module for spec in present for module in spec.requires}
    return [
        Spec(
            f"GEMM {dtype}, {title}",
            "harness.gemm:Gemm",
            {"dtype": dtype, "size": options.ceiling_size},
            keras_environment(backend),
            is_ceiling=True,
        )
        for backend, title in BACKENDS.items()
        if backend in used and options.ceiling_size
    ]


def is_ours(outcome: Outcome) -> bool:
    """Whether a subject is this package."""
    return outcome.spec.target == f"{PROGRAMS}:KerasAttention"


def case_of(options: argparse.Namespace, workload: Workload) -> dict[str, Any]:
    """Return what was measured; with sizes of one's own it is a case of its own."""
    case: dict[str, Any] = {"workload": options.workload, "dtype": options.dtype}
    if workload.unit == "update":
        case |= {"pairs": options.pairs, "length": options.length}
    named = WORKLOADS[options.workload].sizes.as_options()
    sizes = workload.sizes.as_options()
    if workload.unit == "epoch":
        sizes["vocabulary_size"] = named["vocabulary_size"]  # Real text may have fewer pieces.
    return {**case, **{name: value for name, value in sizes.items() if value != named[name]}}


def notes(outcomes: list[Outcome], data: dict[str, Any]) -> list[str]:
    """Return what the table does not say: the data, the losses, what differs, hours of a whole training."""
    lines = [", ".join(f"{name} {value}" for name, value in data.items())]
    for outcome in outcomes:
        if outcome.failure or outcome.spec.is_ceiling:
            continue
        facts, parts = outcome.facts, []
        if "loss" in outcome.outputs:
            parts.append(f"loss {outcome.outputs['loss']:.4f}")
        if facts["work"].get("updates", 1) > 1:
            hours = UPDATES * outcome.seconds.median / facts["work"]["updates"] / 3600
            parts.append(f"{UPDATES:,} such updates would take {hours:,.2f} hours")
        if device_peak := outcome.memory.get("device_peak_bytes"):
            parts.append(f"peak of the GPU {device_peak / 2**30:.2f} GiB")
        parts += [facts["differs"]] if "differs" in facts else []
        lines.append(f"{outcome.spec.name}: {'; '.join(parts)}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
