"""What a run needs before it trains: tokenizer, batches, compiled model. Files are made once and reused."""

import dataclasses
import inspect
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_attention.data.batches import TokenBatches
from keras_attention.data.corpora import Corpus
from keras_attention.data.normalization import normalize
from keras_attention.data.parallel_text import ParallelText
from keras_attention.data.token_store import TokenStore
from keras_attention.data.tokenizer import MAX_SENTENCES, Tokenizer
from keras_attention.models.presets import preset_arguments
from keras_attention.models.transformer import Transformer
from keras_attention.recipes.config import TranslationConfig
from keras_attention.training.distribution import available_devices
from keras_attention.training.learning_rate import (
    CosineToBudget,
    LearningRateSchedule,
    SimplexLearningRate,
)
from keras_attention.training.losses import LabelSmoothedCrossentropy
from keras_attention.training.optimizer import Adam
from keras_attention.utils.checks import check_integer, did_you_mean
from keras_attention.utils.progress import activity, say

ALGORITHM_NAMES = {
    "bpe": "byte-pair encoding",
    "wordpiece": "word-pieces",
    "presegmented": "as given",
}


def prepared_tokenizer(corpus: Corpus, config: TranslationConfig, folder: Path) -> Tokenizer:
    """The tokenizer in `folder`, or one trained on both sides of the training text and saved there.

    At most `MAX_SENTENCES` sentences are used, evenly spread over the text, so that memory does not
    grow with it. A corpus that is already split into subwords brings its own vocabulary.
    """
    if Tokenizer.is_saved_in(folder):
        return Tokenizer.load(folder)
    if corpus.vocabulary is not None:
        tokenizer = Tokenizer.from_vocabulary(corpus.vocabulary)
    else:
        with activity("training the tokenizer"):
            tokenizer = Tokenizer.train(
                corpus.train.both_sides(at_most=MAX_SENTENCES),
                vocabulary_size=config.vocabulary_size,
                algorithm=config.tokenizer_algorithm,
            )
    tokenizer.save(folder)
    say(
        f"Tokenizer: {ALGORITHM_NAMES[tokenizer.algorithm]}, "
        f"{tokenizer.vocabulary_size:,} word-pieces, shared"
    )
    return tokenizer


def prepared_batches(
    corpus: Corpus, config: TranslationConfig, tokenizer: Tokenizer, folder: Path
) -> tuple[TokenBatches, TokenBatches]:
    """Batches of the training and the validation set, from token stores in `folder`."""
    train = TokenStore.build(folder, corpus.train, tokenizer, **sampling(config))
    validation = validation_batches(TokenStore.build(folder, corpus.validation, tokenizer), config)
    if validation.dropped_long:
        say(
            f"The perplexity of the validation part leaves out {validation.dropped_long:,} pair(s) with "
            f"over {config.batch_tokens:,} tokens on a side, which no batch can hold."
        )
    return training_batches(train, config), validation


def found_batches(
    settings: Mapping[str, Any], tokenizer: Tokenizer, folder: Path
) -> tuple[TokenBatches | None, TokenBatches | None]:
    """The batches of an earlier run; None for a set whose token store is gone.

    Args:
        settings: The run's settings, as in its folder.
        tokenizer: The run's tokenizer.
        folder: The folder of its token stores.
    """
    names = {field.name for field in dataclasses.fields(TranslationConfig)}
    known = {name: value for name, value in settings.items() if name in names}
    # This machine may have other devices than the one that trained the run.
    config = TranslationConfig(
        **{**known, "strategy": None, "replicas": None, "accumulation_steps": 1}
    )
    stores = []
    for split, options in (("train", sampling(config)), ("validation", {})):
        fingerprint = settings.get(f"{split}_fingerprint", "")
        path = TokenStore.path(folder, fingerprint, tokenizer, **options)
        stores.append(TokenStore.open(path) if path.exists() else None)
    train, validation = stores
    return (
        None if train is None else training_batches(train, config),
        None if validation is None else validation_batches(validation, config),
    )


def training_batches(store: TokenStore, config: TranslationConfig) -> TokenBatches:
    """The batches that a run trains on."""
    return TokenBatches(
        store,
        config.batch_tokens,
        seed=config.seed,
        num_replicas=row_multiple(config),
        max_length=config.max_length,
        max_shapes=config.max_shapes,
    )


def validation_batches(store: TokenStore, config: TranslationConfig) -> TokenBatches:
    """The batches that a run's perplexity is measured on: all pairs that a batch can hold."""
    most = config.batch_tokens
    longest = int(max(store.source_lengths.max(), store.target_lengths.max()))
    return TokenBatches(
        store,
        most,
        shuffle=False,
        max_length=most if longest > most else None,
        max_shapes=config.max_shapes,
    )


def sampling(config: TranslationConfig) -> dict[str, Any]:
    """How the training text is split into subwords."""
    if not config.bpe_dropout:
        return {}
    return {"dropout": config.bpe_dropout, "samples": config.bpe_samples, "seed": config.seed}


