"""`keras-attention draft RUN`: what proposes tokens, so that greedy search takes fewer passes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from keras_attention.cli.models import check_model, light_translator
from keras_attention.cli.options import Parser, adding
from keras_attention.cli.quiet import start_backend
from keras_attention.data.normalization import normalize
from keras_attention.data.parallel_text import FilePairs
from keras_attention.data.presets import is_run
from keras_attention.data.text_files import existing_file, read_lines
from keras_attention.utils.progress import say
from keras_attention.utils.run_folder import RunFolder

EXAMPLE = """
examples:
  keras-attention draft runs/demo --source-file train.en --target-file train.de
  keras-attention draft runs/demo --source-file train.en --heads
  keras-attention translate runs/demo --beam-size 1 --draft
"""


def main(arguments: Sequence[str], program: str) -> None:
    """Make a draft, and save it with the run."""
    parser = Parser(
        prog=program,
        description="Make what proposes tokens for greedy search, which then takes fewer passes of the "
        "decoder for the same translations, and save it with a finished run, in place of the last one.",
        epilog=EXAMPLE,
    )
    add = adding(parser)
    add("RUN", "the run's folder")
    add("--source-file FILE", "sentences, one per line", Path, required=True)
    without = "the model's own, which takes longer and drafts better"
    add("--target-file FILE", f"their translations ({without})", Path)
    add("--pairs N", "use the first N pairs (30,000)", int, default=30_000)
    instead = "n-grams and a lexicon, in seconds"
    add("--heads", f"train heads on the decoder, which needs Keras ({instead})")
    options = parser.parse_args(arguments)
    if options.pairs < 1:
        raise ValueError(f"--pairs must be at least 1. Received: {options.pairs}")
    if not is_run(options.run):
        raise ValueError(f"RUN must be the folder of a run. Received: {options.run}")
    check_model(options.run)
    files = _pairs(options)
    if options.heads:
        start_backend()
    from keras_attention.decoding.draft_heads import DraftHeads
    from keras_attention.decoding.drafts import LexicalDraft
    from keras_attention.engine.select import EngineSelector

    translator = light_translator(options.run, beam_size=1)
    spec = translator.model.spec() if hasattr(translator.model, "spec") else translator.model
    # Or says why it takes no drafts.
    EngineSelector(spec, "float32", needs=frozenset({"draft"}))
    # To the end, so that files of different lengths are refused.
    pairs = [pair for number, pair in enumerate(files) if number < options.pairs]
    if not any(normalize(source) for source, _ in pairs):
        raise ValueError(f"--source-file: '{options.source_file}' has no text.")
    if options.target_file is None:
        sources = [source for source, _ in pairs]
        pairs = list(zip(sources, translator(sources), strict=True))
    own = (translator.tokenizer, pairs)
    draft: DraftHeads | LexicalDraft
    if options.heads:
        draft = DraftHeads.train(translator.model, *own, max_pairs=options.pairs)
    else:
        draft = LexicalDraft.train(*own, max_pairs=options.pairs)
    path = RunFolder(options.run).draft
    draft.save(path)
    say(f"{program}: wrote '{path}'. `translate --beam-size 1 --draft` uses it.")


def _pairs(options: Any) -> Iterable[tuple[str, str]]:
    """Return the pairs of the files, whose targets are empty if there is but one."""
    if options.target_file is not None:
        return FilePairs(options.source_file, options.target_file)
    return ((line, "") for line in read_lines(existing_file(options.source_file)))
