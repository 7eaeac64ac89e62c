"""The options of commands that process a corpus in chunks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from keras_attention.cli.options import flag, given
from keras_attention.utils.arguments import Count
from keras_attention.utils.places import matching_files

SPREAD = ("chunk_lines", "ray", "workers")


def add_bulk_options(add: Any) -> None:
    """Add the options by `adding`."""
    add(
        "--output-dir FOLDER",
        "process the input in chunks, with one result per input file; if stopped, the same command "
        "continues",
    )
    add("--chunk-lines N", "lines in a chunk (2000)", Count)
    cluster = (
        "use a Ray cluster; without an address, one that is running or a new one on this machine"
    )
    add("--ray ADDRESS", cluster, nargs="?", const=True)
    add("--workers N", "number of Ray workers (one for each GPU or CPU)", Count)


def spread(options: argparse.Namespace) -> dict[str, Any]:
    """Return the given options as arguments of `translate_corpus` and `score_corpus`."""
    found = given(options, SPREAD)
    if options.output_dir is None and found:
        raise ValueError(f"{flag(next(iter(found)))} needs --output-dir.")
    return found


def expanded(name: str, patterns: Sequence[str]) -> list[str]:
    """Return the files that match names and patterns, in their order."""
    inputs = []
    for pattern in patterns:
        found = matching_files(pattern)
        if not found:
            raise FileNotFoundError(f"{name}: there is no file '{pattern}'.")
        inputs += found
    return inputs
