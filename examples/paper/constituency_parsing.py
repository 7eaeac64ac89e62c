"""Train a Transformer to parse English, and score it by bracketing F1: section 6.3 of the paper, Table 4.

Without arguments, this trains a small model for five minutes on nltk's sample of the Wall Street Journal
(3,227 trees; downloaded). Then it parses the sample's 351 test sentences in two ways: with a search that
can only write well-formed trees, and with a free search whose trees are repaired. The results are compared
with right-branching trees and, with `--pcfg`, with a grammar that is read off the training set. `--treebank
craft` uses the free treebank of 30,830 trees. `--treebank penn --data-dir WSJ` is the paper's own job: its
corpus, its model, beam 21. A stopped run continues. For semi-supervised training, `--parse TEXT` also lets
the trained parser write the trees of plain text, and `--silver` trains another one on these beside the gold
ones. `--quick` does all this with a grammar of a few rules, in a minute or two.

What to expect, written before the first run: the paper's 91.3 needs 40,000 trees and a large model. Five
minutes on 3,227 trees should beat right-branching trees by 20 points, but not the grammar, which need not
learn word order first. An hour on CRAFT should reach 72. The constrained search writes no malformed tree,
and its F1 is at least that of repaired trees. Silver trees are no better than their parser: they should bring
little.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import common
import numpy as np
from parsing.treebanks import Treebank, load_treebank, treebank_from_files

from keras_attention import TranslationConfig
from keras_attention.cli.options import add_options
from keras_attention.cli.train_settings import MODEL_OPTIONS, configured
from keras_attention.data.mixture import parse_mixture
from keras_attention.data.text_files import existing_file
from keras_attention.spec import TransformerOptions
from keras_attention.utils.files import write_atomically
from keras_attention.utils.progress import say

if TYPE_CHECKING:
    from nltk import Tree
    from parsing.bracketing import SentenceScore
    from parsing.run import ParserRun


class Parser(NamedTuple):
    """A row of the paper's Table 4: section 23 of the WSJ, labelled bracketing F1 in percent."""

    name: str
    training: str
    f1: float


TABLE_4 = (
    Parser("Vinyals & Kaiser et al. (2014)", "WSJ only", 88.3),
    Parser("Petrov et al. (2006)", "WSJ only", 90.4),
    Parser("Zhu et al. (2013)", "WSJ only", 90.4),
    Parser("Dyer et al. (2016)", "WSJ only", 91.7),
    Parser("Transformer (4 layers)", "WSJ only", 91.3),
    Parser("Zhu et al. (2013)", "semi-supervised", 91.3),
    Parser("Huang & Harper (2009)", "semi-supervised", 91.3),
    Parser("McClosky et al. (2006)", "semi-supervised", 92.1),
    Parser("Vinyals & Kaiser et al. (2014)", "semi-supervised", 92.1),
    Parser("Transformer (4 layers)", "semi-supervised", 92.7),
    Parser("Luong et al. (2015)", "multi-task", 93.0),
    Parser("Dyer et al. (2016)", "generative", 93.3),
)
# For ten minutes on two CPU cores, search included: a tiny pre-norm model, which tolerates a high rate
# early, small batches without the longest trees (under 1 %), and a rate that falls to 0 at the end.
SMALL = TranslationConfig(
    preset="parsing_small",
    model_arguments={
        "num_layers": 2,
        "hidden_dim": 128,
        "intermediate_dim": 512,
        "normalize_first": True,
    },
    vocabulary_size=2000,
    batch_tokens=1800,
    max_length=220,
    max_shapes=8,
    minutes=5,
    warmup_steps=200,
    peak_learning_rate=0.002,
    averaged_checkpoints=4,
    bleu_every=common.NEVER,  # It says nothing about trees.
    beam_size=4,
    length_penalty=0.3,
)
# For an hour, with some ten thousand trees.
HOUR = dataclasses.replace(
    SMALL,
    model_arguments={"normalize_first": True},
    vocabulary_size=6000,
    batch_tokens=3000,
    max_length=256,
    max_shapes=12,
    minutes=50,
)
# Section 6.3: 4 layers of width 1024, 16,000 tokens, beam 21; all else as the English-German base model.
# The authors' code warms up for 16,000 updates and leaves out trees of more than 512 symbols.
PAPER = TranslationConfig(
    preset="parsing",
    vocabulary_size=16_000,
    batch_tokens=32_768,
    max_length=512,
    steps=100_000,
    warmup_steps=16_000,
    checkpoint_minutes=10,
    bleu_every=common.NEVER,
    beam_size=21,
    length_penalty=0.3,
)
SEMI_SUPERVISED_VOCABULARY = 32_000
# Small models lose their place in long sentences unless the words are in the tree. The paper has tags.
RECIPES = {
    "wsj_sample": (SMALL, "words"),
    "craft": (HOUR, "words"),
    "penn": (PAPER, "tags"),
    "files": (SMALL, "words"),
}
PARTS = ("train", "validation", "test")
SETTINGS = (
    *("preset", "vocabulary_size", "steps", "minutes", "batch_tokens", "max_length", "mixture"),
    *("warmup_steps", "peak_learning_rate", "seed", "dtype", "beam_size", "length_penalty"),
)
SYSTEMS = {
    "constrained": "Transformer, constrained search",
    "repaired": "Transformer, trees repaired",
    "failed": "Transformer, malformed trees fail",
    "right_branching": "right-branching",
    "pcfg": "PCFG of the training part",
}
COLUMNS = {
    "f1": "F1",
    "f1_of_all": "F1 of all",
    "recall": "recall",
    "precision": "precision",
    "complete_match": "complete",
    "tagging_accuracy": "tags",
    "failed": "failed",
    "malformed": "malformed",
    "seconds": "seconds",
}
SAMPLES = 1000  # of the bootstrap
LENGTHS = (10, 20, 30, 40)
# What a system found: its `parses`, one for each sentence, and its `seconds`.
Parses = Mapping[str, Mapping[str, Any]]


