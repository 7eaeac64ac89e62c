"""Train a Transformer to translate, and report how well it does (sections 5 and 6.1 of the paper)."""

import dataclasses
import importlib.metadata
import json
import os
import platform
import time
from typing import Any

import keras

from keras_attention.callbacks.checkpoints import Checkpoints
from keras_attention.data.batches import TokenBatches
from keras_attention.data.corpora import Corpus
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.decoding.translator import Translator
from keras_attention.evaluation.bleu import corpus_bleu, corpus_chrf
from keras_attention.evaluation.report import write_report
from keras_attention.evaluation.report_text import report_text
from keras_attention.models.transformer import Transformer
from keras_attention.recipes.prepare import (
    compiled_model,
    prepared_batches,
    prepared_tokenizer,
    replica_count,
    row_multiple,
)
from keras_attention.recipes.run_evaluation import evaluate_run
from keras_attention.recipes.run_folder import RunFolder
from keras_attention.recipes.training_run import average_last, train_to_budget
from keras_attention.training.distribution import STRATEGIES, distribution_scope
from keras_attention.utils.files import write_atomically
from keras_attention.visualization.summary_writer import SummaryWriter

BUDGET = ("steps", "minutes")
# What may change between two starts of a run: how long it trains, and on what hardware.
CHANGEABLE = (*BUDGET, "strategy", "replicas", "accumulation_steps", "recompute")


@dataclasses.dataclass(frozen=True)
class TranslationConfig:
    """Everything that decides the result of a run, besides the corpus.

    Attributes:
        preset: Size of the model, a name in `keras_attention.PRESETS`.
        model_arguments: Arguments of `Transformer` that replace the preset's.
        vocabulary_size: Word-pieces of the shared vocabulary.
        tokenizer_algorithm: `"bpe"`, or `"wordpiece"` as in the paper's English-French.
        bpe_dropout: Probability with which BPE skips a merge in the training text, which is cut anew
            `bpe_samples` times; it makes more tokens of it.
        bpe_samples: So many epochs pass before a sentence is cut as it was before.
        batch_tokens: Positions of a batch on either side, padding included.
        max_shapes: Most different shapes of batches. Fewer are compiled sooner, but pad more.
        strategy: How several devices share a batch: None, `"mirrored"` or `"data_parallel"`.
        replicas: Number of devices; None for all that there are, if there is a strategy.
        accumulation_steps: Parts that a batch is computed in, one after the other, to need less memory.
        recompute: Whether blocks are computed again in the backward pass, to need less memory.
        row_multiple: Sentences of a batch are a multiple of it. All numbers of replicas and parts whose
            product divides it train on the same batches; for another it is raised.
        steps: Most optimizer updates; None for no limit.
        minutes: Most minutes of training; None for no limit.
        warmup_steps: Updates until the peak of the learning rate.
        learning_rate_factor: Factor of the paper's learning rate.
        peak_learning_rate: If given, in place of the paper's learning rate: it rises to this in
            `warmup_steps` and falls as half a cosine to 0 at the end of the budget. With `minutes`
            it depends on the machine's pace; with `steps` alone a run can be repeated exactly.
        label_smoothing: The paper's epsilon_ls.
        checkpoint_minutes: Minutes between two checkpoints; None for one an epoch, and every ten minutes
            one that is not averaged, but gone on from.
        checkpoint_updates: Updates between two checkpoints that are averaged, in place of minutes.
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
    bpe_dropout: float = 0.0
    bpe_samples: int = 8
    batch_tokens: int = 4096
    max_shapes: int = 24
    strategy: str | None = None
    replicas: int | None = None
    accumulation_steps: int = 1
    recompute: bool = False
    row_multiple: int = 8
    steps: int | None = None
    minutes: float | None = None
    warmup_steps: int = 4000
    learning_rate_factor: float = 1.0
    peak_learning_rate: float | None = None
    label_smoothing: float = 0.1
    checkpoint_minutes: float | None = None
    checkpoint_updates: int | None = None
    averaged_checkpoints: int = 5
    bleu_every: int = 5
    beam_size: int = 4
    length_penalty: float = 0.6
    dtype: str = "float32"
    seed: int = 1

    def __post_init__(self) -> None:
        if self.steps is None and self.minutes is None:
            raise ValueError("Training needs an end: give `steps`, `minutes` or both.")
        for name in (
            "steps",
            "minutes",
            "checkpoint_minutes",
            "checkpoint_updates",
            "replicas",
            "accumulation_steps",
            "row_multiple",
            "peak_learning_rate",
            "bpe_samples",
        ):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={value!r}")
        if self.checkpoint_minutes is not None and self.checkpoint_updates is not None:
            raise ValueError(
                "Checkpoints are so many minutes or so many updates apart. Received: "
                f"checkpoint_minutes={self.checkpoint_minutes}, "
                f"checkpoint_updates={self.checkpoint_updates}"
            )
        if not 0 <= self.bpe_dropout < 1:
            raise ValueError(
                f"`bpe_dropout` must lie in [0, 1). Received: bpe_dropout={self.bpe_dropout!r}"
            )
        if self.bpe_dropout and self.tokenizer_algorithm != "bpe":
            raise ValueError(
                f"`bpe_dropout` ({self.bpe_dropout}) needs tokenizer_algorithm 'bpe'. "
                f"Received: tokenizer_algorithm={self.tokenizer_algorithm!r}"
            )
        if self.strategy not in (None, *STRATEGIES):
            raise ValueError(
                f"`strategy` must be one of {[None, *STRATEGIES]}. "
                f"Received: strategy={self.strategy!r}"
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
    TensorBoard), `averaged/` and `model.keras` (both the average), `translations.txt` and
    `report.json`. Started again with the same arguments, a run that was stopped or killed goes on from
    its last checkpoint as if nothing had happened, and a finished one returns its report. `CHANGEABLE`
    settings may change between two starts: a finished run trains on when its budget is raised.

    Args:
        corpus: What to train on; without a test part, the validation part is translated.
        config: The settings.
        output_dir: The run's folder.

    Returns:
        The report: every figure that was printed.

    Raises:
        ValueError: If the folder belongs to another configuration or corpus, or another process works
            on it.
        TrainingStopped: A `KeyboardInterrupt`: after Ctrl-C or SIGTERM; the run can be resumed.
        OSError: If a checkpoint cannot be written, for instance because the disk is full.
    """
    settings = _settings(corpus, config)
    folder = RunFolder(output_dir, settings, _changeable(config))
    report = folder.finished_report()
    if report is not None and all(report["config"][name] == settings[name] for name in BUDGET):
        print(f"This run is finished; its report is {folder.report_file}")
        return report
    with folder.locked(), distribution_scope(config.strategy, config.replicas):
        return _run(corpus, config, settings, folder)


