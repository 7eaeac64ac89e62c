"""Limits a training to a number of updates or minutes."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

from annotated_types import Gt, Le

from keras_attention.callbacks.base import RunCallback
from keras_attention.training.agreement import chief_says
from keras_attention.training.learning_rate import BudgetSchedule, CooldownToBudget
from keras_attention.utils.arguments import Count, Has, NotNegative, Positive, checked
from keras_attention.utils.cooldown import cooldown_start, finishing_steps
from keras_attention.utils.forecast import Forecast

# With a clock, the schedule is told of each new share of this size: the rate is never far from its curve.
RATE_STEP = 1 / 400
# An update's time is known after this many, which took at least so long: a mean of fewer would jump.
KNOWN_UPDATES, KNOWN_SECONDS = 5, 10.0
# The machine may have been busier: what was measured counts half after each so many seconds.
LATE_SECONDS = 120.0


@dataclasses.dataclass(frozen=True)
class Cooldown:
    """The last share of a training, in which the learning rate falls to 0."""

    updates: int  # where it began
    seconds: float
    steps: int | None  # its last update, if it began before the budget said so; else None
    # What it answers to: the patience if it began early, else the budget. With other limits, the updates
    # of this cool-down are not part of the training.
    limits: list[float | None]


class Budget(RunCallback):
    """Stops training after a number of updates or minutes, whichever comes first.

    Minutes are minutes of training: compilation, validation and looking at the attention do not count.
    The first batch of each shape compiles, so its time is not counted; on PyTorch, with `jit_compile=True`,
    the second does, and neither counts.

    If the optimizer has a `CosineToBudget` or `CooldownToBudget` schedule, this callback tells it which
    share of the budget or of the cool-down is used.

    Args:
        steps: Number of updates, over all starts of a run; None for no limit. An update is a batch, also
            where the optimizer skips one or takes several together.
        minutes: Minutes of training, over all starts of a run; None for no limit.
        seconds_before: Seconds of training in earlier starts of the run. Defaults to 0.
        batches: The training data, with a method `batch_shape(epoch, index)`, as in `TokenBatches`.
            Without it, only the very first batch is expected to compile.
        cooldown: Share of the budget that is the cool-down of a `CooldownToBudget`; None for none.
        patience: Of the `StopWithoutGain` that may call `finish`; a stopped run with another one goes on
            at its full rate.

    Attributes:
        updates: Number of updates so far.
        seconds: Seconds of training so far.
        shape: (B, S, T) of the current batch; None if the batches do not say it.
        is_timed: Whether the time of the current batch counts: not if it compiles.
        untimed: Numbers of the batches of this epoch whose time does not count.
        untimed_seconds: Seconds that such batches took in this start.
        compiling: The same of the start where they took longest.

    Raises:
        ValueError: If an argument is out of range.
    """

    @checked
    def __init__(
        self,
        steps: Count | None = None,
        minutes: Positive | None = None,
        seconds_before: NotNegative = 0.0,
        batches: Annotated[Any, Has("TokenBatches", "batch_shape")] | None = None,
        cooldown: Annotated[float, Gt(0), Le(0.5)] | None = None,
        patience: Count | None = None,
    ):
        super().__init__()
        self.steps = steps
        self.minutes = minutes
        self.batches = batches
        self.cooldown = cooldown
        self.patience = patience
        self.updates = 0
        self.seconds = seconds_before
        self.shape: tuple[int, int, int] | None = None
        self.compiling = 0.0
        self._cools: Cooldown | None = None
        self._limits_before: list[float | None] | None = None  # of the last checkpoint
        self.untimed: set[int] = set()
        self.untimed_seconds = 0.0
        # Updates whose time counts, and these seconds: of earlier starts, of this one.
        self._measured_before: tuple[float, float] = (0, 0.0)
        self._measured: tuple[float, float] = (0, 0.0)
        self._shapes: Counter[Any] = Counter()  # batches of each in this process
        self._epoch = 0
        self._batch_began: float | None = None  # None between two batches
        self.is_timed = False
        self._schedule: BudgetSchedule | None = None
        self._told = -math.inf

    def get_state(self) -> dict[str, Any]:
        cools = None if self._cools is None else dataclasses.asdict(self._cools)
        return {
            "seconds": self.seconds,
            "measured": list(self._known_speed()),
            "compiling": self.compiling,
            "cooldown": cools,
            "limits": self._all_limits,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.seconds = state["seconds"]
        updates, seconds = state["measured"]
        self._measured_before = (updates, seconds)
        self.compiling = state["compiling"]
        self._limits_before = state["limits"]
        # An outdated one is of a checkpoint from where the cool-down began.
        is_none = state["cooldown"] is None or self.is_outdated(state)
        self._cools = None if is_none else Cooldown(**state["cooldown"])

    def is_outdated(self, state: Mapping[str, Any]) -> bool:
        """Whether a state is of a cool-down that another budget began."""
        cools = state["cooldown"]
        return cools is not None and cools["limits"] != self._limits(cools["steps"] is not None)

    @property
    def _all_limits(self) -> list[float | None]:
        return [self.steps, self.minutes, self.patience]

    @property
    def has_same_limits(self) -> bool:
        """Whether the checkpoint that training continues from was written under this budget."""
        return self._limits_before == self._all_limits

    def _limits(self, is_early: bool) -> list[float | None]:
        return [self.patience] if is_early else [self.steps, self.minutes]

    def is_over(self, updates: int) -> bool:
        """Whether a run with this number of updates has used up the budget."""
        return (self.last_step is not None and updates >= self.last_step) or (
            self.minutes is not None and self.seconds >= 60 * self.minutes
        )

    @property
    def last_step(self) -> int | None:
        """The last update: the budget's, or that of a cool-down that has begun early."""
        early = None if self._cools is None else self._cools.steps
        return min((end for end in (self.steps, early) if end is not None), default=None)

    @property
    def milestones(self) -> set[int]:
        """The update before the cool-down: a run with another budget goes on from its checkpoint."""
        return set() if self.cools_from is None else {self.cools_from}

    @property
    def cools_from(self) -> int | None:
        """The update after which the cool-down has begun; None before it."""
        return None if self._cools is None else self._cools.updates

    @property
    def seconds_per_update(self) -> float | None:
        """The mean time of an update of late, in this start or an earlier one; None if unknown."""
        updates, seconds = self._known_speed()
        return seconds / updates if _is_known(updates, seconds) else None

    def _known_speed(self) -> tuple[float, float]:
        is_better = _is_known(*self._measured) or not _is_known(*self._measured_before)
        return self._measured if is_better else self._measured_before

    def forecast(self, updates: int, planned: Forecast | None = None) -> Forecast:
        """Return what is left of the budget after this many updates, at the speed so far."""
        return dataclasses.replace(
            planned or Forecast(self.steps, self.minutes),
            steps=self.last_step,
            seconds=self.seconds_per_update,
            source="as this run so far",
            updates=updates,
            spent=self.seconds,
        )

    @property
    def used(self) -> float:
        """The share of the budget that is used, from 0 to 1."""
        return self._share_since(0, 0.0)

    def _share_since(self, updates: int, seconds: float) -> float:
        """Return the share of the budget's rest, after these updates and seconds, that is used."""
        shares = [0.0]
        if self.last_step is not None:
            shares.append((self.updates - updates) / max(1, self.last_step - updates))
        if self.minutes is not None:
            shares.append((self.seconds - seconds) / max(1e-9, 60 * self.minutes - seconds))
        return min(1.0, max(shares))

    def finish(self) -> None:
        """Begin the cool-down now; the training ends with it. Does nothing if it has begun."""
        assert self.cooldown is not None
        if self._cools is None:
            self._begin_cooldown(finishing_steps(max(1, self.updates), self.cooldown))

    def _begin_cooldown(self, steps: int | None) -> None:
        limits = self._limits(is_early=steps is not None)
        self._cools = Cooldown(self.updates, self.seconds, steps, limits)

    def on_train_begin(self, logs: Any = None) -> None:
        self.updates = self.updates_of_run
        self.untimed_seconds = 0.0
        self._measured = (0, 0.0)
        self._batch_began = None
        # `LossScaleOptimizer` wraps the optimizer that has the schedule.
        optimizer = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        schedule = getattr(optimizer, "_learning_rate", None)
        self._schedule = schedule if isinstance(schedule, BudgetSchedule) else None
        self._told = -math.inf

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch
        self.untimed = set()
        if self.cooldown is not None and self.patience is not None:
            # The chief alone knows when the patience is over.
            began = chief_says(-1.0 if self._cools is None else self._cools.seconds)
            if began >= 0:
                self.finish()
                assert self._cools is not None
                self._cools = dataclasses.replace(self._cools, seconds=began)

    def before_update(self, batch: int) -> None:
        self._count_time()
        if self.minutes is not None:
            self.seconds = chief_says(self.seconds)  # The learning rate may depend on it.
        if self.batches is not None:
            self.shape = self.batches.batch_shape(self._epoch, batch)
        self._batch_began = time.monotonic()
        self.is_timed = self._shapes[self.shape] >= getattr(self.model, "slow_batches", 1)
        if not self.is_timed:
            self.untimed.update(range(batch, self._done))
        self._shapes[self.shape] += 1
        if self.cooldown is not None and self._cools is None and self._cooldown_is_due():
            self._begin_cooldown(None)
        self._tell_schedule()
        self.updates += self._done - batch
        if self.used >= 1.0:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._count_time()
        self._batch_began, self.is_timed = None, False

    def pause(self, seconds: float) -> None:
        """Do not count seconds that passed within a batch with other work than training."""
        if self._batch_began is not None:
            self._batch_began += seconds

    def _count_time(self) -> None:
        if self._batch_began is None:
            return
        took = time.monotonic() - self._batch_began
        if self.is_timed:
            self.seconds += took
            updates, seconds = self._measured
            self._measured = (updates + self._at_once, seconds + took)
            if updates >= 4 * KNOWN_UPDATES and seconds >= LATE_SECONDS:
                self._measured = (updates / 2, seconds / 2)
        else:
            self.untimed_seconds += took
            self.compiling = max(self.compiling, self.untimed_seconds)

    def _cooldown_is_due(self) -> bool:
        assert self.cooldown is not None
        if self.steps is not None and self.updates >= cooldown_start(self.steps, self.cooldown):
            return True
        full = 1 - self.cooldown
        return self.minutes is not None and self.seconds >= full * 60 * self.minutes

    def _tell_schedule(self) -> None:
        if self._schedule is None:
            return
        share = self.used
        if isinstance(self._schedule, CooldownToBudget):
            cools = self._cools
            share = 0.0 if cools is None else self._share_since(cools.updates, cools.seconds)
        # The rate of a run with a clock is never the same twice; without one it is exact.
        if share > self._told + (0.0 if self.minutes is None else RATE_STEP):
            self._told = share
            assert self.model is not None  # On JAX, asking for it brings the variables up to date.
            self._schedule.used.assign(share)


def _is_known(updates: float, seconds: float) -> bool:
    return updates >= KNOWN_UPDATES and seconds >= KNOWN_SECONDS
