"""The folder of a run for the commands to work on."""

import json

import pytest

from keras_attention import Adam, Tokenizer, TokenStore, Transformer
from keras_attention.data.corpora import corpus_from_files
from keras_attention.training.checkpoint_store import write_checkpoint
from tests.recipes.small_runs import write_files

UPDATES = (2, 4, 6)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run's folder with three checkpoints of a model that has learned nothing."""
    folder = tmp_path_factory.mktemp("run")
    corpus = corpus_from_files(
        train=write_files(folder, "train", 0, 12), validation=write_files(folder, "dev", 12, 5)
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
    model.save(folder / "model.keras")
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
