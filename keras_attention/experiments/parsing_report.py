"""The table of a parsing run next to the paper's Table 4, as text, JSON and Markdown, and a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_attention.data.treebanks import Treebank
from keras_attention.evaluation.bracketing import BracketingScore, SentenceScore, bracketing_counts
from keras_attention.experiments.published import TABLE_4
from keras_attention.utils.files import atomic_file, write_atomically, write_json
from keras_attention.utils.progress import show
from keras_attention.utils.run_folder import RunFolder

if TYPE_CHECKING:
    from nltk import Tree

NAMES = {
    "constrained": "Transformer, constrained search",
    "repaired": "Transformer, trees repaired",
    "failed": "Transformer, malformed trees fail",
    "right_branching": "right-branching",
    "pcfg": "PCFG of the training part",
}
COLUMNS = {
    "f1": "F1",
    "f1_of_all": "F1 of all",
    "recall": "recall",
    "precision": "precision",
    "complete_match": "complete",
    "tagging_accuracy": "tags",
    "failed": "failed",
    "malformed": "malformed",
    "seconds": "seconds",
}
NOTE = (
    "F1 as EVALB has it leaves failed sentences out; F1 of all counts them as empty. Malformed: of the "
    "search, before any repair."
)
SAMPLES = 1000
LENGTHS = (10, 20, 30, 40)


def parsing_report(
    golds: Sequence[Tree],
    parses: Mapping[str, Mapping[str, Any]],
    treebank: Treebank,
    settings: Mapping[str, Any],
    updates: int,
) -> dict[str, Any]:
    """The scores of each system, and which of them differ from the constrained search.

    Args:
        golds: Trees of the test part.
        parses: `parses` and `seconds` of each system.
        treebank: Name of the treebank.
        settings: Settings of the run.
        updates: Number of updates in training.

    Returns:
        A dict: `treebank`, `sentences`, `updates`, `config`, `paper` (Table 4), and `systems`, by
        name their figures and, compared with the constrained search, `difference`, `interval` (95 %, by
        paired bootstrap) and `resolved`.
    """
    counts = sentence_scores(golds, parses)
    systems: dict[str, dict[str, Any]] = {}
    for system, scores in counts.items():
        known = parses["repaired" if system == "failed" else system]
        summary = BracketingScore.of(scores).summary()
        systems[system] = {
            **summary,
            "failed": summary["errors"] + summary["skipped"],
            "malformed": sum(not parse.is_well_formed for parse in known["parses"]),
            "seconds": known["seconds"],
        }
        if system != "constrained" and "constrained" in counts:
            systems[system] |= difference(counts["constrained"], scores)
    return {
        "treebank": treebank.name,
        "description": treebank.description,
        "sentences": len(golds),
        "updates": updates,
        "config": dict(settings),
        "systems": systems,
        "paper": [{"name": r.name, "training": r.training, "f1": r.f1} for r in TABLE_4],
    }


def sentence_scores(
    golds: Sequence[Tree], parses: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[SentenceScore]]:
    """Scores of each system, and of the unconstrained search without repairs."""
    trees = {system: [p.tree for p in known["parses"]] for system, known in parses.items()}
    if "repaired" in parses:
        found = parses["repaired"]["parses"]
        trees["failed"] = [p.tree if p.is_well_formed else None for p in found]
    order = [system for system in NAMES if system in trees]
    return {
        system: [
            bracketing_counts(gold, tree) for gold, tree in zip(golds, trees[system], strict=True)
        ]
        for system in order
    }


def difference(ours: Sequence[SentenceScore], theirs: Sequence[SentenceScore]) -> dict[str, Any]:
    """The difference in F1 over all sentences, with its interval by paired bootstrap (Koehn 2004).

    Returns:
        A dict: `difference` in F1, `interval` of 95 % of the samples, and `resolved`: whether it is on
        one side of 0.
    """
    generator = np.random.default_rng(0)
    counts = np.array([[(s.matched, s.gold + s.parsed) for s in side] for side in (ours, theirs)])
    rows = generator.integers(0, len(ours), (SAMPLES, len(ours)))
    totals = counts[:, rows].sum(axis=2)
    f1 = 200.0 * totals[..., 0] / np.maximum(totals[..., 1], 1)
    low, high = np.quantile(f1[0] - f1[1], (0.025, 0.975))
    matched, brackets = counts.sum(axis=1).T
    ours_f1, theirs_f1 = 200.0 * matched / np.maximum(brackets, 1)
    return {
        "difference": float(ours_f1 - theirs_f1),
        "interval": [float(low), float(high)],
        "resolved": bool(low > 0 or high < 0),
    }


def report_lines(report: Mapping[str, Any]) -> list[list[str]]:
    """The table, its heading first: a row for each system."""
    rows = [["", *COLUMNS.values(), "constrained search is"]]
    for system, figures in report["systems"].items():
        row = [NAMES[system]]
        for name in COLUMNS:
            value = figures[name]
            row.append(f"{value:.2f}" if isinstance(value, float) else str(value))
        if "resolved" in figures:
            word = "resolved" if figures["resolved"] else "not resolved"
            low, high = figures["interval"]
            row.append(f"{figures['difference']:+.2f} ({low:+.2f} to {high:+.2f}), {word}")
        else:
            row.append("")
        rows.append(row)
    return rows


def report_text(report: Mapping[str, Any]) -> str:
    """The table for a terminal."""
    rows = report_lines(report)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [_title(report), ""]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    lines += ["", NOTE, "", "The paper, section 23 of the Wall Street Journal (Table 4):"]
    lines += [f"  {row['f1']:5.1f}  {row['name']}, {row['training']}" for row in report["paper"]]
    return "\n".join(lines) + "\n"


def report_markdown(report: Mapping[str, Any]) -> str:
    """The table for a page."""
    heading, *rows = report_lines(report)
    lines = [f"## {_title(report)}", "", f"| {' | '.join(heading)} |", "|---" * len(heading) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    lines += ["", NOTE, "", "| The paper's Table 4 | training | F1 |", "|---|---|---|"]
    lines += [f"| {row['name']} | {row['training']} | {row['f1']} |" for row in report["paper"]]
    return "\n".join(lines) + "\n"


def write_parsing_report(
    report: Mapping[str, Any],
    golds: Sequence[Tree],
    parses: Mapping[str, Mapping[str, Any]],
    folder: RunFolder,
) -> None:
    """Prints the table; writes `report.txt`, `.md` and `.json`, and `f1_by_length.png` and `.svg`."""
    text = report_text(report)
    show(text)
    write_atomically(folder.report_text, text)
    write_atomically(folder.report_text.with_suffix(".md"), report_markdown(report))
    figure = f1_by_length(sentence_scores(golds, parses))
    for suffix in ("png", "svg"):
        with atomic_file(folder.path / f"f1_by_length.{suffix}") as file:
            figure.savefig(file, format=suffix)
    # Last: this file marks the run as finished.
    write_json(folder.report, json.loads(json.dumps(report)))
    show(f"The run's folder is {folder.path}: report.txt, .md, .json, f1_by_length.png, .svg")


def f1_by_length(scores: Mapping[str, Sequence[SentenceScore]]) -> Any:
    """A figure: F1 of all sentences up to a length, for each system."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    bounds = list(zip((0, *LENGTHS), (*LENGTHS, 10**9), strict=True))
    labels = [f"{low + 1}-{high}" for low, high in bounds[:-1]] + [f"over {LENGTHS[-1]}"]
    for system, sentences in scores.items():
        groups = [[s for s in sentences if low < s.length <= high] for low, high in bounds]
        f1 = [BracketingScore.of(group).f1_of_all if group else np.nan for group in groups]
        axes.plot(labels, f1, marker="o", label=NAMES[system])
    axes.set(xlabel="words of the sentence", ylabel="F1 of all sentences, %", ylim=(0, 100))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def _title(report: Mapping[str, Any]) -> str:
    return (
        f"Treebank {report['treebank']}: {report['sentences']:,} test sentences, "
        f"{report['updates']:,} updates, leaves: {report['config']['leaves']}"
    )
