"""What a budget comes to: one forecast for a plan, the start of a run, its progress, and a continued run."""

from __future__ import annotations

import dataclasses

# A budget below this share of the recipe's is told to be one.
SMALL_SHARE = 0.5


@dataclasses.dataclass(frozen=True)
class Forecast:
    """The updates, epochs and minutes of a budget, as far as they are known; `str` says them in a line.

    Example:

    >>> forecast = Forecast(steps=2000, minutes=None, batches=160, advised=2000)
    >>> print(forecast)
    Budget: 2,000 updates, 12.5 epochs. How long an update takes is known after the first of them.
    >>> print(dataclasses.replace(forecast, seconds=0.75, source="this run so far", updates=400))
    Budget: 1,600 of 2,000 updates left, 10.0 epochs, about 20 minutes, at 0.75 s an update (this run so far).
    """

    steps: int | None  # the budget
    minutes: float | None
    batches: int | None = None  # updates in an epoch; None if nobody asks for epochs
    # Updates that the recipe for this text has; None if nobody asks for advice.
    advised: int | None = None
    is_fine_tuned: bool = False  # whether it starts from a pretrained model
    # Whether the run may end early, because the validation perplexity stops improving.
    early: bool = False
    seconds: float | None = None  # time of an update, as it was measured; None if unknown
    source: str = ""  # how it was measured
    updates: int = 0  # updates and seconds of training that are done
    spent: float = 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds of training until the budget ends; None if they depend on an unknown speed."""
        ends = []
        if self.steps is not None:
            if self.seconds is None:
                return None
            ends.append(self.seconds * (self.steps - self.updates))
        if self.minutes is not None:
            ends.append(60 * self.minutes - self.spent)
        return max(0.0, min(ends, default=0.0))

    @property
    def updates_in_time(self) -> float | None:
        """Updates that fit into what is left of the minutes; None without minutes or speed."""
        if self.minutes is None or self.seconds is None:
            return None
        return max(0.0, 60 * self.minutes - self.spent) / self.seconds

    @property
    def expected(self) -> float | None:
        """All updates of the run, those that are done included; None if they depend on an unknown speed."""
        ends = [] if self.steps is None else [float(self.steps)]
        in_time = self.updates_in_time
        if in_time is not None:
            ends.append(self.updates + in_time)
        return min(ends, default=None)

    def __str__(self) -> str:
        parts = []
        if self.steps is not None:
            parts.append(self._of_updates(self.steps))
        if self.minutes is not None:
            at_most = "" if self.steps is None else "at most "
            parts.append(at_most + self._of_time(self.minutes))
        early = ", fewer if the validation perplexity stops improving" if self.early else ""
        on_top = self.minutes is not None and not self.spent
        beside = " Compiling, validation and scores come on top." if on_top else ""
        if self.seconds is None:
            speed = "How long an update takes is known after the first of them."
            return f"Budget: {'; '.join(parts)}{early}. {speed}{beside}"
        exact = f"{self.seconds:.2f}" if self.seconds < 10 else f"{self.seconds:.0f}"
        return f"Budget: {'; '.join(parts)}{early}, at {exact} s an update ({self.source}).{beside}"

    def _of_updates(self, steps: int) -> str:
        left = max(0, steps - self.updates)
        count = f"{left:,} of {steps:,} updates left" if self.updates else f"{steps:,} updates"
        time = "" if self.seconds is None else f", about {duration(left * self.seconds)}"
        return f"{count}{self._epochs(left)}{time}"

    def _epochs(self, updates: float) -> str:
        return "" if self.batches is None else f", {updates / self.batches:,.1f} epochs"

    def _of_time(self, minutes: float) -> str:
        left = max(0.0, 60 * minutes - self.spent)
        time = f"{minutes:,g} minutes of training"
        if self.spent:
            time = f"{left / 60:,.1f} of {time} left"
        updates = self.updates_in_time
        if updates is None:
            return time
        return f"{time}, about {rounded(updates):,} updates{self._epochs(updates)}"

    @property
    def advice(self) -> str:
        """A line if the budget is a fraction of what the recipe advises; else an empty text."""
        expected = self.expected
        if self.batches is None or self.advised is None or expected is None:
            return ""
        if expected >= SMALL_SHARE * self.advised:
            return ""
        time = "" if self.seconds is None else f", about {duration(self.advised * self.seconds)}"
        expected_gain = "a small gain" if self.is_fine_tuned else "poor translations"
        return (
            f"This budget is {expected / self.batches:,.1f} of the {self.advised / self.batches:,.1f} epochs "
            f"that the recipe advises for this much text: expect {expected_gain}. The whole is "
            f"--steps {self.advised}{time}."
        )


def rounded(number: float) -> int:
    """Return the number rounded to two digits, so that nobody takes it for exact."""
    return int(float(f"{number:.1e}"))


def duration(seconds: float) -> str:
    """Return a time in a unit that is easy to read.

    >>> [duration(seconds) for seconds in (20, 540, 9000, 300_000)]
    ['a minute', '9 minutes', '2.5 hours', '3.5 days']
    """
    if seconds < 90:
        return "a minute"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    if seconds < 129_600:
        return f"{seconds / 3600:.1f} hours"
    return f"{seconds / 86_400:.1f} days"
