"""Settings for corpora of different sizes, as data, with the reasons for them."""

import dataclasses
import math
from typing import Any

from keras_attention.data.corpus import Corpus
from keras_attention.recipes.config import TranslationConfig
from keras_attention.utils.forecast import Forecast

OWN_TEXT = "your own text"  # how the description of such a corpus begins

# The built-in demo corpus: 10,000 synthetic pairs, a few minutes on two CPU cores. So few updates do not
# benefit from dropout. The learning rate stays high to the end, and averaging removes the noise: half a
# cosine to 0 needed more updates for the same BLEU. The budget is in updates, so slow machines learn as much.
DEMO = TranslationConfig(
    preset="tiny",
    model_arguments={"dropout": 0.0},
    vocabulary_size=2000,
    batch_tokens=1536,
    max_shapes=6,
    steps=1350,
    warmup_steps=400,
    checkpoint_updates=50,
    averaged_checkpoints=5,
    bleu_every=4,
)

# Multi30K: 29,000 pairs, the recipe for text-only models of Wu et al. 2021 ("Good for Misconceived Reasons"):
# post-norm as in the paper, narrow, much dropout, a high rate, a mean of ten epochs' checkpoints. Theirs has
# up to 8,000 updates; 5,056 took 141 minutes on one core, in bfloat16 (dev/LOG.md).
MULTI30K = TranslationConfig(
    preset="small",
    model_arguments={
        "hidden_dim": 128,
        "intermediate_dim": 256,
        "num_layers": 4,
        "num_heads": 4,
        "dropout": 0.3,
        "attention_dropout": 0.0,
    },
    vocabulary_size=10_000,
    batch_tokens=8192,
    steps=5000,
    patience=10,
    warmup_steps=2000,
    learning_rate_factor=2.5,
    averaged_checkpoints=10,
    bleu_every=10,
    beam_size=5,
    length_penalty=1.0,
)

# Section 5 of the paper, English-German. As in the authors' code, a batch has 4096 positions on each of 8
# GPUs, padding included: about 25,000 source and 25,000 target tokens per update.
WMT14 = TranslationConfig(
    preset="base",
    vocabulary_size=37_000,
    batch_tokens=32_768,
    steps=100_000,
    warmup_steps=4000,
    checkpoint_minutes=10,
    averaged_checkpoints=5,
    bleu_every=1,
)
# English-French: word-pieces.
WMT14_EN_FR = dataclasses.replace(WMT14, vocabulary_size=32_000, tokenizer_algorithm="wordpiece")

# The big models train three times as long, and average over more (sections 5.2 and 6.1).
BIG: dict[str, Any] = {"steps": 300_000, "averaged_checkpoints": 20}

RECIPES = {
    "demo": DEMO,
    "multi30k": MULTI30K,
    "wmt14": WMT14,
    "wmt14_big": dataclasses.replace(WMT14, preset="big", **BIG),
    "wmt14_en_fr": WMT14_EN_FR,
    "wmt14_en_fr_big": dataclasses.replace(WMT14_EN_FR, preset="big_en_fr", **BIG),
    "wmt16_en_de": WMT14,
    "wmt16_en_de_big": dataclasses.replace(WMT14, preset="big", **BIG),
}

