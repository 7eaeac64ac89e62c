"""The command lines of the examples that make the paper's tables and figures."""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from keras_attention.cli.exits import naming_the_folder, orderly_exit
from keras_attention.cli.options import Parser, add_options
from keras_attention.cli.quiet import start_backend
from keras_attention.cli.streams import typed_text
from keras_attention.recipes.config import TranslationConfig
from keras_attention.utils.checks import check_integer
from keras_attention.utils.progress import say

Options = dict[str, Any]


def run(
    name: str,
    description: str | None,
    arguments: Sequence[str] | None = None,
    program: str | None = None,
) -> Any:
    """Parse the arguments and run an experiment.

    Args:
        name: A key of `EXPERIMENTS`.
        description: What `--help` says first.
        arguments: Arguments instead of `sys.argv`.
        program: Name of the command; that of the script if not given.

    Returns:
        What the experiment returns.
    """
    add_options, start = EXPERIMENTS[name]
    parser = Parser(
        prog=program,
        description=description,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument(
        "--output-dir",
        type=Path,
        metavar="PATH",
        help=f"folder for the results (runs/{name}-TIME); the same command continues there",
    )
    add_options(parser)
    fresh = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    with orderly_exit(parser.prog):
        options = vars(parser.parse_args(arguments))
        is_given = "output_dir" in options
        output_dir = options.pop("output_dir", fresh)
        with naming_the_folder(output_dir, is_given):
            if "cores" in options:
                _use_cores(options.pop("cores"))
            start_backend()
            return start(output_dir, options)
    raise AssertionError("`orderly_exit` ends the process after an error.")


def _use_cores(number: int) -> None:
    """Keep this process to so many processor cores: backends count them when they start."""
    if not hasattr(os, "sched_setaffinity"):
        say("This system cannot limit a process to some cores: `--cores` has no effect.")
        return
    usable = sorted(os.sched_getaffinity(0))
    check_integer("--cores", number, least=1, most=len(usable))
    os.sched_setaffinity(0, usable[:number])


def _figures_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--run", type=Path, metavar="RUN", help="a finished run (one of the demo corpus is trained)"
    )
    add("--sentence", type=typed_text, help="a sentence in the run's source language")
    add("--translation", type=typed_text, help="its translation (the model's own)")
    add("--kind", choices=("encoder", "decoder", "cross"), help="which attention (encoder)")
    add("--layer", type=int, metavar="N", help="the layer, from 1 (the last but one)")
    add(
        "--word",
        type=typed_text,
        help="the word whose attention Figure 3 shows (the one that looks farthest)",
    )
    add("--heads", type=int, nargs=4, metavar="H", help="two for Figure 4, two for Figure 5")


def _draw_figures(output_dir: Path, options: Options) -> Any:
    from keras_attention.data.corpora import load_corpus
    from keras_attention.experiments.attention_figures import draw_attention_figures

    if "run" not in options:
        from keras_attention.recipes.catalog import RECIPES
        from keras_attention.recipes.run import train_translation

        options["run"] = output_dir / "run"
        train_translation(load_corpus("demo"), RECIPES["demo"], options["run"])
        output_dir = output_dir / "figures"
    if "sentence" not in options:
        # The longest of the first 20: Figure 3 shows a long sentence.
        options["sentence"] = max(list(load_corpus("demo").validation.sources())[:20], key=len)
    return draw_attention_figures(
        options.pop("run"), options.pop("sentence"), output_dir, **options
    )


def _complexity_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--longest", type=int, metavar="N", help="longest sequence for attention (16384)")
    add(
        "--repeats",
        type=int,
        metavar="N",
        help="how often each point is measured in each round (5)",
    )
    add(
        "--cores",
        type=int,
        metavar="N",
        default=1,
        help="processor cores to measure on; with several, how well threads share a size's work "
        "disturbs the exponents (1)",
    )


def _measure_layers(output_dir: Path, options: Options) -> Any:
    from keras_attention.experiments.layer_complexity import default_series, measure_layers

    longest = options.pop("longest", 16_384)
    sizes = [longest // part for part in (4, 2, 1)]
    return measure_layers(output_dir, default_series(longest), memory_sizes=sizes, **options)


def _cost_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", type=Path, metavar="RUN", help="a finished run")


def _make_cost_table(output_dir: Path, options: Options) -> Any:
    from keras_attention.experiments.training_cost_table import make_cost_table

    return make_cost_table(output_dir, **options)


def _variations_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--rows",
        nargs="+",
        metavar="ROW",
        help="names or groups of Table 3's rows (no dropout, and both smoothings of D); base is always "
        "included",
    )
    add("--seeds", type=int, nargs="+", metavar="N", help="seeds of each row (1 2 3)")
    add("--width", type=int, metavar="N", help="divide the paper's widths by it (8)")
    add("--depth", type=int, metavar="N", help="divide the paper's numbers of layers by it (2)")
    _add_corpus(parser)


