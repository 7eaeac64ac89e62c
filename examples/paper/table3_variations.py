"""Train rows of the paper's Table 3 with several seeds, and compare each with base.

Without arguments, this trains base, no dropout, and no and double label smoothing (rows D) on the demo
corpus (synthetic): three seeds of 700 updates each, with an eighth of the paper's width and half its depth;
ten minutes on two CPU cores. `--rows A B C D E big`, or names of rows, select other rows. `--pairs 500`
trains on the first 500 pairs only. The paper's setting is `--width 1 --depth 1 --corpus wmt14 --steps
100000`. A stopped script continues.

What to expect, written before the first run: as in the paper, the perplexity is lower without smoothing and
higher with more. Without dropout it is *lower* here, unlike in the paper: 700 updates on 10,000 sentences
of a grammar do not overfit. Differences between sizes (A to C) are flat or reversed on so little text.
Perplexity resolves about 1 %, BLEU about 1 point. With 500 pairs, each is seen about 24 times in 500
updates. A model without dropout then overfits, and its perplexity is higher, as in the paper. Smoothing
then keeps the model from being overconfident, so that leaving it out gains little or nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import common

from keras_attention import PRESETS, Corpus, TranslationConfig


class Row(NamedTuple):
    """A row of the paper's table: English-German, newstest2013; parameters in millions."""

    group: str
    preset: str
    perplexity: float
    bleu: float
    change: str  # what differs from base, in the paper's symbols
    parameters: int | None = None
    label_smoothing: float = 0.1
    updates: int = 100_000


TABLE_3 = {
    "base": Row("base", "base", 4.92, 25.8, "", 65),
    "a_heads_1": Row("A", "table3_a_heads_1", 5.29, 24.9, "h=1, d_k=512, d_v=512"),
    "a_heads_4": Row("A", "table3_a_heads_4", 5.00, 25.5, "h=4, d_k=128, d_v=128"),
    "a_heads_16": Row("A", "table3_a_heads_16", 4.91, 25.8, "h=16, d_k=32, d_v=32"),
    "a_heads_32": Row("A", "table3_a_heads_32", 5.01, 25.4, "h=32, d_k=16, d_v=16"),
    "b_key_dim_16": Row("B", "table3_b_key_dim_16", 5.16, 25.1, "d_k=16", 58),
    "b_key_dim_32": Row("B", "table3_b_key_dim_32", 5.01, 25.4, "d_k=32", 60),
    "c_layers_2": Row("C", "table3_c_layers_2", 6.11, 23.7, "N=2", 36),
    "c_layers_4": Row("C", "table3_c_layers_4", 5.19, 25.3, "N=4", 50),
    "c_layers_8": Row("C", "table3_c_layers_8", 4.88, 25.5, "N=8", 80),
    "c_hidden_256": Row(
        "C", "table3_c_hidden_256", 5.75, 24.5, "d_model=256, d_k=32, d_v=32", 28
    ),
    "c_hidden_1024": Row(
        "C", "table3_c_hidden_1024", 4.66, 26.0, "d_model=1024, d_k=128, d_v=128", 168
    ),
    "c_intermediate_1024": Row("C", "table3_c_intermediate_1024", 5.12, 25.4, "d_ff=1024", 53),
    "c_intermediate_4096": Row("C", "table3_c_intermediate_4096", 4.75, 26.2, "d_ff=4096", 90),
    "d_dropout_0": Row("D", "table3_d_dropout_0", 5.77, 24.6, "P_drop=0.0"),
    "d_dropout_2": Row("D", "table3_d_dropout_2", 4.95, 25.5, "P_drop=0.2"),
    "d_smoothing_0": Row("D", "base", 4.67, 25.3, "epsilon_ls=0.0", label_smoothing=0.0),
    "d_smoothing_2": Row("D", "base", 5.47, 25.7, "epsilon_ls=0.2", label_smoothing=0.2),
    "e_learned_positions": Row("E", "table3_e_learned_positions", 4.92, 25.7, "learned positions"),
    "big": Row(
        "big", "big", 4.33, 26.4, "d_model=1024, d_ff=4096, h=16, P_drop=0.3", 213, updates=300_000
    ),
}  # fmt: skip
# The vocabulary of the paper, and what its authors' code made of it.
VOCABULARY, AUTHORS_VOCABULARY = 37_000, 40_960
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
# With this the demo corpus tells models apart in less than a minute each. BLEU of so few says nothing.
SMALL = dataclasses.replace(
    common.SMALL, batch_tokens=768, max_shapes=4, vocabulary_size=1000, steps=700
)
SMALL_TEST = 20  # sentences


def parser() -> argparse.ArgumentParser:
    """Make the parser of the options."""
    made = common.new_parser(__doc__, __file__, "--rows d_smoothing_0 --seeds 1 --steps 30")
    made.add_argument(
        "--rows",
        nargs="+",
        metavar="ROW",
        default=["d_dropout_0", "d_smoothing_0", "d_smoothing_2"],
        help="names or groups of Table 3's rows (no dropout, and both smoothings of D); base is always "
        "included",
    )
    for name, default, what in (("width", 8, "all widths"), ("depth", 2, "the numbers of layers")):
        made.add_argument(
            f"--{name}",
            type=common.at_least(1),
            metavar="N",
            default=default,
            help=f"divide {what} of the paper by it (%(default)s)",
        )
    common.add_training(made, seeds=[1, 2, 3])
    return made


