"""Row (E) of the paper's Table 3: learned positions against sinusoids, also beyond the training length.

Without arguments, this trains both models for 600 updates on the demo corpus' sentences of at most 12
tokens (synthetic). It shows the perplexity of held-out sentences by their length, as a table and a picture.
A stopped script continues.

What to expect, written before the first run: up to the training length both are equal within 2 %, as in the
paper. Beyond it both get worse, learned positions more, because their rows there were never trained.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import common

from keras_attention import Corpus, Tokenizer, TranslationConfig
from keras_attention.utils.run_folder import RunFolder

LAYOUTS = {"interleaved": "sinusoids", "learned": "learned"}
ROWS = 32  # Sentences that are scored at a time.
# Layout -> tokens -> the perplexity of each seed.
ByLength = Mapping[str, Mapping[int, Sequence[float]]]


def parser() -> argparse.ArgumentParser:
    """Make the parser of the options."""
    made = common.new_parser(__doc__, __file__, "--steps 20")
    made.add_argument(
        "--trained-length",
        type=common.at_least(2),
        metavar="N",
        default=12,
        help="most tokens on a side in training, end token included (12)",
    )
    common.add_training(made, seeds=[1])
    return made


def main(options: argparse.Namespace, folder: Path) -> ByLength:
    """Train models with both kinds of positions on short sentences, and measure perplexity by length."""
    trained_length = options.trained_length
    base = dataclasses.replace(common.recipe(options), max_length=trained_length)
    configs = common.configs_of(
        LAYOUTS,
        options.seeds,
        lambda layout: dataclasses.replace(
            base, model_arguments={**base.model_arguments, "position_layout": layout}
        ),
    )
    corpus = common.corpus_of(options)
    settings = common.deciding(corpus, base)
    results = common.Results(folder, settings)
    with common.trained(results, corpus, configs, measure) as runs:
        found = {
            layout: {
                int(length): [run[length] for run in own.values()]
                for length in next(iter(own.values()))
            }
            for layout, own in runs.items()
        }
        tables = [results_table(found, trained_length)]
        figures = {"row_e_lengths": picture(found, trained_length)}
        common.write(folder, "row_e", tables, figures, {"perplexities": found, **settings})
    return found


def measure(
    layout: str, corpus: Corpus, config: TranslationConfig, folder: Path
) -> dict[int, float]:
    """Train one model, and return its perplexity by length. Positions reach as far as all sentences do."""
    import keras

    from keras_attention import train_translation

    train_translation(corpus, config, folder)
    run = RunFolder(folder)
    model = keras.saving.load_model(run.model, compile=False)
    text = corpus.validation if corpus.test is None else corpus.test
    return perplexity_by_length(model, Tokenizer.load(run.tokenizer), text)


def perplexity_by_length(
    model: Any, tokenizer: Tokenizer, text: Iterable[tuple[str, str]]
) -> dict[int, float]:
    """Return the perplexity of pairs by the tokens of their longer side, in steps of three."""
    from keras_attention.evaluation.perplexity import PerplexityMeter
    from keras_attention.visualization.attention_entries import padded_pairs

    pairs = collections.defaultdict(list)
    for pair in text:
        longer = max(len(tokenizer.encode(side)) + 1 for side in pair)  # with the end token
        pairs[3 * (longer // 3)].append(pair)
    meter = PerplexityMeter(model)
    found = {}
    for length, group in sorted(pairs.items()):
        batches = []
        for first in range(0, len(group), ROWS):
            source, read, target = padded_pairs(tokenizer, group[first : first + ROWS])
            batches.append(({"encoder_token_ids": source, "decoder_token_ids": read}, target))
        found[length] = meter(batches)
    return found


def results_table(found: ByLength, trained: int) -> common.Table:
    """Make the table: for each length both perplexities, and how they compare."""
    rows = []
    for length in found["learned"]:
        sines, learned = (found[layout][length] for layout in LAYOUTS)
        ratio = common.Paired.of_logs(learned, sines)
        ends = [f"{100 * math.expm1(end):+.1f}" for end in ratio.interval or ()]
        interval = f" ({' to '.join(ends)})" if ends else ""
        rows.append(
            [
                f"{length}-{length + 2}" + ("" if length + 2 <= trained else " *"),
                *(f"{statistics.geometric_mean(values):.3f}" for values in (sines, learned)),
                f"{100 * math.expm1(ratio.mean):+.1f} %{interval}",
                ratio.verdict,
            ]
        )
    seeds = len(next(iter(found["learned"].values())))
    notes = [
        f"*: some or all lengths are above the {trained} tokens of the longest training pair.",
        "The paper: 4.92 with both, up to the training length (Table 3, row E).",
        f"Seeds: {seeds}, paired. Perplexities are geometric means over the seeds, so that their ratio is "
        "the mean ratio beside them. Resolved: its 95 % interval excludes 0.",
    ]
    columns = ["tokens", *LAYOUTS.values(), "learned against sinusoids", "verdict"]
    return common.Table(
        "Row (E): perplexity by the tokens of the longer side", columns, rows, notes
    )


def picture(found: ByLength, trained: int) -> Any:
    """Draw both perplexities by length."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    axes = figure.add_subplot(yscale="log")
    for layout, name in LAYOUTS.items():
        middles = [length + 1 for length in found[layout]]
        values = list(found[layout].values())
        means = [statistics.geometric_mean(seeds) for seeds in values]
        below = [mean - min(seeds) for mean, seeds in zip(means, values, strict=True)]
        above = [max(seeds) - mean for mean, seeds in zip(means, values, strict=True)]
        errors = [[max(0.0, error) for error in side] for side in (below, above)]
        label = f"{name} (range of seeds)"
        axes.errorbar(middles, means, errors, fmt="o-", capsize=3, label=label)
    axes.axvline(trained + 0.5, color="silver", linestyle="--", label="longest in training")
    axes.set(xlabel="tokens of the longer side", ylabel="perplexity")
    axes.legend()
    return figure


if __name__ == "__main__":
    common.run(main, parser())
