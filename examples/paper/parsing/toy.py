"""A grammar of a few rules, from which a small parser learns in a minute."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_attention import TranslationConfig
from keras_attention.utils.files import write_atomically
from parsing.treebanks import Treebank, treebank_from_files

if TYPE_CHECKING:
    from nltk import Tree

WORDS = {
    "DT": ["the", "a"],
    "NN": ["dog", "cat", "house", "dogcatcher"],
    "VBD": ["saw", "liked", "knew"],
    "IN": ["in", "near"],
    "RB": ["often"],
}
QUICK = TranslationConfig(
    preset="tiny",
    model_arguments={
        "num_layers": 1,
        "hidden_dim": 64,
        "intermediate_dim": 128,
        "dropout": 0.0,
        "normalize_first": True,
    },
    vocabulary_size=400,
    batch_tokens=600,
    max_shapes=2,
    steps=150,
    warmup_steps=40,
    peak_learning_rate=0.005,
    averaged_checkpoints=1,
    bleu_every=10**9,
    beam_size=2,
    length_penalty=0.3,
    attention_log=False,
)


def toy_treebank(folder: Path, sizes: Mapping[str, int]) -> Treebank:
    """Write files of different trees, and load them: none of the test part is trained on."""
    trees = iter(toy_trees(sum(sizes.values())))
    files: dict[str, list[Any]] = {}
    folder.mkdir(parents=True, exist_ok=True)
    for part, number in sizes.items():
        files[part] = [folder / f"{part}.mrg"]
        write_atomically(files[part][0], "".join(f"( {next(trees)} )\n" for _ in range(number)))
    return treebank_from_files(**files, name="toy")


def toy_trees(number: int, seed: int = 17) -> list[Tree]:
    """Return different trees of the grammar; more trees begin with the same."""
    generator = np.random.default_rng(seed)
    trees: dict[str, Tree] = {}
    while len(trees) < number:
        tree = _sentence(generator)
        trees.setdefault(str(tree), tree)
    return list(trees.values())


def _sentence(generator: np.random.Generator) -> Tree:
    from nltk import Tree

    verbal = [_word(generator, "VBD"), _noun_phrase(generator)]
    if generator.random() < 0.3:
        verbal.insert(0, Tree("ADVP", [_word(generator, "RB")]))
    return Tree("S", [_noun_phrase(generator, 1), Tree("VP", verbal), Tree(".", ["."])])


def _noun_phrase(generator: np.random.Generator, depth: int = 0) -> Tree:
    from nltk import Tree

    simple = Tree("NP", [_word(generator, "DT"), _word(generator, "NN")])
    if depth == 2 or generator.random() < 0.6:
        return simple
    prepositional = Tree("PP", [_word(generator, "IN"), _noun_phrase(generator, depth + 1)])
    return Tree("NP", [simple, prepositional])


def _word(generator: np.random.Generator, tag: str) -> Tree:
    from nltk import Tree

    return Tree(tag, [str(generator.choice(WORDS[tag]))])
