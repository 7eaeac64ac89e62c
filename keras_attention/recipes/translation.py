"""Train a Transformer to translate, and report how well it does (sections 5 and 6.1 of the paper)."""

import dataclasses
import importlib.metadata
import itertools
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import keras

from keras_attention.data.batches import TokenBatches
from keras_attention.data.corpora import Corpus
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.decoding.translator import Translator
from keras_attention.evaluation.bleu import corpus_bleu, corpus_chrf
from keras_attention.evaluation.perplexity import perplexity
from keras_attention.models.transformer import Transformer
from keras_attention.recipes.preparation import (
    compiled_model,
    prepared_batches,
    prepared_tokenizer,
)
from keras_attention.recipes.run_folder import FINGERPRINT, RunFolder
from keras_attention.training.callbacks import (
    Budget,
    Checkpoints,
    ConsoleProgress,
    StopOnSignal,
    write_atomically,
)
from keras_attention.training.checkpoints import average_checkpoints
from keras_attention.visualization.summary_writer import SummaryWriter
from keras_attention.visualization.tensorboard import AttentionHeatmaps, TrainingMonitor

VALIDATION_SENTENCES = 100
STRATEGIES = (None, "mirrored", "data_parallel")


@dataclasses.dataclass(frozen=True)
class TranslationConfig:
    """Everything that decides the result of a run, besides the corpus.

    Attributes:
        preset: Size of the model, a name in `keras_attention.PRESETS`.
        model_arguments: Arguments of `Transformer` that replace the preset's.
        vocabulary_size: Word-pieces of the shared vocabulary.
        tokenizer_algorithm: `"bpe"`, or `"wordpiece"` as in the paper's English-French.
        batch_tokens: Positions of a batch on either side, padding included.
        max_shapes: Most different shapes of batches. Fewer are compiled sooner, but pad more.
        strategy: How several devices share a batch: None, `"mirrored"` or `"data_parallel"`.
        replicas: Number of devices; None for all that there are, if there is a strategy.
        accumulation_steps: Parts that a batch is computed in, one after the other, to need less memory.
        steps: Most optimizer updates; None for no limit.
        minutes: Most minutes of training; None for no limit.
        warmup_steps: Updates until the peak of the learning rate.
        learning_rate_factor: Factor of the paper's learning rate.
        label_smoothing: The paper's epsilon_ls.
        checkpoint_minutes: Minutes between two checkpoints; None for one an epoch.
        averaged_checkpoints: How many of the last checkpoints are averaged.
        bleu_every: Epochs between two BLEU scores of the validation set during training.
        beam_size: Hypotheses kept in the search.
        length_penalty: The paper's alpha.
        dtype: A Keras dtype policy: `"float32"`, or `"mixed_bfloat16"` on hardware that has it.
        seed: Decides initial weights, dropout and the order of batches.
    """

    preset: str = "tiny"
    model_arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    vocabulary_size: int = 8000
    tokenizer_algorithm: str = "bpe"
    batch_tokens: int = 4096
    max_shapes: int = 24
    strategy: str | None = None
    replicas: int | None = None
    accumulation_steps: int = 1
    steps: int | None = None
    minutes: float | None = None
    warmup_steps: int = 4000
    learning_rate_factor: float = 1.0
    label_smoothing: float = 0.1
    checkpoint_minutes: float | None = None
    averaged_checkpoints: int = 5
    bleu_every: int = 5
    beam_size: int = 4
    length_penalty: float = 0.6
    dtype: str = "float32"
    seed: int = 1

    def __post_init__(self) -> None:
        if self.steps is None and self.minutes is None:
            raise ValueError("Training needs an end: give `steps`, `minutes` or both.")
        for name in ("steps", "minutes", "checkpoint_minutes", "replicas", "accumulation_steps"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={value!r}")
        if self.strategy not in STRATEGIES:
            raise ValueError(
                f"`strategy` must be one of {STRATEGIES}. Received: strategy={self.strategy!r}"
            )
        if self.strategy is None and self.replicas not in (None, 1):
            raise ValueError(
                f"`replicas` ({self.replicas}) needs a `strategy`: 'mirrored' on TensorFlow, "
                "'data_parallel' on JAX."
            )


def train_translation(
    corpus: Corpus, config: TranslationConfig, output_dir: str | os.PathLike[str]
) -> dict[str, Any]:
    """Train on a corpus, translate its test set, score it; everything lands in one folder.

    The folder gets `config.json`, `tokenizer/`, `store/` (token ids), `checkpoints/`, `logs/` (for
    TensorBoard), `model.keras` (averaged), `translations.txt` and `report.json`. Started again with
    the same arguments, an interrupted run goes on after its last complete epoch, and a finished one
    returns its report.

    Args:
        corpus: What to train on; without a test part, the validation part is translated.
        config: The settings.
        output_dir: The run's folder.

    Returns:
        The report: every figure that was printed.

    Raises:
        ValueError: If the folder belongs to another configuration or corpus.
        KeyboardInterrupt: After Ctrl-C; the run can be resumed.
    """
    settings = {
        **dataclasses.asdict(config),
        "corpus": corpus.name,
        "languages": [corpus.source_language, corpus.target_language],
        FINGERPRINT: corpus.train.fingerprint(),
    }
    folder = RunFolder(output_dir, settings)
    report = folder.finished_report()
    if report is not None:
        print(f"This run is finished; its report is {folder.report_file}")
        return report
    keras.utils.set_random_seed(config.seed)
    print(f"Corpus {corpus.name}: {corpus.description}")
    print("  " + ", ".join(f"{name} {len(text):,} pairs" for name, text in corpus.splits.items()))

    tokenizer = prepared_tokenizer(corpus, config, folder.path / "tokenizer")
    batches, validation = prepared_batches(corpus, config, tokenizer, folder.path / "store")
    _print_batches(batches)
    model = compiled_model(config, tokenizer)
    print(f"Model {config.preset}: {model.count_params():,} parameters, {config.dtype}")
    training = _train(model, batches, validation, tokenizer, corpus, config, folder)

    model.save(folder.path / "model.keras")
    report = {
        "corpus": corpus.name,
        "synthetic": corpus.synthetic,
        "pairs": {name: len(text) for name, text in corpus.splits.items()},
        "vocabulary_size": tokenizer.vocabulary_size,
        "parameters": model.count_params(),
        "config": settings,
        "batches": {k: v for k, v in batches.statistics().items() if k != "shapes"},
        "training": training,
        "validation_perplexity": perplexity(model, validation),
        "environment": _environment(),
    }
    print(
        f"Validation perplexity {report['validation_perplexity']:.3f} per word-piece, no smoothing"
    )
    report["test"] = _evaluate(model, tokenizer, corpus, config, folder.path)
    with SummaryWriter(folder.path / "logs") as writer:
        writer.scalar("test/bleu", report["test"]["bleu"], training["updates"])
        writer.scalar("test/chrf", report["test"]["chrf"], training["updates"])
    write_atomically(folder.report_file, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    print(f"\nThe run's folder is {folder.path}: model.keras, tokenizer/, report.json, logs/")
    print(f"  tensorboard --logdir {folder.path / 'logs'}")
    return report


def _print_batches(batches: TokenBatches) -> None:
    statistics = batches.statistics()
    print(
        f"Batches: {statistics['batches']} an epoch, on average "
        f"{statistics['source_tokens_per_batch']:,.0f} source and "
        f"{statistics['target_tokens_per_batch']:,.0f} target tokens, "
        f"{statistics['padding']:.1%} padding, {len(statistics['shapes'])} shapes"
    )


def _train(
    model: Transformer,
    batches: TokenBatches,
    validation: TokenBatches,
    tokenizer: Tokenizer,
    corpus: Corpus,
    config: TranslationConfig,
    folder: RunFolder,
) -> dict[str, Any]:
    """Train to the end of the budget and average the last checkpoints; return what it took."""
    signals = StopOnSignal()
    checkpoints = Checkpoints(
        folder.path / "checkpoints",
        config.averaged_checkpoints,
        lambda: signals.signal_name is not None,
    )
    epochs = checkpoints.restore(model)
    batches.set_epoch(epochs)
    if epochs:
        print(f"Going on after epoch {epochs} ({checkpoints.seconds / 60:.1f} minutes done)")
    if not checkpoints.finished:
        with SummaryWriter(folder.path / "logs") as writer:
            pair = _sample_pair(corpus)
            monitor = TrainingMonitor(writer, batches, every=50)
            note = "synthetic data" if corpus.synthetic else ""
            budget = Budget(config.steps, config.minutes, checkpoints.seconds)
            callbacks = [
                signals,
                budget,
                # Adds to the logs of the epoch, which the callbacks after it read.
                ValidationScores(corpus, validation, tokenizer, config.bleu_every),
                checkpoints,
                monitor,
                AttentionHeatmaps(model, tokenizer, pair, writer, every=0, note=note),
                ConsoleProgress(budget),
            ]
            model.fit(
                batches,
                epochs=sys.maxsize,
                initial_epoch=epochs,
                shuffle=False,
                verbose=0,
                callbacks=callbacks,
            )
        if signals.signal_name is not None:
            print(f"\nStopped by {signals.signal_name}. The same command goes on with this run.")
            raise KeyboardInterrupt(signals.signal_name)
    average_checkpoints(model, checkpoints.paths)
    training = {
        "updates": int(keras.ops.convert_to_numpy(model.optimizer.iterations)),
        "minutes": round(checkpoints.seconds / 60, 2),
        "averaged_checkpoints": len(checkpoints.paths),
        "history": checkpoints.history,
    }
    print(
        f"Trained {training['updates']:,} updates in {training['minutes']:.1f} minutes; "
        f"averaged the last {training['averaged_checkpoints']} checkpoints"
    )
    return training


class ValidationScores(keras.callbacks.Callback):
    """Adds perplexity and, now and then, the BLEU of greedy translations to the logs of an epoch.

    Args:
        corpus: Its validation part is translated, the first 100 sentences of it.
        batches: The validation part as batches.
        tokenizer: The tokenizer of the run.
        bleu_every: Epochs between two BLEU scores.
    """

    def __init__(
        self, corpus: Corpus, batches: TokenBatches, tokenizer: Tokenizer, bleu_every: int
    ):
        super().__init__()
        pairs = list(itertools.islice(corpus.validation, VALIDATION_SENTENCES))
        self.sources, self.references = (list(side) for side in zip(*pairs, strict=True))
        self.batches = batches
        self.tokenizer = tokenizer
        self.bleu_every = bleu_every

    def on_train_begin(self, logs: Any = None) -> None:
        self._translator = Translator(self.model, self.tokenizer, beam_size=1, show_progress=False)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if logs is None:
            return
        logs["val_perplexity"] = perplexity(self.model, self.batches)
        if (epoch + 1) % self.bleu_every == 0:
            bleu = corpus_bleu(self._translator(self.sources), self.references)
            logs[f"val_greedy_bleu_of_{len(self.sources)}"] = bleu.score


def _sample_pair(corpus: Corpus) -> tuple[str, str]:
    """A validation pair of middling length to look at: long enough to say something, short enough to read."""
    pairs = itertools.islice(corpus.validation, VALIDATION_SENTENCES)
    return min(pairs, key=lambda pair: (abs(len(pair[0].split()) - 10), pair))


def _evaluate(
    model: Transformer,
    tokenizer: Tokenizer,
    corpus: Corpus,
    config: TranslationConfig,
    folder: Path,
) -> dict[str, Any]:
    """Translate the test part by beam search; print and return the scores."""
    split = "validation" if corpus.test is None else "test"
    sources, references = (list(side) for side in zip(*corpus.splits[split], strict=True))
    translator = Translator(
        model, tokenizer, beam_size=config.beam_size, length_penalty=config.length_penalty
    )
    started = time.monotonic()
    translations = translator(sources)
    seconds = time.monotonic() - started
    bleu, chrf = corpus_bleu(translations, references), corpus_chrf(translations, references)
    write_atomically(folder / "translations.txt", "".join(f"{line}\n" for line in translations))

    print(
        f"\nSome translations of the {split} set{' (synthetic data)' if corpus.synthetic else ''}:"
    )
    step = max(1, len(sources) // 5)
    examples = []
    for index in range(0, len(sources), step)[:5]:
        example = {
            "source": sources[index],
            "translation": translations[index],
            "reference": references[index],
        }
        examples.append(example)
        for name, text in example.items():
            print(f"  {name:>11}  {text}")
        print()
    print(f"BLEU {bleu.score:.2f}   {bleu.signature}")
    print(f"chrF {chrf.score:.2f}   {chrf.signature}")
    print(
        f"  on {len(sources)} sentences of the {split} set, beam {config.beam_size}, {seconds:.0f} s"
    )
    return {
        "split": split,
        "sentences": len(sources),
        "bleu": bleu.score,
        "bleu_signature": bleu.signature,
        "chrf": chrf.score,
        "chrf_signature": chrf.signature,
        "seconds": round(seconds, 1),
        "examples": examples,
    }


def _environment() -> dict[str, str]:
    names = ("keras", "tensorflow", "jax", "torch", "sentencepiece", "sacrebleu", "numpy")
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "backend": keras.backend.backend(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        **versions,
    }
