"""Table 1 of the paper, measured: time, memory and FLOPs of the layer types as they grow."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import resource
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from keras_attention.experiments.fits import Exponent, fitted_exponent
from keras_attention.experiments.layer_types import (
    ATTENTIONS,
    LAYER_TYPES,
    layer_flops,
    make_layer,
    path_length,
    path_length_formula,
    sequential_operations,
)
from keras_attention.experiments.published import TABLE_1
from keras_attention.experiments.tables import Measurements, Table, verdict, write_results
from keras_attention.ops.compile import compile_for_inference
from keras_attention.utils.checks import check_integer
from keras_attention.utils.progress import Progress

NAME = "table1"
FULL, RESTRICTED = ATTENTIONS
# Rows whose exponent differs from Table 1's by more than this are marked.
TOLERANCE = 0.15
# Each point is measured at so many times of the whole measurement: a machine's speed drifts.
ROUNDS = 3


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
        part = " core" if self.core else " layer" if self.kind in ATTENTIONS else ""
        return f"{self.kind}{part} in {self.axis}"

    def shape(self, size: int) -> dict[str, int]:
        """n, d, k and window of a point."""
        fixed = {"n": self.n, "d": self.d, "k": self.k, "window": self.window}
        return {**fixed, "window" if self.axis == "r" else self.axis: size}


def default_series(longest: int = 16_384) -> tuple[Series, ...]:
    """The series of the small setting; `longest` is the longest sequence for attention."""
    check_integer("longest", longest, least=1024)
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


def measure_layers(
    output_dir: str | os.PathLike[str],
    series: Sequence[Series] | None = None,
    *,
    repeats: int = 5,
    memory_sizes: Sequence[int] = (4096, 8192, 16_384),
    path_sizes: Sequence[int] = (8, 33, 64),
    seed: int = 0,
) -> dict[str, Any]:
    """Measure the layers of Table 1, fit exponents, and write a table and pictures into a folder.

    If it was stopped, the same call continues. Points are measured in random order, in three rounds, each
    several times after a first call that is not counted. On several cores, small layers use some of them
    only, which disturbs the exponents: keep the process to one core before Keras starts, as the command
    line does.

    Args:
        output_dir: The folder.
        series: What to measure; `default_series()` if not given.
        repeats: How often each point is measured in each round.
        memory_sizes: Lengths at which the peak memory of full and restricted attention is measured, each in
            its own process; may be empty.
        path_sizes: Lengths at which the maximum path length is computed.
        seed: Seed of the order.

    Returns:
        A dict: `exponents` by series, `memory` and `paths`.
    """
    series = default_series() if series is None else tuple(series)
    check_integer("repeats", repeats, least=1)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    settings = {
        "series": [dataclasses.asdict(one) for one in series],
        "repeats": repeats,
        "memory_sizes": list(memory_sizes),
        "path_sizes": list(path_sizes),
        "seed": seed,
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
    }
    kept = Measurements(output_dir, settings)
    with kept.locked():
        points = [(one, size) for one in series for size in one.sizes]
        generator = np.random.default_rng(seed)
        steps = ROUNDS * len(points) + len(path_sizes) + 2 * len(memory_sizes)
        with Progress(steps, "measuring layers", "points") as progress:
            paths = {}
            for n in path_sizes:
                paths[str(n)] = kept.get(f"paths {n}", functools.partial(_paths, n))
                progress.add(1)
            times: dict[str, list[float]] = {f"{one.name} {size}": [] for one, size in points}
            for number in range(ROUNDS):
                for index in generator.permutation(len(points)):
                    one, size = points[index]
                    point = f"{one.name} {size}"
                    measure = functools.partial(_times, one, size, repeats)
                    times[point] += kept.get(f"{point}, round {number + 1}", measure)
                    progress.add(1)
            memory: dict[str, dict[str, float]] = {kind: {} for kind in ATTENTIONS}
            for n in memory_sizes:
                for kind in ATTENTIONS:
                    memory[kind][str(n)] = kept.get(
                        f"memory {kind} {n}", functools.partial(_memory_elsewhere, kind, n)
                    )
                    progress.add(1)
        exponents = {one.name: _exponent(one, times) for one in series}
        result = {
            "exponents": {name: fit._asdict() for name, fit in exponents.items()},
            "memory": memory,
            "paths": paths,
            "times": times,
        }
        tables = [
            _growth_table(series, exponents, cores),
            _path_table(paths),
            *([_memory_table(memory)] if memory_sizes else []),
        ]
        figures = {"table1_time": _figure(series, times)}
        write_results(kept.folder, NAME, tables, figures, result)
    return result


def _times(one: Series, size: int, repeats: int) -> list[float]:
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


def _exponent(one: Series, points: Mapping[str, Any]) -> Exponent:
    sizes = [2 * size - 1 if one.axis == "r" else size for size in one.sizes]
    return fitted_exponent(sizes, [points[f"{one.name} {size}"] for size in one.sizes])


def _paths(n: int) -> dict[str, list[int]]:
    """For each layer type, its path length from the Jacobian and from the formula."""
    return {kind: [path_length(kind, n), path_length_formula(kind, n)] for kind in LAYER_TYPES}


def _memory_elsewhere(kind: str, n: int) -> float:
    """Peak MiB of an attention core, in its own process."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(peak_memory, kind, n).result()