def _changeable(config: TranslationConfig) -> tuple[str, ...]:
    """The settings that may change between two starts; not the budget that the learning rate follows."""
    follows_budget = config.peak_learning_rate is not None
    return tuple(name for name in CHANGEABLE if not (follows_budget and name in BUDGET))


def _settings(corpus: Corpus, config: TranslationConfig) -> dict[str, Any]:
    """What a run is known by."""
    return {
        **dataclasses.asdict(config),
        "row_multiple": row_multiple(config),
        "corpus": corpus.name,
        "languages": [corpus.source_language, corpus.target_language],
        **{f"{name}_fingerprint": text.fingerprint() for name, text in corpus.splits.items()},
    }


def _run(
    corpus: Corpus, config: TranslationConfig, settings: dict[str, Any], folder: RunFolder
) -> dict[str, Any]:
    keras.utils.set_random_seed(config.seed)
    print(f"Corpus {corpus.name}: {corpus.description}")
    print("  " + ", ".join(f"{name} {len(text):,} pairs" for name, text in corpus.splits.items()))

    tokenizer = prepared_tokenizer(corpus, config, folder.path / "tokenizer")
    batches, validation = prepared_batches(corpus, config, tokenizer, folder.path / "store")
    _print_batches(batches)
    model = compiled_model(config, tokenizer)
    print(f"Model {config.preset}: {model.count_params():,} parameters, {config.dtype}")
    checkpoints = train_to_budget(
        model, batches, validation, tokenizer, corpus, config, folder.path
    )
    averaged = average_last(model, checkpoints, config, folder.path)
    training = _training_figures(model, checkpoints, averaged)
    model.save(folder.path / "model.keras")

    split = "validation" if corpus.test is None else "test"
    sources, references = list(corpus.splits[split].sources()), list(corpus.references(split))
    translator = _TimedTranslator(model, tokenizer, config)
    evaluation = evaluate_run(
        folder.path,
        settings,
        model,
        tokenizer,
        batches,
        validation,
        sources,
        references,
        name=f"{corpus.name}, {split} part",
        translate=translator,
        devices=replica_count(config),
    )
    report = {
        "corpus": corpus.name,
        "synthetic": corpus.synthetic,
        "pairs": {name: len(text) for name, text in corpus.splits.items()},
        "vocabulary_size": tokenizer.vocabulary_size,
        "parameters": model.count_params(),
        "config": settings,
        "batches": {k: v for k, v in batches.statistics().items() if k != "shapes"},
        "training": training,
        "validation_perplexity": list(evaluation["systems"].values())[-1]["perplexity"],
        "environment": _environment(),
    }
    # The last translations are those of the average.
    translations = translator.translations
    write_atomically(folder.path / "translations.txt", "\n".join([*translations, ""]))
    report["test"] = {
        "split": split,
        "sentences": len(sources),
        **_scores(translations, references),
        "seconds": round(translator.seconds, 1),
        "examples": _examples(sources, translations, references),
    }
    _print_examples(report["test"], corpus)
    print(report_text(evaluation, title=folder.path.resolve().name))
    with SummaryWriter(folder.path / "logs", resumes=False) as writer:
        writer.scalar("test/bleu", report["test"]["bleu"], training["updates"])
        writer.scalar("test/chrf", report["test"]["chrf"], training["updates"])
    write_atomically(folder.report_file, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    write_report(evaluation, folder.path, settings)
    print(
        f"The run's folder is {folder.path}: model.keras, tokenizer/, report.txt, report.json, logs/"
    )
    print(f"  tensorboard --logdir {folder.path / 'logs'}")
    return json.loads(folder.report_file.read_text("utf-8"))


def _print_batches(batches: TokenBatches) -> None:
    statistics = batches.statistics()
    print(
        f"Batches: {statistics['batches']} an epoch, on average "
        f"{statistics['source_tokens_per_batch']:,.0f} source and "
        f"{statistics['target_tokens_per_batch']:,.0f} target tokens, "
        f"{statistics['padding']:.1%} padding, {len(statistics['shapes'])} shapes"
    )


def _training_figures(
    model: Transformer, checkpoints: Checkpoints, averaged: list[str]
) -> dict[str, Any]:
    """What the training took, for the report; said on the console too."""
    training = {
        "updates": int(keras.ops.convert_to_numpy(model.optimizer.iterations)),
        "minutes": round(checkpoints.seconds / 60, 2),
        "averaged_checkpoints": len(averaged),
        "averaged_from": averaged,
        "history": checkpoints.history,
    }
    print(
        f"Trained {training['updates']:,} updates in {training['minutes']:.1f} minutes; "
        f"averaged the last {training['averaged_checkpoints']} checkpoints"
    )
    return training


class _TimedTranslator:
    """Beam search with a run's settings; remembers what it translated last, and how long it took."""

    def __init__(self, model: Transformer, tokenizer: Tokenizer, config: TranslationConfig):
        self._translate = Translator(
            model, tokenizer, beam_size=config.beam_size, length_penalty=config.length_penalty
        )
        self.translations: list[str] = []
        self.seconds = 0.0

    def __call__(self, sources: list[str]) -> list[str]:
        started = time.monotonic()
        self.translations = self._translate(sources)
        self.seconds = time.monotonic() - started
        return self.translations


def _scores(translations: list[str], references: list[str]) -> dict[str, Any]:
    bleu, chrf = corpus_bleu(translations, references), corpus_chrf(translations, references)
    return {
        "bleu": bleu.score,
        "bleu_signature": bleu.signature,
        "chrf": chrf.score,
        "chrf_signature": chrf.signature,
    }


def _examples(
    sources: list[str], translations: list[str], references: list[str]
) -> list[dict[str, str]]:
    """Five sentences from all over the set."""
    step = max(1, len(sources) // 5)
    names = ("source", "translation", "reference")
    rows = list(zip(sources, translations, references, strict=True))[::step][:5]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _print_examples(test: dict[str, Any], corpus: Corpus) -> None:
    synthetic = " (synthetic data)" if corpus.synthetic else ""
    print(f"\nSome translations of the {test['split']} set{synthetic}:")
    for example in test["examples"]:
        for name, text in example.items():
            print(f"  {name:>11}  {text}")
        print()


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
