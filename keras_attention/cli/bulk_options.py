"""The options of commands that do a corpus in chunks, and what they say."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from keras_attention.utils.places import matching_files

SPREAD = ("chunk", "chunk_lines", "ray", "workers")


def add_bulk_options(add: Any, output: bool = True) -> None:
    """Add the options to a parser or a group.

    Args:
        add: `add_argument` of it.
        output: Whether there is a choice of output folder and chunk size.
    """
    if output:
        add(
            "--output-dir",
            metavar="FOLDER",
            help="work in chunks, a result for each input; the same command goes on where it stopped",
        )
        add("--chunk-lines", type=int, metavar="N", help="lines of a chunk (2000)")
    add("--chunk", metavar="K/N", help="the K-th of N shares alone, for arrays of jobs")
    add(
        "--ray",
        nargs="?",
        const=True,
        metavar="ADDRESS",
        help="on a cluster of Ray; without an address one that is found, or made on this machine",
    )
    add("--workers", type=int, metavar="N", help="Ray's workers (one for each GPU or CPU)")


def spread(options: argparse.Namespace) -> dict[str, Any]:
    """What was given of these options, as arguments of `translate_corpus` and the like.

    >>> spread(argparse.Namespace(chunk="17/400", ray=True, workers=None))
    {'ray': True, 'share': (17, 400)}
    """
    names = ("chunk_lines", "ray", "workers")
    found = {name: getattr(options, name, None) for name in names}
    given = {name: value for name, value in found.items() if value is not None}
    if getattr(options, "chunk", None) is not None:
        try:
            k, n = map(int, options.chunk.split("/"))
        except ValueError:
            k, n = 0, 0
        if not 1 <= k <= n:
            raise ValueError(
                f"--chunk must be K/N, such as 17/400, K from 1 to N. Received: {options.chunk}"
            )
        given["share"] = k, n
    return given


def refuse_spread(options: argparse.Namespace, needed: str) -> None:
    """Raise a ValueError if one of these options was given without what it needs."""
    for name in SPREAD:
        if getattr(options, name, None) is not None:
            raise ValueError(f"--{name.replace('_', '-')} needs {needed}.")


def expanded(name: str, patterns: Sequence[str]) -> list[str]:
    """The files that are meant by names and patterns, in their order.

    Raises:
        FileNotFoundError: If one of them means none.
    """
    inputs = []
    for pattern in patterns:
        found = matching_files(pattern)
        if not found:
            raise FileNotFoundError(f"{name}: there is no file '{pattern}'.")
        inputs += found
    return inputs