def peak_memory(kind: str, n: int, d: int = 64, window: int = 128) -> float:
    """MiB that an attention core adds to the peak memory of this process; call it in a fresh process."""

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


def _growth_table(
    series: Sequence[Series], exponents: Mapping[str, Exponent], cores: int | None
) -> Table:
    rows = []
    for one in series:
        fit = exponents[one.name]
        shapes = [one.shape(size) for size in one.sizes]
        flops = [layer_flops(one.kind, **shape, core=one.core) for shape in shapes]
        sizes = [2 * size - 1 if one.axis == "r" else size for size in one.sizes]
        counted = fitted_exponent(sizes, [[float(count)] for count in flops]).value
        differs = abs(fit.value - one.expected) > TOLERANCE
        rows.append(
            [
                one.name,
                TABLE_1[LAYER_TYPES[one.kind]].complexity,
                one.expected,
                f"{counted:.2f}",
                str(fit),
                verdict(fit.high - fit.low < 0.5) + (", differs" if differs else ""),
            ]
        )
    columns = ["layer", "paper", "exponent", "of FLOPs", "of time", "verdict"]
    notes = [
        "Exponent of time: the median slope between all pairs of sizes, with its 95 % interval. A whole",
        "layer also has projections, which grow with n d^2, so its exponent is below 2.",
        "Resolved: the interval is narrower than 0.5. Differs: by more than 0.15 from the paper's exponent.",
        f"Measured on {cores} core(s).",
    ]
    return Table("Table 1: growth of a layer's time", columns, rows, notes)


def _path_table(paths: Mapping[str, Mapping[str, Sequence[int]]]) -> Table:
    rows = []
    for kind, row in LAYER_TYPES.items():
        known = TABLE_1[row]
        cells = [f"{paths[n][kind][0]} ({paths[n][kind][1]})" for n in paths]
        steps = "n" if sequential_operations(kind, 7) == 7 else "1"
        path = "O(n/k)" if kind in ("convolutional", "separable") else known.maximum_path_length
        rows.append([kind, steps, known.sequential_operations, path, *cells])
    columns = ["layer", "steps", "paper", "paper: path", *(f"n = {n}" for n in paths)]
    note = "Layers from the last position to the first by the Jacobian (by the formula); k = 3, window 4."
    return Table("Table 1: sequential operations, maximum path length", columns, rows, [note])


def _memory_table(memory: Mapping[str, Mapping[str, float]]) -> Table:
    rows = [
        [kind, *(f"{value:,.0f}" for value in values.values())] for kind, values in memory.items()
    ]
    sizes = list(memory[FULL])
    rows.append(
        ["share", *(f"{memory[RESTRICTED][n] / max(memory[FULL][n], 1e-9):.3f}" for n in sizes)]
    )
    title = "Peak memory in MiB: one head of 64, explicit scores, window 128"
    return Table(title, ["core", *(f"n = {n}" for n in sizes)], rows)


def _figure(series: Sequence[Series], points: Mapping[str, Any]) -> Any:
    """Time compared with the formula, one panel for each axis."""
    from matplotlib.figure import Figure

    axes_names = [axis for axis in ("n", "d", "k", "r") if any(one.axis == axis for one in series)]
    figure = Figure(figsize=(4.6 * len(axes_names), 5.6), layout="constrained")
    for place, axis in enumerate(axes_names, 1):
        panel = figure.add_subplot(1, len(axes_names), place, xscale="log", yscale="log")
        ticks: set[int] = set()
        for number, one in enumerate(one for one in series if one.axis == axis):
            sizes = np.array([2 * s - 1 if axis == "r" else s for s in one.sizes], float)
            times = [np.median(points[f"{one.name} {size}"]) for size in one.sizes]
            color = f"C{number}"
            label = one.name.removesuffix(f" in {axis}").replace("_", " ")
            panel.plot(sizes, times, "o-", color=color, label=f"{label}, {one.expected}")
            panel.plot(sizes, times[0] * (sizes / sizes[0]) ** one.expected, ":", color=color)
            ticks.update(map(int, sizes))
        panel.set(xlabel=axis, ylabel="seconds" if place == 1 else "")
        panel.set_xticks(sorted(ticks), [f"{tick:,}" for tick in sorted(ticks)], fontsize=7)
        panel.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
        # Below: in the panel it would cover lines.
        style: dict[str, Any] = {"fontsize": 7, "title_fontsize": 7}
        title = "layer, Table 1's exponent (dotted)"
        panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), title=title, **style)
    return figure