# With this the demo corpus tells models apart in less than a minute each. BLEU of so few says nothing.
SMALL_TABLE_3 = {
    "batch_tokens": 768,
    "max_shapes": 4,
    "vocabulary_size": 1000,
    "steps": 700,
    "warmup_steps": 400,
    "test_sentences": 20,
}


def _train_variations(output_dir: Path, options: Options) -> Any:
    from keras_attention.experiments.variations import check_rows, train_variations

    check_rows(options.get("rows", ()))
    if options.get("corpus", "demo") == "demo":
        options = {**SMALL_TABLE_3, **options}
    corpus, base = _corpus_and_recipe(options)
    return train_variations(corpus, output_dir, base, **options)


BUDGET = (
    *("steps", "minutes", "batch_tokens", "max_shapes"),
    *("vocabulary_size", "warmup_steps", "checkpoint_updates", "dtype"),
)


def _corpus_and_recipe(options: Options) -> tuple[Any, TranslationConfig]:
    """The chosen corpus, and its recipe with the chosen budget."""
    from keras_attention.cli.train import configured
    from keras_attention.data.corpora import load_corpus
    from keras_attention.recipes.catalog import RECIPES

    name = options.pop("corpus", "demo")
    corpus = load_corpus(name, *([options.pop("data_dir")] if "data_dir" in options else []))
    corpus = corpus.first(options.pop("pairs", None), options.pop("test_sentences", None))
    # The models are compared when they are trained; what they attend to on the way is for single runs.
    recipe = dataclasses.replace(RECIPES[name], attention_log=False)
    if name == "demo":
        # Enough to tell models apart. Dropout as in the paper; no BLEU during training.
        recipe = dataclasses.replace(recipe, model_arguments={}, steps=600, bleu_every=10**9)
    own = {field: options.pop(field) for field in BUDGET if field in options}
    return corpus, configured(recipe, own)


def _positions_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--trained-length", type=int, metavar="N", help="most tokens on a side in training (12)")
    add("--seeds", type=int, nargs="+", metavar="N", help="seeds of each (1)")
    _add_corpus(parser)


def _compare_positions(output_dir: Path, options: Options) -> Any:
    from keras_attention.experiments.position_lengths import compare_positions

    corpus, base = _corpus_and_recipe(options)
    return compare_positions(corpus, output_dir, base, **options)


def _add_corpus(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpus", metavar="NAME", help="a corpus of the package (demo)")
    parser.add_argument("--data-dir", type=Path, metavar="PATH", help="folder with its files")
    parser.add_argument(
        "--pairs", type=int, metavar="N", help="train on its first N pairs only (all)"
    )
    parser.add_argument(
        "--test-sentences", type=int, metavar="N", help="translate N test sentences for BLEU (all)"
    )
    add_options(parser, TranslationConfig, BUDGET, dict.fromkeys(BUDGET))


def _weighted_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--corpus", help="a corpus with a recipe, such as multi30k or wmt14 (demo)")
    add("--data-dir", type=Path, metavar="PATH", help="folder with its files; else downloaded")
    add("--preset", help="size of the models (the recipe's)")
    add("--updates", type=int, metavar="N", help="updates of each run (the recipe's; 400 for demo)")
    add("--seeds", type=int, metavar="N", help="number of seeds (3)")
    add(
        "--branch-feed-forward",
        choices=("shared", "split"),
        help="one network for all branches, or a part of it for each (shared)",
    )
    add("--branched-decoder", choices=("cross", "self"), help="which attention branches (cross)")
    add("--test-sentences", type=int, metavar="N", help="number of test sentences for BLEU (300)")


def _compare_weighted(output_dir: Path, options: Options) -> Any:
    from keras_attention.data.corpora import load_corpus
    from keras_attention.experiments.weighted import NEVER, SMALL, compare_weighted
    from keras_attention.recipes.catalog import RECIPES
    from keras_attention.utils.checks import check_choice

    name = options.pop("corpus", "demo")
    check_choice("corpus", name, tuple(RECIPES))
    config = SMALL
    if name != "demo":
        config = dataclasses.replace(RECIPES[name], bleu_every=NEVER, attention_log=False)
    updates = options.pop("updates", config.steps or 400)
    config = dataclasses.replace(config, steps=updates, minutes=None)
    if "preset" in options:
        config = dataclasses.replace(config, preset=options.pop("preset"), model_arguments={})
    seeds = range(1, 1 + check_integer("seeds", options.pop("seeds", 3), least=1))
    corpus = load_corpus(name, data_dir=options.pop("data_dir", None))
    return compare_weighted(corpus, output_dir, config, seeds=list(seeds), **options)


EXPERIMENTS: dict[
    str, tuple[Callable[[argparse.ArgumentParser], None], Callable[[Path, Options], Any]]
] = {
    "table2_training_cost": (_cost_options, _make_cost_table),
    "table3_variations": (_variations_options, _train_variations),
    "table3_positions": (_positions_options, _compare_positions),
    "table1_layer_complexity": (_complexity_options, _measure_layers),
    "attention_figures": (_figures_options, _draw_figures),
    "weighted_transformer": (_weighted_options, _compare_weighted),
}
