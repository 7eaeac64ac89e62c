"""Table 4 of the paper: a Transformer trained to parse, compared with right-branching trees and a grammar."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keras_attention.data.corpus import Corpus
from keras_attention.data.treebanks import Treebank
from keras_attention.data.trees import escape_word, read_trees, write_tree
from keras_attention.experiments.parsing_baselines import Pcfg, RightBranching, WordTags
from keras_attention.experiments.parsing_report import parsing_report, write_parsing_report
from keras_attention.experiments.published import PARSING
from keras_attention.experiments.tree_parser import VOCABULARY_FILE, Parse, Parser, TreeText
from keras_attention.recipes.config import TranslationConfig
from keras_attention.recipes.run import Run
from keras_attention.training.agreement import chief_first
from keras_attention.training.distribution import is_chief
from keras_attention.utils.files import DamagedFile, read_json, write_json
from keras_attention.utils.progress import Progress, say
from keras_attention.utils.run_folder import SEARCH_SETTINGS, RunFolder

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
    run = ParserRun(treebank, config, output_dir, leaves)
    with run.started():
        run.train()
        run.average()
        run.save()
        if run.is_chief:
            run.parse(_spread(list(treebank.test), test_sentences), systems)
    return run.report or {}


class ParserRun(Run):
    """A run whose text is trees, and which is evaluated by parsing.

    Args:
        treebank: What to train on.
        config: The settings.
        folder: The run's folder.
        leaves: What a tree has for each word.
    """

    more_changeable = SEARCH_SETTINGS

    def __init__(
        self,
        treebank: Treebank,
        config: TranslationConfig,
        folder: str | os.PathLike[str],
        leaves: str,
    ):
        super().__init__(treebank.corpus(leaves), config, folder)
        self.treebank = treebank
        self.leaves = leaves
        self.more_settings = {"leaves": leaves}

    @functools.cached_property
    def tree_text(self) -> TreeText:
        """Words and symbols of the trees, from the training set; saved beside the tokenizer."""
        tags = WordTags(self.treebank.train)
        text = TreeText.train(self.corpus, self.config.vocabulary_size, tags, self.leaves)
        with chief_first():
            if is_chief():
                text.save(self.folder.tokenizer)
        return text

    @functools.cached_property
    def text(self) -> Corpus:
        """The trees as symbols, and their sentences as pieces."""
        vocabulary = self.folder.tokenizer / VOCABULARY_FILE
        return self.tree_text.corpus(self.corpus, vocabulary, self.config.vocabulary_size)

    def found_report(self) -> None:
        """Parse again: `parses/` knows which systems have parsed."""
        return None

    def parser(self, constrained: bool) -> Parser:
        """A parser with the run's model and its settings of the search."""
        return Parser(
            self.model,
            self.tokenizer,
            self.tree_text,
            beam_size=self.config.beam_size,
            length_penalty=self.config.length_penalty,
            max_extra_length=PARSING["max_extra_length"],
            constrained=constrained,
        )

    def parse(self, golds: Sequence[Tree], systems: Collection[str]) -> None:
        """Parse sentences with several systems, score the parses and write the report.

        Args:
            golds: The true trees of the sentences.
            systems: Names of the systems.
        """
        updates, treebank, folder = self.training["updates"], self.treebank, self.folder
        parses = {
            system: _parses(folder, system, updates, golds, _maker(system, treebank, self.parser))
            for system in (*SYSTEMS, *OPTIONAL_SYSTEMS)
            if system in systems
        }
        self.report = parsing_report(golds, parses, treebank, self.settings, updates)
        write_parsing_report(self.report, golds, parses, folder)


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
    written = [list(map(escape_word, words)) for words in sentences]
    of = {"updates": updates, "sentences": written} | {
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
        "trees": [write_tree(one.tree) for one in parses],
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
