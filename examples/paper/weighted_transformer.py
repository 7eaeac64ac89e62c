"""Compare a Weighted Transformer with a plain one: does it learn faster, and why? (Ahmed et al. 2017)

Without arguments, this trains three models on the demo corpus, with three seeds each (synthetic; about five
minutes on two CPU cores): a Transformer, one whose feed-forward networks start with outputs as small as
those of branches, and a Weighted Transformer. At the start, the output of a branched sub-layer is much
smaller than that of a feed-forward network; this alone may speed up training. All get the same number of
updates; the loss is also compared after equal minutes. The published setting is `--corpus wmt14 --preset
base --updates 60000` (the paper's plain Transformer has 100,000). A stopped script continues.

What to expect, written before the first run: the models have equally many parameters, except for 2 more per
branch and one normalisation less. An update takes at most 1.25 times as long. A few hundred updates of a
small model cannot resolve the paper's +0.7 to +1.1 BLEU with 40 % fewer updates: differences in BLEU are
noise. If the loss falls faster, the model with the small start should show much of this, too. Kappa and
alpha change slowly from their random start and stay on the simplex.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import common
import numpy as np

from keras_attention import Corpus, TranslationConfig
from keras_attention.recipes.catalog import DEMO

if TYPE_CHECKING:
    from keras_attention import Transformer


class Translation(NamedTuple):
    """A row of Weighted's Table 1: newstest2014; parameters, in millions, from its Table 2."""

    name: str
    bleu_en_de: float
    bleu_en_fr: float
    updates: int
    parameters: int


class Variation(NamedTuple):
    """A row of Weighted's Table 2: English-German, newstest2013; M branches in place of h heads."""

    num_layers: int
    num_branches: int
    dropout: float
    transformer_bleu: float
    weighted_bleu: float
    transformer_updates: int = 100_000
    weighted_updates: int = 60_000


TABLE_1 = (
    Translation("Transformer (small)", 27.3, 38.1, 100_000, 65),
    Translation("Weighted Transformer (small)", 28.4, 38.9, 60_000, 65),
    Translation("Transformer (large)", 28.4, 41.0, 300_000, 213),
    Translation("Weighted Transformer (large)", 28.9, 41.4, 250_000, 213),
)
TABLE_2 = {
    "layers_2": Variation(2, 8, 0.1, 23.7, 24.8),
    "layers_4": Variation(4, 8, 0.1, 25.3, 26.2),
    "layers_6": Variation(6, 8, 0.1, 25.8, 26.5),
    "layers_8": Variation(8, 8, 0.3, 25.5, 25.6),
    "large": Variation(6, 16, 0.3, 26.4, 27.2, 300_000, 250_000),
}
SYSTEMS = {
    "plain": "Transformer",
    "small_start": "the same, starting as small",
    "weighted": "Weighted Transformer",
}
COLORS = {"plain": "black", "small_start": "tab:blue", "weighted": "tab:red"}
# What is compared with the plain model, and with how many digits it is printed.
COMPARED = {"loss": 3, "loss_at_equal_minutes": 3, "perplexity": 2, "bleu": 1}
# For nine runs within ten minutes on two CPU cores: half as wide as the demo's recipe.
SMALL = dataclasses.replace(
    DEMO,
    model_arguments={"dropout": 0.0, "hidden_dim": 64, "intermediate_dim": 256},
    steps=400,
    warmup_steps=200,
    checkpoint_updates=100,
    averaged_checkpoints=1,
    bleu_every=common.NEVER,
    attention_log=False,
)
LEAST_UPDATES = 100
SETTINGS = (
    *("preset", "steps", "batch_tokens", "max_shapes", "vocabulary_size"),
    *("warmup_steps", "dtype"),
)


def parser() -> argparse.ArgumentParser:
    """Make the parser of the options."""
    made = common.new_parser(__doc__, __file__, "--seeds 1 --updates 100 --test-sentences 20")
    made.add_argument(
        "--branch-feed-forward",
        choices=("shared", "split"),
        default="shared",
        help="one network for all branches, or a part of it for each (shared)",
    )
    made.add_argument(
        "--branched-decoder",
        choices=("cross", "self"),
        default="cross",
        help="which attention of the decoder branches (cross)",
    )
    common.add_training(made, [1, 2, 3], SETTINGS, test_sentences=300, steps=["--updates"])
    return made


