"""How fast are translations? This package against CTranslate2, Hugging Face and KerasHub.

    python benchmarks/decode.py                                     # random base model, forced lengths
    python benchmarks/decode.py --presets tiny small medium base --batch-sizes 1 8 32 --record
    python benchmarks/decode.py --run RUN --source-file newstest2014.en --reference-file newstest2014.de
    python benchmarks/decode.py --baseline ../before --against      # another checkout of ours
    python benchmarks/decode.py --presets tiny --sentences 12 --busy 0 2     # without, with 2 busy processes
    python benchmarks/decode.py --ours torch:float32:torch --against weighted    # the cost of branches
    python benchmarks/decode.py --ours torch:int8 --against ctranslate2:int8 --batch-sizes 1 --json FILE
    python benchmarks/decode.py --isa avx2        # every program as on a processor without AVX-512

The beam size is 4. A preset has random weights and random sources with the lengths of newstest2014. It never
chooses the end token, so every program writes translations of a given length: that of the source plus
`--extra-length`. `--run` (alone or with presets) adds the model of a run's folder. Its translations end by
each program's own rule; with `--reference-file`, their BLEU is shown.

All programs except KerasHub's use the same weights. Their translations are compared with this package's
before anything is timed. Each program has its own process, and they take turns. This package is timed from
text to text through `Translator`, which makes its own batches; CTranslate2 from tokens to tokens; the others
from ids to ids, in batches of sentences of similar length. CTranslate2 translates a batch on all CPUs or on
one, whichever is faster in a trial; `ctranslate2:float32:at_once` translates several batches at once, one on
each CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from peers.backends import EMULATIONS, installed_backends, keras_environment
from records import record_path

OURS = ("tensorflow:float32", "torch:float32", "jax:float32")
AGAINST = ("ctranslate2:float32", "ctranslate2:int8", "huggingface:float32", "keras_hub:float32")
# Name -> title, subject, and its packages.
PEERS: dict[str, tuple[str, str, dict[str, str]]] = {
    "ctranslate2": (
        "CTranslate2",
        "peers.decoding.ctranslate2_engine:CTranslate2",
        {"ctranslate2": "ctranslate2"},
    ),
    "huggingface": (
        "HF Marian",
        "peers.decoding.huggingface:Marian",
        {"transformers": "transformers", "torch": "torch"},
    ),
    "keras_hub": (
        "KerasHub BART",
        "peers.decoding.keras_hub_bart:Bart",
        {"keras_hub": "keras-hub", "tensorflow": "tensorflow"},
    ),
    # On backend and engine of the first of ours: a branch for each head.
    "weighted": ("weighted", "peers.decoding.ours:WeightedTransformer", {"keras": "keras"}),
}
# Presets for small corpora, which have few word-pieces.
SMALL = ("tiny", "small", "medium")
# Rounding may turn a search where two hypotheses are equal to six digits; more is another model.
LEAST_IDENTICAL = 0.75


def main() -> None:
    """For each model and batch size: write the job, compare, and show what was found."""
    options = arguments()
    facts = run_facts()
    for model in [*options.presets, *([options.run] if options.run else [])]:
        with tempfile.TemporaryDirectory(prefix="decode-") as folder:
            case = write_job(Path(folder), model, options)
            for batch_size, neighbours in itertools.product(options.batch_sizes, options.busy):
                present, missing = split_by_presence(subjects(options, folder, batch_size))
                print(missing_text(missing), flush=True)
                with busy(neighbours):
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
                beside = {"busy": neighbours, "sentences": options.sentences}
                beside = {} if options.busy == [0] else beside
                if options.isa:
                    beside["isa"] = options.isa
                report({**case, "batch_size": batch_size, **beside}, outcomes, facts, options)


@contextlib.contextmanager
def busy(number: int) -> Iterator[None]:
    """So many processes that take all the time that they get, each of a core."""
    # It ends with its parent, however that ends.
    program = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
    spin = [sys.executable, "-c", program]
    processes = [subprocess.Popen(spin, start_new_session=True) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--ours", nargs="*", default=list(OURS), metavar="BACKEND:PRECISION[:ENGINE]")
    add(
        "--against",
        nargs="*",
        default=list(AGAINST),
        metavar="PEER:PRECISION[:at_once]",
        help=str([*PEERS]),
    )
    add("--isa", choices=[*EMULATIONS], help="limit all programs to these instructions")
    add("--no-ceilings", action="store_true", help="do not measure matrix products")
    add(
        "--baseline",
        type=Path,
        metavar="DIR",
        help="another checkout of this package, which takes turns with this one",
    )
    add("--batch-sizes", nargs="+", type=int, default=[32, 1])
    add(
        "--busy",
        nargs="+",
        type=int,
        default=[0],
        metavar="N",
        help="number of other, busy processes; `0 2` measures without and with two",
    )
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
    add(
        "--vocabulary-size",
        type=int,
        help="of presets; default: 16,000, or 4,000 for tiny, small and medium",
    )
    add("--checked", type=int, default=8, help="sentences to compare; with --run all")
    add("--run", type=Path, help="folder of a trained run")
    add("--source-file", type=Path, help="sentences to translate with --run")
    add("--reference-file", type=Path, help="their translations, for BLEU")
    add("--json", type=Path, help="write all figures; one file per model and batch size")
    add(
        "--record",
        action="store_true",
        help="also write records to benchmarks/results/, for the tables",
    )
    add("--plot", type=Path, help="draw a picture; one file per model and batch size")
    options = parser.parse_args()
    if (options.run is None) != (options.source_file is None):
        parser.error("--run and --source-file belong together.")
    if options.presets is None:
        options.presets = [] if options.run else ["base"]
    unknown = {name.partition(":")[0] for name in options.against} - set(PEERS)
    if unknown:
        parser.error(
            f"unknown in --against: {', '.join(sorted(unknown))}; known: {', '.join(PEERS)}"
        )
    return options


def write_job(folder: Path, model: str | Path, options: argparse.Namespace) -> dict[str, Any]:
    """Write what all programs read, in a process of its own: it needs Keras, this one does not.

    Args:
        folder: Where to.
        model: A preset's name, or the folder of a run.
        options: The command line.

    Returns:
        The case: model, size of its vocabulary and beam.
    """
    names = ("sentences", "checked", "beam_size", "length_penalty")
    settings = {name: getattr(options, name) for name in names}
    is_run = isinstance(model, Path)
    is_small = not is_run and model.startswith(SMALL)
    vocabulary_size = options.vocabulary_size or (4_000 if is_small else 16_000)
    settings |= {
        "preset": None if is_run else model,
        "run": str(model.resolve()) if is_run else None,
        "source_file": str(options.source_file.resolve()) if is_run else None,
        "vocabulary_size": vocabulary_size,
        "extra_length": (50 if is_run else 3)
        if options.extra_length is None
        else options.extra_length,
    }
    here = Path(__file__).resolve().parent
    paths = [str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]
    # Any backend makes the same job; that of the first of ours is installed.
    backend = ours_parts(options.ours[0])[0] if options.ours else installed_backends()[0]
    subprocess.run(
        [sys.executable, "-m", "peers.decoding.make_job", str(folder), json.dumps(settings)],
        env={
            **os.environ,
            **keras_environment(backend),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        },
        check=True,
    )
    config = json.loads((folder / "job.json").read_text("utf-8"))["config"]
    return {
        "model": f"{model.resolve().name}, trained" if is_run else model,
        "vocabulary_size": config["vocabulary_size"],
        "beam_size": options.beam_size,
    }


def subjects(options: argparse.Namespace, folder: str, batch_size: int) -> list[Spec]:
    """Return the ceilings, this package on its backends, and the peers."""
    backends = dict.fromkeys(ours_parts(name)[0] for name in options.ours)
    specs = [
        Spec(
            f"GEMM {name}",
            "harness.gemm:Gemm",
            {"framework": name},
            keras_environment(name),
            {name: name},
            True,
        )
        for name in backends
        if not options.no_ceilings
    ]
    job = {"folder": folder, "batch_size": batch_size}
    for name in options.ours:
        backend, precision, engine = ours_parts(name)
        specs.append(
            Spec(
                f"keras_attention {backend} {precision}" + (f" {engine}" if engine else ""),
                "peers.decoding.ours:KerasAttention",
                {**job, "precision": precision, "engine": engine or "auto"},
                keras_environment(backend),
                {backend: backend},
            )
        )
    if options.baseline:
        specs += [
            dataclasses.replace(
                spec,
                name=f"{spec.name}, {options.baseline}",
                environment=keras_environment(spec.environment["KERAS_BACKEND"], options.baseline),
            )
            for spec in specs
            if not spec.is_ceiling
        ]
    for name in options.against:
        peer, precision, at_once = [*name.split(":"), "", ""][:3]
        precision = precision or "float32"
        title, target, requires = PEERS[peer]
        more: dict[str, Any] = {"precision": precision}
        environment = keras_environment("tensorflow" if peer == "keras_hub" else "torch")
        if peer == "weighted":
            backend, _, engine = ours_parts(options.ours[0])
            environment, more["engine"] = keras_environment(backend), engine or "auto"
        if peer == "keras_hub":
            # About ten times slower, and each length is compiled: one batch, or four sentences.
            more["limit"] = min(options.sentences, max(batch_size, 4))
        if at_once:
            more["at_once"], title = True, f"{title} at once"
        specs.append(Spec(f"{title} {precision}", target, {**job, **more}, environment, requires))
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


def agreements(
    outcomes: Sequence[Outcome], options: argparse.Namespace | None
) -> dict[str, dict[str, float | None]]:
    """For each subject the share of sentences translated as by the first of ours, and its BLEU.

    Args:
        outcomes: Of a run.
        options: The command line if the model is that of a run, which alone has a BLEU; else None.
    """
    compared = [o for o in outcomes if "translations" in o.outputs]
    bleu = scorer(options) if options and options.reference_file else None
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


def report(
    case: Mapping[str, Any],
    outcomes: Sequence[Outcome],
    facts: Mapping[str, Any],
    options: argparse.Namespace,
) -> None:
    """Print the table of a model and a batch size, and write the files that were asked for."""
    rates = {"sentences": ("sentences/s", 1.0), "flop": ("GFLOP/s", 1e9)}
    title = (
        f"{case['model']}, V {case['vocabulary_size']:,}, batches of {case['batch_size']}, "
        f"beam {case['beam_size']}, {options.sentences} sentences"
        + (f", beside {case['busy']} busy processes" if "busy" in case else "")
        + (f", {case['isa']} emulated" if "isa" in case else "")
    )
    print(f"\n{title}\n")
    ratio_to = ["CTranslate2 float32", "CTranslate2 int8"]
    ours = [o.spec.name for o in outcomes if o.spec.name.startswith("keras_attention")]
    if any(name.startswith("weighted") for name in options.against):
        ratio_to = ours[:1]
    print(table(outcomes, rates, "pass", best_ceiling(outcomes), ratio_to))
    agreement = agreements(outcomes, options if case["model"] not in options.presets else None)
    for name, found in agreement.items():
        share, bleu = found["identical"], found["bleu"]
        text = "" if bleu is None else f", BLEU {bleu:.2f}"
        print(f"{name}: {share:.1%} of the compared translations identical to the first's{text}")
    for outcome in outcomes:
        if tried := outcome.facts.get("tried"):
            each = ", ".join(f"{setting}: {seconds:.3g} s" for setting, seconds in tried.items())
            print(f"{outcome.spec.name}: batches at once x threads of each, tried: {each}")
    print(flush=True)
    record = record_path("decode", case, facts) if options.record else None
    for path in filter(None, (options.json and named(options.json, case, options), record)):
        more = {"benchmark": "decode", "case": case, "source": "measured", "agreement": agreement}
        write_json(path, facts, outcomes, **more)
    if options.plot:
        rate = ("sentences", "sentences/s", 1.0)
        plot_ratios(named(options.plot, case, options), outcomes, rate, title, ratio_to[0])


def named(path: Path, case: Mapping[str, Any], options: argparse.Namespace) -> Path:
    """`path`, with model and batch size in its name if there are several."""
    models = len(options.presets) + bool(options.run)
    if len(options.batch_sizes) * len(options.busy) * models == 1:
        return path
    name = f"{path.stem}_{case['model'].split(',')[0]}_batch{case['batch_size']}"
    return path.with_stem(name + (f"_busy{case['busy']}" if "busy" in case else ""))


if __name__ == "__main__":
    main()
