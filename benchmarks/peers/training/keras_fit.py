"""Programs that train through Keras' `compile` and `fit`, on any backend."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from peers.training.profiles import tensorflow_profile, torch_profile
from peers.training.program import Program
from peers.weights import make_weights


class KerasProgram(Program):
    """A compiled Keras model; the subclass makes it.

    A sample is an update, from the end of the batch before it (of the first: its begin) to its own end
    with the loss read, as callbacks see them; or an epoch, the whole of a call of `fit`. `jit_compile` is
    passed to `compile` if it is given.
    """

    commands = (*Program.commands, "profile")
    jit_compile: Any = None
    callbacks: Sequence[Any] = ()

    def import_libraries(self) -> None:
        import keras

        self.keras = keras
        backend = keras.backend.backend()
        self.framework = __import__(backend)
        if backend == "tensorflow":
            self.framework.get_logger().setLevel("ERROR")
        keras.config.set_dtype_policy(self.dtype)

    def compiled_model(self, weights: dict[str, Any]) -> Any:
        """Return the model with these weights, compiled."""
        raise NotImplementedError

    def compile_options(self) -> dict[str, Any]:
        """Return what `compile` is told beyond optimizer and loss."""
        return {} if self.jit_compile is None else {"jit_compile": self.jit_compile}

    def build(self) -> dict[str, Any]:
        self.model = self.compiled_model(make_weights(self.sizes))
        return {
            "backend": self.keras.backend.backend(),
            "versions": {
                "keras": self.keras.__version__,
                self.keras.backend.backend(): self.framework.__version__,
            },
            "parameters": self.model.count_params(),
            "jit_compile": bool(self.model.jit_compile),
        }

    def check(self) -> dict[str, float]:
        inputs, labels = _fit_batch(self.batches[0])
        return {"loss": float(self.model.test_on_batch(inputs, labels, return_dict=True)["loss"])}

    def run(self, count: int) -> list[float]:
        if self.unit == "update":
            clock = self._clock()
            self._fit(self.next_batches(count), [clock])
            return clock.seconds
        seconds = []
        for _ in range(count):
            started = time.perf_counter()
            self._fit(self.batches, [])
            seconds.append(time.perf_counter() - started)
        return seconds

    def profile(self, count: int) -> dict[str, Any]:
        """Where the time of an update goes on TensorFlow or PyTorch.

        Returns:
            `seconds`, the median without a profiler; `profiled`, the mean with it; `parts`, what the
            profiler saw of an update, see `peers.training.profiles`.
        """
        seconds = self.run(count)
        if self.keras.backend.backend() == "torch":
            parts, profiled = torch_profile(self.run, self.model, count)
        else:
            parts, profiled = tensorflow_profile(self.run, count)
        for part in parts:
            part["seconds"] /= count
            part["calls"] /= count
        return {
            "seconds": statistics.median(seconds),
            "profiled": statistics.mean(profiled),
            "parts": parts,
        }

    def memory(self) -> dict[str, int]:
        if self.keras.backend.backend() == "torch" and self.framework.cuda.is_available():
            return {"device_peak_bytes": self.framework.cuda.max_memory_allocated()}
        if self.keras.backend.backend() == "jax":
            statistics = self.framework.devices()[0].memory_stats() or {}
            if "peak_bytes_in_use" in statistics:
                return {"device_peak_bytes": statistics["peak_bytes_in_use"]}
        return {}

    def _fit(self, batches: list[Any], callbacks: list[Any]) -> None:
        data = self.as_fit_data(_dataset(self.keras, batches))
        self.model.fit(data, shuffle=False, verbose=0, callbacks=[*callbacks, *self.callbacks])

    def as_fit_data(self, batches: Any) -> Any:
        """Return what `fit` is given to read the batches, a `PyDataset`, from."""
        return batches

    def _clock(self) -> Any:
        class Clock(self.keras.callbacks.Callback):  # type: ignore[name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.seconds: list[float] = []

            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if not self.seconds:
                    self.before = time.perf_counter()

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                float(logs["loss"])  # Waits for the device.
                now = time.perf_counter()
                self.seconds.append(now - self.before)
                self.before = now

        return Clock()


def _fit_batch(batch: Any) -> tuple[dict[str, Any], Any]:
    source, decoder, labels = batch
    return {"encoder_token_ids": source, "decoder_token_ids": decoder}, labels


def _dataset(keras: Any, batches: list[Any]) -> Any:
    tensors = keras.tree.map_structure(
        lambda array: keras.KerasTensor((None, None), array.dtype.name), _fit_batch(batches[0])
    )

    class FixedBatches(keras.utils.PyDataset):
        signature = tensors  # As `TokenBatches` has it, for `as_tf_dataset`.

        def __len__(self) -> int:
            return len(batches)

        def __getitem__(self, index: int) -> Any:
            return _fit_batch(batches[index])

    return FixedBatches()
