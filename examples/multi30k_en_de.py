"""Multi30K image captions, English to German, on a CPU in an hour: a recipe for small real corpora.

`--data-dir` names a folder with the corpus' files; without it they are downloaded. What differs from
the paper's recipe is what 29,000 pairs ask for: a small model, much dropout, small batches.
"""

from keras_attention.recipes import TranslationConfig
from keras_attention.recipes.command_line import run

MULTI30K = TranslationConfig(
    preset="small",
    vocabulary_size=5000,
    batch_tokens=1500,
    minutes=57,
    warmup_steps=2000,
    learning_rate_factor=1.6,
    averaged_checkpoints=10,
)

if __name__ == "__main__":
    run(__doc__, {"multi30k": MULTI30K}, default_corpus="multi30k")
