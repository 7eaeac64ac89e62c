"""Writes the folder of a job: sentences and one model in every form that a program reads.

Without a trained run, the model has random weights that never choose the end token, so that all
programs write translations of a given length, and the source lengths follow newstest2014: log-normal,
about 27 tokens on average.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from harness.subject import Subject

MEAN_LENGTH, SIGMA, LONGEST = 27.0, 0.55, 100
# The logit of the end token is lower by this; the others are spread by about 1.
NEVER = 30.0


class JobMaker(Subject):
    """Writes a job, in a process of its own: it needs Keras, the benchmark does not.

    Args:
        folder: Where to.
        model: A preset's name, or the folder of a run.
        source_file: Sentences to translate with the model of a run; None for a preset.
        sentences: Their number.
        vocabulary_size: Of a preset.
        checked: Number of sentences whose translations are compared; with a run all.
        **search: `extra_length`, `beam_size` and `length_penalty`.
    """

    def __init__(
        self,
        folder: str,
        model: str,
        source_file: str | None,
        sentences: int,
        vocabulary_size: int,
        checked: int,
        **search: float,
    ) -> None:
        self.folder, self.name, self.source_file = Path(folder), model, source_file
        self.sentences, self.vocabulary_size = sentences, vocabulary_size
        self.checked, self.search = checked, search

    def prepare(self) -> dict[str, Any]:
        """Return the size of the vocabulary."""
        from keras_attention.interop import export_ctranslate2

        model, tokenizer, texts = self._random() if self.source_file is None else self._trained()
        save_model(model, self.folder / "model.keras")
        np.savez(self.folder / "weights.npz", **weights_of(model))
        tokenizer.save(self.folder / "tokenizer")
        try:
            export_ctranslate2(model, tokenizer, self.folder / "ctranslate2")
        except ImportError as error:
            print(error)  # The subject is missing, too.
        forced = self.source_file is None
        job = {
            "config": {**model.get_config(), "dtype": None},
            "sentences": tokenizer.encode(texts),
            "texts": texts,
            "forced": forced,
            "checked": min(self.checked, len(texts)) if forced else len(texts),
            **self.search,
        }
        (self.folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        return {"vocabulary_size": model.vocabulary_size}

    def _random(self) -> tuple[Any, Any, list[str]]:
        """Return a preset with random weights, a tokenizer of words w3, w4, ..., and sentences of them."""
        from keras_attention import Tokenizer, Transformer

        words = self.folder / "words"
        words.write_text("\n".join(f"w{i}" for i in range(3, self.vocabulary_size)))
        tokenizer = Tokenizer.from_vocabulary(words)
        preset, depths = preset_and_depths(self.name)
        model = Transformer.from_preset(preset, tokenizer.vocabulary_size, seed=1, **depths)
        never_end(model)
        random = np.random.default_rng(2014)
        mean = np.log(MEAN_LENGTH) - SIGMA**2 / 2
        lengths = np.exp(random.normal(mean, SIGMA, self.sentences))
        texts = [
            " ".join(f"w{i}" for i in random.integers(3, self.vocabulary_size, length))
            for length in np.clip(lengths, 2, LONGEST).astype(int)
        ]
        return model, tokenizer, texts

    def _trained(self) -> tuple[Any, Any, list[str]]:
        """Return the model and the tokenizer of a run's folder, and the first lines of the file."""
        import keras

        from keras_attention import Tokenizer

        model = keras.saving.load_model(Path(self.name) / "model.keras", compile=False)
        lines = Path(str(self.source_file)).read_text("utf-8").split("\n")
        texts = [line for line in lines if line.strip()][: self.sentences]
        return model, Tokenizer.load(Path(self.name) / "tokenizer"), texts


def preset_and_depths(name: str) -> tuple[str, dict[str, Any]]:
    """Return a preset, and the depths of its stacks if its name ends with them.

    >>> preset_and_depths("small_6_2"), preset_and_depths("table3_c_layers_2")
    (('small', {'num_layers': (6, 2)}), ('table3_c_layers_2', {}))
    """
    found = re.fullmatch(r"(.+)_(\d+)_(\d+)", name)
    return (found[1], {"num_layers": (int(found[2]), int(found[3]))}) if found else (name, {})


def never_end(model: Any) -> None:
    """Make the end token the least likely of all, whatever is translated."""
    import keras

    end = keras.ops.convert_to_numpy(model.token_embedding.embeddings)[model.end_token_id]
    residual = model.decoder_blocks[-1].feed_forward_residual
    last = model.decoder_normalization if model.normalize_first else residual.normalization
    last.beta.assign(-NEVER * end / (end @ end))


def save_model(model: Any, path: Path) -> None:
    """Write a model without the arguments that are as by default: other checkouts may not know them."""
    parameters = inspect.signature(type(model)).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    config = model.get_config()
    kept = {name: value for name, value in config.items() if value != defaults.get(name, ...)}
    model.get_config = lambda: kept
    try:
        model.save(path)
    finally:
        del model.get_config


def weights_of(model: Any) -> dict[str, np.ndarray]:
    """Float32 weights by the names of `weights.weight_shapes`; kernels are `(inputs, outputs)`."""
    import keras

    weights = {}
    for weight in model.trainable_weights:
        name = weight.path.removeprefix(f"{model.name}/")
        array = np.asarray(keras.ops.convert_to_numpy(weight), "float32")
        if name.endswith("attention_output/kernel"):
            array = array.reshape(-1, array.shape[-1])
        elif name.endswith("kernel"):
            array = array.reshape(array.shape[0], -1)
        weights[name] = array if name.endswith(("kernel", "embeddings")) else array.ravel()
    return weights
