"""Ray actors that process chunks; the only file that imports Ray."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras

from keras_attention.recipes.bulk_parts import Chunk
from keras_attention.utils.progress import activity

try:
    import ray
    from ray.util import ActorPool
except ImportError as error:
    raise ImportError(
        "Work on a cluster needs Ray: pip install 'keras-attention-transformer[ray]'"
    ) from error

# One chunk in progress and one waiting, so that no worker waits for this process.
CHUNKS_PER_WORKER = 2
# How often a chunk may be lost with a worker. If it happens more often, the chunk itself kills the workers.
ATTEMPTS = 3
# Environment variables of this process that the workers get, so that they compute the same.
PASSED_ON = ("KERAS_BACKEND", "KERAS_FLOATX", "PYTHONPATH", "RAY_AUTH_MODE")


class RayWorkers:
    """A pool of actors. Ray starts a dead actor again, and what it had in progress.

    Args:
        job: Called once in each actor; returns the function from lines to a result.
        address: The cluster's address. If None: the cluster that `RAY_ADDRESS` names, else one that runs on
            this machine, else a new one here.
        workers: Number of actors. If None: one for each GPU or, without GPUs, for each CPU.
    """

    def __init__(self, job: Callable[[], Any], address: str | None, workers: int | None):
        self._job, self._address, self._workers = job, address, workers
        self._is_own = False
        self._actors: list[Any] = []

    def start(self) -> None:
        """Join the cluster, and wait until one actor has the model."""
        if not ray.is_initialized():
            variables = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
            variables["KERAS_BACKEND"] = keras.backend.backend()
            ray.init(
                self._address,
                log_to_driver=False,
                logging_level=logging.WARNING,
                runtime_env={"env_vars": variables},
            )
            self._is_own = True
        resources = ray.cluster_resources()
        on_gpus = resources.get("GPU", 0) >= 1
        actor: Any = ray.remote(_Actor).options(
            num_cpus=1,
            num_gpus=1 if on_gpus else 0,
            scheduling_strategy="SPREAD",
            max_restarts=-1,
            max_task_retries=ATTEMPTS,
        )
        count = self._workers or int(resources.get("GPU" if on_gpus else "CPU", 1)) or 1
        stored = ray.put(self._job)  # In Ray's store once: each machine fetches the model once.
        self._actors = [actor.remote(stored) for _ in range(count)]
        with activity("starting Ray's workers"):
            ready, _ = ray.wait([actor.ready.remote() for actor in self._actors], num_returns=1)
            try:
                ray.get(ready)
            except ray.exceptions.RayActorError as error:
                # The job itself raised the error, so every other actor would fail, too.
                raise RuntimeError(f"Ray's workers cannot start: {error}") from error

    def __call__(
        self, chunks: Iterable[tuple[Chunk, list[Any]]]
    ) -> Iterator[tuple[Chunk, str | bytes]]:
        """Results in the order in which they are done."""
        if not self._actors:
            self.start()
        pool, chunks = ActorPool(self._actors * CHUNKS_PER_WORKER), iter(chunks)
        while True:
            # No more than the actors take: the driver's memory does not grow with the corpus.
            while pool.has_free() and (item := next(chunks, None)) is not None:
                pool.submit(lambda actor, item: actor.work.remote(*item), item)
            if not pool.has_next():
                return
            try:
                yield pool.get_next_unordered()
            except ray.exceptions.RayTaskError as error:
                raise error.as_instanceof_cause() from None
            except ray.exceptions.RayActorError as error:
                raise RuntimeError(
                    f"A chunk of lines killed {ATTEMPTS + 1} workers: {error} If memory is too small, lower "
                    "`batch_tokens` or `workers`."
                ) from error

    def close(self) -> None:
        """Give the actors' processes back to the cluster."""
        for actor in self._actors:
            ray.kill(actor)
        if self._is_own:
            ray.shutdown()


class _Actor:
    """Runs in a worker's process; its constructor loads the model."""

    def __init__(self, job: Callable[[], Any]):
        self._work = job()

    def ready(self) -> None:
        """Return when the model is loaded."""

    def work(self, chunk: Chunk, lines: list[Any]) -> tuple[Chunk, str | bytes]:
        return chunk, self._work(lines, chunk)
