"""`keras-attention attention RUN SENTENCE`: pictures of where a model looks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from keras_attention.cli.quiet import start_backend
from keras_attention.utils.files import atomic_folder, check_destination


def main(arguments: Sequence[str], program: str) -> None:
    """Draw the attention of a sentence and its translation."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Draw the attention of every layer and head for a sentence and its translation: "
        "one picture for each layer of the encoder, of the decoder, and from decoder to encoder.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("sentence", metavar="SENTENCE", help="a sentence in the source language")
    parser.add_argument(
        "translation", nargs="?", metavar="TRANSLATION", help="its translation (the model's own)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("attention"),
        metavar="PATH",
        help="new folder (attention)",
    )
    options = parser.parse_args(arguments)
    if not options.sentence.strip():
        raise ValueError("SENTENCE must not be empty.")
    check_destination(options.output, folder=True)
    start_backend()
    from keras_attention.decoding.translator import Translator
    from keras_attention.visualization.heatmaps import attention_figures

    translator = Translator.from_run(options.run)
    translation = options.translation or translator(options.sentence)
    print(translation)
    tokenizer = translator.tokenizer
    source, target = (
        [*tokenizer.encode(text), tokenizer.end_token_id]
        for text in (options.sentence, translation)
    )
    import numpy as np

    scores = translator.model.attention_scores(
        np.array([source], "int32"), np.array([[tokenizer.start_token_id, *target[:-1]]], "int32")
    )
    names = ([tokenizer.id_to_token(token) for token in ids] for ids in (source, target))
    with atomic_folder(options.output) as folder:
        for name, figure in attention_figures(scores, *names).items():
            figure.savefig(folder / f"{name.replace('/', '-')}.png", dpi=150)
    print(f"The pictures are in {options.output}")