def main(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train the three models with each seed, and compare them."""
    check_updates(options)
    base = common.recipe(options, SMALL)
    if "preset" in options:
        base = dataclasses.replace(base, model_arguments={})
    base = dataclasses.replace(base, minutes=None)
    branches = {
        name: getattr(options, name) for name in ("branch_feed_forward", "branched_decoder")
    }
    configs = common.configs_of(SYSTEMS, options.seeds, lambda system: base)
    corpus = common.corpus_of(options)
    number = options.test_sentences
    settings = {**common.deciding(corpus, base), **branches, "test_sentences": number}

    def measure(
        system: str, corpus: Corpus, config: TranslationConfig, folder: Path
    ) -> dict[str, Any]:
        return trained_and_tested(system, corpus, config, folder, number, branches)

    results = common.Results(folder, settings)
    with common.trained(results, corpus, configs, measure) as found:
        runs = {system: list(own.values()) for system, own in found.items()}
        report = compared(runs)
        tables = [results_table(report, corpus, base, options.seeds), paper_table()]
        data = {"settings": settings, "seeds": options.seeds, "runs": runs, **report}
        common.write(folder, "weighted_transformer", tables, pictures(runs), data)
    return report


def check_updates(options: argparse.Namespace) -> None:
    """Refuse a training that is too short to be logged."""
    if getattr(options, "steps", LEAST_UPDATES) < LEAST_UPDATES:
        raise ValueError(
            f"--updates must be at least {LEAST_UPDATES}: every 50, speed and loss are logged. Received: "
            f"{options.steps}"
        )


def trained_and_tested(
    system: str,
    corpus: Corpus,
    config: TranslationConfig,
    folder: Path,
    test_sentences: int,
    branches: Mapping[str, str],
) -> dict[str, Any]:
    """Train one model to its end, and return its figures."""
    from weighted_run import WeightedRun, branch_file

    from keras_attention import MetricsLog, corpus_bleu
    from keras_attention.recipes import order
    from keras_attention.recipes.run import Run

    # Tokenizer and token store are the same for all runs.
    if system == "weighted":
        run: Run = WeightedRun(corpus, config, folder, branches, shared=folder.parent)
    else:
        run = Run(corpus, config, folder, shared=folder.parent)
    with run.started():
        if system == "small_start":
            shrink(run.model, start_ratio(run.model, branches["branch_feed_forward"]))
        order.train(run)
        order.average(run)
    split = "validation" if corpus.test is None else "test"
    sources = list(itertools.islice(corpus.splits[split].sources(), test_sentences))
    references = corpus.references(split)[:test_sentences]
    translations = run.translator(run.model, show_progress=False)(sources)
    entries = [entry for entry in MetricsLog(run.folder.metrics).read() if "loss" in entry]
    logged = [entry for entry in entries if entry["kind"] == "train"]
    speeds = [e["batches_per_second"] for e in logged if e.get("batches_per_second")]
    weights = MetricsLog(branch_file(folder)).read()
    return {
        "parameters": run.model.count_params(),
        "updates": [entry["update"] for entry in logged],
        "losses": [entry["loss"] for entry in logged],
        "seconds_per_update": 1.0 / statistics.median(speeds),
        "perplexity": run.training["history"][-1]["val_perplexity"],
        "bleu": corpus_bleu(translations, references).score,
        "branches": [{k: v for k, v in e.items() if k != "time"} for e in weights],
    }


def start_ratio(model: Transformer, branch_feed_forward: str = "shared") -> float:
    """Return how much smaller an untrained branched sub-layer's output is than a feed-forward network's.

    Args:
        model: A plain, untrained model.
        branch_feed_forward: The kind of branches.

    Returns:
        The ratio of the root mean squares for normal inputs, below 1.
    """
    import keras

    from keras_attention import WeightedTransformer

    twin = WeightedTransformer(
        **{
            **model.get_config(),
            "branch_feed_forward": branch_feed_forward,
            "num_layers": 1,
            "dtype": "float32",
            "seed": 1,
        }
    )
    x = np.random.default_rng(1).standard_normal((4, 64, model.hidden_dim)).astype("float32")
    small = keras.ops.convert_to_numpy(twin.encoder_blocks[0].self_attention(x, x))
    large = keras.ops.convert_to_numpy(model.encoder_blocks[0].feed_forward(x))
    return float(np.sqrt((small**2).mean() / (large.astype("float32") ** 2).mean()))


def shrink(model: Transformer, factor: float) -> None:
    """Multiply the second matrices of a plain model's feed-forward networks by a factor."""
    for block in [*model.encoder_blocks, *model.decoder_blocks]:
        kernel = block.feed_forward.outer.kernel
        kernel.assign(kernel.value * factor)


def compared(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the figures of each system by seed, and their differences from the plain one.

    Args:
        runs: For each of `SYSTEMS`, its runs in the order of the seeds.

    Returns:
        `figures`: system -> name -> a list with a number for each seed (None if a loss is never reached);
        `differences`: system -> name -> `mean`, `half_width` (of the 95 % interval) and `resolved`.
    """
    # The time that all runs have: that of the shortest, at each run's own speed.
    seconds = min(
        run["seconds_per_update"] * run["updates"][-1] for own in runs.values() for run in own
    )
    figures: dict[str, dict[str, list[Any]]] = {}
    for system, own in runs.items():
        figures[system] = {
            "loss": [run["losses"][-1] for run in own],
            "loss_at_equal_minutes": [
                float(np.interp(seconds / run["seconds_per_update"], run["updates"], run["losses"]))
                for run in own
            ],
            "updates_to_plain_loss": [
                first_update(run, base["losses"][-1])
                for run, base in zip(own, runs["plain"], strict=True)
            ],
            **{
                name: [run[name] for run in own]
                for name in ("perplexity", "bleu", "seconds_per_update", "parameters")
            },
        }
    differences: dict[str, dict[str, Any]] = {"small_start": {}, "weighted": {}}
    for system, found in differences.items():
        for name in COMPARED:
            paired = common.Paired.of(figures[system][name], figures["plain"][name])
            found[name] = {
                "mean": paired.mean,
                "half_width": None if math.isinf(paired.half) else paired.half,
                "resolved": paired.is_resolved,
            }
    return {"figures": figures, "differences": differences, "equal_seconds": seconds}


def first_update(run: Mapping[str, Any], loss: float) -> int | None:
    """Return the first update at which a run's loss was this low."""
    pairs = zip(run["updates"], run["losses"], strict=True)
    return next((update for update, own in pairs if own <= loss), None)


def results_table(
    report: Mapping[str, Any], corpus: Corpus, config: TranslationConfig, seeds: Sequence[int]
) -> common.Table:
    """Make the table of what was measured."""
    rows: list[list[Any]] = []
    for system, title in SYSTEMS.items():
        own = report["figures"][system]
        cells = [
            common.spread(own[name], f".{digits}f", f".{digits}f")
            for name, digits in COMPARED.items()
        ]
        pace = f"{statistics.fmean(own['seconds_per_update']):.3f}"
        shown = [f"{n:,}" if n else "never" for n in own["updates_to_plain_loss"]]
        rows.append([title, f"{own['parameters'][0]:,}", pace, *cells, ", ".join(shown)])
    for system, found in report["differences"].items():
        cells = [
            f"{found[name]['mean']:+.3f} {common.verdict(found[name]['resolved'])}"
            for name in COMPARED
        ]
        rows.append([f"{SYSTEMS[system]}, difference", None, None, *cells])
    notes = (
        f"{corpus.name}{', synthetic' if corpus.synthetic else ''}; {config.steps:,} updates, seeds "
        f"{', '.join(map(str, seeds))}; mean and standard deviation over the seeds. The loss is the "
        "label-smoothed training loss of the last updates.",
        "Equal minutes: each model's loss at the time when the fastest model has finished. A difference is "
        "resolved if its 95 % interval over the seeds excludes 0.",
    )
    columns = ["", "parameters", "s an update", "loss", "loss, equal minutes", "perplexity", "BLEU"]
    columns.append("updates to the Transformer's loss, by seed")
    return common.Table("Weighted Transformer, measured here", columns, rows, notes)


def paper_table() -> common.Table:
    """Make the table of the numbers published by Ahmed et al. 2017, English-German."""
    rows: list[list[Any]] = [
        [row.name, "newstest2014", row.bleu_en_de, f"{row.updates:,}"] for row in TABLE_1
    ]
    for row in TABLE_2.values():
        size = f"N={row.num_layers}, M={row.num_branches}"
        for name, bleu, updates in (
            ("Transformer", row.transformer_bleu, row.transformer_updates),
            ("Weighted Transformer", row.weighted_bleu, row.weighted_updates),
        ):
            rows.append([f"{name}, {size}", "newstest2013", bleu, f"{updates:,}"])
    notes = (
        "Ahmed et al. 2017, Tables 1 and 2, on WMT: no run of a small corpus is a test of them.",
    )
    columns = ["", "test set", "BLEU", "updates"]
    return common.Table("Weighted Transformer, published", columns, rows, notes)


def pictures(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Draw the loss by update and by minute, and the first seed's kappa and alpha over training."""
    from matplotlib.figure import Figure

    loss = Figure(figsize=(7.6, 3.7), layout="constrained")
    loss.suptitle("Loss of each seed")
    by_update, by_minute = loss.subplots(1, 2, sharey=True)
    for system, own in runs.items():
        for number, run in enumerate(own):
            title = None if number else SYSTEMS[system]
            line: dict[str, Any] = {"color": COLORS[system], "linewidth": 0.9, "label": title}
            minutes = [update * run["seconds_per_update"] / 60 for update in run["updates"]]
            by_update.plot(run["updates"], run["losses"], **line)
            by_minute.plot(minutes, run["losses"], **line)
    by_update.set(xlabel="update", ylabel="training loss")
    by_minute.set(xlabel="minute")
    by_minute.legend(fontsize=7)
    figures = {"weighted_loss": loss}
    entries = runs["weighted"][0]["branches"]
    for kind in ("kappa", "alpha"):
        names = [name for name in entries[0] if name.endswith(f"/{kind}")]
        columns = math.ceil(len(names) / 2)
        figure = Figure(figsize=(2.3 * columns + 0.5, 4.4), layout="constrained")
        figure.suptitle(f"{kind} of each branch over the updates of training")
        panels = figure.subplots(2, columns, sharex=True, sharey=True, squeeze=False).flat
        for axes, name in zip(panels, names, strict=False):
            axes.plot([e["update"] for e in entries], [e[name] for e in entries], linewidth=0.9)
            axes.set_ylim(0, 1)
            axes.set_title(name.removesuffix(f"/{kind}").replace("_", " "), fontsize=7)
            axes.tick_params(labelsize=6)
        figures[f"weighted_{kind}"] = figure
    return figures


if __name__ == "__main__":
    common.run(main, parser())
