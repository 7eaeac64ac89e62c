"""A run of seconds on a few pairs of the demo corpus."""

import contextlib
import itertools
import json

import pytest

from keras_attention import Adam, Tokenizer, TokenStore, Transformer, corpus_from_files, load_corpus
from keras_attention.recipes import TranslationConfig, order
from keras_attention.recipes.order import save_model
from keras_attention.training.checkpoint_store import write_checkpoint
from keras_attention.utils.run_folder import RunFolder

UPDATES = (2, 4, 6)

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


def small_corpus(folder, first=0):
    """60 pairs to train on, 9 to validate, 8 to test."""
    parts = {"train": (first, 60), "validation": (60, 9), "test": (69, 8)}
    files = {name: write_files(folder, name, *part) for name, part in parts.items()}
    return corpus_from_files(**files, name="sixty")


@contextlib.contextmanager
def training_alone():
    """Within, a run ends with its training, and returns its figures: what follows takes half of the time."""
    with pytest.MonkeyPatch.context() as patch:
        for step in ("average", "save"):
            patch.setattr(order, step, lambda run: None)
        patch.setattr(order, "evaluate", lambda run: {"training": run.training})
        patch.setattr(order, "results_text", lambda *_, **__: "")
        yield


def untrained_run(folder, first=0):
    """Fills a run's folder: three checkpoints of a model that has learned nothing."""
    corpus = corpus_from_files(
        train=write_files(folder, "train", first, 12),
        validation=write_files(folder, "dev", first + 12, 5),
    )
    tokenizer = Tokenizer.train(
        [*corpus.train.sources(), *corpus.train.targets()], vocabulary_size=320
    )
    tokenizer.save(folder / "tokenizer")
    for text in (corpus.train, corpus.validation):
        TokenStore.build(folder / "store", text, tokenizer)
    model = Transformer(tokenizer.vocabulary_size, 1, 8, 12, 2, seed=3)
    model.compile(Adam(), "mse")
    model.optimizer.build(model.trainable_variables)
    for update in UPDATES:
        for variable in model.trainable_variables:
            variable.assign(variable.value * 1.5)
        record = {"kind": "epoch", "epoch": update // 2, "batch": 0, "updates": update}
        record |= {"seconds": 10.0 * update, "time": "", "callbacks": {}, "history": []}
        write_checkpoint(folder / "checkpoints" / f"update-{update:08d}", model, record)
    save_model(model, RunFolder(folder))
    settings = {
        "steps": 6,
        "averaged_checkpoints": 2,
        "checkpoint_minutes": None,
        "beam_size": 2,
        "length_penalty": 0.6,
        "dtype": "float32",
        "languages": ["en", "de"],
        "batch_tokens": 300,
        "max_shapes": 2,
        "seed": 1,
        "row_multiple": 2,
        "train_fingerprint": corpus.train.fingerprint(),
        "validation_fingerprint": corpus.validation.fingerprint(),
    }
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "report.json").write_text(json.dumps({"config": settings, "parameters": 5}))
    return folder
