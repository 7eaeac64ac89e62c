"""How many steps between files lead from text to a translation, and from token ids to the attention kernel?

A step is a call of a function of the package by another file; the first is the user's own. Calls within a
file and of other libraries are none; a call that comes back through a library, as a callback does, is one,
from the file that called the library. The same call by the same file counts once, however often loops,
layers and batches make it. Properties and checks of arguments are calls as all others are. Left out is what
is done once for a process or a translator (imports, and the first translation, of the same text) and what
other threads do: Numba's compiled search is one step more. Usage:

    KERAS_BACKEND=tensorflow python tools/count_steps.py

Another version of the package is counted with its folder first in PYTHONPATH.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import tensorflow as tf

import keras_attention
from keras_attention import Tokenizer, Transformer, Translator

PACKAGE = str(Path(keras_attention.__file__).parent) + os.sep
# The attention of the TensorFlow backend; of the version of November 2026 before rooms were moved, too.
KERNELS = {
    "ops/backends/tensorflow.py: dot_product_attention",
    "kernels/tensorflow_kernels.py: attention",
}


class Step(NamedTuple):
    """A call from one file of the package into another."""

    caller: str  # a file, or "user"
    callee: str  # a file and a function of it


def steps(run: Callable[[], Any], last: set[str] | None = None) -> list[Step]:
    """The steps of a call in their order, each once.

    Args:
        run: What is called.
        last: Where counting ends, as `Step.callee`; the end of the call if not given.
    """
    found: dict[Step, None] = {}
    is_over = False

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal is_over
        if event != "call" or is_over or not _is_ours(frame):
            return
        # The frames of compiled functions of Numba know no caller.
        caller: FrameType | None = frame.f_back or sys._getframe(1)
        while caller is not None and not _is_ours(caller):
            caller = caller.f_back
        callee = f"{_file(frame)}: {frame.f_code.co_name}"
        if caller is None:
            found.setdefault(Step("user", callee))
        elif _file(caller) != _file(frame):
            found.setdefault(Step(_file(caller), callee))
        is_over = callee in (last or ())

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return list(found)


def steps_of_translation() -> list[Step]:
    """From a text to its translation, by the engine that is chosen here."""
    tokenizer = Tokenizer.train(["ein kleines Haus", "a small house"], vocabulary_size=280)
    model = Transformer.from_preset("tiny", tokenizer.vocabulary_size)
    translator = Translator(model, tokenizer, max_extra_length=3)
    translator("a house")
    return steps(lambda: translator("a house"))


def steps_to_attention() -> list[Step]:
    """From token ids to the first attention, while TensorFlow builds the graph of training."""
    model = Transformer.from_preset("tiny", vocabulary_size=11)
    names = ("encoder_token_ids", "decoder_token_ids")
    inputs = {name: tf.TensorSpec((None, None), "int32") for name in names}

    def build() -> None:
        program = tf.function(lambda inputs: model(inputs, training=True), autograph=False)
        program.get_concrete_function(inputs)

    build()
    return steps(build, last=KERNELS)


def _is_ours(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_filename.startswith(PACKAGE) and code.co_name != "<module>"


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename.removeprefix(PACKAGE)


def main() -> None:
    """Print the steps of both ways."""
    ways = {
        "From a text to its translation": steps_of_translation(),
        "From token ids to the attention kernel": steps_to_attention(),
    }
    for title, way in ways.items():
        files = {step.callee.split(":")[0] for step in way}
        print(f"{title}: {len(way)} steps through {len(files)} files")
        for step in way:
            print(f"  {step.caller} -> {step.callee}")


if __name__ == "__main__":
    main()
