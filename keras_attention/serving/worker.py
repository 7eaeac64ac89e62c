"""One thread that works, one queue before it: what waits when the thread is free is worked on together."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from keras_attention.decoding.requests import WrongText
from keras_attention.decoding.unusual_texts import UnusualTexts


class Job(NamedTuple):
    """What somebody waits for."""

    request: Any
    # Receives the answer, or the error; may be cancelled before the work begins.
    answer: Future[Any]
    size: int = 1  # how much work it is, as `Worker.most_at_once` counts it


class QueueFull(Exception):
    """As many jobs wait as may wait."""


class Worker:
    """A thread that takes the jobs that wait, all at once.

    Args:
        work: Gives each of some jobs its answer or its error. It raises nothing.
        most_waiting: Length of the queue, in jobs.
        most_at_once: Sizes of jobs that are worked on together; one larger job is worked on alone.
        name: Name of the thread.
    """

    def __init__(
        self, work: Callable[[list[Job]], None], most_waiting: int, most_at_once: int, name: str
    ):
        self._work = work
        self._most_waiting = most_waiting
        self._most_at_once = most_at_once
        self._jobs: collections.deque[Job] = collections.deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, request: Any, size: int = 1, has_begun: bool = False) -> Future[Any]:
        """Put a job at the end of the queue, and return what receives its answer.

        The rest of what has begun is not refused: the work that was done would be lost.
        """
        job = Job(request, Future(), size)
        with self._changed:
            if len(self._jobs) >= self._most_waiting:  # Those who went away make room.
                kept = [job for job in self._jobs if not job.answer.cancelled()]
                self._jobs = collections.deque(kept)
            if len(self._jobs) >= self._most_waiting and not has_begun:
                raise QueueFull
            self._jobs.append(job)
            self._changed.notify()
        return job.answer

    def waiting(self) -> int:
        """Return the number of jobs in the queue."""
        return len(self._jobs)

    def close(self, seconds: float | None = None) -> None:
        """Do what waits, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while taken := self._take():
            jobs = [job for job in taken if job.answer.set_running_or_notify_cancel()]
            if not jobs:
                continue
            try:
                self._work(jobs)
            except BaseException as error:  # The thread must not end while jobs come.
                for job in jobs:
                    if not job.answer.done():
                        job.answer.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))

    def _take(self) -> list[Job]:
        """Wait for jobs, and take them from the queue; return none when it is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._is_closed)
            taken: list[Job] = []
            size = 0
            while self._jobs and (not taken or size + self._jobs[0].size <= self._most_at_once):
                taken.append(self._jobs.popleft())
                size += taken[-1].size
            return taken


class Texts(NamedTuple):
    """Texts to translate, as a job."""

    translator: Any  # the `Translator`
    texts: Sequence[str]  # the texts, none empty
    n_best: int
    prefix: str = ""  # with what each translation must begin


def translate_together(jobs: Sequence[Job], observe: Callable[[int], Any]) -> None:
    """Translate the `Texts` of several jobs in as few calls as possible; each job gets its own.

    Those with one model, one number of translations and one prefix are one call: so what others ask for
    changes nothing. `observe` is told of each call how many texts it has.
    """
    groups: dict[tuple[int, int, str], list[Job]] = {}
    for job in jobs:
        translator, _, n_best, prefix = job.request
        groups.setdefault((id(translator), n_best, prefix), []).append(job)
    for group in groups.values():
        _translate_group(group, observe)


def _translate_group(jobs: list[Job], observe: Callable[[int], Any]) -> None:
    translator, _, n_best, prefix = jobs[0].request
    while jobs:
        texts = [text for job in jobs for text in job.request.texts]
        asked = {"prefixes": [prefix] * len(texts)} if prefix else {}
        observe(len(texts))
        try:
            found = translator.translate(texts, n_best, unusual=UnusualTexts(), **asked)
        except WrongText as error:  # It is the text's fault: the others are translated without it.
            jobs = _without_wrong(jobs, error)
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    _translate_group([job], observe)
            else:
                jobs[0].answer.set_exception(error)
            return
        else:
            rest = iter(found)
            for job in jobs:
                job.answer.set_result([next(rest) for _ in job.request.texts])
            return


def _without_wrong(jobs: list[Job], error: WrongText) -> list[Job]:
    """Give the error to the job whose text is wrong, and return the other jobs."""
    first = 0
    for job in jobs:
        if error.index < first + len(job.request.texts):
            job.answer.set_exception(WrongText(error.index - first, error.problem))
            return [other for other in jobs if other is not job]
        first += len(job.request.texts)
    raise AssertionError(error.index)
