"""`keras-attention heads MODEL`: how much a model needs each of its attention heads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from keras_attention.cli.models import MODEL_HELP, check_model, keras_translator, say_missing_heads
from keras_attention.cli.options import Parser, adding
from keras_attention.cli.quiet import start_backend
from keras_attention.data.normalization import normalize
from keras_attention.data.parallel_text import FilePairs
from keras_attention.utils.progress import activity

EXAMPLE = """
example:
  keras-attention heads runs/demo --source-file val.en --target-file val.de
"""


def main(arguments: Sequence[str], program: str) -> None:
    """Print the importance of every head."""
    parser = Parser(
        prog=program,
        description="Switch off each attention head of a run's model, one at a time, and print by how much "
        "the loss rises, in nats per target token. Each line has a head's kind (encoder, decoder, cross), "
        "layer, number and rise, separated by tabs. The first line names these columns; the most important "
        "head comes first.",
        epilog=EXAMPLE,
    )
    add = adding(parser)
    add("MODEL", MODEL_HELP)
    add("--source-file FILE", "sentences, one per line", Path, required=True)
    add("--target-file FILE", "their translations", Path, required=True)
    add("--pairs N", "use the first N pairs (100)", int, default=100)
    options = parser.parse_args(arguments)
    if options.pairs < 1:
        raise ValueError(f"--pairs must be at least 1. Received: {options.pairs}")
    check_model(options.model)
    files = FilePairs(options.source_file, options.target_file)
    start_backend()
    from keras_attention.evaluation.head_importance import head_importance
    from keras_attention.visualization.attention_entries import padded_pairs

    translator = keras_translator(options.model)
    say_missing_heads(program, translator.model)
    pairs = [pair for pair in files if all(map(normalize, pair))]
    pairs = list(itertools.islice(pairs, options.pairs))
    if not pairs:
        raise ValueError(f"'{options.source_file}' holds no sentence with a translation.")
    with activity("switching off one head after the other"):
        importance = head_importance(translator.model, *padded_pairs(translator.tokenizer, pairs))
    heads = [
        (value, kind, layer, head)
        for kind, layers in importance.items()
        for layer, values in enumerate(layers, start=1)
        for head, value in enumerate(values, start=1)
    ]
    print("kind\tlayer\thead\trise")
    for value, kind, layer, head in sorted(heads, key=lambda one: -one[0]):
        print(f"{kind}\t{layer}\t{head}\t{value:+.6f}")
