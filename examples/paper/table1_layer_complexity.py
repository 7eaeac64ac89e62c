"""Measure the layers of the paper's Table 1: time, memory, sequential operations, path length.

The layers are self-attention (its core, and the whole layer), restricted self-attention, and Keras' LSTM
and convolutions (plain, dilated, separable), over n, d, k and r. This takes some minutes on a CPU. An
otherwise idle machine gives narrow intervals. A stopped measurement continues.

What to expect, written before the first run: in n, the exponent of the full core is 2, that of the
restricted core 1, and that of LSTM and convolutions 1. In d, LSTM and convolutions have 2; in k and r the
exponent is 1. A whole attention layer is below 2 in n, because its projections grow only linearly (1.91 by
arithmetic for d = 256). Maximum path lengths are exact: they are read from Jacobians and equal the
formulae. At 16,384 positions the restricted core takes less than a tenth of the memory of explicit scores.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import functools
import itertools
import multiprocessing
import os
import resource
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import common
import numpy as np

from keras_attention.utils.checks import check_integer
from keras_attention.utils.progress import Progress, say


class Row(NamedTuple):
    """A row of Table 1 as printed. n: sequence length, d: width, k: kernel, r: neighbourhood."""

    complexity: str
    sequential_operations: str
    maximum_path_length: str


TABLE_1 = {
    "self_attention": Row("O(n^2 d)", "O(1)", "O(1)"),
    "recurrent": Row("O(n d^2)", "O(n)", "O(n)"),
    "convolutional": Row("O(k n d^2)", "O(1)", "O(log_k(n))"),
    "restricted_self_attention": Row("O(r n d)", "O(1)", "O(n/r)"),
}
FULL, RESTRICTED = "self_attention", "restricted_self_attention"
# Each type of layer: its row, and its colour in every panel of the picture.
LAYER_TYPES = {
    FULL: (TABLE_1[FULL], "C0"),
    RESTRICTED: (TABLE_1[RESTRICTED], "C1"),
    "recurrent": (TABLE_1["recurrent"], "C2"),
    "convolutional": (TABLE_1["convolutional"], "C3"),
    "dilated": (TABLE_1["convolutional"], "C4"),
    "separable": (TABLE_1["convolutional"], "C5"),
}
# Rows whose exponent differs from Table 1's by more than this are marked.
TOLERANCE = 0.15
ROUNDS = 3
PATH_SIZES = (8, 33, 64)
SEED = 0  # of the order, and of the bootstrap


@dataclasses.dataclass(frozen=True)
class Series:
    """Measurements along one axis.

    Attributes:
        kind: One of `LAYER_TYPES`.
        axis: The size that grows: `"n"`, `"d"`, `"k"` or `"r"`.
        sizes: Its values; for `"r"` the windows, with r = 2 window - 1.
        expected: The exponent in Table 1.
        batch: Number of sequences at a time; large if a single sequence would be limited by memory access.
        core: Whether attention has no projections.
        n, d, k, window: The sizes that do not grow.
    """

    kind: str
    axis: str
    sizes: tuple[int, ...]
    expected: int
    batch: int = 1
    core: bool = False
    n: int = 2048
    d: int = 64
    k: int = 3
    window: int = 128

    @property
    def name(self) -> str:
        """Name of the series in the record."""
        is_attention = self.kind in (FULL, RESTRICTED)
        part = " core" if self.core else " layer" if is_attention else ""
        return f"{self.kind}{part} in {self.axis}"

    def shape(self, size: int) -> dict[str, int]:
        """Return n, d, k and window of a point."""
        fixed = {"n": self.n, "d": self.d, "k": self.k, "window": self.window}
        return {**fixed, "window" if self.axis == "r" else self.axis: size}

    @property
    def growing(self) -> list[int]:
        """The sizes as Table 1 counts them."""
        return [2 * size - 1 if self.axis == "r" else size for size in self.sizes]


def all_series(longest: int) -> tuple[Series, ...]:
    """Return all series; `longest` is the longest sequence for attention."""
    long = tuple(longest // part for part in (8, 4, 2, 1))
    half = tuple(size // 2 for size in long)
    return (
        Series(FULL, "n", long, 2, core=True),
        Series(RESTRICTED, "n", long, 1, core=True),
        # Four heads: with sequences as long as the core's, their scores would take four times the memory.
        Series(FULL, "n", half, 2, d=256),
        Series(RESTRICTED, "n", half, 1, d=256),
        Series("recurrent", "n", (2048, 4096, 8192, 16_384), 1, batch=8),
        Series("convolutional", "n", (16_384, 32_768, 65_536, 131_072), 1, batch=4),
        Series("dilated", "n", (16_384, 32_768, 65_536, 131_072), 1, batch=4),
        Series("separable", "n", (16_384, 32_768, 65_536, 131_072), 1, batch=4),
        Series(FULL, "d", (64, 128, 256, 512), 1, core=True),
        Series("recurrent", "d", (256, 512, 1024), 2, batch=32, n=16),
        Series("convolutional", "d", (256, 512, 1024), 2, n=512),
        Series("convolutional", "k", (3, 9, 27), 1, d=256, n=1024),
        Series(RESTRICTED, "r", (128, 256, 512), 1, core=True, n=8192),
    )


def parser() -> argparse.ArgumentParser:
    """Make the parser of the options."""
    made = common.new_parser(__doc__, __file__, "--longest 1024 --repeats 1 --rounds 1")
    for name, default, least, text in (
        ("longest", 16_384, 1024, "longest sequence for attention"),
        ("rounds", ROUNDS, 1, "how often all points are measured: a machine's speed drifts"),
        ("repeats", 5, 1, "how often each point is measured in each round"),
        (
            "cores",
            1,
            1,
            "processor cores to measure on; on several, small layers use some of them only, which disturbs "
            "the exponents",
        ),
    ):
        made.add_argument(
            f"--{name}",
            type=common.at_least(least),
            metavar="N",
            default=default,
            help=f"{text} (%(default)s)",
        )
    return made


def main(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure all series, in random order, and fit exponents."""
    use_cores(options.cores)
    series = all_series(options.longest)
    memory_sizes = [options.longest // part for part in (4, 2, 1)]
    return measure(folder, series, options.repeats, memory_sizes, rounds=options.rounds)


def measure(
    folder: Path,
    series: Sequence[Series],
    repeats: int,
    memory_sizes: Sequence[int],
    path_sizes: Sequence[int] = PATH_SIZES,
    rounds: int = ROUNDS,
) -> dict[str, Any]:
    """Measure series, memory and paths; write a table and pictures. The same call continues."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    settings = {
        "series": [dataclasses.asdict(one) for one in series],
        "repeats": repeats,
        "memory_sizes": list(memory_sizes),
        "path_sizes": list(path_sizes),
        "seed": SEED,
        "cores": cores,
    }
    results = common.Results(folder, settings)
    common.start_keras()
    points = [(one, size) for one in series for size in one.sizes]
    steps = rounds * len(points) + len(path_sizes) + 2 * len(memory_sizes)
    generator = np.random.default_rng(SEED)
    with results.claimed(), Progress(steps, "measuring layers", "points") as progress:

        def measured(name: str, function: Any, *arguments: Any) -> Any:
            found = results.get(name, functools.partial(function, *arguments))
            progress.add(1)
            return found

        paths = {str(n): measured(f"paths {n}", path_lengths, n) for n in path_sizes}
        times: dict[str, list[float]] = {f"{one.name} {size}": [] for one, size in points}
        # A round after the other, a first call that is not counted before each point.
        for number in range(rounds):
            for index in generator.permutation(len(points)):
                one, size = points[index]
                point = f"{one.name} {size}"
                name = f"{point}, round {number + 1}"
                times[point] += measured(name, times_of, one, size, repeats)
        memory: dict[str, dict[str, float]] = {FULL: {}, RESTRICTED: {}}
        for n, (kind, found) in itertools.product(memory_sizes, memory.items()):
            found[str(n)] = measured(f"memory {kind} {n}", memory_elsewhere, kind, n)
        exponents = {
            one.name: fitted_exponent(
                one.growing, [times[f"{one.name} {size}"] for size in one.sizes]
            )
            for one in series
        }
        report = {
            "exponents": {name: fit._asdict() for name, fit in exponents.items()},
            "memory": memory,
            "paths": paths,
            "times": times,
        }
        tables = [growth_table(series, exponents, cores), path_table(paths)]
        tables += [memory_table(memory)] if memory_sizes else []
        common.write(folder, "table1", tables, {"table1_time": picture(series, times)}, report)
    return report


def use_cores(number: int) -> None:
    """Keep this process to so many processor cores: backends count them when they start."""
    if not hasattr(os, "sched_setaffinity"):
        say("This system cannot limit a process to some cores: `--cores` has no effect.")
        return
    usable = sorted(os.sched_getaffinity(0))
    check_integer("--cores", number, least=1, most=len(usable))
    os.sched_setaffinity(0, usable[:number])


def times_of(one: Series, size: int, repeats: int) -> list[float]:
    """Measure the seconds of a point, several times."""
    from keras import ops
    from table1_layers import make_layer

    from keras_attention.ops.compile import compile_for_inference

    shape = one.shape(size)
    layer = make_layer(one.kind, shape["d"], shape["k"], shape["window"], core=one.core, dilation=2)
    x = np.random.default_rng(0).normal(size=(one.batch, shape["n"], shape["d"]))
    inputs = ops.convert_to_tensor(x.astype("float32"))
    layer.build(inputs.shape)
    run = compile_for_inference(lambda x: layer(x), layer)
    ops.convert_to_numpy(run(inputs))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        ops.convert_to_numpy(run(inputs)[:, -1])  # waits for a device
        times.append(time.perf_counter() - start)
    return times


def path_lengths(n: int) -> dict[str, list[int]]:
    """Return, for each layer type, its path length from the Jacobian and from the formula."""
    from table1_layers import path_length, path_length_formula

    return {kind: [path_length(kind, n), path_length_formula(kind, n)] for kind in LAYER_TYPES}


def memory_elsewhere(kind: str, n: int) -> float:
    """Measure the peak MiB of an attention core, in its own process."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(peak_memory, kind, n).result()


def peak_memory(kind: str, n: int, d: int = 64, window: int = 128) -> float:
    """Measure the MiB that an attention core adds to this process' peak; call it in a fresh process."""
    from keras import ops
    from table1_layers import make_layer

    from keras_attention.ops.compile import compile_for_inference

    def peak() -> float:
        # Linux' ru_maxrss begins with the peak of the process that started this one; VmHWM does not.
        status = Path("/proc/self/status")
        lines = status.read_text().splitlines() if status.exists() else []
        own = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
        return int(own[0] if own else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024

    layer = make_layer(kind, d, window=window, core=True)
    run = compile_for_inference(lambda x: layer(x), layer)
    small, large = (np.zeros((1, size, d), "float32") for size in (256, n))
    ops.convert_to_numpy(run(small))
    before = peak()
    ops.convert_to_numpy(run(large))
    return peak() - before


class Exponent(NamedTuple):
    """The slope in a log-log plot, and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def fitted_exponent(
    sizes: Sequence[float], times: Sequence[Sequence[float]], samples: int = 1000
) -> Exponent:
    """Fit the exponent c of `time = a size^c`, robust against single bad times.

    The exponent is the median of the slopes between all pairs of points (Theil-Sen); each point is the
    median of its times. The interval comes from bootstrap samples of the times of every point.
    """
    generator = np.random.default_rng(SEED)
    logs = np.log(np.asarray(sizes, float))

    def slope(medians: Sequence[Any]) -> float:
        heights = np.log(medians)
        pairs = itertools.combinations(range(len(logs)), 2)
        return float(np.median([(heights[j] - heights[i]) / (logs[j] - logs[i]) for i, j in pairs]))

    found = [
        slope([np.median(generator.choice(np.asarray(t), len(t))) for t in times])
        for _ in range(samples)
    ]
    low, high = np.quantile(found, (0.025, 0.975))
    return Exponent(slope([np.median(t) for t in times]), float(low), float(high))


def growth_table(
    series: Sequence[Series], exponents: Mapping[str, Exponent], cores: int | None
) -> common.Table:
    """Make the table of exponents."""
    from table1_layers import layer_flops

    rows = []
    for one in series:
        fit = exponents[one.name]
        flops = [layer_flops(one.kind, **one.shape(size), core=one.core) for size in one.sizes]
        counted = fitted_exponent(one.growing, [[float(count)] for count in flops], samples=1).value
        differs = abs(fit.value - one.expected) > TOLERANCE
        rows.append(
            [
                one.name,
                LAYER_TYPES[one.kind][0].complexity,
                one.expected,
                f"{counted:.2f}",
                fit,
                common.verdict(fit.high - fit.low < 0.5) + (", differs" if differs else ""),
            ]
        )
    notes = [
        "Exponent of time: the median slope between all pairs of sizes, with its 95 % interval. A whole",
        "layer also has projections, which grow with n d^2, so its exponent is below 2.",
        "Resolved: the interval is narrower than 0.5. Differs: by more than 0.15 from the paper's exponent.",
        f"Measured on {cores} core(s).",
    ]
    columns = ["layer", "paper", "exponent", "of FLOPs", "of time", "verdict"]
    return common.Table("Table 1: growth of a layer's time", columns, rows, notes)


def path_table(paths: Mapping[str, Mapping[str, Sequence[int]]]) -> common.Table:
    """Make the table of sequential operations and path lengths."""
    from table1_layers import sequential_operations

    rows = []
    for kind, (known, _) in LAYER_TYPES.items():
        cells = [f"{paths[n][kind][0]} ({paths[n][kind][1]})" for n in paths]
        steps = "n" if sequential_operations(kind, 7) == 7 else "1"
        path = "O(n/k)" if kind in ("convolutional", "separable") else known.maximum_path_length
        rows.append([kind, steps, known.sequential_operations, path, *cells])
    columns = ["layer", "steps", "paper", "paper: path", *(f"n = {n}" for n in paths)]
    note = "Layers from the last position to the first by the Jacobian (by the formula); k = 3, window 4."
    title = "Table 1: sequential operations, maximum path length"
    return common.Table(title, columns, rows, [note])


def memory_table(memory: Mapping[str, Mapping[str, float]]) -> common.Table:
    """Make the table of peak memory."""
    rows = [
        [kind, *(f"{value:,.0f}" for value in values.values())] for kind, values in memory.items()
    ]
    sizes = list(memory[FULL])
    shares = [memory[RESTRICTED][n] / max(memory[FULL][n], 1e-9) for n in sizes]
    rows.append(["share", *(f"{share:.3f}" for share in shares)])
    title = "Peak memory in MiB: one head of 64, explicit scores, window 128"
    return common.Table(title, ["core", *(f"n = {n}" for n in sizes)], rows)


def picture(series: Sequence[Series], points: Mapping[str, Any]) -> Any:
    """Draw time compared with the formula, one panel for each axis."""
    from matplotlib.figure import Figure

    shown = [axis for axis in ("n", "d", "k", "r") if any(one.axis == axis for one in series)]
    figure = Figure(figsize=(4.6 * len(shown), 5.6), layout="constrained")
    for place, axis in enumerate(shown, 1):
        panel = figure.add_subplot(1, len(shown), place, xscale="log", yscale="log")
        ticks: set[int] = set()
        for one in (one for one in series if one.axis == axis):
            sizes = np.array(one.growing, float)
            times = [np.median(points[f"{one.name} {size}"]) for size in one.sizes]
            color = LAYER_TYPES[one.kind][1]
            marker = "s" if one.name.endswith(f"layer in {axis}") else "o"
            label = one.name.removesuffix(f" in {axis}").replace("_", " ")
            label = f"{label}, {one.expected}"
            panel.plot(sizes, times, f"{marker}-", color=color, mfc="none", label=label)
            panel.plot(sizes, times[0] * (sizes / sizes[0]) ** one.expected, ":", color=color)
            ticks.update(one.growing)
        panel.set(xlabel=axis, ylabel="seconds" if place == 1 else "")
        panel.set_xticks(sorted(ticks), [f"{tick:,}" for tick in sorted(ticks)], fontsize=7)
        panel.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
        # Below: in the panel it would cover lines.
        style: dict[str, Any] = {"fontsize": 7, "title_fontsize": 7}
        title = "layer, Table 1's exponent (dotted)"
        panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), title=title, **style)
    return figure


if __name__ == "__main__":
    common.run(main, parser())