def row_multiple(config: TranslationConfig) -> int:
    """The number that divides the rows of every batch, so that replicas and parts get equally many.

    If replicas times parts divides `config.row_multiple`, the batches are those of one device.
    """
    return math.lcm(config.row_multiple, replica_count(config) * config.accumulation_steps)


def replica_count(config: TranslationConfig) -> int:
    """Number of devices that share a batch: one without a strategy, else `config.replicas` or all."""
    if config.strategy is None:
        return 1
    return config.replicas or available_devices(config.strategy)


def check_model(config: TranslationConfig) -> None:
    """Refuse a configuration that no model can be made from, before any work.

    Raises:
        ValueError: Names the argument, and what is wrong with it.
    """
    preset_arguments(config.preset)
    names = inspect.signature(Transformer).parameters
    for name in config.model_arguments:
        if name not in names:
            raise ValueError(
                f"`model_arguments` has {name!r}, which is not an argument of Transformer."
                f"{did_you_mean(name, names)}"
            )
    # A small model with the same widths: only they can fail to fit together.
    sizes = {**config.model_arguments, "num_layers": 1, "vocabulary_size": 8}
    Transformer.from_preset(config.preset, **sizes)
    check_integer("num_layers", config.model_arguments.get("num_layers", 1), least=1, most=1000)
    if config.batch_tokens < 2 * row_multiple(config):
        raise ValueError(
            f"`batch_tokens` ({config.batch_tokens}) is too small: the number of sentences in a batch is a "
            f"multiple of {row_multiple(config)} (row_multiple, replicas, accumulation_steps), and each "
            "has at least 2 tokens. Raise it."
        )


def check_room(text: ParallelText, config: TranslationConfig) -> None:
    """Refuse sentences that cannot fit into a batch, as far as this is known before tokenization.

    A word with a letter or digit has at least one token; a byte has at most one.

    Raises:
        ValueError: Names the sentence and the remedy.
    """
    rows, limit = row_multiple(config), config.max_length
    most = config.batch_tokens // rows
    if most >= limit:
        return
    for number, pair in enumerate(text, start=1):
        sides = [normalize(side) for side in pair]
        words = [sum(any(map(str.isalnum, word)) for word in side.split()) for side in sides]
        # Two more tokens: the end, and a space that BPE puts first.
        is_kept = all(words) and all(len(side.encode()) + 2 <= limit for side in sides)
        if is_kept and max(words) + 1 > most:
            raise ValueError(
                f"`batch_tokens` ({config.batch_tokens}) is too small: the number of sentences in a batch is "
                f"a multiple of {rows} (row_multiple, replicas, accumulation_steps), so each may have at "
                f"most {most} tokens, but pair {number} of '{text.name}' has a side of {max(words)} words. "
                "Raise it, or lower `accumulation_steps` or `max_length`."
            )


def compiled_model(config: TranslationConfig, tokenizer: Tokenizer) -> Transformer:
    """The model of a configuration, compiled for training."""
    model = Transformer.from_preset(
        config.preset,
        vocabulary_size=tokenizer.vocabulary_size,
        seed=config.seed,
        dtype=config.dtype,
        recompute=config.recompute,
        **config.model_arguments,
    )
    model.compile(
        optimizer=Adam(
            _schedule(config, model.hidden_dim),
            simplex_learning_rate=_simplex_schedule(config, model),
        ),
        loss=LabelSmoothedCrossentropy(config.label_smoothing),
        accumulation_steps=config.accumulation_steps,
    )
    return model


def _schedule(
    config: TranslationConfig, hidden_dim: int
) -> keras.optimizers.schedules.LearningRateSchedule:
    peak = config.peak_learning_rate
    if peak is None:
        return LearningRateSchedule(hidden_dim, config.warmup_steps, config.learning_rate_factor)
    if config.minutes is not None:
        return CosineToBudget(peak, config.warmup_steps)
    assert config.steps is not None  # The configuration was checked.
    warmup_steps = min(config.warmup_steps, max(1, config.steps // 2))
    return keras.optimizers.schedules.CosineDecay(
        peak / warmup_steps,  # Keras counts from 0, where a rise from 0 would waste an update.
        max(1, config.steps - warmup_steps),
        warmup_target=peak,
        warmup_steps=warmup_steps,
    )


def _simplex_schedule(config: TranslationConfig, model: Transformer) -> SimplexLearningRate | None:
    """The learning rate of a Weighted Transformer's kappa and alpha; None for a plain model.

    As in its paper, their warmup takes a tenth of the model's, and they are frozen in the last sixth of
    the updates, if the number of updates is known.
    """
    if model.branch_feed_forward is None:
        return None
    return SimplexLearningRate(
        model.hidden_dim,
        model.num_layers,
        warmup_steps=max(1, config.warmup_steps // 10),
        last_step=None if config.steps is None else config.steps - config.steps // 6,
    )
