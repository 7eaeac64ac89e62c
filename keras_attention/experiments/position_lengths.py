"""Row (E) of Table 3 and section 3.5: learned positions and sinusoids, beyond the training length."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_attention.data.corpora import Corpus
from keras_attention.data.token_store import TokenStore
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.evaluation.perplexity import PerplexityMeter
from keras_attention.experiments.fits import half_width
from keras_attention.experiments.tables import (
    Measurements,
    Table,
    deciding_settings,
    verdict,
    write_results,
)
from keras_attention.recipes.config import TranslationConfig
from keras_attention.recipes.run import train_translation
from keras_attention.utils.checks import check_integer
from keras_attention.utils.progress import say
from keras_attention.utils.run_folder import RunFolder

NAME = "row_e"
LAYOUTS = {"interleaved": "sinusoids", "learned": "learned"}
ROWS = 32  # Sentences that are scored at a time.


def compare_positions(
    corpus: Corpus,
    output_dir: str | os.PathLike[str],
    base: TranslationConfig,
    *,
    trained_length: int = 12,
    seeds: Sequence[int] = (1,),
) -> dict[str, Any]:
    """Train models with both kinds of positions on short sentences, and measure perplexity by length.

    Both have positions for all sentences, but learned positions beyond `trained_length` are never trained.
    If it was stopped, the same call continues.

    Args:
        corpus: The corpus to train on; its training and test sets are split by length.
        output_dir: The folder; runs lie below `runs/`.
        base: Settings of the runs.
        trained_length: Most tokens on a side of a training pair, end token included.
        seeds: Seeds of each kind.

    Returns:
        A dict: for each layout and length, the perplexities of all seeds.
    """
    check_integer("trained_length", trained_length, least=2)
    settings = {
        "corpus": corpus.name,
        "fingerprint": corpus.train.fingerprint(),
        **deciding_settings(base),
        "trained_length": trained_length,
    }
    kept = Measurements(output_dir, settings)
    found: dict[str, dict[int, list[float]]] = {layout: {} for layout in LAYOUTS}
    with kept.locked():
        for seed in seeds:
            for layout in LAYOUTS:
                say(f"Row (E): {LAYOUTS[layout]} positions, seed {seed}")
                folder = kept.folder / "runs" / f"{layout}-{seed}"
                config = dataclasses.replace(
                    base,
                    max_length=trained_length,
                    seed=seed,
                    model_arguments={**base.model_arguments, "position_layout": layout},
                )

                def measure(config: Any = config, folder: Any = folder) -> dict[str, float]:
                    train_translation(corpus, config, folder)
                    return _perplexities(RunFolder(folder), corpus)

                for length, value in kept.get(f"{layout} {seed}", measure).items():
                    found[layout].setdefault(int(length), []).append(value)
        result: dict[str, Any] = {
            layout: {str(length): values for length, values in sorted(lengths.items())}
            for layout, lengths in found.items()
        }
        tables = [_table(found, trained_length)]
        figures = {"row_e_lengths": _figure(found, trained_length)}
        write_results(kept.folder, NAME, tables, figures, {"perplexities": result, **settings})
    return result


def _perplexities(folder: RunFolder, corpus: Corpus) -> dict[str, float]:
    """Perplexity of the held-out pairs by the length of their longer side, in steps of three tokens."""
    model = keras.saving.load_model(folder.model, compile=False)
    tokenizer = Tokenizer.load(folder.tokenizer)
    text = corpus.validation if corpus.test is None else corpus.test
    store = TokenStore.build(folder.store, text, tokenizer)
    lengths = np.maximum(store.source_lengths, store.target_lengths)
    meter = PerplexityMeter(model)
    bins = 3 * (np.asarray(lengths) // 3)
    return {
        str(length): meter(_batches(store, np.flatnonzero(bins == length), tokenizer))
        for length in np.unique(bins)
    }


def _batches(store: TokenStore, pairs: np.ndarray, tokenizer: Tokenizer) -> list[Any]:
    batches = []
    for first in range(0, len(pairs), ROWS):
        rows = pairs[first : first + ROWS]
        source, target = (
            _padded([side(int(index)) for index in rows], tokenizer.pad_token_id)
            for side in (store.source, store.target)
        )
        start = np.full((len(rows), 1), tokenizer.start_token_id, "int32")
        read = np.concatenate([start, target[:, :-1]], axis=1)
        batches.append(({"encoder_token_ids": source, "decoder_token_ids": read}, target))
    return batches


def _padded(rows: Sequence[Any], pad: int) -> np.ndarray:
    ids = np.full((len(rows), max(map(len, rows))), pad, "int32")
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
    return ids


def _table(found: Mapping[str, Mapping[int, Sequence[float]]], trained: int) -> Table:
    lengths = sorted(found["learned"])
    rows = [
        [
            f"{length}-{length + 2}" + ("" if length + 2 <= trained else " *"),
            *(f"{np.mean(found[layout][length]):.3f}" for layout in LAYOUTS),
            *_learned_against_sinusoids(found, length),
        ]
        for length in lengths
    ]
    notes = [f"*: some or all lengths are above the {trained} tokens of the longest training pair."]
    notes.append("The paper: 4.92 with both, up to the training length (Table 3, row E).")
    notes.append(
        f"Seeds: {len(found['learned'][lengths[0]])}, paired. Resolved: the 95 % interval excludes 0."
    )
    title = "Row (E): perplexity by the tokens of the longer side"
    columns = ["tokens", *LAYOUTS.values(), "learned against sinusoids", "verdict"]
    return Table(title, columns, rows, notes)


def _learned_against_sinusoids(
    found: Mapping[str, Mapping[int, Sequence[float]]], length: int
) -> tuple[str, str]:
    """The difference in perplexity with its interval over seeds, and whether it is resolved."""
    logs = np.log(found["learned"][length]) - np.log(found["interleaved"][length])
    mean, half = float(np.mean(logs)), half_width(list(logs))
    ends = [100 * np.expm1(end) for end in (mean - half, mean + half)]
    interval = f" ({ends[0]:+.1f} to {ends[1]:+.1f})" if len(logs) > 1 else ""
    return f"{100 * np.expm1(mean):+.1f} %{interval}", verdict(abs(mean) > half)


def _figure(found: Mapping[str, Mapping[int, Sequence[float]]], trained: int) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    axes = figure.add_subplot(yscale="log")
    for layout, name in LAYOUTS.items():
        lengths = sorted(found[layout])
        means = np.array([np.mean(found[layout][n]) for n in lengths])
        ends = np.array([(min(found[layout][n]), max(found[layout][n])) for n in lengths])
        errors = np.abs(ends.T - means)
        axes.errorbar(
            [n + 1 for n in lengths],
            means,
            errors,
            fmt="o-",
            capsize=3,
            label=f"{name} (range of seeds)",
        )
    axes.axvline(trained + 0.5, color="silver", linestyle="--", label="longest in training")
    axes.set(xlabel="tokens of the longer side", ylabel="perplexity")
    axes.legend()
    return figure
