"""Which checkpoints of a run stand for it, and how a model gets their weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.evaluation.report import BEST, LAST, MIXED, START, System
from keras_attention.training.checkpoints import (
    average_checkpoints,
    list_checkpoints,
    load_moving_average,
    select_checkpoints,
)
from keras_attention.utils.run_folder import RunFolder


class ChosenCheckpoints:
    """The checkpoints of a run, finished or not, that its settings choose."""

    def __init__(self, folder: RunFolder, settings: Mapping[str, Any]):
        self.folder = folder
        self.settings = settings

    @property
    def load(self) -> Callable[[Any, Sequence[Path]], None]:
        """Gives a model the average of checkpoints, or the moving average that the last of them holds."""
        return average_checkpoints if self.settings.get("ema") is None else load_moving_average

    def load_mixed(self, restart: Callable[[Any], None]) -> Callable[[Any, Sequence[Path]], None]:
        """Return what gives a model the mean of the weights of `load` and `restart`, by `start_share`."""

        def load(model: Any, paths: Sequence[Path]) -> None:
            self.load(model, paths)
            # Counters and seeds have no mean.
            weights = [v for v in model.weights if "float" in str(v.dtype)]
            trained = [np.array(weight, "float64") for weight in weights]
            restart(model)
            for weight, new in zip(weights, trained, strict=True):
                old = np.array(weight, "float64")
                weight.assign(new + self.settings["start_share"] * (old - new))

        return load

    def averaged(self, last: int | None = None) -> list[Path]:
        """Return the checkpoints that the run averages, or so many of them, oldest first."""
        many = self.settings["averaged_checkpoints"] if self.settings.get("ema") is None else 1
        minutes, updates = (
            self.settings.get(f"checkpoint_{unit}") for unit in ("minutes", "updates")
        )
        return select_checkpoints(self.folder.checkpoints, last or many, minutes, updates)

    @property
    def best(self) -> dict[str, Any] | None:
        """The best checkpoint, if the run keeps it: its `name`, what it is the best `by`, and its `value`."""
        by = self.settings.get("best_by")
        best = None if by is None else self.folder.best_checkpoint()
        return best and {"by": by, **best}

    @property
    def ends_with_best(self) -> bool:
        """Whether the run ends with the best checkpoint, and not with the average."""
        return self.settings.get("final_model") == "best" and self.best is not None

    def named(self, name: str) -> list[Path]:
        """Return the checkpoints that a name stands for, after `RunFolder.check_checkpoint`."""
        if name == "average":
            return self.averaged()
        if name == "last":
            return list_checkpoints(self.folder.checkpoints)[-1:]
        best = self.folder.best_checkpoint() if name == "best" else None
        return [self.folder.checkpoints / (best["name"] if best else name)]

    def systems(
        self, model: Any, restart: Callable[[Any], None] | None = None
    ) -> dict[str, System]:
        """Return what a report compares, by title; at the end the result.

        The model gets the weights; `restart` gives it those that the training started from, if any.
        """

        def system(
            paths: Sequence[Path], load: Callable[[Any, Any], None] = average_checkpoints
        ) -> System:
            return System(functools.partial(load, model, paths), paths)

        paths, systems = self.averaged(), {}
        first, last = paths[0], paths[-1]
        moves = self.settings.get("ema") is not None
        if len(paths) > 1:
            systems[f"first averaged ({first.name})"] = system([first])
        systems[f"{LAST}({last.name})"] = system([last])
        if moves:
            systems[f"moving average ({last.name})"] = system([last], self.load)
        elif len(paths) > 1:
            systems[f"average of {len(paths)}"] = system(paths)
        best = self.best
        if best is not None:
            own = system([self.folder.checkpoints / best["name"]], self.load)
            own_row = {f"{BEST}{best['by']} ({best['name']})": own}
            # The same weights are named once. (A moving average of one checkpoint has others than it.)
            same = [name for name, one in systems.items() if one.checkpoints == own.checkpoints]
            if self.ends_with_best:
                for name in [] if moves else same:
                    del systems[name]
                systems = {**systems, **own_row}
            elif moves or not same:
                systems = {**own_row, **systems}
        share = self.settings.get("start_share")
        if share:
            load = functools.partial(average_checkpoints, model, [self.folder.average])
            systems[f"{MIXED}{share:.0%} of the weights before training"] = System(load)
        if restart is not None:
            systems = {START: System(functools.partial(restart, model)), **systems}
        return systems
