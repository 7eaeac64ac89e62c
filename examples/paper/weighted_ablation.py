"""Take the Weighted Transformer apart: what do its learned weights do? (Ahmed et al. 2017, Table 3)

Without arguments, this trains seven models on the demo corpus, with three seeds each (synthetic; some
twenty minutes on two CPU cores): a Transformer, the Weighted Transformer, and the latter with kappa and alpha
made in other ways. As in the paper's Table 3, the trained Weighted Transformer also translates with random
and with equal weights in place of those that it learned. A stopped script continues.

Three claims of the paper are measured beside it. Faster convergence: the training loss by update. A
regularising effect: how much the validation loss is above the training loss, which `--pairs 500` shows where
a model overfits. Decorrelated branches: the mean correlation, in absolute value, of what two heads of a
decoder's attention to the source add to a position, over training.

What to expect, written before the first run: the paper's order, learned above uniform above random, where
weights are replaced after training, since the network was fitted to them. Kappa and alpha enter only as
factors that the matrices could learn, so trained with fixed equal weights a model should do as well.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import common
import numpy as np
import weighted_transformer
from weighted_transformer import LEAST_UPDATES

from keras_attention import Corpus, TranslationConfig

if TYPE_CHECKING:
    from keras_attention import Transformer, Translator

SYSTEMS = {
    "plain": "Transformer",
    "learned": "Weighted Transformer",
    "kappa": "alpha fixed at 1/M, kappa learned",
    "uniform": "both fixed at 1/M",
    "random": "both fixed at random",
    "free": "learned without the simplex",
    "softmax": "learned by a softmax",
}
# What Table 3 puts in place of the learned weights, and its BLEU (newstest2013, two layers).
TABLE_3 = {"learned": 24.8, "uniform": 23.4, "random": 21.1}
MEASURED = ("loss", "validation_loss", "gap", "perplexity", "bleu", "correlation")


def parser() -> argparse.ArgumentParser:
    """Make the parser of the options."""
    quick = f"--seeds 1 --updates {LEAST_UPDATES} --test-sentences 20 --batch-tokens 400"
    made = common.new_parser(__doc__, __file__, quick)
    settings = weighted_transformer.SETTINGS
    common.add_training(made, [1, 2, 3], settings, test_sentences=300, steps=["--updates"])
    return made


def main(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train all models with each seed, and compare them with the Weighted Transformer."""
    weighted_transformer.check_updates(options)
    base = dataclasses.replace(common.recipe(options, weighted_transformer.SMALL), minutes=None)
    corpus = common.corpus_of(options)
    configs = common.configs_of(SYSTEMS, options.seeds, lambda system: base)
    number = options.test_sentences
    results = common.Results(folder, {**common.deciding(corpus, base), "test_sentences": number})
    measure = functools.partial(trained_and_tested, number)
    with common.trained(results, corpus, configs, measure) as found:
        runs = {system: list(own.values()) for system, own in found.items()}
        tables = [trained_table(runs, corpus, base, options.seeds), replaced_table(runs)]
        data = {"settings": results.settings, "seeds": options.seeds, "runs": runs}
        common.write(folder, "weighted_ablation", tables, pictures(runs), data)
    return data


def trained_and_tested(
    test_sentences: int, system: str, corpus: Corpus, config: TranslationConfig, folder: Path
) -> dict[str, Any]:
    """Train one model to its end, and return its figures."""
    from weighted_run import BranchLog, branch_file, branch_weights

    from keras_attention import MetricsLog
    from keras_attention.recipes import order
    from keras_attention.recipes.run import Run

    split = "validation" if corpus.test is None else "test"
    sources = list(itertools.islice(corpus.splits[split].sources(), test_sentences))
    references = corpus.references(split)[:test_sentences]
    pairs = list(zip(sources[:64], references[:64], strict=True))

    def correlation(model: Any) -> float:
        return head_correlation(model, *ids_of(run.tokenizer, pairs))

    def logged(model: Any) -> dict[str, Any]:
        return {"correlation": correlation(model), **branch_weights(model)}

    log, shared = MetricsLog(branch_file(folder)), folder.parent
    if system == "plain":
        callbacks = [BranchLog(log, figures=logged)]
        run = Run(corpus, config, folder, shared=shared, callbacks=callbacks)
    else:
        run = ablated_run(system)(corpus, config, folder, {}, shared, logged)
    with run.started():
        order.train(run)
        order.average(run)
    translator = run.translator(run.model, show_progress=False)
    score = functools.partial(bleu, translator, sources, references)
    entries = [e for e in MetricsLog(run.folder.metrics).read() if "loss" in e]
    losses = [e for e in entries if e["kind"] == "train"]
    last = run.training["history"][-1]
    figures = {
        "updates": [entry["update"] for entry in losses],
        "losses": [entry["loss"] for entry in losses],
        "loss": losses[-1]["loss"],
        "validation_loss": last["val_loss"],
        "gap": last["val_loss"] - losses[-1]["loss"],
        "perplexity": last["val_perplexity"],
        "bleu": score(),
        "correlations": [[e["update"], e["correlation"]] for e in log.read()],
        "correlation": correlation(run.model),
    }
    if system == "learned":
        figures["replaced"] = {}
        for name in ("uniform", "random"):
            for weight in branch_variables(run.model):
                weight.assign(OTHERS[name](weight, config.seed))
            figures["replaced"][name] = score()
    return figures


