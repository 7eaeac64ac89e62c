"""`keras-attention plan`: what a training run will read and need, without training."""

from __future__ import annotations

from collections.abc import Sequence

from keras_attention.cli.train import run

DESCRIPTION = """Show what a training run will read and need, without training.

The options are those of `keras-attention train`.
"""


def main(arguments: Sequence[str], program: str) -> None:
    """Plan what the arguments say."""
    run(DESCRIPTION, arguments=arguments, program=program, plan=True)
