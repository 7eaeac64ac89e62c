"""Reproduce the cost column of the paper's Table 2 and count the FLOPs of each part, also for your own run.

Takes seconds. `--run RUN` adds a finished run of this package: its counted FLOPs, and the paper's formula
with the speed of the machine that trained it.

What to expect, written before the first run: hours, GPUs and 9.5 TFLOP/s give 3.3e18 and 2.3e19. The models
need fewer FLOPs than that: about 30 % for base.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import common

from keras_attention import PRESETS
from keras_attention.utils.run_folder import RunFolder


class Row(NamedTuple):
    """A row of the table: newstest2014. None is a blank cell. A Transformer's FLOPs stand for both."""

    name: str
    bleu_en_de: float | None = None
    bleu_en_fr: float | None = None
    flops_en_de: float | None = None
    flops_en_fr: float | None = None


class Training(NamedTuple):
    """What training took: sections 5.2 and 5.3."""

    updates: int
    seconds_per_update: float
    hours: float
    devices: int = 8
    device: str = "P100"


TABLE_2 = (
    Row("ByteNet", 23.75),
    Row("Deep-Att + PosUnk", None, 39.2, None, 1.0e20),
    Row("GNMT + RL", 24.6, 39.92, 2.3e19, 1.4e20),
    Row("ConvS2S", 25.16, 40.46, 9.6e18, 1.5e20),
    Row("MoE", 26.03, 40.56, 2.0e19, 1.2e20),
    Row("Deep-Att + PosUnk Ensemble", None, 40.4, None, 8.0e20),
    Row("GNMT + RL Ensemble", 26.30, 41.16, 1.8e20, 1.1e21),
    Row("ConvS2S Ensemble", 26.36, 41.29, 7.7e19, 1.2e21),
    Row("Transformer (base model)", 27.3, 38.1, 3.3e18, 3.3e18),
    Row("Transformer (big)", 28.4, 41.8, 2.3e19, 2.3e19),
)
# The table says 41.8; section 6.1 says 41.0, and the abstract one or the other by version.
BIG_EN_FR_BLEU_IN_TEXT = 41.0
# Sustained single-precision FLOP/s of a GPU: the footnote of section 6.1.
SUSTAINED_FLOPS = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}
TRAINING = {"base": Training(100_000, 0.4, 12.0), "big": Training(300_000, 1.0, 3.5 * 24)}
MODELS = {"base": "Transformer (base model)", "big": "Transformer (big)"}
# Section 5.1: about 25,000 source and 25,000 target tokens an update; a WMT sentence has about 25.
TOKENS, LENGTH = 25_000, 25
VOCABULARY = 37_000


def parser() -> argparse.ArgumentParser:
    """Make the parser of the options."""
    made = common.new_parser(__doc__, __file__, "")
    made.add_argument("--run", type=Path, metavar="RUN", help="a finished run")
    return made


