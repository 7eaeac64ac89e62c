"""The options of commands that process a corpus in chunks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from keras_attention.cli.options import flag, given
from keras_attention.utils.checks import check_integer
from keras_attention.utils.places import matching_files

SPREAD = ("chunk", "chunk_lines", "ray", "workers")


def add_bulk_options(add: Any, output: bool = True) -> None:
    """Add the options by `adding`, perhaps without those of the output folder and the chunk size."""
    if output:
        add(
            "--output-dir FOLDER",
            "process the input in chunks, with one result per input file; if stopped, the same command "
            "continues",
        )
        add("--chunk-lines N", "lines in a chunk (2000)", int)
    add("--chunk K/N", "process only the K-th of N shares, for job arrays")
    cluster = (
        "use a Ray cluster; without an address, one that is running or a new one on this machine"
    )
    add("--ray ADDRESS", cluster, nargs="?", const=True)
    add("--workers N", "number of Ray workers (one for each GPU or CPU)", int)


def spread(options: argparse.Namespace) -> dict[str, Any]:
    """Return the given options as arguments of `translate_corpus` and similar functions.

    >>> spread(argparse.Namespace(chunk="17/400", ray=True, workers=None))
    {'ray': True, 'share': (17, 400)}
    """
    from keras_attention.recipes.bulk_work import check_spread

    found = given(options, SPREAD)
    chunk = found.pop("chunk", None)
    if chunk is not None:
        try:
            k, n = map(int, chunk.split("/"))
        except ValueError:
            k, n = 0, 0
        if not 1 <= k <= n:
            raise ValueError(
                f"--chunk must be K/N with K from 1 to N, such as 17/400. Received: {chunk}"
            )
        found["share"] = k, n
    if "chunk_lines" in found:
        check_integer("--chunk-lines", found["chunk_lines"], 1)
    check_spread(found.get("share", (1, 1)), found.get("ray", False), found.get("workers"), True)
    return found


def refuse_spread(options: argparse.Namespace, needed: str) -> None:
    """Raise a ValueError if one of these options was given without the option that it needs."""
    for name in given(options, SPREAD):
        raise ValueError(f"{flag(name)} needs {needed}.")


def expanded(name: str, patterns: Sequence[str]) -> list[str]:
    """Return the files that match names and patterns, in their order."""
    inputs = []
    for pattern in patterns:
        found = matching_files(pattern)
        if not found:
            raise FileNotFoundError(f"{name}: there is no file '{pattern}'.")
        inputs += found
    return inputs
