"""Settings for corpora of different sizes, as data; each says what it was chosen for."""

from keras_attention.recipes.translation import TranslationConfig

# The embedded demo corpus: 10,000 synthetic pairs, a few minutes on two CPU cores.
DEMO = TranslationConfig(
    preset="tiny",
    vocabulary_size=2000,
    batch_tokens=2048,
    max_shapes=10,
    steps=1500,
    minutes=4.0,
    warmup_steps=400,
    averaged_checkpoints=3,
    bleu_every=8,
)

# Multi30K: 29,000 pairs, an hour on two CPU cores. What differs from the paper's recipe is what so few
# pairs ask for: a small model, much dropout, small batches, an average over more epochs.
MULTI30K = TranslationConfig(
    preset="small",
    model_arguments={"dropout": 0.2},
    vocabulary_size=5000,
    batch_tokens=1500,
    minutes=57,
    warmup_steps=2000,
    learning_rate_factor=1.6,
    averaged_checkpoints=8,
)

# Text of the user's own, of unknown size: an hour, unless --steps or --minutes say otherwise.
OWN_FILES = TranslationConfig(preset="medium", minutes=60, warmup_steps=2000)

RECIPES = {"demo": DEMO, "multi30k": MULTI30K, "files": OWN_FILES}
