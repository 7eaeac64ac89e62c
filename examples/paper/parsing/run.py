"""A run whose text is trees, and which is evaluated by parsing."""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keras_attention import Corpus, TranslationConfig
from keras_attention.data.text_files import read_lines
from keras_attention.recipes.run import Run
from keras_attention.training import is_chief
from keras_attention.training.agreement import chief_first
from keras_attention.utils.files import DamagedFile, atomic_file, read_json, write_json
from keras_attention.utils.progress import say, with_progress
from keras_attention.utils.run_folder import SEARCH_SETTINGS
from parsing.baselines import Pcfg, RightBranching, WordTags
from parsing.parser import VOCABULARY_FILE, Parse, Parser, TreeText
from parsing.treebanks import Treebank
from parsing.trees import escape_word, read_trees, write_tree

if TYPE_CHECKING:
    from nltk import Tree

SILVER_FILE = "silver.mrg"
SILVER_BLOCK = 10_000  # sentences that are parsed at a time, of which the surest are kept
MAX_EXTRA_LENGTH = 300  # symbols of a tree beyond the pieces of its sentence: section 6.3
BASELINES: dict[str, Callable[[Any], Any]] = {"right_branching": RightBranching, "pcfg": Pcfg}


class ParserRun(Run):
    """A run of a parser.

    Args:
        corpus: What to train on: `treebank.corpus(leaves)`.
        treebank: The trees.
        config: The settings; `bleu_every` and `tokenizer_algorithm` have no effect.
        folder: The run's folder. It also gets `parses/`.
        leaves: What a tree has for each word: `"tags"`, `"XX"` or `"words"`; see `linearize`.
    """

    more_changeable = SEARCH_SETTINGS
    scores_translations = False

    def __init__(
        self,
        corpus: Corpus,
        treebank: Treebank,
        config: TranslationConfig,
        folder: str | os.PathLike[str],
        leaves: str,
    ):
        super().__init__(corpus, config, folder)
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

    def parses(self, system: str, golds: Sequence[Tree]) -> dict[str, Any]:
        """Return `parses` and `seconds` of a system, read from the folder if they are already there."""
        sentences = [gold.leaves() for gold in golds]
        of = {
            "updates": self.training["updates"],
            "sentences": [list(map(escape_word, words)) for words in sentences],
            **{name: getattr(self.config, name) for name in SEARCH_SETTINGS},
        }
        file = self.folder.path / "parses" / f"{system}.json"
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
        parses = self.parse(system, sentences)
        seconds = round(time.monotonic() - started, 1)
        file.parent.mkdir(exist_ok=True)
        found = {
            "of": of,
            "trees": [write_tree(one.tree) for one in parses],
            "well_formed": [one.is_well_formed for one in parses],
            "seconds": seconds,
        }
        write_json(file, found)
        return {"parses": parses, "seconds": seconds}

    def parse(self, system: str, sentences: Sequence[Sequence[str]]) -> list[Parse]:
        """Parse sentences with the model, `"constrained"` or `"repaired"`, or with a baseline."""
        if system not in BASELINES:
            parser = Parser(
                self.model,
                self.tokenizer,
                self.tree_text,
                beam_size=self.config.beam_size,
                length_penalty=self.config.length_penalty,
                max_extra_length=MAX_EXTRA_LENGTH,
                constrained=system == "constrained",
            )
            return parser(sentences)
        baseline = BASELINES[system](self.treebank.train)
        shown = len(sentences), f"parsing by {system}", "sentences"
        return [Parse(baseline(words), True) for words in with_progress(sentences, *shown)]

    def write_silver(self, text: str | os.PathLike[str], share: float) -> dict[str, int]:
        """Parse plain text without trees, and write those trees that the model is surest of to `silver.mrg`.

        Args:
            text: A file with a sentence on each line, which is cut into words as the Penn Treebank does.
            share: How much of it is kept: the trees with the highest mean log-probability of a token.

        Returns:
            The number of `sentences`, of those `kept`, and of those `too_long` for the training.
        """
        from nltk.tokenize import TreebankWordTokenizer

        lines = map(TreebankWordTokenizer().tokenize, read_lines(text))
        sentences = filter(None, lines)
        counts = {"sentences": 0, "kept": 0, "too_long": 0}
        with atomic_file(self.folder.path / SILVER_FILE) as file:
            while block := list(itertools.islice(sentences, SILVER_BLOCK)):
                lengths = [len(self.tree_text.cut(words).split()) for words in block]
                short = [
                    words
                    for words, length in zip(block, lengths, strict=True)
                    if length < self.config.max_length
                ]
                parses = self.parse("constrained", short)
                surest = sorted(range(len(short)), key=lambda i: -parses[i].score)
                kept = sorted(surest[: round(share * len(short))])
                for place in kept:
                    file.write(f"{write_tree(parses[place].tree)}\n".encode())
                found = (len(block), len(kept), len(block) - len(short))
                counts = {k: v + n for (k, v), n in zip(counts.items(), found, strict=True)}
        return counts
