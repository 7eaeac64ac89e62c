"""Table 3 of the paper: the effect of each part of the Transformer, on any corpus, over several seeds."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_attention.data.corpora import Corpus
from keras_attention.evaluation.comparison import paired_bootstrap
from keras_attention.evaluation.cost import ModelSizes
from keras_attention.experiments.fits import half_width
from keras_attention.experiments.published import TABLE_3, Variation
from keras_attention.experiments.tables import (
    Measurements,
    Table,
    deciding_settings,
    verdict,
    write_results,
)
from keras_attention.recipes.config import TranslationConfig
from keras_attention.recipes.run import train_translation
from keras_attention.spec.presets import PRESETS
from keras_attention.utils.checks import check_integer
from keras_attention.utils.progress import say

NAME = "table3"
VOCABULARY, AUTHORS_VOCABULARY = 37_000, 40_960
# What a small model can resolve in ten minutes.
SMALL_ROWS = ("d_dropout_0", "d_smoothing_0", "d_smoothing_2")
SIZES = ("hidden_dim", "intermediate_dim", "key_dim", "value_dim")
# Guesses, made before anything was measured.
REASONS = {
    "A": "with few updates and narrow heads, the number of heads matters less than noise",
    "B": "at such a small width a head's keys are hardly a bottleneck",
    "C": "little text and few updates favour small models, which learn sooner",
    "D": "few epochs do not overfit: dropout costs updates before it pays off",
    "E": "up to the training length both encodings give the same information",
    "big": "little text and few updates favour small models, which learn sooner",
}


def check_rows(names: Sequence[str]) -> tuple[str, ...]:
    """Rows of Table 3 by name or by group ("A" to "E"), base first.

    Raises:
        ValueError: If a row does not exist; the message lists those that do.

    Example:

    >>> check_rows(["B"])
    ('base', 'b_key_dim_16', 'b_key_dim_32')
    """
    chosen = {"base"}
    for name in names:
        found = [row for row, known in TABLE_3.items() if name in (row, known.group)]
        if not found:
            raise ValueError(
                f"Table 3 has no row {name!r}. Its rows: {', '.join(TABLE_3)}; its groups: "
                "A, B, C, D, E."
            )
        chosen.update(found)
    return tuple(row for row in TABLE_3 if row in chosen)


def parameter_counts() -> dict[str, dict[str, int]]:
    """Trainable parameters of every row: by the paper's formulas, and with its authors' options.

    `"paper"`: V = 37,000, no biases in the attention. `"authors"`: V = 40,960, attention biases and a
    target-space embedding of 32 rows, as in the code of 2017.
    """
    counts = {}
    for name, row in TABLE_3.items():
        sizes = PRESETS[row.preset]
        plain = ModelSizes.of({**sizes, "vocabulary_size": VOCABULARY})
        theirs = {"vocabulary_size": AUTHORS_VOCABULARY, "use_attention_bias": True}
        authors = ModelSizes.of({**sizes, **theirs}).parameters + 32 * sizes["hidden_dim"]
        counts[name] = {"paper": plain.parameters, "authors": authors}
    return counts


def row_config(row: Variation, base: TranslationConfig, seed: int, width: int, depth: int) -> Any:
    """The settings of a row: its preset, made narrower and shallower, and the row's other changes.

    Args:
        row: A row of `TABLE_3`.
        base: Settings that all rows share.
        seed: The seed.
        width: All widths of the preset are divided by this.
        depth: The number of layers is divided by this.
    """
    sizes = {name: PRESETS[row.preset].get(name) for name in SIZES}
    arguments = {name: max(1, size // width) for name, size in sizes.items() if size is not None}
    arguments["num_layers"] = max(1, PRESETS[row.preset]["num_layers"] // depth)
    times = row.updates / TABLE_3["base"].updates
    return dataclasses.replace(
        base,
        preset=row.preset,
        model_arguments=arguments,
        label_smoothing=row.label_smoothing,
        steps=None if base.steps is None else round(base.steps * times),
        minutes=None if base.minutes is None else base.minutes * times,
        seed=seed,
    )


def train_variations(
    corpus: Corpus,
    output_dir: str | os.PathLike[str],
    base: TranslationConfig,
    *,
    rows: Sequence[str] = SMALL_ROWS,
    seeds: Sequence[int] = (1, 2, 3),
    width: int = 8,
    depth: int = 2,
) -> dict[str, Any]:
    """Train rows of Table 3 with several seeds, each in its own run, and compare them with base.

    If it was stopped, even within a run, the same call continues.

    Args:
        corpus: What to train on.
        output_dir: The folder; runs lie below `runs/`.
        base: Settings that all rows share: the budget, the vocabulary, batches.
        rows: Names or groups of rows; base is always included. Defaults to no dropout and both other
            label smoothings.
        seeds: Seeds of each row.
        width, depth: The paper's widths and numbers of layers are divided by these; 1 for its sizes.

    Returns:
        A dict: for each row `perplexity` and `bleu` by seed, `parameters`, and compared with base `ratio`,
        `interval`, `resolved`, `as_paper`, `p_value`.

    Raises:
        ValueError: If a row does not exist; the message lists those that do. Also if `width` or `depth`
            make two rows the same model.
    """
    names = check_rows(rows)
    check_integer("width", width, least=1)
    check_integer("depth", depth, least=1)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"`seeds` must be different numbers. Received: seeds={list(seeds)}")
    configs = {
        (name, seed): row_config(TABLE_3[name], base, seed, width, depth)
        for name in names
        for seed in seeds
    }
    _check_distinct([configs[name, seeds[0]] for name in names], names, width, depth)
    settings = {
        "corpus": corpus.name,
        "fingerprint": corpus.train.fingerprint(),
        **deciding_settings(base),
        "width": width,
        "depth": depth,
    }
    kept = Measurements(output_dir, settings)
    with kept.locked():
        found: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in names}
        # Seed by seed: a stopped experiment then has all rows for some seeds.
        for number, seed in enumerate(seeds):
            for place, name in enumerate(names):
                done = number * len(names) + place + 1
                say(f"Table 3, run {done} of {len(configs)}: {name}, seed {seed}")
                folder = kept.folder / "runs" / f"{name}-{seed}"
                found[name][seed] = kept.get(
                    f"{name} {seed}",
                    functools.partial(_trained, corpus, configs[name, seed], folder),
                )
        references = list(corpus.references("validation" if corpus.test is None else "test"))
        result = compared(found, references, corpus.target_language)
        tables = [_table(result, seeds), _parameter_table(names)]
        figures = {"table3_perplexity": _figure(result)}
        write_results(kept.folder, NAME, tables, figures, {"rows": result, "settings": settings})
    return result


def _check_distinct(
    configs: Sequence[TranslationConfig], names: Sequence[str], width: int, depth: int
) -> None:
    """Refuse rows that are the same model once their sizes are divided: nothing could tell them apart."""
    rows: dict[str, str] = {}
    for name, config in zip(names, configs, strict=True):
        sizes = {**PRESETS[config.preset], **config.model_arguments}
        same = rows.setdefault(repr((sorted(sizes.items()), config.label_smoothing)), name)
        if same != name:
            raise ValueError(
                f"With the paper's sizes divided by width={width} and depth={depth}, the rows {same} and "
                f"{name} are the same model. Choose a smaller width or depth, or other rows."
            )


def _trained(corpus: Corpus, config: TranslationConfig, folder: Path) -> dict[str, Any]:
    """Train one model, and return what the table needs."""
    report = train_translation(corpus, config, folder)
    return {
        "perplexity": report["validation_perplexity"],
        "bleu": report["test"]["bleu"],
        "updates": report["training"]["updates"],
        "minutes": report["training"]["minutes"],
        "parameters": report["parameters"],
        "translations": (folder / "translations.txt").read_text("utf-8").splitlines(),
    }


def compared(
    found: Mapping[str, Mapping[int, Mapping[str, Any]]], references: Sequence[str], language: str
) -> dict[str, dict[str, Any]]:
    """Each row against base: the ratio of perplexities over paired seeds, and BLEU's paired bootstrap.

    The interval of the ratio is Student's t interval of the paired differences of logarithms. With one seed
    there is no interval, and nothing is resolved.
    """
    base = found["base"]
    result = {}
    for name, runs in found.items():
        row: dict[str, Any] = {
            key: {str(seed): run[key] for seed, run in runs.items()}
            for key in ("perplexity", "bleu", "updates", "minutes", "parameters")
        }
        if name != "base":
            logs = [
                math.log(run["perplexity"] / base[seed]["perplexity"]) for seed, run in runs.items()
            ]
            mean, half = statistics.fmean(logs), half_width(logs)
            paper = math.log(TABLE_3[name].perplexity / TABLE_3["base"].perplexity)
            first = next(iter(runs))
            systems = {"base": base[first]["translations"], name: runs[first]["translations"]}
            bleu = paired_bootstrap(systems, references, baseline="base", language=language)[0]
            row |= {
                "ratio": math.exp(mean),
                "interval": [math.exp(mean - half), math.exp(mean + half)] if logs[1:] else None,
                "resolved": abs(mean) > half,
                "paper_ratio": math.exp(paper),
                "as_paper": paper == 0.0 or mean * paper > 0,
                "bleu_difference": bleu.difference,
                "p_value": bleu.p_value,
            }
        result[name] = row
    return result


def _spread(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.3g}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4g}{spread}"


def _table(result: Mapping[str, Mapping[str, Any]], seeds: Sequence[int]) -> Table:
    rows, notes = [], []
    for name, row in result.items():
        known = TABLE_3[name]
        cells = [
            f"({known.group}) {known.change}" if known.change else name,
            f"{known.perplexity:.2f}",
            f"{known.bleu:.1f}",
            _spread(list(row["perplexity"].values())),
            _spread(list(row["bleu"].values())),
        ]
        if "ratio" in row:
            sign = "as the paper" if row["as_paper"] else "against the paper"
            cells += [
                f"{100 * (row['paper_ratio'] - 1):+.1f} %",
                f"{100 * (row['ratio'] - 1):+.1f} %",
                f"{verdict(row['resolved'])}, {sign}",
                f"{row['bleu_difference']:+.1f}, p {row['p_value']:.3f}",
            ]
            if not row["as_paper"]:
                notes.append(
                    f"{name} disagrees with the paper. A guess (not tested): {REASONS[known.group]}."
                )
        rows.append([*cells, *[""] * (9 - len(cells))])
    columns = ["row", "paper PPL", "BLEU", "our PPL", "BLEU"]
    columns += ["paper: PPL", "ours: PPL", "verdict", "BLEU of one seed"]
    notes.insert(
        0,
        f"Mean ± standard deviation of {len(seeds)} seeds. PPL against base: paired by seed; resolved: the "
        "95 % interval excludes 0. BLEU against base: paired bootstrap of the first seed.",
    )
    return Table("Table 3: variations on the Transformer", columns, rows, notes)


def _parameter_table(names: Sequence[str]) -> Table:
    counts = parameter_counts()
    rows = [
        [
            name,
            TABLE_3[name].parameters,
            f"{counts[name]['paper']:,}",
            f"{counts[name]['authors']:,}",
        ]
        for name in names
    ]
    notes = [
        "The paper's base family is reproduced by its authors' options of 2017: a vocabulary padded to "
        "40,960, biases in the attention, a target-space embedding of 32 rows.",
        "Big: 213 million fit neither; unexplained.",
    ]
    columns = ["row", "paper, millions", "V = 37,000", "V = 40,960, authors' options"]
    return Table("Parameters of the paper's sizes", columns, rows, notes)


def _limit(series: Sequence[Sequence[float]]) -> float:
    """The largest value of the axis: one row that went wrong must not hide the others."""
    ours, paper = (sorted(map(abs, values)) or [0.0] for values in series)
    return max(10.0, 1.6 * ours[int(0.9 * (len(ours) - 1))], 1.1 * paper[-1])


def _figure(result: Mapping[str, Mapping[str, Any]]) -> Any:
    """Perplexity compared with base: the paper's and ours, with its interval."""
    from matplotlib.figure import Figure

    rows = [(name, row) for name, row in result.items() if "ratio" in row]
    limit = _limit([[100 * (row[key] - 1) for _, row in rows] for key in ("ratio", "paper_ratio")])
    figure = Figure(figsize=(6.4, 1.6 + 0.32 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for place, (_, row) in enumerate(rows):
        ours, paper = (100 * (row[key] - 1) for key in ("ratio", "paper_ratio"))
        axes.plot(paper, place, "k|", markersize=14, label="the paper" if not place else None)
        axes.plot(ours, place, "oC0", label="ours" if not place else None)
        if abs(ours) > limit:
            side = "right" if ours > 0 else "left"
            axes.text(math.copysign(limit, ours), place, f"{ours:+.0f} % ", ha=side, va="bottom")
        if row["interval"]:
            axes.plot([100 * (end - 1) for end in row["interval"]], [place, place], "-C0")
    axes.axvline(0, color="silver", zorder=0)
    axes.set(
        xlabel="perplexity against base, %", xlim=(-limit, limit), ylim=(len(rows) - 0.3, -0.7)
    )
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
    if rows:
        axes.legend(fontsize=8)
    return figure
