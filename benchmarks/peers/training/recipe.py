"""The same batches of the demo corpus, with all that a run does beside `fit`."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

from peers.peer import Peer


class DemoTraining(Peer):
    """The demo corpus' recipe; a sample is an epoch's first updates, the seconds those between their ends.

    What a run does at the ends of epochs (validation, BLEU, checkpoints) is no part of them; what it does
    with each update (progress, metrics, attention, the watch on numbers that are not finite) is.

    Args:
        preset: The model's size.
        updates: Updates of a sample, of the same batches each time; at most an epoch's.
        batch_tokens: Of a batch; the recipe's if not given.
    """

    def __init__(self, preset: str, updates: int, batch_tokens: int | None = None) -> None:
        self.preset, self.updates = preset, updates
        self.changed = {} if batch_tokens is None else {"batch_tokens": batch_tokens}
        self.devices: Any = None  # of several processes
        self.import_libraries()

    def import_libraries(self) -> None:
        import keras

        import keras_attention

        self.keras, self.package = keras, keras_attention

    def build(self) -> dict[str, Any]:
        from keras_attention.recipes.catalog import RECIPES
        from keras_attention.recipes.run import Run

        self.package.tune_memory()
        self.folder = tempfile.TemporaryDirectory(prefix="demo-training-")
        folder = Path(self.folder.name)
        self.config = dataclasses.replace(
            RECIPES["demo"], preset=self.preset, bleu_every=1000, **self.changed
        )
        self.corpus = self.package.load_corpus("demo")
        prepared = Run(self.corpus, self.config, folder)
        self.batches, self.model = prepared.batches, prepared.model
        self.updates = min(self.updates, len(self.batches))
        self.runs = 0
        return {"backend": self.keras.backend.backend(), "parameters": self.model.count_params()}

    def work(self) -> dict[str, float]:
        # The first one ends before the clock runs.
        timed = range(1, self.updates)
        tokens = sum(sum(self.batches.tokens_in_batch(0, index)) for index in timed)
        return {"tokens": tokens, "updates": len(timed)}

    def run(self, count: int) -> list[float]:
        return [self._sample() for _ in range(count)]

    def _sample(self) -> float:
        clock = self._clock()
        from keras_attention.recipes.loop import train
        from keras_attention.recipes.run import Run

        self.runs += 1
        folder = Path(self.folder.name)
        own = folder / f"run-{self.runs}"
        own.mkdir()
        done = int(self.keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        steps = done + self.updates
        fit = self.model.fit

        def timed_fit(*data: Any, callbacks: Any, **options: Any) -> Any:
            callbacks.callbacks.append(clock)
            return fit(*data, callbacks=callbacks, **options)

        config = dataclasses.replace(self.config, steps=steps, minutes=None, patience=None)
        run = Run(self.corpus, config, own, shared=folder)
        run.model = self.model
        if self.devices is not None:
            run.devices = self.devices
        self.model.fit = timed_fit
        try:
            train(run)
        finally:
            del self.model.fit
        return clock.seconds

    def _clock(self) -> Any:
        class Clock(self.keras.callbacks.Callback):  # type: ignore[name-defined]
            """Seconds from the first update's end to the last's."""

            seconds = 0.0

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                now = time.perf_counter()
                if batch:
                    self.seconds += now - self.before
                self.before = now

        return Clock()
