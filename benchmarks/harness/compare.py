"""Runs several subjects in turns, round by round."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.process import SubjectFailed, Worker
from harness.summary import Spread, summarize


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
            package
            for module, package in self.requires.items()
            if importlib.util.find_spec(module) is None
        ]


@dataclasses.dataclass
class Outcome:
    """What became of a subject.

    Attributes:
        spec: The subject.
        facts: What its `prepare` returned.
        outputs: What its `check` returned before the timing.
        outputs_after: What it returned after, if that was asked for.
        rounds: Seconds of the samples of each round.
        memory: `started_bytes` (the libraries' own, before the model), `peak_bytes` (the most in a
            timed round), `absolute_peak_bytes` (with the preparation) and `resident_bytes` (at the end).
        failure: Why it has no figures, or None.
    """

    spec: Spec
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    outputs: dict[str, Any] = dataclasses.field(default_factory=dict)
    outputs_after: dict[str, Any] = dataclasses.field(default_factory=dict)
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


def split_by_presence(specs: Sequence[Spec]) -> tuple[list[Spec], list[Spec]]:
    """Those whose packages are installed, and those of which some are not."""
    present = [spec for spec in specs if not spec.missing()]
    return present, [spec for spec in specs if spec.missing()]


def missing_text(missing: Sequence[Spec]) -> str:
    """One line for each subject that cannot run here: how to install it."""
    return "\n".join(
        f"not installed: {spec.name}; pip install {' '.join(spec.missing())}" for spec in missing
    )


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
    count: int,
    *,
    warmup: int = 1,
    threads: int | None = None,
    prepare_limit: float = 900.0,
    run_limit: float = 600.0,
    differing: Callable[[dict[str, Any], dict[str, Any]], str | None] = differing_output,
    check_after: bool = False,
    log: Callable[[str], None] = print,
) -> list[Outcome]:
    """Prepare all subjects, compare their outputs, and time them in turn.

    Args:
        specs: The subjects; the first that prepares itself and is no ceiling is the reference of the outputs.
        rounds: How often all take their turn.
        count: Samples of a turn.
        warmup: Samples of each before the first round, which do not count.
        threads: CPUs and threads of each process; None for all.
        prepare_limit: Seconds for starting, preparing and checking, each.
        run_limit: Seconds for a turn.
        differing: Says why outputs (the reference's, another's) differ, or None if they agree. Who
            differs is not timed.
        check_after: Whether to ask for the outputs once more at the end, for the record.
        log: Told what happens.

    Returns:
        An `Outcome` for each subject, in the given order. Ctrl-C between the first turn and the last
        leaves the whole rounds until then.
    """
    outcomes = [Outcome(spec) for spec in specs]
    workers: dict[int, Worker] = {}
    try:
        for index, outcome in enumerate(outcomes):
            log(f"preparing {outcome.spec.name}")
            with _failures_of(outcome, log):
                spec = outcome.spec
                workers[index] = worker = Worker(
                    spec.target, spec.options, spec.environment, threads, prepare_limit
                )
                outcome.memory["started_bytes"] = worker.started["resident_bytes"]
                outcome.facts = worker.call("prepare", prepare_limit)
                outcome.outputs = worker.call("check", prepare_limit)
        _check_outputs(outcomes, differing, log)
        for index, outcome in enumerate(outcomes):
            if outcome.failure is not None and index in workers:
                workers.pop(index).close()
        try:
            for number in range(-1 if warmup else 0, rounds):
                _take_turns(
                    outcomes, workers, warmup if number < 0 else count, run_limit, number >= 0, log
                )
                log("warmed up" if number < 0 else _round_text(number, rounds, outcomes))
        except KeyboardInterrupt:
            _keep_whole_rounds(outcomes, log)
            return outcomes
        for index, worker in workers.items() if check_after else ():
            with _failures_of(outcomes[index], log):
                outcomes[index].outputs_after = worker.call("check", prepare_limit)
    finally:
        for worker in workers.values():
            worker.close()
    return outcomes


class _failures_of:
    """Context manager: a subject that fails is noted, and the others go on."""

    def __init__(self, outcome: Outcome, log: Callable[[str], None]) -> None:
        self._outcome, self._log = outcome, log

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        if not isinstance(error, SubjectFailed):
            return False
        self._outcome.failure = str(error)
        self._log(f"FAILED: {self._outcome.spec.name}: {error}")
        return True


def _check_outputs(
    outcomes: Sequence[Outcome],
    differing: Callable[[dict[str, Any], dict[str, Any]], str | None],
    log: Callable[[str], None],
) -> None:
    good = [o for o in outcomes if o.failure is None and not o.spec.is_ceiling]
    for outcome in good[1:]:
        reason = differing(good[0].outputs, outcome.outputs)
        if reason is not None:
            outcome.failure = f"its outputs differ from those of {good[0].spec.name}: {reason}"
            log(f"FAILED: {outcome.spec.name}: {outcome.failure}")


def _take_turns(
    outcomes: Sequence[Outcome],
    workers: dict[int, Worker],
    count: int,
    limit: float,
    recorded: bool,
    log: Callable[[str], None],
) -> None:
    for index, worker in list(workers.items()):
        with _failures_of(outcomes[index], log):
            answer = worker.call("run", limit, count=count)
            if recorded:
                _record(outcomes[index], answer)
        if outcomes[index].failure is not None:
            workers.pop(index).close()


def _keep_whole_rounds(outcomes: Sequence[Outcome], log: Callable[[str], None]) -> None:
    good = [outcome for outcome in outcomes if outcome.failure is None]
    whole = min((len(outcome.rounds) for outcome in good), default=0)
    if not whole:
        raise KeyboardInterrupt  # Nothing to show.
    for outcome in good:
        del outcome.rounds[whole:]
    log(f"interrupted: what follows is of {whole} rounds")


def _record(outcome: Outcome, answer: dict[str, Any]) -> None:
    outcome.rounds.append([float(seconds) for seconds in answer["seconds"]])
    for name, size in answer["memory"].items():
        latest = name == "resident_bytes"
        outcome.memory[name] = size if latest else max(size, outcome.memory.get(name, 0))


def _round_text(number: int, rounds: int, outcomes: Sequence[Outcome]) -> str:
    parts = [
        f"{outcome.spec.name} {summarize(outcome.rounds[-1:]).median:.3g} s"
        for outcome in outcomes
        if outcome.failure is None and outcome.rounds
    ]
    return f"round {number + 1} of {rounds}: {', '.join(parts)}"


def finite_or_none(value: Any) -> Any:
    """Return the same data with what JSON cannot hold, infinities and NaN, as None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): finite_or_none(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite_or_none(part) for part in value]
    return value
