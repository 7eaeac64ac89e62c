"""How fast are translations? This package against CTranslate2, Hugging Face and KerasHub.

    python benchmarks/decode.py                                     # random base model, forced lengths
    python benchmarks/decode.py --run RUN --source-file newstest2014.en --reference-file newstest2014.de
    python benchmarks/decode.py --ours torch:int8 --against ctranslate2:int8 --batch-sizes 1 --json FILE

Beam 4. Without `--run`: the base model with random weights and a vocabulary of 16,000; random sources
with the lengths of newstest2014; the weights never choose the end token, so every program writes
translations of a given length: that of the source and `--extra-length`. With `--run`: the model of a run's
folder, and its translations end where they end, each program by its own rule; with `--reference-file`
their BLEU is shown.

All but KerasHub's compute with the very same weights, and what they translate is compared with this
package's before anything is timed. Each program has a process of its own; they take turns. This package
is timed from text to text through `Translator`, which makes its own batches; CTranslate2 from tokens to
tokens, the others from ids to ids, in batches of sentences of like length.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import (
    Outcome,
    Spec,
    best_ceiling,
    compare,
    missing_text,
    plot_ratios,
    run_facts,
    split_by_presence,
    table,
    write_json,
)

OURS = ("tensorflow:float32", "torch:float32", "jax:float32")
AGAINST = ("ctranslate2:float32", "ctranslate2:int8", "huggingface:float32", "keras_hub:float32")
# Name -> subject, its packages, and how many sentences it translates (None for all).
PEERS: dict[str, tuple[str, str, dict[str, str]]] = {
    "ctranslate2": (
        "CTranslate2",
        "peers_decoding.ctranslate2_engine:CTranslate2",
        {"ctranslate2": "ctranslate2"},
    ),
    "huggingface": (
        "HF Marian",
        "peers_decoding.huggingface:Marian",
        {"transformers": "transformers", "torch": "torch"},
    ),
    "keras_hub": (
        "KerasHub BART",
        "peers_decoding.keras_hub_bart:Bart",
        {"keras_hub": "keras-hub", "tensorflow": "tensorflow"},
    ),
}
# Rounding may turn a search where two hypotheses are equal to six digits; more is another model.
LEAST_IDENTICAL = 0.75


def main() -> None:
    """Write the job, compare, and show what was found."""
    options = arguments()
    facts, reports = run_facts(), []
    with tempfile.TemporaryDirectory(prefix="decode-") as folder:
        write_job(Path(folder), options)
        for batch_size in options.batch_sizes:
            present, missing = split_by_presence(subjects(options, folder, batch_size))
            print(missing_text(missing), flush=True)
            outcomes = compare(
                present,
                options.rounds,
                1,
                threads=options.threads,
                prepare_limit=1800,
                run_limit=1800,
                differing=differing_translations,
                log=lambda line: print(line, flush=True),
            )
            agreement = agreements(outcomes, options)
            reports.append((batch_size, outcomes, agreement))
            show(batch_size, outcomes, agreement, options)
        for batch_size, outcomes, agreement in reports:
            where = {"batch_size": batch_size, "agreement": agreement}
            if options.json:
                write_json(named(options.json, batch_size, options), facts, outcomes, **where)
            if options.plot:
                title = (
                    f"Beam {options.beam_size}, batch {batch_size}, {options.sentences} sentences"
                )
                path = named(options.plot, batch_size, options)
                rate = ("sentences", "sentences/s", 1.0)
                plot_ratios(path, outcomes, rate, title, "CTranslate2 float32")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--ours", nargs="*", default=list(OURS), metavar="BACKEND:PRECISION")
    add("--against", nargs="*", default=list(AGAINST), metavar="PEER:PRECISION", help=str([*PEERS]))
    add("--batch-sizes", nargs="+", type=int, default=[32, 1])
    add("--sentences", type=int, default=200)
    add("--rounds", type=int, default=3)
    add("--threads", type=int, help="CPUs of each program; all if not given")
    add("--beam-size", type=int, default=4)
    add("--length-penalty", type=float, default=0.6)
    add("--extra-length", type=int, help="tokens beyond the source's; 3, with --run 50")
    add("--preset", default="base", help="the random model's")
    add("--vocabulary-size", type=int, default=16_000, help="the random model's")
    add("--checked", type=int, default=8, help="sentences to compare; with --run all of them")
    add("--run", type=Path, help="folder of a trained run")
    add("--source-file", type=Path, help="sentences to translate with --run")
    add("--reference-file", type=Path, help="their translations, for BLEU")
    add("--json", type=Path, help="every figure; with several batch sizes a file for each")
    add("--plot", type=Path, help="a picture; with several batch sizes one for each")
    options = parser.parse_args()
    if (options.run is None) != (options.source_file is None):
        parser.error("--run and --source-file belong together.")
    if options.extra_length is None:
        options.extra_length = 3 if options.run is None else 50
    unknown = {name.partition(":")[0] for name in options.against} - set(PEERS)
    if unknown:
        parser.error(
            f"unknown in --against: {', '.join(sorted(unknown))}; known: {', '.join(PEERS)}"
        )
    return options


def write_job(folder: Path, options: argparse.Namespace) -> None:
    """Write what all programs read, in a process of its own: it needs Keras, this one does not."""
    names = ("sentences", "vocabulary_size", "preset", "checked", "extra_length", "beam_size")
    settings = {name: getattr(options, name) for name in (*names, "length_penalty")}
    for name in ("run", "source_file"):
        path = getattr(options, name)
        settings[name] = None if path is None else str(path.resolve())
    here = Path(__file__).resolve().parent
    paths = [str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]
    subprocess.run(
        [sys.executable, "-m", "peers_decoding.make_job", str(folder), json.dumps(settings)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        check=True,
    )


def subjects(options: argparse.Namespace, folder: str, batch_size: int) -> list[Spec]:
    """The ceilings, this package on its backends, and the peers."""
    backends = dict.fromkeys(name.partition(":")[0] for name in options.ours)
    # TensorFlow leaves oneDNN off where a CPU lacks VNNI; products of few rows want it.
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1"}
    specs = [
        Spec(f"GEMM {name}", "harness.gemm:Gemm", {"framework": name}, quiet, {name: name}, True)
        for name in backends
    ]
    job = {"folder": folder, "batch_size": batch_size}
    for name in options.ours:
        backend, _, precision = name.partition(":")
        precision = precision or "float32"
        specs.append(
            Spec(
                f"keras_attention {backend} {precision}",
                "peers_decoding.ours:KerasAttention",
                {**job, "precision": precision},
                {**quiet, "KERAS_BACKEND": backend},
                {backend: backend},
            )
        )
    for name in options.against:
        peer, _, precision = name.partition(":")
        precision = precision or "float32"
        title, target, requires = PEERS[peer]
        more: dict[str, Any] = {"precision": precision}
        if peer == "keras_hub":
            # About ten times slower, and each length is compiled: one batch, or four sentences.
            more["limit"] = min(options.sentences, max(batch_size, 4))
        environment = {**quiet, "KERAS_BACKEND": "tensorflow"} if peer == "keras_hub" else quiet
        specs.append(Spec(f"{title} {precision}", target, {**job, **more}, environment, requires))
    return specs


def identical(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float | None:
    """Share of the compared sentences with the very same tokens; None if there is nothing to compare."""
    pairs = list(zip(ours.get("translations", ()), theirs.get("translations", ()), strict=False))
    return sum(one == other for one, other in pairs) / len(pairs) if pairs else None


def differing_translations(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str | None:
    """Why a program in float32 does not compute the same; the others are only shown."""
    share = identical(ours, theirs)
    if share is None or theirs.get("approximate") or share >= LEAST_IDENTICAL:
        return None
    return f"only {share:.0%} of the translations have the same tokens"


def agreements(
    outcomes: Sequence[Outcome], options: argparse.Namespace
) -> dict[str, dict[str, float | None]]:
    """For each subject the share of sentences translated as by the first of ours, and its BLEU."""
    compared = [o for o in outcomes if "translations" in o.outputs]
    bleu = scorer(options) if options.reference_file else None
    return {
        outcome.spec.name: {
            "identical": identical(compared[0].outputs, outcome.outputs),
            "bleu": bleu(outcome.outputs["translations"]) if bleu else None,
        }
        for outcome in compared
    }


def scorer(options: argparse.Namespace) -> Callable[[list[list[int]]], float]:
    """BLEU of token ids against the reference file."""
    from keras_attention import Tokenizer, corpus_bleu

    tokenizer = Tokenizer.load(options.run / "tokenizer")
    sources = options.source_file.read_text("utf-8").split("\n")
    references = options.reference_file.read_text("utf-8").split("\n")
    pairs = zip(sources, references, strict=False)
    kept = [reference for source, reference in pairs if source.strip()][: options.sentences]
    return lambda rows: corpus_bleu([tokenizer.decode(row) for row in rows], kept).score


def show(
    batch_size: int,
    outcomes: Sequence[Outcome],
    agreement: Mapping[str, Mapping[str, float | None]],
    options: argparse.Namespace,
) -> None:
    """Print the table of one batch size."""
    rates = {"sentences": ("sentences/s", 1.0), "flop": ("GFLOP/s", 1e9)}
    print(f"\nBatch {batch_size}, beam {options.beam_size}, {options.sentences} sentences\n")
    ratio_to = ("CTranslate2 float32", "CTranslate2 int8")
    print(table(outcomes, rates, "pass", best_ceiling(outcomes), ratio_to))
    for name, found in agreement.items():
        share, bleu = found["identical"], found["bleu"]
        text = "" if bleu is None else f", BLEU {bleu:.2f}"
        print(f"{name}: {share:.1%} of the compared translations identical to the first's{text}")
    print(flush=True)


def named(path: Path, batch_size: int, options: argparse.Namespace) -> Path:
    """`path`, with the batch size in its name if there are several."""
    several = len(options.batch_sizes) > 1
    return path.with_stem(f"{path.stem}_batch{batch_size}") if several else path


if __name__ == "__main__":
    main()
