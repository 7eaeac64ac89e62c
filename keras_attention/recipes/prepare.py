"""What a run needs before it can train: tokenizer, batches, compiled model. Made once, then found again."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import keras

from keras_attention.data.batches import TokenBatches
from keras_attention.data.corpora import Corpus
from keras_attention.data.token_store import TokenStore
from keras_attention.data.tokenizer import MAX_SENTENCES, Tokenizer
from keras_attention.models.transformer import Transformer
from keras_attention.training.distribution import available_devices
from keras_attention.training.learning_rate import CosineToBudget, LearningRateSchedule
from keras_attention.training.losses import LabelSmoothedCrossentropy
from keras_attention.training.optimizer import Adam

if TYPE_CHECKING:
    from keras_attention.recipes.translation import TranslationConfig

ALGORITHM_NAMES = {"bpe": "byte-pair encoding", "wordpiece": "word-pieces", "given": "as given"}


def prepared_tokenizer(corpus: Corpus, config: TranslationConfig, folder: Path) -> Tokenizer:
    """The tokenizer in `folder`, or one trained on both sides of the training text and saved there.

    At most `MAX_SENTENCES` sentences are used, evenly spread over the text, so that memory does not
    grow with it. A corpus that is cut into subwords already brings its own vocabulary.
    """
    if Tokenizer.is_saved_in(folder):
        return Tokenizer.load(folder)
    if corpus.vocabulary is not None:
        tokenizer = Tokenizer.from_vocabulary(corpus.vocabulary)
    else:
        tokenizer = Tokenizer.train(
            corpus.train.both_sides(at_most=MAX_SENTENCES),
            vocabulary_size=config.vocabulary_size,
            algorithm=config.tokenizer_algorithm,
        )
    tokenizer.save(folder)
    print(
        f"Tokenizer: {ALGORITHM_NAMES[tokenizer.algorithm]}, "
        f"{tokenizer.vocabulary_size:,} word-pieces, shared"
    )
    return tokenizer


def prepared_batches(
    corpus: Corpus, config: TranslationConfig, tokenizer: Tokenizer, folder: Path
) -> tuple[TokenBatches, TokenBatches]:
    """Batches of the training and of the validation part, from token stores in `folder`."""
    train = TokenBatches(
        TokenStore.build(
            folder,
            corpus.train,
            tokenizer,
            dropout=config.bpe_dropout,
            samples=config.bpe_samples if config.bpe_dropout else 1,
            seed=config.seed,
        ),
        config.batch_tokens,
        seed=config.seed,
        num_replicas=row_multiple(config),
        max_shapes=config.max_shapes,
    )
    validation = TokenBatches(
        TokenStore.build(folder, corpus.validation, tokenizer),
        config.batch_tokens,
        shuffle=False,
        max_length=None,
        max_shapes=config.max_shapes,
    )
    return train, validation


def row_multiple(config: TranslationConfig) -> int:
    """What the rows of all batches are a multiple of, so that every replica and part gets as many.

    Whatever divides `config.row_multiple` changes nothing: the batches are those of one device.
    """
    return math.lcm(config.row_multiple, replica_count(config) * config.accumulation_steps)


def replica_count(config: TranslationConfig) -> int:
    """Devices that share a batch: one without a strategy, else those asked for, or all there are."""
    if config.strategy is None:
        return 1
    return config.replicas or available_devices(config.strategy)


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
        optimizer=Adam(_schedule(config, model.hidden_dim)),
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