# The user's own text: (up to this many training pairs, these settings). With more text a larger model pays
# off and needs more updates. All runs end early if the validation perplexity stops improving. The longest
# sentences of any text fit: `max_length` is at most `batch_tokens` divided by `row_multiple`.
# The rate stays at its peak until a cool-down, so that the budget may change. After 700 updates on 6,000
# pairs (LibreOffice help), the validation perplexity was 65.2 with half a cosine from 0.004 on; with a
# cool-down 54.5 from 0.004 on, 51.9 from 0.0028 on, 55.3 from 0.002 on. Cool-downs along 1 - sqrt were 0.6
# to 0.9 worse. The last checkpoint alone was better than a mean with earlier ones.
NORMALIZED_FIRST: dict[str, Any] = {"normalize_first": True}  # tolerates a high rate early
COOLDOWN: dict[str, Any] = {"cooldown": 0.2, "averaged_checkpoints": 1}
BY_SIZE: list[tuple[float, TranslationConfig]] = [
    (
        1_000,
        TranslationConfig(
            preset="tiny",
            model_arguments=NORMALIZED_FIRST,
            vocabulary_size=600,
            batch_tokens=1024,
            max_length=128,
            max_shapes=4,
            steps=600,
            warmup_steps=60,
            peak_learning_rate=0.002,
            **COOLDOWN,
            patience=20,
        ),
    ),
    (
        20_000,
        TranslationConfig(
            preset="tiny",
            model_arguments=NORMALIZED_FIRST,
            vocabulary_size=2000,
            batch_tokens=1536,
            max_length=192,
            max_shapes=6,
            steps=2000,
            warmup_steps=150,
            peak_learning_rate=0.003,
            **COOLDOWN,
            patience=8,
        ),
    ),
    (
        200_000,
        TranslationConfig(
            preset="small",
            model_arguments=NORMALIZED_FIRST,
            vocabulary_size=6000,
            batch_tokens=2048,
            max_shapes=12,
            steps=12_000,
            warmup_steps=400,
            peak_learning_rate=0.002,
            **COOLDOWN,
            patience=5,
        ),
    ),
    (
        2_000_000,
        TranslationConfig(
            preset="medium",
            model_arguments=NORMALIZED_FIRST,
            vocabulary_size=16_000,
            batch_tokens=8192,
            steps=40_000,
            warmup_steps=2000,
            peak_learning_rate=0.001,
            **COOLDOWN,
            patience=3,
            bleu_every=1,
        ),
    ),
    (math.inf, dataclasses.replace(WMT14, vocabulary_size=32_000, patience=3)),
]


# A pretrained model: a low rate and few updates, so that it forgets little; dropout as in its training, or
# none; labels that are not smoothed. What other values did is in docs/fine-tuning.md. The best checkpoint is
# the result, or the pretrained model if none is better. (up to this many pairs, updates, batch_tokens)
FINE_TUNING = (
    (1_000, 100, 1024),
    (20_000, 500, 2048),
    (200_000, 1_500, 2048),
    (math.inf, 10_000, 8192),
)


def fine_tuning_recipe(pairs: int, start_from: str) -> TranslationConfig:
    """Return the settings for training a pretrained model further on this many pairs.

    >>> fine_tuning_recipe(5_000, "hf://owner/name").steps
    500
    """
    steps, tokens = next((steps, tokens) for most, steps, tokens in FINE_TUNING if pairs <= most)
    return TranslationConfig(
        start_from=start_from,
        batch_tokens=tokens,
        max_shapes=8,
        steps=steps,
        warmup_steps=20,
        peak_learning_rate=0.0001,
        **COOLDOWN,
        label_smoothing=0.0,
        patience=3,
        best_by="perplexity",
        final_model="best",
        start_share=0.3,
        bleu_every=1,
    )


def recipe_for(pairs: int) -> TranslationConfig:
    """Return the settings for a user's own text with this many training pairs.

    >>> [recipe_for(pairs).preset for pairs in (5_000, 100_000, 1_000_000, 5_000_000)]
    ['tiny', 'small', 'medium', 'base']
    """
    return next(config for largest, config in BY_SIZE if pairs <= largest)


def forecast_for(config: TranslationConfig, corpus: Corpus, batches: int) -> Forecast:
    """Return what the budget of a new run comes to, with this many batches in an epoch."""
    is_own = corpus.description.startswith(OWN_TEXT) or corpus.name not in RECIPES
    is_tuned = config.start_from is not None
    if config.start_from is not None:
        recipe = fine_tuning_recipe(len(corpus.train), config.start_from)
    else:
        recipe = recipe_for(len(corpus.train)) if is_own else RECIPES[corpus.name]
    assert recipe.steps is not None  # All recipes count in updates.
    advised = max(1, round(recipe.steps * recipe.batch_tokens / config.batch_tokens))
    early = config.patience is not None
    return Forecast(config.steps, config.minutes, batches, advised, is_tuned, early)
