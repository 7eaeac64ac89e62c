"""Errors that all processes of a training raise at the same point, so that only one of them shows each."""

from __future__ import annotations


class OfAllProcesses(Exception):
    """The cause of an error that all processes raise together."""

    def __init__(self, is_told_here: bool):
        super().__init__("All processes raise this error at the same point; one of them shows it.")
        self.is_told_here = is_told_here


def agreed(error: Exception, is_told_here: bool) -> Exception:
    """Return an error with that cause, before its own.

    >>> error = agreed(ValueError("The processes disagree."), is_told_here=False)
    >>> is_agreed(error), is_told_here(error), is_told_here(ValueError("One process failed."))
    (True, False, True)
    """
    cause = OfAllProcesses(is_told_here)
    cause.__cause__, error.__cause__ = error.__cause__, cause
    return error


def is_agreed(error: BaseException) -> bool:
    """Whether all processes raise this error at this point."""
    return isinstance(error.__cause__, OfAllProcesses)


def is_told_here(error: BaseException) -> bool:
    """Whether this process shows the error: if all raise it, one of them does."""
    cause = error.__cause__
    return cause.is_told_here if isinstance(cause, OfAllProcesses) else True
