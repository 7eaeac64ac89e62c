"""The cost column of Table 2: the paper's formula, FLOPs counted by part, and both for a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from keras_attention.evaluation.cost import SUSTAINED_FLOPS, flops_by_part, paper_training_cost
from keras_attention.experiments.published import TABLE_2, TRAINING
from keras_attention.experiments.tables import Measurements, Table, write_results
from keras_attention.spec.presets import PRESETS
from keras_attention.utils.run_folder import RunFolder

NAME = "table2"
# Section 5.1: about 25,000 source and 25,000 target tokens an update; a WMT sentence has about 25.
TOKENS, LENGTH = 25_000, 25
VOCABULARY = 37_000
ROWS = {"base": "Transformer (base model)", "big": "Transformer (big)"}


def paper_costs() -> dict[str, dict[str, Any]]:
    """For base and big: the printed cost, the formula's, and the FLOPs counted from the model."""
    costs = {}
    for name, row in ROWS.items():
        known = TRAINING[name]
        printed = next(entry.flops_en_de for entry in TABLE_2 if entry.name == row)
        parts = flops_by_part({**PRESETS[name], "vocabulary_size": VOCABULARY}, LENGTH, LENGTH)
        training = (
            3 * known.updates * TOKENS // LENGTH
        )  # The backward pass costs twice the forward pass.
        costs[name] = {
            "printed": printed,
            "formula": paper_training_cost(known.hours * 3600, known.devices, known.device),
            "by_updates": paper_training_cost(known.updates * known.seconds_per_update),
            "parts": {part: flops * training for part, flops in parts.items()},
            "counted": sum(parts.values()) * training,
        }
    return costs


def make_cost_table(
    output_dir: str | os.PathLike[str], run: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Write the paper's costs and those of a run into a folder.

    Args:
        output_dir: The folder.
        run: A finished run's folder; None for the paper alone.

    Returns:
        A dict: `paper`, see `paper_costs`, and `run`: what `training_cost` reported of it.

    Raises:
        ValueError: If it is not the folder of a finished run.
    """
    kept = Measurements(output_dir, {"run": None if run is None else str(Path(run).resolve())})
    own = None if run is None else _cost_of(RunFolder(run))
    costs = paper_costs()
    tables = [_cost_table(costs), _parts_table(costs), *([_run_table(own)] if own else [])]
    with kept.locked():
        figures = {"table2_parts": _figure(costs)}
        write_results(kept.folder, NAME, tables, figures, {"paper": costs, "run": own})
    return {"paper": costs, "run": own}


def _cost_of(folder: RunFolder) -> dict[str, Any]:
    settings, report = folder.settings(), folder.finished_report()
    if report is None:
        raise ValueError(
            f"The run in '{folder.path}' is not finished: it has no {folder.report.name}. Continue it "
            "with the command that started it."
        )
    cost = dict(report["evaluation"]["training_cost"])
    sizes = {**PRESETS[settings["preset"]], **settings["model_arguments"]}
    sizes["vocabulary_size"] = report["vocabulary_size"]
    batches, pairs = report["batches"], report["batches"]["pairs"]
    lengths = [round(batches[f"{side}_tokens"] / pairs) for side in ("source", "target")]
    cost["parts"] = flops_by_part(sizes, *lengths)
    return cost


def _cost_table(costs: dict[str, dict[str, Any]]) -> Table:
    rows = []
    for entry in TABLE_2:
        name = next((name for name, row in ROWS.items() if row == entry.name), None)
        cells: list[Any] = [entry.name, _scientific(entry.flops_en_de), entry.bleu_en_de]
        if name is not None:
            cost = costs[name]
            share = cost["counted"] / cost["formula"]
            cells += [_scientific(cost["formula"], 5), f"{cost['counted']:.2e}", f"{share:.0%}"]
        rows.append([*cells, *[None] * (6 - len(cells))])
    columns = ["English-German", "paper", "BLEU", "formula", "counted", "share"]
    known = TRAINING["base"]
    notes = [
        f"Formula: seconds x {known.devices} GPUs x {SUSTAINED_FLOPS[known.device] / 1e12} TFLOP/s of a "
        f"{known.device}; base {known.hours:.0f} hours, big {TRAINING['big'].hours / 24} days.",
        "From the number of updates and their seconds, the formula gives "
        + ", ".join(f"{name} {costs[name]['by_updates']:.2e}" for name in costs)
        + ".",
        f"Counted: matrix products, three times the forward pass, with {TOKENS:,} source and as many target "
        f"tokens per update in sentences of {LENGTH}, V = {VOCABULARY:,}. Share: counted / formula.",
    ]
    return Table("Table 2: training cost in FLOPs", columns, rows, notes)


def _scientific(value: float | None, digits: int = 2) -> str | None:
    """As the paper prints numbers.

    >>> _scientific(3.2832e18)
    '3.3e18'
    """
    return None if value is None else f"{value:.{digits - 1}e}".replace("e+", "e")


def _parts_table(costs: dict[str, dict[str, Any]]) -> Table:
    rows = []
    for part in costs["base"]["parts"]:
        cells = [part]
        for cost in costs.values():
            flops = cost["parts"][part]
            cells += [f"{flops:.2e}", f"{flops / cost['counted']:.1%}"]
        rows.append(cells)
    columns = ["part", *(cell for name in costs for cell in (name, "share"))]
    return Table("Training FLOPs counted by part", columns, rows)


def _run_table(cost: dict[str, Any]) -> Table:
    rows = [
        ["updates", f"{cost['updates']:,}"],
        ["counted, padding included", f"{cost['flops']:.2e}"],
        ["counted, tokens only", f"{cost['flops_of_tokens']:.2e}"],
    ]
    if "paper_flops" in cost:
        rows += [
            ["by the paper's formula", f"{cost['paper_flops']:.2e}"],
            ["counted / formula", f"{cost['mfu']:.0%}"],
        ]
    total = sum(cost["parts"].values())
    rows += [[part, f"{flops / total:.1%}"] for part, flops in cost["parts"].items()]
    notes = [cost["paper_formula"]] if "paper_formula" in cost else []
    notes.append("Parts: of a pair of mean length.")
    return Table("This run", ["", "FLOPs"], rows, notes)


def _figure(costs: dict[str, dict[str, Any]]) -> Any:
    """Shares of the parts, base and big."""
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
