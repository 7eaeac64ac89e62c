"""`keras-attention distill RUN`: a small model that learns the translations of a large one."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from keras_attention.cli.options import Parser, add_options, adding
from keras_attention.cli.quiet import start_backend
from keras_attention.cli.train import (
    ALIASES,
    BUDGET,
    DEVICES,
    SEARCH,
    TRAINING,
    check_settings,
    configured,
    named_recipe,
    part_of,
    shown_defaults,
    sized_recipe,
)
from keras_attention.recipes.catalog import RECIPES
from keras_attention.recipes.config import ModelOptions, TranslationConfig
from keras_attention.recipes.text import OWN_FILES, TextOptions
from keras_attention.utils.checks import check_integer
from keras_attention.utils.progress import activity
from keras_attention.utils.run_folder import RunFolder

DESCRIPTION = """Train a student on what a finished run, its teacher, makes of its own training text.

Of the n best translations of each sentence, the student learns the one with the best sentence BLEU against
the reference (Kim and Rush 2016). Validation and test set, tokenizer and tags are the teacher's. Settings
that you do not give come from the recipe for the text, as of `train`. A text of your own is given as in the
teacher's training. The report compares the two. If stopped, the same command continues.
"""
EXAMPLE = """
example:
  keras-attention distill runs/demo --preset tiny --num-layers 2 1 --output-dir runs/student
"""


def main(arguments: Sequence[str], program: str) -> None:
    """Translate, choose, train, and compare."""
    options = vars(_parser(program).parse_args(arguments))
    teacher, folder = RunFolder(options.pop("run")), options.pop("output_dir")
    n_best = options.pop("n_best", None)
    if n_best is not None:
        check_integer("--n-best", n_best, 1)
    text = TextOptions(**part_of(options, TextOptions))
    check_settings(None, options)
    settings = teacher.settings(("languages",))
    name = OWN_FILES if text.is_own else text.corpus or settings.get("corpus", OWN_FILES)
    from keras_attention.data.corpora import LOADERS

    if name != OWN_FILES and name not in LOADERS:
        raise ValueError(
            f"The text of '{teacher.path}', called {name!r}, is not one of {', '.join(LOADERS)}. Give its "
            "files as they were given when that run was trained: --source-file and --target-file, or --tsv."
        )
    recipe = named_recipe(name, options, RECIPES)
    languages = dict(
        zip(("source_language", "target_language"), settings["languages"], strict=True)
    )
    text = dataclasses.replace(text, **{**languages, **part_of(options, TextOptions)})
    with activity("reading the text"):
        corpus = text.load(name)
    config = configured(recipe or sized_recipe(len(corpus.train), options), options)
    from keras_attention.recipes.teacher import check_distillation

    check_distillation(teacher.path, corpus, config, folder)
    start_backend()
    from keras_attention.evaluation.report_text import teacher_lines
    from keras_attention.recipes.distillation import distill
    from keras_attention.utils.memory import tune_memory

    tune_memory()
    finish = options.get("finish", False)
    report = distill(teacher.path, corpus, config, folder, n_best=n_best, finish=finish)
    print("\n".join(teacher_lines(report["evaluation"])))


def _parser(program: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=program,
        usage=f"{program} RUN [options]",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        argument_default=argparse.SUPPRESS,
    )
    add = adding(parser)
    add("RUN", "the teacher: the folder of a finished run")
    add("--output-dir PATH", "the student's folder", Path, required=True)
    choice = "translations to choose from, for which the beam is widened (the teacher's beam size)"
    add("--n-best N", choice, int)
    add("--finish", "end the student's stopped training soon, as of `train`")
    text = parser.add_argument_group("the teacher's text, if it was your own")
    own = [f.name for f in dataclasses.fields(TextOptions) if f.name != "old_domain_files"]
    add_options(text, TextOptions, own)
    shown = shown_defaults(None, RECIPES.values())
    taught = [n for n in TRAINING if n != "mixture" and not n.startswith("guided_alignment")]
    budget = parser.add_argument_group("budget: whichever ends first")
    add_options(budget, TranslationConfig, BUDGET, shown)
    model = parser.add_argument_group("the student")
    add_options(model, TranslationConfig, ("preset", "bpe_dropout", "bpe_samples"), shown)
    add_options(model, ModelOptions)
    for title, names in (("training", taught), ("search", SEARCH), ("devices", DEVICES)):
        group = parser.add_argument_group(title)
        add_options(group, TranslationConfig, names, shown, ALIASES)
    return parser
