"""The options of commands that process a corpus in chunks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

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
                f"--chunk must be K/N with K from 1 to N, such as 17/400. Received: {options.chunk}"
            )
        given["share"] = k, n
    if "chunk_lines" in given:
        check_integer("--chunk-lines", given["chunk_lines"], 1)
    check_spread(given.get("share", (1, 1)), given.get("ray", False), given.get("workers"), True)
    return given


def refuse_spread(options: argparse.Namespace, needed: str) -> None:
    """Raise a ValueError if one of these options was given without the option that it needs."""
    for name in SPREAD:
        if getattr(options, name, None) is not None:
            raise ValueError(f"--{name.replace('_', '-')} needs {needed}.")


def expanded(name: str, patterns: Sequence[str]) -> list[str]:
    """Return the files that match names and patterns, in their order."""
    inputs = []
    for pattern in patterns:
        found = matching_files(pattern)
        if not found:
            raise FileNotFoundError(f"{name}: there is no file '{pattern}'.")
        inputs += found
    return inputs
