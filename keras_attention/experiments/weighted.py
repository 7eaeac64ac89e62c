"""The Weighted Transformer compared with the plain one: loss, BLEU, updates, minutes, over several seeds."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attention.callbacks.metrics_log import MetricsLog
from keras_attention.data.corpus import Corpus
from keras_attention.evaluation.bleu import corpus_bleu
from keras_attention.experiments.fits import half_width
from keras_attention.experiments.published import WEIGHTED_TABLE_1, WEIGHTED_TABLE_2
from keras_attention.experiments.tables import (
    Measurements,
    Table,
    deciding_settings,
    verdict,
    write_results,
)
from keras_attention.models.transformer import Transformer
from keras_attention.recipes.catalog import DEMO
from keras_attention.recipes.config import TranslationConfig
from keras_attention.recipes.prepare import Resolved
from keras_attention.recipes.run import Run
from keras_attention.utils.checks import check_integer
from keras_attention.utils.progress import say
from keras_attention.visualization.figures import Canvas

NAME = "weighted_transformer"
SYSTEMS = ("plain", "small_start", "weighted")
TITLES = {
    "plain": "Transformer",
    "small_start": "the same, starting as small",
    "weighted": "Weighted Transformer",
}
NEVER = 1_000_000_000  # Epochs until BLEU during training; it is computed at the end.
# For nine runs within ten minutes on two CPU cores: half as wide as the demo's recipe.
SMALL = dataclasses.replace(
    DEMO,
    model_arguments={"dropout": 0.0, "hidden_dim": 64, "intermediate_dim": 256},
    steps=400,
    warmup_steps=200,
    checkpoint_updates=100,
    averaged_checkpoints=1,
    bleu_every=NEVER,
    attention_log=False,
)
TEST_SENTENCES = 300


def compare_weighted(
    corpus: Corpus,
    output_dir: str | os.PathLike[str],
    config: TranslationConfig = SMALL,
    *,
    seeds: Sequence[int] = (1, 2, 3),
    branch_feed_forward: str = "shared",
    branched_decoder: str = "cross",
    test_sentences: int = TEST_SENTENCES,
) -> dict[str, Any]:
    """Train a plain Transformer, one with the same small start, and a Weighted one, and compare them.

    At the start, the output of a branched sub-layer is much smaller than that of a feed-forward network.
    This alone may speed up training. Therefore there is also a plain model whose second matrices are
    multiplied by the same ratio. If it was stopped, even within a run, the same call continues.

    Args:
        corpus: What to train on.
        output_dir: The folder of all runs and of the results.
        config: The settings of a run, including `steps`; its seed is not used.
        seeds: Seeds; all three models are trained with each.
        branch_feed_forward: `"shared"` or `"split"`.
        branched_decoder: `"cross"` or `"self"`.
        test_sentences: Number of test sentences to translate for BLEU.

    Returns:
        The report, as written to `weighted_transformer.json`.

    Raises:
        ValueError: If seeds or the number of updates are missing, or the folder has another comparison.
    """
    seeds = [check_integer("seed", seed, least=0) for seed in seeds]
    check_integer("test_sentences", test_sentences, least=1)
    if not seeds or len(set(seeds)) < len(seeds) or config.steps is None:
        raise ValueError(
            "A comparison needs `seeds`, all different, and a configuration with `steps`. Received: "
            f"seeds={seeds!r}, steps={config.steps!r}"
        )
    branches = {"branch_feed_forward": branch_feed_forward, "branched_decoder": branched_decoder}
    configs = {
        system: dataclasses.replace(
            config,
            model_arguments={
                **config.model_arguments,
                **(branches if system == "weighted" else {"branch_feed_forward": None}),
            },
        )
        for system in SYSTEMS
    }
    for each in configs.values():
        Resolved.of(each).check_model()
    settings = {
        **deciding_settings(config),
        **branches,
        "seeds": seeds,
        "test_sentences": test_sentences,
        "corpus": corpus.name,
        "fingerprint": corpus.train.fingerprint(),
    }
    kept = Measurements(output_dir, settings)
    with kept.locked():
        runs = {
            system: [
                kept.get(
                    f"{system}, seed {seed}",
                    functools.partial(
                        _measured,
                        corpus,
                        dataclasses.replace(configs[system], seed=seed),
                        system == "small_start",
                        Path(output_dir) / "runs" / f"{system}-{seed}",
                        test_sentences,
                        branch_feed_forward,
                    ),
                )
                for seed in seeds
            ]
            for system in SYSTEMS
        }
        report = weighted_report(runs)
        write_results(
            Path(output_dir),
            NAME,
            [_results_table(report, corpus, config, seeds), paper_table()],
            weighted_figures(runs),
            {"settings": settings, "runs": runs, **report},
        )
    return report


def _measured(
    corpus: Corpus,
    config: TranslationConfig,
    starts_small: bool,
    path: Path,
    test_sentences: int,
    branch_feed_forward: str,
) -> dict[str, Any]:
    """Train one model to its end, and return its figures."""
    say(f"Run {path.name}")
    # Tokenizer and token store are the same for all runs.
    run = Run(corpus, config, path, shared=path.parent)
    path.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(config.seed)
    if starts_small:
        shrink(run.model, start_ratio(run.model, branch_feed_forward))
    run.train()
    run.average()
    split = "validation" if corpus.test is None else "test"
    sources = list(corpus.splits[split].sources())[:test_sentences]
    references = list(corpus.references(split))[:test_sentences]
    translations = run.translator(run.model, show_progress=False)(sources)
    entries = [entry for entry in MetricsLog(run.folder.metrics).read() if "loss" in entry]
    trained = [entry for entry in entries if entry["kind"] == "train"]
    speeds = [e["batches_per_second"] for e in trained if e.get("batches_per_second")]
    branches = MetricsLog(run.folder.branches).read()
    return {
        "parameters": run.model.count_params(),
        "updates": [entry["update"] for entry in trained],
        "losses": [entry["loss"] for entry in trained],
        "seconds_per_update": 1.0 / statistics.median(speeds),
        "perplexity": run.training["history"][-1]["val_perplexity"],
        "bleu": corpus_bleu(translations, references).score,
        "branches": [{k: v for k, v in e.items() if k != "time"} for e in branches],
    }


def start_ratio(model: Transformer, branch_feed_forward: str = "shared") -> float:
    """How much smaller the output of an untrained branched sub-layer is than a feed-forward network's.

    Args:
        model: A plain, untrained model.
        branch_feed_forward: The kind of branches.

    Returns:
        The ratio of the root mean squares for normal inputs, below 1.
    """
    twin = Transformer(
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
        kernel.assign(keras.ops.multiply(kernel, factor))


def weighted_report(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """The figures of each system by seed, and their differences from the plain one.

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
        reached = [
            _first_update(run, base["losses"][-1])
            for run, base in zip(own, runs["plain"], strict=True)
        ]
        figures[system] = {
            "loss": [run["losses"][-1] for run in own],
            "loss_at_equal_minutes": [
                float(np.interp(seconds / run["seconds_per_update"], run["updates"], run["losses"]))
                for run in own
            ],
            "perplexity": [run["perplexity"] for run in own],
            "bleu": [run["bleu"] for run in own],
            "updates_to_plain_loss": reached,
            "seconds_per_update": [run["seconds_per_update"] for run in own],
            "parameters": [run["parameters"] for run in own],
        }
    compared = ("loss", "loss_at_equal_minutes", "perplexity", "bleu")
    differences = {
        system: {name: _difference(own[name], figures["plain"][name]) for name in compared}
        for system, own in figures.items()
        if system != "plain"
    }
    return {"figures": figures, "differences": differences, "equal_seconds": seconds}


