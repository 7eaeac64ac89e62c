"""How much do drafts save in greedy search, and does one translation differ?

    python benchmarks/drafts.py RUN --source-file test.en --train-source train.en --train-target train.de
    KERAS_BACKEND=torch python benchmarks/drafts.py RUN ... --engine torch     # or tensorflow, jax
    python benchmarks/drafts.py RUN ... --lookahead 1 --heads 0               # one proposal a pass, no heads
    python benchmarks/drafts.py RUN --source-file test.en --drafts RUN/draft.npz   # what the command saved
    python benchmarks/drafts.py RUN ... --rounds 0                            # compares, without times
    python benchmarks/drafts.py RUN ... --preset base --sentences 50          # its sizes, with random weights

Searches without drafts, with a `LexicalDraft` and with `DraftHeads` take turns over the sentences, one at a
time and in batches of 32, and so does a beam of 4, whose translations are others. Printed are the sentences
that differ from greedy search, the tokens of a pass, and the median time of a turn with the median of its
ratios to greedy search, turn by turn. Heads learn from the model's own translations, which are made first.

`--preset` takes random weights of this size and the run's tokenizer. They choose other tokens than any model,
so the draft is then one that knows the right tokens, a given `--share` of them: what is measured is the time
of a pass and of what surrounds it, at the tokens of a pass that are printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness import run_facts
from records import record_path, write_figures

import keras_attention_light

BATCH = 32


def main() -> int:
    """Measure and print; returns 1 if a sentence differs."""
    options = arguments()
    facts = run_facts()
    texts = list(itertools.islice(lines(options.source_file), options.sentences))
    plain = translator_of(options)
    subjects = {"greedy": plain}
    if options.rounds:
        subjects["beam 4"] = dataclasses.replace(plain, beam_size=4)
    subjects |= {
        name: dataclasses.replace(plain, draft=draft, lookahead=options.lookahead)
        for name, draft in drafts(options, plain, texts).items()
    }
    figures = {}
    for size in (1, BATCH):
        turns: dict[str, list[float]] = {name: [] for name in subjects}
        found = {name: translated(one, texts, size) for name, one in subjects.items()}  # compiles
        counted = {
            name: "" if one.draft is None else str(one.draft_report)
            for name, one in subjects.items()
        }
        for _ in range(options.rounds):
            for name, one in subjects.items():
                begun = time.perf_counter()
                translated(one, texts, size)
                turns[name].append(time.perf_counter() - begun)
        for name, seconds in turns.items():
            differing = sum(
                one != other for one, other in zip(found[name], found["greedy"], strict=True)
            )
            of_subject: dict[str, Any] = {"differing": differing, "drafts so far": counted[name]}
            if seconds:
                ratios = [
                    greedy / own for greedy, own in zip(turns["greedy"], seconds, strict=True)
                ]
                of_subject["milliseconds a sentence"] = (
                    1e3 * statistics.median(seconds) / len(texts)
                )
                of_subject["times as fast as greedy"] = statistics.median(ratios)
                of_subject["samples"] = seconds
            figures[f"{name}, batches of {size}"] = of_subject
            print(f"{name}, batches of {size}: {shown(figures[f'{name}, batches of {size}'])}")
    load = [round(value, 2) for value in os.getloadavg()]
    print(f"load average at the end: {load}")
    case = {"model": options.preset or options.run.name, "engine": plain.engine_for(1).name}
    case["lookahead"] = options.lookahead
    made = ("share",) if options.preset else ("heads", "epochs") if not options.drafts else ()
    case |= {name: getattr(options, name) for name in made}
    record = record_path("drafts", case, facts) if options.record else None
    write_figures({**facts, "load": load}, "drafts", case, figures, (options.json, record))
    drafted = [one["differing"] for name, one in figures.items() if not name.startswith("beam")]
    return int(any(drafted))


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("run", type=Path, help="folder of a finished run")
    add("--source-file", type=Path, required=True, metavar="FILE")
    add("--train-source", type=Path, metavar="FILE", help="what the run learned from")
    add("--train-target", type=Path, metavar="FILE")
    add("--drafts", type=Path, nargs="+", metavar="FILE", help="saved drafts, in place of new ones")
    add("--sentences", type=int, default=2000)
    add("--engine", default="numba", help="auto: NumPy's stands in while Numba compiles (numba)")
    add("--preset", metavar="NAME", help="a size, for random weights")
    add("--share", type=float, default=0.5, help="of random weights' proposals, those right (0.5)")
    add("--lookahead", type=int, default=3, help="tokens that are proposed for a pass (3)")
    add("--heads", type=int, default=30_000, help="translations that heads learn from; 0: no heads")
    add("--epochs", type=int, default=10, help="how often they learn from each (10)")
    add("--rounds", type=int, default=5)
    add("--json", type=Path, metavar="FILE", help="write all figures to this file")
    add("--record", action="store_true", help="also write a record to benchmarks/results/")
    options = parser.parse_args()
    if min(options.heads, options.epochs - 1, options.lookahead - 1, options.sentences - 1) < 0:
        parser.error("--heads must be at least 0; --epochs, --lookahead and --sentences at least 1")
    given = options.preset or options.drafts or (options.train_source and options.train_target)
    if not given:
        parser.error("--train-source and --train-target are needed, or --drafts, or --preset")
    if options.preset and options.drafts:
        parser.error("--preset makes drafts of its own, and takes no --drafts")
    return options


def lines(path: Path) -> Any:
    """Yield the lines of a text file, plain or packed."""
    from keras_attention.data.text_files import read_lines

    return read_lines(path)


def translator_of(options: argparse.Namespace) -> Any:
    """Return greedy search with the run's model, or with random weights."""
    given = {"beam_size": 1, "engine": options.engine, "show_progress": False}
    if options.engine in ("auto", "numba", "numpy") and options.preset is None:
        return keras_attention_light.load_translator(options.run, **given)
    from keras_attention import Tokenizer, Transformer, Translator

    if options.preset is None:
        return Translator.from_run(options.run, **given)
    import keras

    keras.utils.set_random_seed(0)
    tokenizer = Tokenizer.load(options.run / "tokenizer")
    model = Transformer.from_preset(options.preset, vocabulary_size=tokenizer.vocabulary_size)
    # Random weights may never end, or end at once.
    return Translator(model, tokenizer, max_extra_length=0, **given)