def parser() -> argparse.ArgumentParser:
    """Make the parser of the options."""
    made = common.new_parser(__doc__, __file__)
    add = made.add_argument_group("trees").add_argument
    add(
        "--treebank",
        choices=[name for name in RECIPES if name != "files"],
        help="which treebank (wsj_sample)",
    )
    add("--data-dir", type=Path, metavar="PATH", help="folder with its files; else downloaded")
    for part in PARTS:
        text = f"your own trees to {part if part != 'validation' else 'validate'} with"
        add(f"--{part}", type=Path, nargs="+", metavar="PATH", help=f"{text}: files or folders")
    add(
        "--silver",
        type=Path,
        nargs="+",
        metavar="PATH",
        help="trees of a parser, trained on beside the gold ones: files or folders. --mixture gold:1 "
        "silver:1 takes as much of each; by default every tree is seen as often",
    )
    add(
        "--parse",
        type=Path,
        metavar="TEXT",
        help="plain text, a sentence a line, whose trees the trained parser writes to silver.mrg in the "
        "run's folder",
    )
    add(
        "--keep",
        type=share,
        metavar="SHARE",
        default=0.5,
        help="how many of these it keeps, from 0 to 1: those that it is surest of (0.5)",
    )
    add("--quick", action="store_true", help="semi-supervised, on a grammar of a few rules")
    add(
        "--leaves",
        choices=("tags", "XX", "words"),
        help="what a tree has for each word: its part-of-speech tag, XX, or the word itself (words; for penn "
        "tags, as in the paper)",
    )
    add(
        "--test-sentences",
        type=common.at_least(1),
        metavar="N",
        help="parse only N test sentences, evenly spread",
    )
    add("--pcfg", action="store_true", help="also compare with a grammar: slow")
    group = made.add_argument_group("settings (those of the treebank's recipe if not given)")
    add_options(group, TranslationConfig, SETTINGS, dict.fromkeys(SETTINGS))
    add_options(group, TransformerOptions, MODEL_OPTIONS, dict.fromkeys(MODEL_OPTIONS))
    return made


def share(text: str) -> float:
    """Read a share above 0, for argparse."""
    if not 0 < float(text) <= 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most 1. Received: {text}")
    return float(text)


