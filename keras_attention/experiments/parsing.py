"""Table 4 of the paper: a Transformer trained to parse, compared with right-branching trees and a grammar."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras

from keras_attention.data.corpus import Corpus
from keras_attention.data.treebanks import Treebank
from keras_attention.data.trees import read_trees
from keras_attention.evaluation.cost import matmul_peak
from keras_attention.experiments.parsing_baselines import Pcfg, RightBranching, WordTags
from keras_attention.experiments.parsing_report import parsing_report, write_parsing_report
from keras_attention.experiments.published import PARSING
from keras_attention.experiments.tree_parser import VOCABULARY_FILE, Parse, Parser, TreeText
from keras_attention.recipes.config import BUDGET, RESUMABLE_FIELDS, TranslationConfig
from keras_attention.recipes.messages import batches_text, forecast
from keras_attention.recipes.prepare import (
    check_model,
    check_room,
    compiled_model,
    prepared_batches,
    prepared_tokenizer,
    replica_count,
    row_multiple,
)
from keras_attention.recipes.train import average_last, save_model, train_to_budget
from keras_attention.training.distribution import distribution_scope
from keras_attention.utils.files import DamagedFile, read_json, write_json
from keras_attention.utils.progress import Progress, activity, say
from keras_attention.utils.run_folder import RunFolder

if TYPE_CHECKING:
    from nltk import Tree

NEVER = 1_000_000_000  # Epochs until BLEU is computed; it says nothing about trees.
SYSTEMS = ("constrained", "repaired", "right_branching")
OPTIONAL_SYSTEMS = ("pcfg",)

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
    bleu_every=NEVER,
    beam_size=4,
    length_penalty=PARSING["length_penalty"],
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
    vocabulary_size=PARSING["vocabulary_size"],
    batch_tokens=32_768,
    max_length=512,
    steps=100_000,
    warmup_steps=16_000,
    checkpoint_minutes=10,
    bleu_every=NEVER,
    beam_size=PARSING["beam_size"],
    length_penalty=PARSING["length_penalty"],
)
PARSING_RECIPES = {
    "wsj_sample": SMALL,
    "craft": HOUR,
    "penn": PAPER,
    "files": SMALL,
}
# Small models lose their place in long sentences unless the words are in the tree. The paper has tags.
PARSING_LEAVES = {"wsj_sample": "words", "craft": "words", "penn": "tags", "files": "words"}


def train_parser(
    treebank: Treebank,
    config: TranslationConfig,
    output_dir: str | os.PathLike[str],
    *,
    leaves: str = "tags",
    systems: Collection[str] = SYSTEMS,
    test_sentences: int | None = None,
) -> dict[str, Any]:
    """Train a parser, parse the test set with several systems, and score them. All files are in one folder.

    The folder is that of a run (see `train_translation`), plus `parses/` and the table and picture of the
    report. If the run was stopped, the same call continues its training and runs the systems that have not
    parsed yet.

    Args:
        treebank: What to train on.
        config: The settings; `bleu_every` and `tokenizer_algorithm` have no effect.
        output_dir: The run's folder.
        leaves: What a tree has for each word: `"tags"`, `"XX"` or `"words"`; see `linearize`.
        systems: Names from `SYSTEMS` and `OPTIONAL_SYSTEMS`.
        test_sentences: Number of test sentences to parse, evenly spread; None for all.

    Returns:
        The report; see `parsing_report`.

    Raises:
        ValueError: If a system is unknown, the folder belongs to another run, or a tree is broken.
        TrainingStopped: A `KeyboardInterrupt`: after Ctrl-C or SIGTERM; the run can be resumed.
    """
    _check_options(systems, test_sentences)
    check_model(config)
    corpus = treebank.corpus(leaves)
    check_room(corpus.train, config)
    settings = _settings(corpus, config, leaves)
    changeable = _changeable(config)
    folder = RunFolder(output_dir)
    folder.check(settings, changeable)
    with folder.locked(), distribution_scope(config.strategy, config.replicas):
        folder.claim(settings, changeable)
        keras.utils.set_random_seed(config.seed)
        say(f"Treebank {treebank.name}: {treebank.description}")
        say("  " + ", ".join(f"{name} {len(text):,}" for name, text in corpus.splits.items()))
        parser_of, updates = _trained(treebank, corpus, config, leaves, folder)
        golds = _spread(list(treebank.test), test_sentences)
        parses = {
            system: _parses(folder, system, updates, golds, _maker(system, treebank, parser_of))
            for system in (*SYSTEMS, *OPTIONAL_SYSTEMS)
            if system in systems
        }
        report = parsing_report(golds, parses, treebank, settings, updates)
        write_parsing_report(report, golds, parses, folder)
    return report


def _check_options(systems: Collection[str], test_sentences: int | None) -> None:
    known = (*SYSTEMS, *OPTIONAL_SYSTEMS)
    unknown = [system for system in systems if system not in known]
    if unknown or not systems:
        raise ValueError(
            f"`systems` must be some of {', '.join(known)}. Received: systems={list(systems)!r}"
        )
    if test_sentences is not None and test_sentences < 1:
        raise ValueError(
            f"`test_sentences` must be at least 1. Received: test_sentences={test_sentences!r}"
        )


def _settings(corpus: Corpus, config: TranslationConfig, leaves: str) -> dict[str, Any]:
    """The settings that identify a run."""
    return {
        **dataclasses.asdict(config),
        "row_multiple": row_multiple(config),
        "corpus": corpus.name,
        "languages": [corpus.source_language, corpus.target_language],
        "leaves": leaves,
        **{f"{name}_fingerprint": text.fingerprint() for name, text in corpus.splits.items()},
    }


def _changeable(config: TranslationConfig) -> tuple[str, ...]:
    """Settings that may change between two starts: the search, and those of a translation run."""
    follows_budget = config.peak_learning_rate is not None
    fields = [name for name in RESUMABLE_FIELDS if not (follows_budget and name in BUDGET)]
    return (*fields, "beam_size", "length_penalty")


def _trained(
    treebank: Treebank,
    corpus: Corpus,
    config: TranslationConfig,
    leaves: str,
    folder: RunFolder,
) -> tuple[Callable[[bool], Parser], int]:
    """Train to the end of the budget; return a function that makes a parser, and the number of updates."""
    text = TreeText.train(corpus, config.vocabulary_size, WordTags(treebank.train), leaves)
    text.save(folder.tokenizer)
    cut = text.corpus(corpus, folder.tokenizer / VOCABULARY_FILE, config.vocabulary_size)
    tokenizer = prepared_tokenizer(cut, config, folder.tokenizer)
    batches, validation = prepared_batches(cut, config, tokenizer, folder.store)
    say(batches_text(batches, config))
    with activity("building the model"):
        model = compiled_model(config, tokenizer)
        peak = replica_count(config) * matmul_peak(config.dtype)
    say(f"Model {config.preset}, {config.dtype}. {forecast(model, batches, config, peak)}.")
    checkpoints = train_to_budget(model, batches, validation, tokenizer, cut, config, folder, peak)
    average_last(model, checkpoints, config, folder)
    with activity("saving the model"):
        save_model(model, folder)

    def parser_of(constrained: bool) -> Parser:
        return Parser(
            model,
            tokenizer,
            text,
            beam_size=config.beam_size,
            length_penalty=config.length_penalty,
            max_extra_length=PARSING["max_extra_length"],
            constrained=constrained,
        )

    return parser_of, int(keras.ops.convert_to_numpy(model.optimizer.iterations))


def _maker(
    system: str, treebank: Treebank, parser_of: Callable[[bool], Parser]
) -> Callable[[Sequence[Sequence[str]]], list[Parse]]:
    """A function that parses sentences with a system; nothing is read or trained before it is called."""
    if system in ("constrained", "repaired"):
        return lambda sentences: parser_of(system == "constrained")(sentences)

    def parse(sentences: Sequence[Sequence[str]]) -> list[Parse]:
        parser = (RightBranching if system == "right_branching" else Pcfg)(treebank.train)
        parses = []
        with Progress(len(sentences), f"parsing by {system}", "sentences") as progress:
            for words in sentences:
                parses.append(Parse(parser(words), True))
                progress.add(1)
        return parses

    return parse


def _parses(
    folder: RunFolder,
    system: str,
    updates: int,
    golds: Sequence[Tree],
    parse: Callable[[Sequence[Sequence[str]]], list[Parse]],
) -> dict[str, Any]:
    """`parses` and `seconds` of a system, read from the folder if they are already there."""
    file = folder.path / "parses" / f"{system}.json"
    sentences = [gold.leaves() for gold in golds]
    settings = folder.settings()
    of = {"updates": updates, "sentences": sentences} | {
        name: settings[name] for name in ("beam_size", "length_penalty")
    }
    if file.exists():
        try:
            known = read_json(file)
        except DamagedFile:
            known = {}
        if known.get("of") == of:
            trees = [next(read_trees(text)) for text in known["trees"]]
            pairs = zip(trees, known["well_formed"], strict=True)
            return {"parses": [Parse(*pair) for pair in pairs], "seconds": known["seconds"]}
    say(f"Parsing {len(golds):,} sentences: {system}")
    started = time.monotonic()
    parses = parse(sentences)
    seconds = round(time.monotonic() - started, 1)
    file.parent.mkdir(exist_ok=True)
    found: Mapping[str, Any] = {
        "of": of,
        "trees": [" ".join(str(one.tree).split()) for one in parses],
        "well_formed": [one.is_well_formed for one in parses],
        "seconds": seconds,
    }
    write_json(file, found)
    return {"parses": parses, "seconds": seconds}


def _spread(trees: list[Tree], number: int | None) -> list[Tree]:
    """This many of the trees, evenly spread."""
    if number is None or number >= len(trees):
        return trees
    return [trees[i * len(trees) // number] for i in range(number)]