def main(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Write the paper's costs, and those of a run."""
    run = options.run
    results = common.Results(folder, {"run": None if run is None else str(run.resolve())})
    report = None if run is None else finished_report(RunFolder(run))
    common.start_keras()
    own = None if report is None else cost_of(report, RunFolder(run).settings())
    costs = paper_costs()
    tables = [cost_table(costs), parts_table(costs), *([run_table(own)] if own else [])]
    found = {"paper": costs, "run": own}
    with results.claimed():
        common.write(folder, "table2", tables, {"table2_parts": picture(costs)}, found)
    return found


def finished_report(run: RunFolder) -> dict[str, Any]:
    """Read the report of a run, which must be finished."""
    run.settings()
    report = run.finished_report()
    if report is None:
        raise ValueError(
            f"--run: '{run.path}' is not finished: it has no {run.report.name}. Continue it with the "
            "command that started it."
        )
    return report


def paper_costs() -> dict[str, dict[str, Any]]:
    """Return the printed cost of base and big, the formula's, and the FLOPs counted from the model."""
    from keras_attention.evaluation.cost import flops_by_part

    costs = {}
    for name, row in MODELS.items():
        known = TRAINING[name]
        parts = flops_by_part({**PRESETS[name], "vocabulary_size": VOCABULARY}, LENGTH, LENGTH)
        # The backward pass costs twice the forward pass.
        pairs = 3 * known.updates * TOKENS // LENGTH
        costs[name] = {
            "printed": next(entry.flops_en_de for entry in TABLE_2 if entry.name == row),
            "formula": paper_flops(known, known.hours * 3600),
            "by_updates": paper_flops(known, known.updates * known.seconds_per_update),
            "parts": {part: flops * pairs for part, flops in parts.items()},
            "counted": sum(parts.values()) * pairs,
        }
    return costs


def paper_flops(known: Training, seconds: float) -> float:
    """Return what the GPUs could have computed in this time, which is more than the model needs."""
    return seconds * known.devices * SUSTAINED_FLOPS[known.device]


def cost_of(report: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cost that a run reported, with the parts of a pair of mean length."""
    from keras_attention.evaluation.cost import flops_by_part

    sizes = {**PRESETS[settings["preset"]], **settings["model_arguments"]}
    sizes["vocabulary_size"] = report["vocabulary_size"]
    batches, pairs = report["batches"], report["batches"]["pairs"]
    lengths = [round(batches[f"{side}_tokens"] / pairs) for side in ("source", "target")]
    return {**report["evaluation"]["training_cost"], "parts": flops_by_part(sizes, *lengths)}


def cost_table(costs: Mapping[str, Mapping[str, Any]]) -> common.Table:
    """Make Table 2, with the formula and the counted FLOPs beside the Transformers."""
    rows = []
    for entry in TABLE_2:
        cells: list[Any] = [entry.name, entry.bleu_en_de, entry.bleu_en_fr]
        cells += [scientific(entry.flops_en_de), scientific(entry.flops_en_fr)]
        for name in (name for name, row in MODELS.items() if row == entry.name):
            cost = costs[name]
            share = cost["counted"] / cost["formula"]
            cells += [
                scientific(cost["formula"], 5),
                scientific(cost["counted"], 3),
                f"{share:.0%}",
            ]
        rows.append(cells)
    columns = ["", "BLEU en-de", "en-fr", "FLOPs en-de", "en-fr", "formula", "counted", "share"]
    known, by_updates = (
        TRAINING["base"],
        ", ".join(f"{name} {scientific(cost['by_updates'], 3)}" for name, cost in costs.items()),
    )
    notes = [
        f"Formula: seconds x {known.devices} GPUs x {SUSTAINED_FLOPS[known.device] / 1e12} TFLOP/s of a "
        f"{known.device}; base {known.hours:.0f} hours, big {TRAINING['big'].hours / 24} days. The paper "
        "has one cost for both languages.",
        f"From the number of updates and their seconds, the formula gives {by_updates}.",
        f"Counted: matrix products, three times the forward pass, with {TOKENS:,} source and as many target "
        f"tokens per update in sentences of {LENGTH}, V = {VOCABULARY:,}. Share: counted / formula.",
        f"English-French, big: the paper's text (section 6.1) has {BIG_EN_FR_BLEU_IN_TEXT}.",
    ]
    return common.Table("Table 2: BLEU and training cost in FLOPs", columns, rows, notes)


def scientific(value: float | None, digits: int = 2) -> str | None:
    """Write a number as the paper does: 3.3e18."""
    return None if value is None else f"{value:.{digits - 1}e}".replace("e+", "e")


def parts_table(costs: Mapping[str, Mapping[str, Any]]) -> common.Table:
    """Make the table of the counted FLOPs by part."""
    rows = []
    for part in costs["base"]["parts"]:
        cells = [part]
        for cost in costs.values():
            flops = cost["parts"][part]
            cells += [f"{flops:.2e}", f"{flops / cost['counted']:.1%}"]
        rows.append(cells)
    columns = ["part", *(cell for name in costs for cell in (name, "share"))]
    return common.Table("Training FLOPs counted by part", columns, rows)


def run_table(cost: Mapping[str, Any]) -> common.Table:
    """Make the table of a run."""
    rows = [
        ["updates", f"{cost['updates']:,}"],
        ["counted, padding included", f"{cost['flops']:.2e}"],
        ["counted, tokens only", f"{cost['flops_of_tokens']:.2e}"],
    ]
    notes = ["Parts: of a pair of mean length."]
    if "peak" in cost:
        seconds, peak = cost["seconds"], cost["peak"]
        rows += [
            ["by the paper's formula", f"{seconds * peak:.2e}"],
            ["counted / formula", f"{cost['mfu']:.0%}"],
        ]
        notes.insert(0, f"Formula: {seconds:,.0f} s x {peak:.3g} FLOP/s of its devices, measured.")
    total = sum(cost["parts"].values())
    rows += [[part, f"{flops / total:.1%}"] for part, flops in cost["parts"].items()]
    return common.Table("This run", ["", "FLOPs"], rows, notes)


def picture(costs: Mapping[str, Mapping[str, Any]]) -> Any:
    """Draw the shares of the parts, base and big."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for place, (name, cost) in enumerate(costs.items()):
        left = 0.0
        for number, (part, flops) in enumerate(cost["parts"].items()):
            share = 100 * flops / cost["counted"]
            label = part if place == 0 else None
            axes.barh(name, share, left=left, color=f"C{number}", label=label)
            left += share
    axes.set(xlabel="% of the counted FLOPs", xlim=(0, 100))
    axes.invert_yaxis()
    figure.legend(loc="outside lower center", ncols=3, fontsize=7, frameon=False)
    return figure


if __name__ == "__main__":
    common.run(main, parser())