def main(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train a parser, parse the test set with several systems, and score them.

    All files are in one folder: that of a run, with the report and `parses/`. If it was stopped, the same
    call continues the training, and the systems that have not parsed yet.
    """
    own = {part: files for part in PARTS if (files := getattr(options, part))}
    if options.quick:
        return quick(folder)
    recipe, leaves = RECIPES["files" if own else options.treebank or "wsj_sample"]
    if options.silver and recipe is PAPER:
        recipe = dataclasses.replace(recipe, vocabulary_size=SEMI_SUPERVISED_VOCABULARY)
    config = configured(recipe, vars(options))
    treebank = treebank_of(options, own)
    if options.silver:
        treebank = treebank.with_silver(options.silver)
    parse_mixture(config.mixture, ("gold", "silver") if options.silver else ())
    systems = ["constrained", "repaired", "right_branching", *(["pcfg"] if options.pcfg else [])]
    leaves = options.leaves or leaves
    if options.parse is not None:
        existing_file(options.parse)
    report = train_and_parse(treebank, config, folder, leaves, systems, options.test_sentences)
    if options.parse is not None:
        parse_text(treebank, config, folder, leaves, options.parse, options.keep)
    return report


def quick(folder: Path) -> dict[str, Any]:
    """Train on few trees of a small grammar, parse sentences without trees, and train on both."""
    from parsing.toy import QUICK, toy_treebank, toy_trees

    sizes = {"train": 80, "validation": 10, "test": 50}
    treebank = toy_treebank(folder / "toy", sizes)
    unseen = toy_trees(200 + sum(sizes.values()))[sum(sizes.values()) :]
    text = folder / "toy" / "text.txt"
    write_atomically(text, "".join(f"{' '.join(tree.leaves())}\n" for tree in unseen))
    run, systems = folder / "gold", ["constrained", "right_branching"]
    found = {"gold": train_and_parse(treebank, QUICK, run, "words", systems)}
    parse_text(treebank, QUICK, run, "words", text, 0.5)
    config = dataclasses.replace(QUICK, mixture=("gold:1", "silver:1"))
    treebank = treebank.with_silver([run / "silver.mrg"])
    found["silver"] = train_and_parse(treebank, config, folder / "silver", "words", systems)
    return found


def treebank_of(options: argparse.Namespace, own: Mapping[str, Sequence[Path]]) -> Treebank:
    """Load the chosen treebank."""
    if not own:
        return load_treebank(options.treebank or "wsj_sample", options.data_dir)
    others = [name for name in ("treebank", "data_dir") if getattr(options, name)]
    if others or len(own) < len(PARTS):
        given = " ".join(f"--{name.replace('_', '-')}" for name in [*own, *others])
        raise ValueError(
            "Your own trees need --train, --validation and --test, without --treebank and "
            f"--data-dir. Received: {given}"
        )
    return treebank_from_files(own["train"], own["validation"], own["test"])


def train_and_parse(
    treebank: Treebank,
    config: TranslationConfig,
    folder: Path,
    leaves: str,
    systems: Sequence[str],
    test_sentences: int | None = None,
) -> dict[str, Any]:
    """Train, parse with these systems, and write the report."""
    with trained(treebank, config, folder, leaves) as run:
        if not run.is_chief:
            return {}
        golds = spread(list(treebank.test), test_sentences)
        parses = {system: run.parses(system, golds) for system in systems}
        scores = sentence_scores(golds, parses)
        report = {
            "treebank": treebank.name,
            "description": treebank.description,
            "sentences": len(golds),
            "updates": run.training["updates"],
            "config": dict(run.settings),
            "systems": figures_of(scores, parses),
            "paper": [row._asdict() for row in TABLE_4],
        }
        figures = {"f1_by_length": f1_by_length(scores)}
        # report.json marks the run as finished.
        common.write(folder, "report", [results_table(report), paper_table()], figures, report)
    return report


def parse_text(
    treebank: Treebank,
    config: TranslationConfig,
    folder: Path,
    leaves: str,
    text: Path,
    keep: float,
) -> None:
    """Let the trained parser write the trees of a text; see `ParserRun.write_silver`."""
    with trained(treebank, config, folder, leaves) as run:
        if run.is_chief:
            counts = run.write_silver(text, keep)
            say(
                f"{counts['kept']:,} trees of {counts['sentences']:,} sentences are in "
                f"{folder / 'silver.mrg'}; {counts['too_long']:,} sentences were too long."
            )


@contextlib.contextmanager
def trained(
    treebank: Treebank, config: TranslationConfig, folder: Path, leaves: str
) -> Iterator[ParserRun]:
    """Hold a run that has been trained, now or before."""
    corpus = treebank.corpus(leaves)  # Finds broken trees before Keras starts.
    common.start_keras()
    from parsing.run import ParserRun

    from keras_attention.recipes import order

    run = ParserRun(corpus, treebank, config, folder, leaves)
    with run.started():
        order.train(run)
        if run.is_chief:
            order.average(run)
            order.save(run)
        yield run


def spread(trees: list[Tree], number: int | None) -> list[Tree]:
    """Return this many of the trees, evenly spread."""
    if number is None or number >= len(trees):
        return trees
    return [trees[i * len(trees) // number] for i in range(number)]


def sentence_scores(golds: Sequence[Tree], parses: Parses) -> dict[str, list[SentenceScore]]:
    """Score each system, and the unconstrained search without repairs."""
    from parsing.bracketing import bracketing_counts

    trees = {system: [p.tree for p in known["parses"]] for system, known in parses.items()}
    if "repaired" in parses:
        found = parses["repaired"]["parses"]
        trees["failed"] = [p.tree if p.is_well_formed else None for p in found]
    return {
        system: [
            bracketing_counts(gold, tree) for gold, tree in zip(golds, trees[system], strict=True)
        ]
        for system in SYSTEMS
        if system in trees
    }


def figures_of(
    scores: Mapping[str, Sequence[SentenceScore]], parses: Parses
) -> dict[str, dict[str, Any]]:
    """Return the figures of each system, and how they differ from the constrained search."""
    from parsing.bracketing import BracketingScore

    systems = {}
    for system, own in scores.items():
        known = parses["repaired" if system == "failed" else system]
        summary = BracketingScore.of(own).summary()
        systems[system] = {
            **summary,
            "failed": summary["errors"] + summary["skipped"],
            "malformed": sum(not parse.is_well_formed for parse in known["parses"]),
            "seconds": known["seconds"],
        }
        if system != "constrained" and "constrained" in scores:
            systems[system] |= difference(scores["constrained"], own)
    return systems


def difference(ours: Sequence[SentenceScore], theirs: Sequence[SentenceScore]) -> dict[str, Any]:
    """Return the difference in F1 over all sentences, with its interval by paired bootstrap (Koehn 2004).

    Returns:
        A dict: `difference` in F1, `interval` of 95 % of the samples, and `resolved`: whether it is on
        one side of 0.
    """
    generator = np.random.default_rng(0)
    counts = np.array([[(s.matched, s.gold + s.parsed) for s in side] for side in (ours, theirs)])
    rows = generator.integers(0, len(ours), (SAMPLES, len(ours)))
    totals = counts[:, rows].sum(axis=2)
    f1 = 200.0 * totals[..., 0] / np.maximum(totals[..., 1], 1)
    low, high = np.quantile(f1[0] - f1[1], (0.025, 0.975))
    matched, brackets = counts.sum(axis=1).T
    ours_f1, theirs_f1 = 200.0 * matched / np.maximum(brackets, 1)
    return {
        "difference": float(ours_f1 - theirs_f1),
        "interval": [float(low), float(high)],
        "resolved": bool(low > 0 or high < 0),
    }


def results_table(report: Mapping[str, Any]) -> common.Table:
    """Make the table of what was measured: a row for each system."""
    rows = []
    for system, figures in report["systems"].items():
        values = [figures[name] for name in COLUMNS]
        row = [SYSTEMS[system], *(f"{v:.2f}" if isinstance(v, float) else v for v in values)]
        if "resolved" in figures:
            low, high = figures["interval"]
            verdict = common.verdict(figures["resolved"])
            row.append(f"{figures['difference']:+.2f} ({low:+.2f} to {high:+.2f}), {verdict}")
        rows.append(row)
    title = (
        f"Treebank {report['treebank']}: {report['sentences']:,} test sentences, "
        f"{report['updates']:,} updates, leaves: {report['config']['leaves']}"
    )
    note = (
        "F1 as EVALB has it leaves failed sentences out; F1 of all counts them as empty. Malformed: of the "
        "search, before any repair."
    )
    return common.Table(title, ["", *COLUMNS.values(), "constrained search is"], rows, [note])


def paper_table() -> common.Table:
    """Make the paper's table."""
    title = "The paper's Table 4, section 23 of the Wall Street Journal"
    return common.Table(title, ["", "training", "F1"], TABLE_4)


def f1_by_length(scores: Mapping[str, Sequence[SentenceScore]]) -> Any:
    """Draw the F1 of all sentences of a length, for each system."""
    from matplotlib.figure import Figure
    from parsing.bracketing import BracketingScore

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    bounds = list(zip((0, *LENGTHS), (*LENGTHS, 10**9), strict=True))
    labels = [f"{low + 1}-{high}" for low, high in bounds[:-1]] + [f"over {LENGTHS[-1]}"]
    for system, sentences in scores.items():
        groups = [[s for s in sentences if low < s.length <= high] for low, high in bounds]
        f1 = [BracketingScore.of(group).f1_of_all if group else np.nan for group in groups]
        axes.plot(labels, f1, marker="o", label=SYSTEMS[system])
    axes.set(xlabel="words of the sentence", ylabel="F1 of all sentences, %", ylim=(0, 100))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


if __name__ == "__main__":
    common.run(main, parser(), needs=["nltk"])