def main(options: argparse.Namespace, folder: Path) -> dict[str, dict[str, Any]]:
    """Train the rows, each seed in a run of its own, and compare them with base."""
    rows, width, depth = chosen_rows(options.rows), options.width, options.depth
    base = common.recipe(options, SMALL)
    configs = common.configs_of(
        rows, options.seeds, lambda name: row_config(TABLE_3[name], base, width, depth)
    )
    check_distinct({name: configs[name, options.seeds[0]] for name in rows}, width, depth)
    if options.corpus == "demo" and options.test_sentences is None:
        options.test_sentences = SMALL_TEST
    corpus = common.corpus_of(options)
    settings = {**common.deciding(corpus, base), "width": width, "depth": depth}
    results = common.Results(folder, settings)
    with common.trained(results, corpus, configs, measure) as runs:
        compared = {name: against_base(name, runs, corpus) for name in rows}
        tables = [results_table(compared, options.seeds), parameter_table(rows)]
        figures = {"table3_perplexity": picture(compared)}
        common.write(folder, "table3", tables, figures, {"rows": compared, "settings": settings})
    return compared


def chosen_rows(names: Sequence[str]) -> list[str]:
    """Return the rows with these names or of these groups, in the table's order, base first."""
    for name in names:
        if not any(name in (row, known.group) for row, known in TABLE_3.items()):
            raise ValueError(
                f"--rows: Table 3 has no row {name!r}. Its rows: {', '.join(TABLE_3)}; its groups: "
                "A, B, C, D, E."
            )
    return [row for row, known in TABLE_3.items() if {row, known.group} & {"base", *names}]


def row_config(row: Row, base: TranslationConfig, width: int, depth: int) -> TranslationConfig:
    """Return a row's settings: its preset, made narrower and shallower, and its other changes."""
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
    )


def check_distinct(configs: Mapping[str, TranslationConfig], width: int, depth: int) -> None:
    """Refuse rows that are the same model once their sizes are divided: nothing could tell them apart."""
    rows: dict[str, str] = {}
    for name, config in configs.items():
        sizes = {**PRESETS[config.preset], **config.model_arguments}
        same = rows.setdefault(repr((sorted(sizes.items()), config.label_smoothing)), name)
        if same != name:
            raise ValueError(
                f"With the paper's sizes divided by --width {width} and --depth {depth}, the rows {same} "
                f"and {name} are the same model. Choose a smaller width or depth, or other rows."
            )


def measure(row: str, corpus: Corpus, config: TranslationConfig, folder: Path) -> dict[str, Any]:
    """Train one model, and return what the table needs."""
    from keras_attention import train_translation

    report = train_translation(corpus, config, folder)
    return {
        "perplexity": report["validation_perplexity"],
        "bleu": report["test"]["bleu"],
        "updates": report["training"]["updates"],
        "minutes": report["training"]["minutes"],
        "parameters": report["parameters"],
        "translations": (folder / "translations.txt").read_text("utf-8").splitlines(),
    }


def against_base(
    name: str, runs: Mapping[str, Mapping[int, Mapping[str, Any]]], corpus: Corpus
) -> dict[str, Any]:
    """Compare a row with base: perplexities and BLEU over paired seeds, one seed by paired bootstrap.

    The intervals are Student's t intervals of the paired differences, of perplexities of their logarithms.
    With one seed there is no interval, and nothing is resolved.
    """
    from keras_attention import paired_tests

    own, base = runs[name], runs["base"]
    row: dict[str, Any] = {
        key: {str(seed): run[key] for seed, run in own.items()}
        for key in ("perplexity", "bleu", "updates", "minutes", "parameters")
    }
    if name == "base":
        return row
    ratio = common.Paired.of_logs(
        *([run["perplexity"] for run in side.values()] for side in (own, base))
    )
    bleus = common.Paired.of(*([run["bleu"] for run in side.values()] for side in (own, base)))
    paper = math.log(TABLE_3[name].perplexity / TABLE_3["base"].perplexity)
    first = next(iter(own))
    bleu = paired_tests(
        {"base": base[first]["translations"], name: own[first]["translations"]},
        list(corpus.references("validation" if corpus.test is None else "test")),
        baseline="base",
        language=corpus.target_language,
    )[0]
    return row | {
        "ratio": math.exp(ratio.mean),
        "interval": ratio.interval and [math.exp(end) for end in ratio.interval],
        "resolved": ratio.is_resolved,
        "paper_ratio": math.exp(paper),
        "as_paper": paper == 0.0 or ratio.mean * paper > 0,
        "bleu_difference": bleus.mean,
        "bleu_interval": bleus.interval,
        "bleu_of_one_seed": bleu.difference,
        "p_value": bleu.p_value,
    }