def _first_update(run: Mapping[str, Any], loss: float) -> int | None:
    """The first update at which a run's loss was this low."""
    pairs = zip(run["updates"], run["losses"], strict=True)
    return next((update for update, own in pairs if own <= loss), None)


def _difference(own: Sequence[float], base: Sequence[float]) -> dict[str, Any]:
    """The mean difference, seed by seed, and whether it is larger than its noise."""
    differences = [a - b for a, b in zip(own, base, strict=True)]
    mean, half = statistics.fmean(differences), half_width(differences)
    return {
        "mean": mean,
        "half_width": half if math.isfinite(half) else None,
        "resolved": abs(mean) > half,
    }


def _results_table(
    report: Mapping[str, Any], corpus: Corpus, config: TranslationConfig, seeds: Sequence[int]
) -> Table:
    columns = ["", "parameters", "s an update", "loss", "loss, equal minutes", "perplexity", "BLEU"]
    rows: list[list[Any]] = []
    for system in SYSTEMS:
        own = report["figures"][system]
        cells = [
            _mean(own[name], digits)
            for name, digits in (
                ("loss", 3),
                ("loss_at_equal_minutes", 3),
                ("perplexity", 2),
                ("bleu", 1),
            )
        ]
        pace = f"{statistics.fmean(own['seconds_per_update']):.3f}"
        reached = own["updates_to_plain_loss"]
        shown = [f"{number:,}" if number else "never" for number in reached]
        parameters = f"{own['parameters'][0]:,}"
        rows.append([TITLES[system], parameters, pace, *cells, ", ".join(shown)])
    for system in SYSTEMS[1:]:
        found = report["differences"][system]
        cells = [
            f"{found[name]['mean']:+.3f} {verdict(found[name]['resolved'])}"
            for name in ("loss", "loss_at_equal_minutes", "perplexity", "bleu")
        ]
        rows.append([f"{TITLES[system]}, difference", None, None, *cells, None])
    notes = (
        f"{corpus.name}{', synthetic' if corpus.synthetic else ''}; {config.steps:,} updates, seeds "
        f"{', '.join(map(str, seeds))}; mean and standard deviation over the seeds. The loss is the "
        "label-smoothed training loss of the last updates.",
        "Equal minutes: each model's loss at the time when the fastest model has finished. A difference is "
        "resolved if its 95 % interval over the seeds excludes 0.",
    )
    return Table(
        "Weighted Transformer, measured here",
        [*columns, "updates to the Transformer's loss, by seed"],
        rows,
        notes,
    )


