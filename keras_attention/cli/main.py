"""`keras-attention COMMAND`: each command has its own file, which is imported only when it is used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from keras_attention.cli.streams import BAD_INPUT, orderly_exit
from keras_attention.utils.checks import did_you_mean

PROGRAM = "keras-attention"
COMMANDS = {
    "train": "train a Transformer to translate, and score it",
    "plan": "show what a training run will read and need",
    "translate": "translate lines with a trained model",
    "serve": "answer requests for translations over HTTP, and show them on a page",
    "score": "score how probable given translations are",
    "evaluate": "score a model on your own sentences, or compare models",
    "attention": "show the attention for a sentence, in a browser or as pictures",
    "export": "write a model for other programs: CTranslate2, Hugging Face, ONNX, TensorFlow",
    "average": "average the checkpoints of a run",
    "models": "list pretrained models that can be had, or measure one",
    "preset": "save a model as a preset with a card, or check one",
}
EXAMPLE = f"""
with the small model that comes with the package, and with one of your own (a few minutes on a CPU):
  echo "The dog sleeps." | {PROGRAM} translate demo_en_de
  {PROGRAM} attention demo_en_de "The dog sleeps."
  {PROGRAM} train --output-dir runs/demo
  echo "The dog sleeps." | {PROGRAM} translate runs/demo
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, by its arguments or `sys.argv[1:]`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with orderly_exit(" ".join([PROGRAM, *given[:1]])):
        _run(given)


def _run(given: list[str]) -> None:
    if not given or given[0] in ("-h", "--help"):
        print(_overview(), end="")
        raise SystemExit(0 if given else BAD_INPUT)
    command, *rest = given
    if command == "--version":
        import keras_attention

        print(keras_attention.__version__)
        return
    if command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS)
        print(f"{PROGRAM}: there is no command '{command}'.{hint}", file=sys.stderr)
        print(f"The commands are {', '.join(COMMANDS)}.", file=sys.stderr)
        raise SystemExit(BAD_INPUT)
    module = importlib.import_module(f"keras_attention.cli.{command}")
    module.main(rest, f"{PROGRAM} {command}")


def _overview() -> str:
    commands = "".join(f"  {name:<10} {text}\n" for name, text in COMMANDS.items())
    return (
        f"usage: {PROGRAM} COMMAND ...\n\nThe Transformer of 'Attention Is All You Need'.\n\n"
        f"commands:\n{commands}\n{PROGRAM} COMMAND --help shows the options.\n{EXAMPLE}"
    )
