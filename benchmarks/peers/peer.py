"""What all programs of the benchmarks have in common."""

from __future__ import annotations

from typing import Any

from harness.subject import Subject


class Peer(Subject):
    """A program that is compared with others.

    The constructor of a subclass reads what is to be done and then calls `import_libraries`, so that
    the memory after it is that of the libraries.
    """

    def import_libraries(self) -> None:
        """Import what the program needs."""
        raise NotImplementedError

    def build(self) -> dict[str, Any]:
        """Build the model from the common weights; return facts about it."""
        raise NotImplementedError

    def work(self) -> dict[str, float]:
        """Return what one sample amounts to, by unit: tokens, sentences, operations."""
        raise NotImplementedError

    def prepare(self) -> dict[str, Any]:
        return {**self.build(), "work": self.work()}
