"""A run of seconds on a few pairs of the demo corpus."""

import itertools

from keras_attention import load_corpus
from keras_attention.data.corpora import corpus_from_files
from keras_attention.recipes import TranslationConfig

SMALL = TranslationConfig(
    preset="tiny",
    model_arguments={"num_layers": 1, "hidden_dim": 16, "intermediate_dim": 24, "num_heads": 2},
    vocabulary_size=360,
    batch_tokens=600,
    max_shapes=2,
    steps=45,
    warmup_steps=20,
    learning_rate_factor=2.0,
    averaged_checkpoints=2,
    bleu_every=4,
    beam_size=2,
)


def write_files(folder, name, start, count):
    """Some pairs of the demo corpus as two text files."""
    pairs = list(itertools.islice(load_corpus("demo").train, start, start + count))
    files = tuple(folder / f"{name}.{language}" for language in ("en", "de"))
    for file, side in zip(files, zip(*pairs, strict=True), strict=True):
        file.write_text("".join(f"{line}\n" for line in side), "utf-8")
    return files


def small_corpus(folder):
    """60 pairs to train on, 9 to validate, 8 to test."""
    parts = {"train": (0, 60), "validation": (60, 9), "test": (69, 8)}
    files = {name: write_files(folder, name, *part) for name, part in parts.items()}
    return corpus_from_files(**files, name="sixty")
