"""How fast are translations? This package against CTranslate2, Hugging Face and KerasHub.

    python benchmarks/decode.py                                     # random base model, forced lengths
    python benchmarks/decode.py --presets tiny small medium base --batch-sizes 1 8 32 --record
    python benchmarks/decode.py --run RUN --source-file newstest2014.en --reference-file newstest2014.de
    python benchmarks/decode.py --baseline ../before --against      # another checkout of ours
    python benchmarks/decode.py --ours torch:int8 torch:float32:plain --against ctranslate2:int8
    python benchmarks/decode.py --isa avx2        # every program as on a processor without AVX-512

The beam size is 4. A preset has random weights and random sources with the lengths of newstest2014. It never
chooses the end token, so every program writes translations of a given length: that of the source plus
`--extra-length`. `--run` (alone or with presets) adds the model of a run's folder. Its translations end by
each program's own rule; with `--reference-file`, their BLEU is shown.

All programs except KerasHub's use the same weights. Before anything is timed, all is compiled, and the
translations are compared with this package's. Each program has its own process, and they take turns. This
package is timed from text to text through `Translator`, which makes its own batches; CTranslate2 from tokens
to tokens, on all CPUs or one, whichever is faster in a trial; the others from ids to ids, in batches of
sentences of similar length.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import (
    Outcome,
    Spec,
    Worker,
    add_record_option,
    compare,
    comparison,
    installed,
    run_facts,
    table,
    write_record,
)
from peers.backends import EMULATIONS, installed_backends, keras_environment, keras_spec

OURS = ("tensorflow:float32", "torch:float32", "jax:float32")
AGAINST = ("ctranslate2:float32", "ctranslate2:int8", "huggingface:float32", "keras_hub:float32")
PROGRAMS = "peers.decoding.programs"
# Name -> title, class, and its packages.
PEERS: dict[str, tuple[str, str, dict[str, str]]] = {
    "ctranslate2": ("CTranslate2", "CTranslate2", {"ctranslate2": "ctranslate2"}),
    "huggingface": ("HF Marian", "Marian", {"transformers": "transformers", "torch": "torch"}),
    "keras_hub": ("KerasHub BART", "Bart", {"keras_hub": "keras-hub", "tensorflow": "tensorflow"}),
}
# Presets for small corpora, which have few word-pieces.
SMALL = ("tiny", "small", "medium")
# Rounding may turn a search where two hypotheses are equal to six digits; more is another model.
LEAST_IDENTICAL = 0.75
TIME_LIMIT = 1800.0


def main() -> None:
    """For each model and batch size: write the job, compare, and show what was found."""
    options = arguments()
    facts = run_facts()
    for model in [*options.presets, *([options.run] if options.run else [])]:
        with tempfile.TemporaryDirectory(prefix="decode-") as folder:
            case = write_job(folder, model, options)
            for batch_size in options.batch_sizes:
                outcomes = compare(
                    installed(subjects(options, folder, batch_size)),
                    options.rounds,
                    threads=options.threads,
                    time_limit=TIME_LIMIT,
                    differing=differing_translations,
                )
                held = {"isa": options.isa} if options.isa else {}
                report({**case, "batch_size": batch_size, **held}, outcomes, facts, options)


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--ours", nargs="*", default=list(OURS), metavar="BACKEND:PRECISION[:ENGINE]")
    add("--against", nargs="*", default=list(AGAINST), metavar="PEER:PRECISION", help=str([*PEERS]))
    add("--isa", choices=[*EMULATIONS], help="limit all programs to these instructions")
    add(
        "--baseline", type=Path, metavar="DIR", help="another checkout, which takes turns with this"
    )
    add("--batch-sizes", nargs="+", type=int, default=[32, 1])
    add("--sentences", type=int, default=200)
    add("--rounds", type=int, default=3)
    add("--threads", type=int, help="CPUs of each program; all if not given")
    add("--beam-size", type=int, default=4)
    add("--length-penalty", type=float, default=0.6)
    add("--extra-length", type=int, help="tokens more than the source has (3; with --run 50)")
    add(
        "--presets",
        nargs="*",
        help="random models, such as small, or small_6_2 with six blocks in the encoder and two in the "
        "decoder; default: base, or none with --run",
    )
    sizes = "of presets; default: 16,000, or 4,000 for tiny, small and medium"
    add("--vocabulary-size", type=int, help=sizes)
    add("--checked", type=int, default=8, help="sentences to compare; with --run all")
    add("--run", type=Path, help="folder of a trained run")
    add("--source-file", type=Path, help="sentences to translate with --run")
    add("--reference-file", type=Path, help="their translations, for BLEU")
    add_record_option(parser)
    options = parser.parse_args()
    if (options.run is None) != (options.source_file is None):
        parser.error("--run and --source-file belong together.")
    if options.presets is None:
        options.presets = [] if options.run else ["base"]
    if unknown := {name.partition(":")[0] for name in options.against} - set(PEERS):
        parser.error(f"unknown in --against: {', '.join(unknown)}; known: {', '.join(PEERS)}")
    return options


def write_job(folder: str, model: str | Path, options: argparse.Namespace) -> dict[str, Any]:
    """Write what all programs read.

    Args:
        folder: Where to.
        model: A preset's name, or the folder of a run.
        options: The command line.

    Returns:
        The case: model, size of its vocabulary and beam.
    """
    is_run = isinstance(model, Path)
    few = not is_run and model.startswith(SMALL)
    names = ("sentences", "checked", "beam_size", "length_penalty")
    settings = {
        **{name: getattr(options, name) for name in names},
        "folder": folder,
        "model": str(model.resolve()) if is_run else model,
        "source_file": str(options.source_file.resolve()) if is_run else None,
        "vocabulary_size": options.vocabulary_size or (4_000 if few else 16_000),
        "extra_length": options.extra_length,
    }
    if options.extra_length is None:
        settings["extra_length"] = 50 if is_run else 3
    # Any backend makes the same job; that of the first of ours is installed.
    backend = ours_parts(options.ours[0])[0] if options.ours else installed_backends()[0]
    maker = ("peers.decoding.make_job:JobMaker", settings, keras_environment(backend))
    with Worker(*maker, time_limit=TIME_LIMIT) as worker:
        facts = worker.call("prepare", TIME_LIMIT)
    name = f"{model.resolve().name}, trained" if is_run else model
    return {"model": name, **facts, "beam_size": options.beam_size}


def subjects(options: argparse.Namespace, folder: str, batch_size: int) -> list[Spec]:
    """Return this package on its backends, of this checkout and of another, and the peers."""
    job = {"folder": folder, "batch_size": batch_size}
    specs = []
    for checkout, name in itertools.product(dict.fromkeys([None, options.baseline]), options.ours):
        backend, precision, engine = ours_parts(name)
        title = " ".join(filter(None, ("keras_attention", backend, precision, engine)))
        own = {**job, "precision": precision, "engine": engine or "auto"}
        specs.append(keras_spec(title, backend, f"{PROGRAMS}:KerasAttention", own, checkout))
    for name in options.against:
        peer, _, precision = name.partition(":")
        title, target, requires = PEERS[peer]
        own = {**job, "precision": precision or "float32"}
        if peer == "keras_hub":
            # About ten times slower, and each length is compiled: one batch, or four sentences.
            own["limit"] = min(options.sentences, max(batch_size, 4))
        environment = keras_environment("tensorflow" if peer == "keras_hub" else "torch")
        title = f"{title} {own['precision']}"
        specs.append(Spec(title, f"{PROGRAMS}:{target}", own, environment, requires))
    held = EMULATIONS.get(options.isa, {})
    return [dataclasses.replace(spec, environment={**spec.environment, **held}) for spec in specs]


def ours_parts(name: str) -> tuple[str, str, str]:
    """Backend, precision and engine of a program of ours; without one the engine is chosen.

    Example:

    >>> ours_parts("torch:int8"), ours_parts("jax"), ours_parts("torch:float32:plain")
    (('torch', 'int8', ''), ('jax', 'float32', ''), ('torch', 'float32', 'plain'))
    """
    backend, precision, engine = [*name.split(":"), "", ""][:3]
    return backend, precision or "float32", engine


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


def scorer(options: argparse.Namespace) -> Callable[[list[list[int]]], float]:
    """BLEU of token ids against the reference file."""
    from keras_attention import Tokenizer, corpus_bleu

    tokenizer = Tokenizer.load(options.run / "tokenizer")
    sources = options.source_file.read_text("utf-8").split("\n")
    references = options.reference_file.read_text("utf-8").split("\n")
    pairs = zip(sources, references, strict=False)
    kept = [reference for source, reference in pairs if source.strip()][: options.sentences]
    return lambda rows: corpus_bleu([tokenizer.decode(row) for row in rows], kept).score


def report(
    case: Mapping[str, Any],
    outcomes: Sequence[Outcome],
    facts: Mapping[str, Any],
    options: argparse.Namespace,
) -> None:
    """Print the table of a model and a batch size, and write its record."""
    print(
        f"\n{case['model']}, V {case['vocabulary_size']:,}, batches of {case['batch_size']}, "
        f"beam {case['beam_size']}, {options.sentences} sentences"
        + (f", {case['isa']} emulated" if "isa" in case else "")
    )
    others = ["CTranslate2 float32", "CTranslate2 int8"] if options.against else []
    compared = [o for o in outcomes if "translations" in o.outputs]
    ratio_to = others or [outcome.spec.name for outcome in outcomes[: len(options.ours)]]
    print(f"\n{table(outcomes, {'sentences': ('sentences/s', 1.0)}, 'pass', None, ratio_to)}")
    is_scored = options.reference_file and case["model"] not in options.presets
    bleu = scorer(options) if is_scored else None
    agreement = {}
    for outcome in compared:
        share = identical(compared[0].outputs, outcome.outputs)
        found = {"identical": share, "bleu": bleu and bleu(outcome.outputs["translations"])}
        agreement[outcome.spec.name] = found
        text = f", BLEU {found['bleu']:.2f}" if bleu else ""
        print(f"{outcome.spec.name}: {share:.1%} of the translations as the first's{text}")
    for outcome in outcomes:
        if tried := outcome.facts.get("tried"):
            each = ", ".join(f"{threads}: {seconds:.3g} s" for threads, seconds in tried.items())
            print(f"{outcome.spec.name}: threads tried: {each}")
    figures = {**comparison(outcomes), "agreement": agreement}
    write_record(options.record, facts, "decode", case, **figures)


if __name__ == "__main__":
    main()