def _mean(values: Sequence[float], digits: int) -> str:
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{spread}"


def paper_table() -> Table:
    """The numbers published by Ahmed et al. 2017, English-German."""
    rows: list[list[Any]] = [
        [row.name, "newstest2014", row.bleu_en_de, f"{row.updates:,}"] for row in WEIGHTED_TABLE_1
    ]
    for variation in WEIGHTED_TABLE_2.values():
        size = f"N={variation.num_layers}, M={variation.num_branches}"
        for kind in ("transformer", "weighted"):
            bleu, updates = (getattr(variation, f"{kind}_{part}") for part in ("bleu", "updates"))
            name = "Transformer" if kind == "transformer" else "Weighted Transformer"
            rows.append([f"{name}, {size}", "newstest2013", bleu, f"{updates:,}"])
    notes = (
        "Ahmed et al. 2017, Tables 1 and 2, on WMT: no run of a small corpus is a test of them.",
    )
    return Table(
        "Weighted Transformer, published", ["", "test set", "BLEU", "updates"], rows, notes
    )


def weighted_figures(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Pictures: the loss by update and by minute; kappa and alpha of the first seed over training."""
    canvas = Canvas(7.6, 3.7)
    colors = dict(zip(SYSTEMS, ("black", "tab:blue", "tab:red"), strict=True))
    for index, label in enumerate(("update", "minute")):
        axes = canvas.axes(0.6 + 3.7 * index, 0.5, 3.0, 2.6)
        for system, own in runs.items():
            for number, run in enumerate(own):
                pace = 1.0 if label == "update" else run["seconds_per_update"] / 60
                x = [update * pace for update in run["updates"]]
                name = TITLES[system] if number == 0 else None
                axes.plot(x, run["losses"], color=colors[system], linewidth=0.9, label=name)
        axes.set(xlabel=label, ylabel="training loss" if index == 0 else "")
    axes.legend(fontsize=7)
    canvas.write("Loss of each seed", "")
    figures = {"weighted_loss": canvas.figure}
    entries = runs["weighted"][0]["branches"]
    for kind in ("kappa", "alpha"):
        names = [name for name in entries[0] if name.endswith(f"/{kind}")]
        columns = max(1, math.ceil(len(names) / 2))
        picture = Canvas(2.3 * columns + 0.5, 4.4)
        for index, name in enumerate(names):
            row, column = divmod(index, columns)
            axes = picture.axes(0.5 + 2.3 * column, 0.65 + 1.9 * row, 1.8, 1.25)
            axes.plot([e["update"] for e in entries], [e[name] for e in entries], linewidth=0.9)
            axes.set_ylim(0, 1)
            axes.set_title(name.removesuffix(f"/{kind}").replace("_", " "), fontsize=7)
            axes.tick_params(labelsize=6)
        picture.write(f"{kind} of each branch over the updates of training", "")
        figures[f"weighted_{kind}"] = picture.figure
    return figures