def results_table(rows: Mapping[str, Mapping[str, Any]], seeds: Sequence[int]) -> common.Table:
    """Make the table of what was measured, beside the paper's."""
    lines = []
    notes = [
        f"Mean ± standard deviation of {len(seeds)} seeds. PPL against base: geometric mean of the ratios, "
        "paired by seed; resolved: its 95 % interval excludes 0. BLEU against base: mean and interval of the "
        "seeds; of one seed, the first: paired bootstrap."
    ]
    for name, row in rows.items():
        known = TABLE_3[name]
        cells = [
            f"({known.group}) {known.change}" if known.change else name,
            f"{known.perplexity:.2f}",
            f"{known.bleu:.1f}",
            *(common.spread(list(row[figure].values())) for figure in ("perplexity", "bleu")),
        ]
        if "ratio" in row:
            ends = row["bleu_interval"]
            interval = f" ({ends[0]:+.1f} to {ends[1]:+.1f})" if ends else ""
            sign = "as the paper" if row["as_paper"] else "against the paper"
            cells += [
                f"{100 * (row['paper_ratio'] - 1):+.1f} %",
                f"{100 * (row['ratio'] - 1):+.1f} %",
                f"{common.verdict(row['resolved'])}, {sign}",
                f"{row['bleu_difference']:+.1f}{interval}",
                f"{row['bleu_of_one_seed']:+.1f}, p {row['p_value']:.3f}",
            ]
            if not row["as_paper"]:
                notes.append(
                    f"{name} disagrees with the paper. A guess (not tested): {REASONS[known.group]}."
                )
        lines.append(cells)
    columns = ["row", "paper PPL", "BLEU", "our PPL", "BLEU"]
    columns += ["paper: PPL", "ours: PPL", "verdict", "ours: BLEU", "BLEU of one seed"]
    return common.Table("Table 3: variations on the Transformer", columns, lines, notes)


def parameter_counts() -> dict[str, dict[str, int]]:
    """Count the parameters of every row: by the paper's formulas, and with its authors' options.

    `"paper"`: V = 37,000, no biases in the attention. `"authors"`: V = 40,960, attention biases and a
    target-space embedding of 32 rows, as in the code of 2017.
    """
    counts = {}
    for name, row in TABLE_3.items():
        sizes = PRESETS[row.preset]
        authors = parameters(sizes, AUTHORS_VOCABULARY + 32, has_biases=True)
        counts[name] = {"paper": parameters(sizes, VOCABULARY), "authors": authors}
    return counts


def parameters(sizes: Mapping[str, Any], vocabulary_size: int, has_biases: bool = False) -> int:
    """Count the parameters of a preset, whose two embeddings and softmax share one table."""
    d, inner, heads = (sizes[name] for name in ("hidden_dim", "intermediate_dim", "num_heads"))
    keys = sizes.get("key_dim") or d // heads
    values = sizes.get("value_dim") or keys
    attention = 2 * d * heads * (keys + values)
    if has_biases:
        attention += heads * (2 * keys + values) + d
    feed_forward = 2 * d * inner + inner + d
    layer = 3 * attention + 2 * feed_forward + 5 * 2 * d  # of encoder and decoder, with five norms
    positions = 2 * 256 if sizes.get("position_layout") == "learned" else 0
    return (vocabulary_size + positions) * d + sizes["num_layers"] * layer


def parameter_table(names: Sequence[str]) -> common.Table:
    """Make the table of parameters."""
    counts = parameter_counts()
    rows = [
        [name, TABLE_3[name].parameters, *(f"{count:,}" for count in counts[name].values())]
        for name in names
    ]
    notes = [
        "The paper's base family is reproduced by its authors' options of 2017: a vocabulary padded to "
        "40,960, biases in the attention, a target-space embedding of 32 rows.",
        "Big: 213 million fit neither; unexplained.",
    ]
    columns = ["row", "paper, millions", "V = 37,000", "V = 40,960, authors' options"]
    return common.Table("Parameters of the paper's sizes", columns, rows, notes)


def picture(compared: Mapping[str, Mapping[str, Any]]) -> Any:
    """Draw the perplexity compared with base: the paper's and ours, with its interval."""
    from matplotlib.figure import Figure

    rows = [(name, row) for name, row in compared.items() if "ratio" in row]
    limit = axis_limit(
        *([100 * (row[key] - 1) for _, row in rows] for key in ("ratio", "paper_ratio"))
    )
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
    if rows:  # Above: in the panel it would cover rows.
        figure.legend(loc="outside upper right", ncols=2, fontsize=8, frameon=False)
    return figure


def axis_limit(ours: Sequence[float], paper: Sequence[float]) -> float:
    """Return the largest value of the axis: one row that went wrong must not hide the others."""
    ours, paper = (sorted(map(abs, values)) or [0.0] for values in (ours, paper))
    return max(10.0, 1.6 * ours[int(0.9 * (len(ours) - 1))], 1.1 * paper[-1])


if __name__ == "__main__":
    common.run(main, parser())
