"""How many steps between files lead from text to a translation, and from token ids to the attention kernel?

A step is a call from one file of the package to a function in another file; the first step is the user's
call. Calls within a file and calls of other libraries do not count. A call that comes back through a library,
such as a callback, counts as a call from the file that called the library. The same call from the same file
counts once, however often loops, layers and batches repeat it. Properties and argument checks count like all
other calls. Work that is done once per process or translator (imports, and a first translation of the same
text) does not count, nor does work in other threads: Numba's compiled search would be one more step. Usage:

    KERAS_BACKEND=tensorflow python tools/count_steps.py

To count another version of the package, put its folder first in PYTHONPATH.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import keras

import keras_attention
from keras_attention import Tokenizer, Transformer, Translator

PACKAGE = str(Path(keras_attention.__file__).parent) + os.sep
KERNELS = {"ops/backends/tensorflow.py: dot_product_attention"}


class Step(NamedTuple):
    """A call from one file of the package into another."""

    caller: str  # a file, or "user"
    callee: str  # a file and a function of it


def steps(run: Callable[[], Any], last: set[str] | None = None) -> list[Step]:
    """Return the steps of a call in order, each once.

    Args:
        run: The function to call.
        last: Counting ends at these functions, named as in `Step.callee`; by default at the end of the call.
    """
    found: dict[Step, None] = {}
    is_over = False

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal is_over
        if event != "call" or is_over or not _is_ours(frame):
            return
        # Frames of functions that Numba compiled have no caller.
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
    """From a text to its translation, by Numba's engine, which is chosen on a CPU."""
    tokenizer = Tokenizer.train(["ein kleines Haus", "a small house"], vocabulary_size=280)
    model = Transformer.from_preset("tiny", tokenizer.vocabulary_size)
    translator = Translator(model, tokenizer, max_extra_length=3, engine="numba")
    translator("a house")
    return steps(lambda: translator("a house"))


def steps_to_attention() -> list[Step]:
    """From token ids to the first attention, while TensorFlow builds the graph of training."""
    import tensorflow as tf

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
    """Print the steps of both paths."""
    if keras.backend.backend() != "tensorflow":
        sys.exit("The second way leads to TensorFlow's kernel: set KERAS_BACKEND=tensorflow.")
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
