"""Train a Transformer to translate English to German, and score it.

Without arguments it trains a small model on the embedded demo corpus (synthetic) in a few minutes on a
CPU. `--corpus multi30k` trains on real captions; `--source-file` and `--target-file` on your own text.
"""

from keras_attention.recipes import TranslationConfig
from keras_attention.recipes.command_line import run

DEMO = TranslationConfig(
    preset="tiny",
    vocabulary_size=2000,
    batch_tokens=2048,
    max_shapes=10,
    steps=1500,
    minutes=3.5,
    warmup_steps=400,
    averaged_checkpoints=3,
    bleu_every=8,
)
RECIPES = {
    "demo": DEMO,
    "multi30k": TranslationConfig(
        preset="small",
        vocabulary_size=5000,
        batch_tokens=1500,
        minutes=57,
        warmup_steps=2000,
        learning_rate_factor=1.6,
        averaged_checkpoints=10,
    ),
    "files": TranslationConfig(preset="medium", minutes=60, warmup_steps=2000),
}

if __name__ == "__main__":
    run(__doc__, RECIPES)
