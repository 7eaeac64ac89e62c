"""Runs several subjects in turns, round by round, and shows what was found."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from harness.process import SubjectFailed, Worker


@dataclasses.dataclass(frozen=True)
class Spec:
    """A subject to start.

    Attributes:
        name: What tables call it.
        target: `"module:Class"` of a `Subject`, importable from `benchmarks/`.
        options: Keyword arguments of its constructor; what JSON can hold.
        environment: Variables for its process, such as `KERAS_BACKEND`.
        requires: Modules that must be importable, each with what `pip install` calls it.
        is_ceiling: Whether it measures the machine instead of a program: it has no outputs to compare.
    """

    name: str
    target: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    requires: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_ceiling: bool = False

    def missing(self) -> list[str]:
        """Return what `pip install` would have to install."""
        return [
            name for module, name in self.requires.items() if not importlib.util.find_spec(module)
        ]


@dataclasses.dataclass(frozen=True)
class Spread:
    """A figure and how far it scattered.

    Attributes:
        median: Of all samples; for a ratio, the ratio of the medians.
        least: The smallest sample, or ratio of a round.
        most: The largest.
    """

    median: float
    least: float
    most: float


@dataclasses.dataclass
class Outcome:
    """What became of a subject.

    Attributes:
        spec: The subject.
        facts: What its `prepare` returned.
        outputs: What its `check` returned before the timing.
        rounds: Seconds of the samples of each round.
        memory: `peak_bytes` (the most in a timed round) and `resident_bytes` (at the end).
        failure: Why it has no figures, or None.
    """

    spec: Spec
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    outputs: dict[str, Any] = dataclasses.field(default_factory=dict)
    rounds: list[list[float]] = dataclasses.field(default_factory=list)
    memory: dict[str, int] = dataclasses.field(default_factory=dict)
    failure: str | None = None

    @property
    def seconds(self) -> Spread:
        """Median and range of all samples."""
        return summarize(self.rounds)

    def rate(self, unit: str) -> float | None:
        """Units of work per second at the median, such as `rate("flop")`; None if it has no such work."""
        work = self.facts.get("work", {}).get(unit)
        return None if work is None or not self.rounds else work / self.seconds.median


def say(text: str) -> None:
    """Tell how it goes, beside the results."""
    print(text, file=sys.stderr, flush=True)


def installed(specs: Sequence[Spec]) -> list[Spec]:
    """Return those whose packages are installed; of the others, say how to install them."""
    for spec in specs:
        if spec.missing():
            say(f"not installed: {spec.name}; pip install {' '.join(spec.missing())}")
    return [spec for spec in specs if not spec.missing()]


def differing_output(
    reference: Mapping[str, Any], other: Mapping[str, Any], tolerance: float = 1e-3
) -> str | None:
    """Why the numbers of `other` are not those of `reference`, up to a relative tolerance; None if they are.

    Names that only one of them has are not compared.

    Example:

    >>> differing_output({"loss": 9.0}, {"loss": 9.2})
    'loss is 9.2 where the reference has 9 (relative difference 0.022, allowed 0.001)'
    """
    for name in sorted(reference.keys() & other.keys()):
        expected, got = float(reference[name]), float(other[name])
        difference = abs(got - expected) / max(abs(expected), 1e-12)
        if not difference <= tolerance:  # NaN is different, too.
            return (
                f"{name} is {got:.6g} where the reference has {expected:.6g} "
                f"(relative difference {difference:.2g}, allowed {tolerance:g})"
            )
    return None


def compare(
    specs: Sequence[Spec],
    rounds: int,
    count: int = 1,
    *,
    warmup: int = 1,
    threads: int | None = None,
    time_limit: float = 1800.0,
    differing: Callable[[dict[str, Any], dict[str, Any]], str | None] = differing_output,
) -> list[Outcome]:
    """Prepare all subjects, compare their outputs, and time them in turn.

    Args:
        specs: The subjects; the first that prepares itself and is no ceiling is the reference of the outputs.
        rounds: How often all take their turn.
        count: Samples of a turn.
        warmup: Samples of each before the first round, which do not count.
        threads: CPUs and threads of each process; None for all.
        time_limit: Seconds for each step: starting, preparing, checking, a turn.
        differing: Says why outputs (the reference's, another's) differ, or None if they agree. Who
            differs is not timed.

    Returns:
        An `Outcome` for each subject, in the given order.
    """
    outcomes = [Outcome(spec) for spec in specs]
    workers: dict[int, Worker] = {}

    @contextlib.contextmanager
    def noted(index: int) -> Iterator[None]:
        """End a subject that fails here; the others go on."""
        try:
            yield
        except SubjectFailed as error:
            outcomes[index].failure = str(error)
            say(f"FAILED: {outcomes[index].spec.name}: {error}")
            if index in workers:
                workers.pop(index).close()

    with contextlib.ExitStack() as stack:
        for index, spec in enumerate(specs):
            say(f"preparing {spec.name}")
            with noted(index):
                worker = Worker(spec.target, spec.options, spec.environment, threads, time_limit)
                workers[index] = stack.enter_context(worker)
                outcomes[index].facts = worker.call("prepare", time_limit)
                outcomes[index].outputs = worker.call("check", time_limit)
        good = [index for index in workers if not specs[index].is_ceiling]
        for index in good[1:]:
            reason = differing(outcomes[good[0]].outputs, outcomes[index].outputs)
            with noted(index):
                if reason is not None:
                    raise SubjectFailed(f"differs from {specs[good[0]].name}: {reason}")
        for number in range(0 if warmup else 1, rounds + 1):
            for index, worker in list(workers.items()):
                with noted(index):
                    answer = worker.call("run", time_limit, count=count if number else warmup)
                    if number:
                        _record(outcomes[index], answer)
            if number:
                last = [
                    f"{o.spec.name} {summarize(o.rounds[-1:]).median:.3g} s"
                    for o in outcomes
                    if o.rounds
                ]
                say(f"round {number} of {rounds}: {', '.join(last)}")
    return outcomes


def _record(outcome: Outcome, answer: Mapping[str, Any]) -> None:
    outcome.rounds.append([float(seconds) for seconds in answer["seconds"]])
    for name, size in answer["memory"].items():
        latest = name == "resident_bytes"
        outcome.memory[name] = size if latest else max(size, outcome.memory.get(name, 0))


def summarize(rounds: Sequence[Sequence[float]]) -> Spread:
    """Median and range of the samples of all rounds.

    Example:

    >>> summarize([[3.0, 1.0], [2.0, 9.0, 2.5]])
    Spread(median=2.5, least=1.0, most=9.0)
    """
    samples = [sample for samples in rounds for sample in samples]
    return Spread(statistics.median(samples), min(samples), max(samples))


def ratio(rounds: Sequence[Sequence[float]], of: Sequence[Sequence[float]]) -> Spread:
    """How many times as long `rounds` took as `of`; above 1, `of` is the faster.

    The figure is the ratio of the medians of all samples. Its spread is that of the ratios of the
    medians of each round: two subjects of one round met the same state of the machine.

    Args:
        rounds: Seconds, a sequence for each round.
        of: Seconds of the subject compared with, over the same rounds.

    Example:

    >>> ratio([[4.0], [9.0]], of=[[2.0], [3.0]])
    Spread(median=2.6, least=2.0, most=3.0)
    """
    pairs = zip(rounds, of, strict=True)
    each = [statistics.median(one) / statistics.median(other) for one, other in pairs]
    return Spread(summarize(rounds).median / summarize(of).median, min(each), max(each))


def comparison(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return every figure of a run, for its record: each subject with all of its samples.

    Ratios of each pair of subjects are in `"ratios"`: `ratios[a][b]` is how many times as long as b
    a took. Outputs that are text, not numbers, are left out: they may have a licence of their own.
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
            "outputs": {k: v for k, v in outcome.outputs.items() if isinstance(v, (int, float))},
            "seconds": dataclasses.asdict(outcome.seconds) if outcome.rounds else None,
            "rates": {unit: outcome.rate(unit) for unit in outcome.facts.get("work", {})},
        }
        for outcome in outcomes
    ]
    return {"subjects": subjects, "ratios": ratios}


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
    seconds, of_program = outcome.seconds, [""] * (3 + len(compared))
    if not outcome.spec.is_ceiling:
        spreads = [ratio(outcome.rounds, other.rounds) for other in compared]
        of_program = [
            f"{1e3 * seconds.median:,.0f}",
            f"{1e3 * seconds.least:,.0f}-{1e3 * seconds.most:,.0f}",
            f"{outcome.memory['peak_bytes'] / 2**30:.2f}",
            *(f"{one.median:.2f} ({one.least:.2f}-{one.most:.2f})" for one in spreads),
        ]
    found = [(outcome.rate(unit), divisor) for unit, (_, divisor) in rates.items()]
    cells = ["" if rate is None else number_text(rate / divisor) for rate, divisor in found]
    if ceiling:
        rate = outcome.rate("flop")
        cells.append("" if rate is None else f"{rate / ceiling:.0%}")
    return [outcome.spec.name, *of_program[:2], *cells, *of_program[2:]]


def number_text(number: float) -> str:
    """At least three digits: 12,345, 123, 12.3, 1.23."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def best_ceiling(outcomes: Sequence[Outcome]) -> float | None:
    """FLOP/s of the fastest ceiling; None if none was measured."""
    ceilings = [o.rate("flop") for o in outcomes if o.spec.is_ceiling and o.failure is None]
    return max(filter(None, ceilings), default=None)