def bleu(translator: Translator, sources: Sequence[str], references: Sequence[str]) -> float:
    """Return sacreBLEU's score of the translations."""
    from keras_attention import corpus_bleu

    return corpus_bleu(translator(sources), references).score


def branch_variables(model: Any) -> list[Any]:
    """Return the kappa and alpha of all layers of a model."""
    return [w for w in model.weights if w.path.rpartition("/")[2] in ("kappa", "alpha")]


def _random(weight: Any, seed: int | None) -> np.ndarray:
    """Return other weights than those that training started from, equally distributed."""
    draw = np.random.default_rng([seed or 0, *weight.path.encode()]).random(weight.shape)
    return (draw / draw.sum()).astype("float32")


OTHERS: dict[str, Callable[[Any, int | None], np.ndarray]] = {
    "uniform": lambda weight, seed: np.full(weight.shape, 1 / weight.shape[0], "float32"),
    "random": _random,
}


def ablated_run(system: str) -> Any:
    """Return the class of runs that train one of `SYSTEMS` but the plain one."""
    from keras import constraints, ops
    from weighted_run import WeightedRun

    from keras_attention import WeightedTransformer
    from keras_attention.layers import MultiHeadAttention
    from keras_attention.models import BranchedAttention

    class Free(constraints.Constraint):
        """Changes nothing, but has the learning rate of kappa and alpha."""

        has_own_learning_rate = True

        def __call__(self, vector: Any) -> Any:
            return vector

    class FreeBranches(BranchedAttention):
        """Branches whose weights may leave the simplex."""

        def build(self, *shapes: Any) -> None:
            super().build(*shapes)
            for weight in (self.kappa, self.alpha):
                weight.constraint = Free()

        def load_own_variables(self, store: Any) -> None:
            MultiHeadAttention.load_own_variables(self, store)  # without the check of the simplex

    class SoftmaxBranches(FreeBranches):
        """Branches whose weights are the softmax of what is learned."""

        def branch_weights(self) -> tuple[Any, Any]:
            kappa, alpha = super().branch_weights()
            return ops.softmax(kappa), ops.softmax(alpha)

    class Ablated(WeightedTransformer):
        """A Weighted Transformer with such branches."""

        def make_block(self, kind: str, **arguments: Any) -> Any:
            block = super().make_block(kind, **arguments)
            block.branched_layer = {"free": FreeBranches, "softmax": SoftmaxBranches}.get(system)
            return block

    class AblatedRun(WeightedRun):
        """A run of it; weights that are not learned are frozen before the first update."""

        kind = Ablated

        @functools.cached_property
        def model(self) -> WeightedTransformer:
            model = super().model
            for weight in branch_variables(model):
                if system in ("uniform", "random") or (system, weight.name) == ("kappa", "alpha"):
                    if system != "random":
                        weight.assign(OTHERS["uniform"](weight, None))
                    weight.trainable = False
            return model

    return AblatedRun


