"""The report on a trained model as readable text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from keras_attention.utils.arguments import checked


@checked
def report_text(report: Mapping[str, Any], title: str = "") -> str:
    """Return the text of a report.

    Args:
        report: What `evaluation_report` or `runs_report` returned.
        title: Name of the run, for the headline.

    Returns:
        Lines of text, ending with a newline.
    """
    headline = f"Evaluation of {title}" if title else "Evaluation"
    lines = [headline, "=" * len(headline), "", *_table(_about(report))]
    for key, name, section in (
        ("systems", "Scores", _scores),
        ("averaging", "Averaging", _averaging),
        ("significance", "More than chance? (sacreBLEU's paired tests)", _significance),
        ("old_domain", "Old domain: what was forgotten", _old_domain),
        ("training_cost", "Training cost", _cost),
        ("systems", "Signatures", _signatures),
    ):
        if key in report:
            lines += ["", name, "-" * len(name), *section(report)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def trained_text(name: str, counts: Mapping[str, int]) -> str:
    """Return how many sources of a held-out part are trained on, too."""
    return f"{counts['trained']:,} of {counts['different']:,} {name} sources"


def _about(report: Mapping[str, Any]) -> list[list[str]]:
    """Return what was translated, how it is compared and what is the result, as rows of a table."""
    rows = [["test set", f"{report['test_set']}, {report['sentences']:,} sentences"]]
    if report["decoding"]:
        settings = (f"{key} {value}" for key, value in report["decoding"].items())
        rows.append(["decoding", ", ".join(settings)])
    changed = {**report["text"]["changed"]}
    references = changed.pop("references")
    lines = f"{references:,} of references, {sum(changed.values()):,} of translations"
    rows += [["compared as", report["text"]["form"]], ["lines changed", lines]]
    if counts := report.get("also_trained"):
        rows.append(["also trained on", ", ".join(trained_text(*one) for one in counts.items())])
    if best := report.get("best"):
        name = f"{best['name']}, by validation {best['by']} {best['value']:.2f}"
        rows += [["best checkpoint", name], ["result", list(report["systems"])[-1]]]
    if found := report.get("alignment"):
        rows.append(["alignment error rate", alignment_text(found)])
    return rows


def alignment_text(found: Mapping[str, Any]) -> str:
    """Return in words how well a run aligns words; layers and heads are counted from 1, as in the viewer.

    >>> alignment_text(
    ...     {"head": [1, 0], "is_guided": True, "error_rate": 0.0625, "split": "test", "sentences": 500}
    ... )
    '0.062 on 500 test pairs, by layer 2, head 1 (--alignment-head 1 0), which learned alignments'
    """
    layer, head = found["head"]
    how = "which learned alignments" if found["is_guided"] else "the best one on the validation set"
    if found.get("rows") == "predicted":
        how += ", while it predicts a word"
    where = f"{found['sentences']:,} {found['split']} pairs"
    which = f"layer {layer + 1}, head {head + 1} (--alignment-head {layer} {head})"
    return f"{found['error_rate']:.3f} on {where}, by {which}, {how}"


def _scores(report: Mapping[str, Any]) -> list[str]:
    systems = dict(reversed(report["systems"].items()))  # The last is the result.
    first = next(iter(systems.values()))
    rows = [["", *systems]]
    for key, score in first["scores"].items():
        rows.append(
            [score["metric"], *(_number(s["scores"][key]["score"]) for s in systems.values())]
        )
    if any(system["perplexity"] is not None for system in systems.values()):
        rows.append(
            ["validation perplexity", *(_number(s["perplexity"], 3) for s in systems.values())]
        )
    return _table(rows)


def _averaging(report: Mapping[str, Any]) -> list[str]:
    averaging = report["averaging"]
    if averaging is None:
        return ["There was one checkpoint: nothing was averaged."]
    first = next(iter(report["systems"].values()))
    rows = [["", "before", "after", "gain"]]
    for key, score in first["scores"].items():
        change = averaging[key]
        rows.append(
            [
                score["metric"],
                _number(change["before"]),
                _number(change["after"]),
                f"{change['gain']:+.2f}",
            ]
        )
    names = averaging["checkpoints"]
    what = f"The mean of {len(names)} checkpoints, {names[0]} to {names[-1]}."
    if len(names) == 1:
        what = f"The moving average of the weights in {names[0]}."
    return [what, *_table(rows)]


def _significance(report: Mapping[str, Any]) -> list[str]:
    differences = report["significance"]
    if not differences:
        return ["There was one system: nothing was compared."]
    rows = [["metric", "system", "score", "baseline", "difference", "p", "p (randomization)"]]
    for entry in differences:
        rows.append(
            [
                entry["metric"],
                entry["system"],
                f"{entry['score']:.2f} ± {entry['interval']:.2f}",
                f"{entry['baseline_score']:.2f} ± {entry['baseline_interval']:.2f}",
                f"{entry['difference']:+.2f}",
                f"{entry['p_value']:.4f}",
                f"{entry['randomization_p_value']:.4f}",
            ]
        )
    about = (
        f"Baseline: {differences[0]['baseline']}. p by bootstrap and by randomization; ± is half of the "
        "95 % interval."
    )
    signatures = {entry["metric"]: entry["signature"] for entry in differences}
    return [about, *_table(rows), *_table([*map(list, signatures.items())])]


def _old_domain(report: Mapping[str, Any]) -> list[str]:
    old = report["old_domain"]
    return [f"{old['sentences']:,} sentences.", *_scores(old), *_significance(old)]


def _cost(report: Mapping[str, Any]) -> list[str]:
    cost = report["training_cost"]
    if not cost:
        return ["Not known."]
    rows = [
        ["updates", f"{cost['updates']:,}"],
        ["FLOPs an update, counted", f"{cost['flops_per_update']:.4g}"],
        ["FLOPs in all, counted", f"{cost['flops']:.4g}"],
        ["  of them for real tokens", f"{cost['flops_of_tokens']:.4g}"],
        ["padding", f"{cost['padding']:.1%} of the positions"],
    ]
    if cost.get("seconds") is not None:
        rows += [
            ["time", f"{cost['seconds']:,.0f} s"],
            [
                "share of the peak (MFU)",
                f"{cost['mfu']:.1%} of {cost['peak']:.3g} FLOP/s, measured",
            ],
        ]
    return _table(rows)


def _signatures(report: Mapping[str, Any]) -> list[str]:
    first = next(iter(report["systems"].values()))
    return _table([[score["metric"], score["signature"]] for score in first["scores"].values()])


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows in aligned columns: the first and columns of words to the left, others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    numeric = [
        all(row[column][:1] in "+-0123456789" for row in rows[1:]) and len(rows[0]) > 2
        for column in range(len(rows[0]))
    ]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        for row in rows
    ]
