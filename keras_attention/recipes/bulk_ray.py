"""Ray actors that process chunks; the only file that imports Ray."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from keras_attention.recipes.bulk_parts import Chunk
from keras_attention.utils.backend import running_backend
from keras_attention.utils.progress import activity, say

try:
    import ray
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
    """A pool of actors. A dead actor is replaced, and others process its chunks.

    The job is called once in each actor, and returns the function from lines to a result. Without an address:
    the cluster that `RAY_ADDRESS` names, else one that runs on this machine, else a new one here. Without a
    number of workers: one for each GPU or, without GPUs, for each CPU.
    """

    def __init__(self, job: Callable[[], Any], address: str | None, workers: int | None):
        self._job, self._address, self._workers = job, address, workers
        self._is_own = self._is_started = False
        # Awaited result -> (actor, (chunk, lines)), or (actor, None) while the actor starts.
        self._awaited: dict[Any, tuple[Any, tuple[Chunk, list[Any]] | None]] = {}
        self._actors: list[Any] = []
        self._idle: list[Any] = []
        self._again: list[tuple[Chunk, list[Any]]] = []
        self._deaths: dict[int, int] = {}

    def start(self) -> None:
        """Join the cluster, and wait until one actor has the model."""
        self._is_started = True
        if not ray.is_initialized():
            variables = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
            variables["KERAS_BACKEND"] = running_backend()
            ray.init(
                self._address,
                log_to_driver=False,
                logging_level=logging.WARNING,
                runtime_env={"env_vars": variables},
            )
            self._is_own = True
        resources = ray.cluster_resources()
        on_gpus = resources.get("GPU", 0) >= 1
        # In Ray's store once: each machine fetches the model once.
        self._stored = ray.put(self._job)
        self._actor: Any = ray.remote(_Actor).options(
            num_cpus=1, num_gpus=1 if on_gpus else 0, scheduling_strategy="SPREAD"
        )
        for _ in range(self._workers or int(resources.get("GPU" if on_gpus else "CPU", 1)) or 1):
            self._add_actor()
        with activity("starting Ray's workers"):
            while not self._idle:
                self._next(iter(()))

    def __call__(
        self, chunks: Iterable[tuple[Chunk, list[Any]]]
    ) -> Iterator[tuple[Chunk, str | bytes]]:
        """Results in the order in which they are done."""
        if not self._is_started:
            self.start()
        chunks = iter(chunks)
        idle, self._idle = self._idle, []
        for actor in idle:
            self._feed(actor, CHUNKS_PER_WORKER, chunks)
        while self._again or any(given for _, given in self._awaited.values()):
            done = self._next(chunks)
            if done is not None:
                yield done

    def close(self) -> None:
        """Give the actors' processes back to the cluster."""
        for actor in self._actors:
            ray.kill(actor)
        if self._is_own:
            ray.shutdown()

    def _next(self, chunks: Iterator[tuple[Chunk, list[Any]]]) -> tuple[Chunk, str | bytes] | None:
        """Wait for one awaited result, and give its actor more chunks."""
        done, _ = ray.wait([*self._awaited], num_returns=1)
        actor, given = self._awaited.pop(done[0])
        try:
            result = ray.get(done[0])
        except ray.exceptions.RayActorError as error:
            self._replace(actor, given, error)
            for other in self._idle[:]:
                self._idle.remove(other)
                self._feed(other, 1, chunks)
            return None
        except ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        self._feed(actor, 1 if given else CHUNKS_PER_WORKER, chunks)
        return None if given is None else (given[0], result)

    def _feed(self, actor: Any, count: int, chunks: Iterator[tuple[Chunk, list[Any]]]) -> None:
        for _ in range(count):
            item = self._again.pop() if self._again else next(chunks, None)
            if item is None:
                if not any(other is actor for other, _ in self._awaited.values()):
                    self._idle.append(actor)
                return
            chunk, lines = item
            self._awaited[actor.work.remote(lines, chunk)] = actor, item

    def _add_actor(self) -> None:
        actor = self._actor.remote(self._stored)
        self._actors.append(actor)
        self._awaited[actor.ready.remote()] = actor, None

    def _replace(
        self, actor: Any, given: tuple[Chunk, list[Any]] | None, error: BaseException
    ) -> None:
        """Put a dead actor's chunk back into the queue, and start a new actor."""
        if given is None and "creation task" in str(error):
            # The job itself raised the error, so every other actor would fail, too.
            raise RuntimeError(f"Ray's workers cannot start: {error}") from error
        if given is not None:
            chunk = given[0]
            self._again.append(given)
            self._deaths[chunk.number] = self._deaths.get(chunk.number, 0) + 1
            if self._deaths[chunk.number] == ATTEMPTS * CHUNKS_PER_WORKER:
                raise RuntimeError(
                    f"Workers died {self._deaths[chunk.number]} times at lines {chunk.first + 1} to "
                    f"{chunk.first + chunk.lines} of input {chunk.file + 1}. If memory is too small, lower "
                    "`batch_tokens` or `workers`."
                ) from error
        if actor in self._actors:
            self._actors.remove(actor)
            say("A worker died; another takes its place.")
            self._add_actor()


class _Actor:
    """Runs in a worker's process; its constructor loads the model."""

    def __init__(self, job: Callable[[], Any]):
        self._work = job()

    def ready(self) -> None:
        """Return when the model is loaded."""

    def work(self, lines: list[Any], chunk: Chunk) -> str | bytes:
        return self._work(lines, chunk)
