"""`keras-attention diagnose MODEL`: whether errors are the search's or the model's."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

from keras_attention.cli.models import MODEL_HELP, check_model, keras_translator
from keras_attention.cli.options import Parser, adding
from keras_attention.cli.quiet import start_backend
from keras_attention.data.parallel_text import FilePairs
from keras_attention.decoding.translator import Translator
from keras_attention.utils.checks import check_integer
from keras_attention.utils.files import atomic_file, check_destination

EXAMPLE = """
example:
  keras-attention diagnose runs/demo --source-file test.en --reference-file test.de --output errors.jsonl
"""


def main(arguments: Sequence[str], program: str) -> None:
    """Print how many sentences are translated as the reference, and why the others are not."""
    parser = Parser(
        prog=program,
        description="Translate sentences, score their references, and search again with a wider beam. A "
        "sentence whose reference, or whose wider search, has a better score is an error of the search; of "
        "the others, the model prefers its own translation, and a better search would not help.",
        epilog=EXAMPLE,
    )
    add = adding(parser)
    add("MODEL", MODEL_HELP)
    add("--source-file FILE", "sentences, one per line", Path, required=True)
    add("--reference-file FILE", "their translations", Path, required=True)
    add("--pairs N", "use the first N pairs (all)", int)
    add("--wider-beam N", "hypotheses of the wider search (four times the model's)", int)
    add("--output FILE", "a new file with a JSON object for each sentence", Path)
    options = parser.parse_args(arguments)
    if options.pairs is not None:
        check_integer("--pairs", options.pairs, 1)
    beam_size = check_model(options.model).get("beam_size", Translator.beam_size)
    if options.wider_beam is not None:
        check_integer("--wider-beam", options.wider_beam, beam_size + 1)
    if options.output is not None:
        check_destination(options.output, sources=[options.source_file, options.reference_file])
    pairs = list(
        itertools.islice(FilePairs(options.source_file, options.reference_file), options.pairs)
    )
    if not pairs:
        raise ValueError(f"'{options.source_file}' holds no sentence.")
    start_backend()
    from keras_attention.recipes.diagnosis import KINDS, diagnose

    sources, references = zip(*pairs, strict=True)
    found = diagnose(keras_translator(options.model), sources, references, options.wider_beam)
    if options.output is not None:
        with atomic_file(options.output, "w") as file:
            for one in found.sentences:
                file.write(f"{json.dumps(one._asdict(), ensure_ascii=False)}\n")
    for kind, count in found.counts().items():
        print(f"{kind:<7} {count:>7,} {100 * count / len(pairs):6.1f} %  {KINDS[kind]}")
    print(f"BLEU {found.bleu:.2f}; with the wider beam {found.wider_bleu:.2f}")
