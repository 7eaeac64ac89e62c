"""Options of the search and of what decodes, for the commands that translate."""

from __future__ import annotations

import argparse
import os
from typing import Any

from keras_attention.cli.options import adding, given
from keras_attention.engine.abilities import EngineName, Precision
from keras_attention.utils.arguments import BeamSize, Count, LengthPenalty
from keras_attention.utils.backend import BACKENDS

NAMES = ("beam_size", "length_penalty", "batch_tokens", "precision", "engine", "break_loops")


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    add = adding(parser)
    add("--beam-size N", "hypotheses kept (the run's)", BeamSize)
    add("--length-penalty X", "the paper's alpha (the run's)", LengthPenalty)
    add("--batch-tokens N", "source positions in a batch (2048)", Count)
    add("--precision NAME", "float32, bfloat16, float16 or int8 (that of the model)", Precision)
    add(
        "--engine NAME",
        "what decodes: auto, numba, numpy, tensorflow, torch, jax, plain (the search that defines the "
        "result), or ctranslate2, which has its own search (auto)",
        EngineName,
    )
    again = (
        "translate again, without repetitions, what came out in a loop, as in: salad salad salad"
    )
    parser.add_argument("--break-loops", action="store_const", const=True, help=again)


def given_search_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that were given, as arguments of `Translator`."""
    return given(options, NAMES)


def choose_backend(options: argparse.Namespace) -> None:
    """Set the backend of an engine that needs one."""
    if options.engine in BACKENDS:
        chosen = os.environ.setdefault("KERAS_BACKEND", options.engine)
        if chosen != options.engine:
            raise ValueError(
                f"--engine {options.engine} needs the backend {options.engine}, but KERAS_BACKEND is "
                f"{chosen}. Leave one of them out."
            )