def ids_of(tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the padded ids of sources and of targets behind a start token."""
    found = []
    for side in zip(*pairs, strict=True):
        rows = [tokenizer.encode(text) for text in side]
        ids = np.full((len(rows), max(map(len, rows)) + 1), tokenizer.pad_token_id, "int32")
        for row, own in zip(ids, rows, strict=True):
            row[: len(own)] = own
        found.append(ids)
    source, target = found
    target = np.concatenate([np.full((len(target), 1), tokenizer.start_token_id), target], axis=1)
    return source, target[:, :-1].astype("int32")


def head_correlation(model: Transformer, source: np.ndarray, target: np.ndarray) -> float:
    """Return how alike the heads of the decoder's attention to the source are, from 0 to 1.

    What head i adds to a position is `head_i W_i^O`, before its weight and its network. Over all
    positions of the targets, two heads have a correlation, as two long vectors with each component's mean
    taken out. The figure is the mean of its absolute value over pairs of heads and layers.

    Args:
        model: A model with or without branches.
        source: Ids (B, S).
        target: Ids (B, T), shifted right.
    """
    from keras.ops import convert_to_numpy

    memory = model.encode(source)
    scores = model.attention_scores(source, target)["cross"]
    is_word = target != model.pad_token_id
    found = []
    for block, weights, part in zip(model.decoder_blocks, scores, memory["blocks"], strict=True):
        kernel = convert_to_numpy(block.cross_attention.output_dense.kernel)
        outputs = np.einsum(
            "bnts,bsnv->nbtv", convert_to_numpy(weights), convert_to_numpy(part["value"])
        )[:, is_word]
        added = np.einsum("nrv,nvd->nrd", outputs, kernel)
        added = (added - added.mean(axis=1, keepdims=True)).reshape(len(added), -1)
        added /= np.linalg.norm(added, axis=1, keepdims=True)
        pairs = np.abs(added @ added.T)[np.triu_indices(len(added), 1)]
        found.append(float(pairs.mean()))
    return statistics.fmean(found)


def trained_table(
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    corpus: Corpus,
    config: TranslationConfig,
    seeds: Sequence[int],
) -> common.Table:
    """Make the table of the trained models; differences are from the Weighted Transformer, by seed."""
    rows: list[list[Any]] = []
    for system, title in SYSTEMS.items():
        own, theirs = runs[system], runs["learned"]
        cells = []
        for name in MEASURED:
            cell = common.spread([run[name] for run in own], ".3f", ".3f")
            pair = common.Paired.of(*([run[name] for run in side] for side in (own, theirs)))
            cells.append(cell + (" *" if system != "learned" and pair.is_resolved else ""))
        rows.append([title, *cells])
    notes = (
        f"{corpus.name}{', synthetic' if corpus.synthetic else ''}; {len(corpus.train):,} pairs, "
        f"{config.steps:,} updates, seeds {', '.join(map(str, seeds))}; mean and standard deviation. A star: "
        "the difference from the Weighted Transformer is resolved (95 % interval over the seeds).",
        "Losses are label-smoothed, the gap is the one minus the other. Correlation: of what two heads of "
        "the decoder's attention to the source add, in absolute value.",
    )
    columns = ["", "training loss", "validation loss", "gap", "perplexity", "BLEU", "correlation"]
    return common.Table("Kappa and alpha made in other ways", columns, rows, notes)


def replaced_table(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> common.Table:
    """Make the table of weights that were replaced after training, beside the paper's Table 3."""
    rows: list[list[Any]] = []
    learned = [run["bleu"] for run in runs["learned"]]
    for name, paper in TABLE_3.items():
        own = [
            run["replaced"][name] if name != "learned" else run["bleu"] for run in runs["learned"]
        ]
        pair = common.Paired.of(own, learned)
        shown = "" if name == "learned" else f"{pair.mean:+.1f} {pair.verdict}"
        rows.append([name, common.spread(own, ".1f", ".1f"), shown, paper, f"{paper - 24.8:+.1f}"])
    columns = ["weights after training", "BLEU", "difference", "the paper's BLEU", "its difference"]
    notes = ("Ahmed et al. 2017, Table 3: two layers on WMT, newstest2013.",)
    return common.Table("Learned weights, and others in their place", columns, rows, notes)


def pictures(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Draw the loss and the correlation of heads of each seed over training."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.2, 3.9), layout="constrained")
    loss, correlation = figure.subplots(1, 2, sharex=True)
    for number, (system, own) in enumerate(runs.items()):
        for seed, run in enumerate(own):
            line: dict[str, Any] = {"color": f"C{number}", "linewidth": 0.9}
            line["label"] = None if seed else SYSTEMS[system]
            loss.plot(run["updates"], run["losses"], **line)
            correlation.plot(*zip(*run["correlations"], strict=True), **line)
    loss.set(xlabel="update", ylabel="training loss")
    correlation.set(xlabel="update", ylabel="correlation of heads", ylim=(0, None))
    loss.legend(fontsize=6)
    return {"weighted_ablation": figure}


if __name__ == "__main__":
    common.run(main, parser())
