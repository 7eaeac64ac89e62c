"""The results of a run: a table to read, a file for programs, a picture."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.compare import Outcome, finite_or_none
from harness.summary import Spread, ratio


def table(
    outcomes: Sequence[Outcome],
    rates: Mapping[str, tuple[str, float]],
    unit: str = "update",
    ceiling: float | None = None,
    ratio_to: Sequence[str] = (),
) -> str:
    """Return a Markdown table: medians, ranges, rates, share of the ceiling, memory, ratios.

    Args:
        outcomes: From `compare`.
        rates: For each unit of work, the column's title and the divisor of the rate, such as
            `{"flop": ("GFLOP/s", 1e9), "tokens": ("tokens/s", 1)}`.
        unit: What a sample is.
        ceiling: FLOP/s of the machine, for the share of it.
        ratio_to: Names of subjects; a column for each says how many times as long as that subject each
            one took: above 1, that subject is the faster.

    Returns:
        The table, and below it a line for each subject that failed.
    """
    good = [outcome for outcome in outcomes if outcome.failure is None and outcome.rounds]
    compared = [outcome for outcome in good if outcome.spec.name in ratio_to]
    heads = ["subject", f"ms per {unit}", "range", *(title for title, _ in rates.values())]
    heads += ["of ceiling"] if ceiling else []
    heads += ["peak GiB", *(f"time / {outcome.spec.name}" for outcome in compared)]
    rows = [_row(outcome, rates, ceiling, compared) for outcome in good]
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    lines += [f"\nfailed: {o.spec.name}: {o.failure}" for o in outcomes if o.failure is not None]
    return "\n".join(lines)


def _row(
    outcome: Outcome,
    rates: Mapping[str, tuple[str, float]],
    ceiling: float | None,
    compared: Sequence[Outcome],
) -> list[str]:
    seconds = outcome.seconds
    is_ceiling = outcome.spec.is_ceiling
    cells = [outcome.spec.name, "" if is_ceiling else f"{1e3 * seconds.median:,.0f}"]
    cells.append("" if is_ceiling else f"{1e3 * seconds.least:,.0f}-{1e3 * seconds.most:,.0f}")
    for unit, (_, divisor) in rates.items():
        rate = outcome.rate(unit)
        cells.append("" if rate is None else number_text(rate / divisor))
    if ceiling:
        rate = outcome.rate("flop")
        cells.append("" if rate is None else f"{rate / ceiling:.0%}")
    peak = outcome.memory.get("peak_bytes")
    cells.append("" if peak is None or is_ceiling else f"{peak / 2**30:.2f}")
    for other in compared:
        cells.append("" if is_ceiling else _ratio_text(ratio(outcome.rounds, other.rounds)))
    return cells


def number_text(number: float) -> str:
    """At least three digits: 12,345, 123, 12.3, 1.23."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _ratio_text(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.least:.2f}-{spread.most:.2f})"


def best_ceiling(outcomes: Sequence[Outcome], framework: str | None = None) -> float | None:
    """FLOP/s of the fastest ceiling, or of that of one framework; None if none was measured."""
    rates = [
        outcome.rate("flop")
        for outcome in outcomes
        if outcome.spec.is_ceiling
        and outcome.failure is None
        and framework in (None, outcome.spec.options.get("framework"))
    ]
    return max((rate for rate in rates if rate is not None), default=None)


def write_json(
    path: Path, facts: Mapping[str, Any], outcomes: Sequence[Outcome], **more: Any
) -> None:
    """Write every figure of a run: the facts, each subject with all of its samples, and `more`.

    Ratios of each pair of subjects are in `"ratios"`: `ratios[a][b]` is how many times as long as b
    a took. The file is written beside its place and renamed.
    """
    good = [o for o in outcomes if o.failure is None and o.rounds and not o.spec.is_ceiling]
    ratios = {
        one.spec.name: {
            other.spec.name: dataclasses.asdict(ratio(one.rounds, other.rounds)) for other in good
        }
        for one in good
    }
    subjects = [
        {
            **dataclasses.asdict(outcome),
            "seconds": dataclasses.asdict(outcome.seconds) if outcome.rounds else None,
            "rates": {unit: outcome.rate(unit) for unit in outcome.facts.get("work", {})},
        }
        for outcome in outcomes
    ]
    record = finite_or_none({**facts, **more, "subjects": subjects, "ratios": ratios})
    _write(path, json.dumps(record, indent=2, allow_nan=False) + "\n")


def plot_ratios(
    path: Path, outcomes: Sequence[Outcome], rate: tuple[str, str, float], title: str, ratio_to: str
) -> None:
    """Draw the rate of each subject as a bar, with the range over its samples and the ratio.

    Args:
        path: A PNG file.
        outcomes: From `compare`; ceilings and failures are left out.
        rate: Unit of work, label of the axis, divisor, such as `("tokens", "tokens/s", 1)`.
        title: What was measured, where.
        ratio_to: Name of the subject whose speed is 1 in the labels; that of the first if it has failed.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    unit, label, divisor = rate
    shown = [o for o in outcomes if o.failure is None and o.rate(unit) and not o.spec.is_ceiling]
    if not shown:
        raise ValueError(f"No subject has a rate of {unit!r} to draw: all have failed.")
    named = [outcome for outcome in shown if outcome.spec.name == ratio_to]
    base = (named or shown)[0]
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.5 * len(shown)), layout="constrained")
    for position, outcome in enumerate(shown):
        work, seconds = outcome.facts["work"][unit] / divisor, outcome.seconds
        median = work / seconds.median
        reach = [[median - work / seconds.most], [work / seconds.least - median]]
        is_ours = outcome.spec.name.startswith("keras_attention")
        axes.barh(position, median, xerr=reach, capsize=3, color="C0" if is_ours else "0.7")
        times = base.seconds.median / seconds.median
        text = f" {number_text(median)}  ({times:.2f} x {base.spec.name})"
        axes.text(work / seconds.least, position, text, va="center", fontsize=9)
    axes.set_yticks(range(len(shown)), [outcome.spec.name for outcome in shown])
    axes.invert_yaxis()
    axes.set_xlabel(f"{label}, median and range; more is better")
    axes.set_xlim(0, 1.6 * max(o.facts["work"][unit] / divisor / o.seconds.least for o in shown))
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    beside = path.with_name(f".{path.name}.{os.getpid()}.png")
    figure.savefig(beside, dpi=120)
    pyplot.close(figure)
    os.replace(beside, path)


def _write(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