def drafts(options: argparse.Namespace, plain: Any, texts: list[str]) -> dict[str, Any]:
    """Return what proposes tokens, by name."""
    from keras_attention.decoding import DraftHeads, LexicalDraft

    if options.preset is not None:
        return {f"{options.share:.0%} right": Right(plain, texts, options.share)}
    if options.drafts:
        from keras_attention.decoding.drafts import load_draft

        return {f"{path.parent.name}/{path.name}": load_draft(path) for path in options.drafts}
    sources, targets = (list(lines(path)) for path in (options.train_source, options.train_target))
    pairs = list(zip(sources, targets, strict=True))
    begun = time.perf_counter()
    lexical = LexicalDraft.train(plain.tokenizer, pairs)
    print(f"LexicalDraft made in {time.perf_counter() - begun:.0f} s", flush=True)
    if not options.heads:
        return {"LexicalDraft": lexical}
    begun = time.perf_counter()
    own = zip(sources[: options.heads], plain(sources[: options.heads]), strict=True)
    made = time.perf_counter()
    heads = DraftHeads.train(
        plain.model, plain.tokenizer, own, epochs=options.epochs, max_pairs=options.heads
    )
    print(
        f"own translations in {made - begun:.0f} s, DraftHeads trained in {time.perf_counter() - made:.0f} s",
        flush=True,
    )
    return {"LexicalDraft": lexical, "DraftHeads": heads}


class Right:
    """Proposes, of each source, what greedy search will choose, some of it wrong: one `LexicalDraft` each."""

    def __init__(self, plain: Any, texts: list[str], share: float):
        from keras_attention.decoding import LexicalDraft
        from keras_attention.decoding.lexicon import Lexicon
        from keras_attention.decoding.ngrams import count_ngrams

        random, tokenizer = np.random.default_rng(0), plain.tokenizer
        size, start = tokenizer.vocabulary_size, tokenizer.start_token_id
        nothing = np.zeros(size + 1, "int64"), np.zeros(0, "int32"), np.zeros(0, "float32")
        alike = np.full(size, 1 / size, "float32")
        self.drafts = {}
        for ids, (best, *_) in zip(tokenizer.encode(texts), plain.translate(texts), strict=True):
            shown = [
                token if chance < share else (token + 1) % size
                for token, chance in zip(
                    best.token_ids, random.random(len(best.token_ids)), strict=True
                )
            ]
            ngrams = count_ngrams([[start, *shown]], size, order=8)
            draft = LexicalDraft(ngrams, Lexicon(*nothing), alike, start)
            self.drafts[(*ids, tokenizer.end_token_id)] = draft

    def propose(self, source_ids: list[int], *rest: Any) -> Any:
        """Return the next tokens, some of them wrong."""
        return self.drafts[tuple(source_ids)].propose(source_ids, *rest)

    def tables(self, source_ids: list[int]) -> Any:
        """Return the same for compiled code."""
        return self.drafts[tuple(source_ids)].tables(source_ids)


def translated(translator: Any, texts: list[str], size: int) -> list[str]:
    """Translate in batches of so many sentences."""
    return [
        text
        for first in range(0, len(texts), size)
        for text in translator(texts[first : first + size])
    ]


def shown(figures: dict[str, Any]) -> str:
    """Return the figures of a subject as one line."""
    drafts = figures["drafts so far"]
    text = f"{figures['differing']} differ" + (f"; {drafts}" if drafts else "")
    if "samples" not in figures:
        return text
    return (
        f"{figures['milliseconds a sentence']:.2f} ms a sentence, "
        f"{figures['times as fast as greedy']:.2f} times as fast as greedy, {text}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
