"""Writes the folder of a job: sentences and one model in every form that a subject reads.

    python -m peers.decoding.make_job FOLDER SETTINGS_JSON    (with benchmarks/ in PYTHONPATH)

Without a trained run, the model has random weights that never choose the end token, so that all
programs write translations of a given length, and the source lengths follow newstest2014: log-normal,
about 27 tokens on average.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

MEAN_LENGTH, SIGMA, LONGEST = 27.0, 0.55, 100
# The logit of the end token is lower by this; the others are spread by about 1.
NEVER = 30.0


def main() -> None:
    """Write the job that the arguments describe."""
    folder, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
    if settings["run"] is None:
        model, tokenizer = random_model(settings, folder)
        texts = random_sentences(settings["sentences"], model.vocabulary_size)
    else:
        model, tokenizer = trained_model(Path(settings["run"]))
        lines = Path(settings["source_file"]).read_text("utf-8").split("\n")
        texts = [line for line in lines if line.strip()][: settings["sentences"]]
    write_job(folder, model, tokenizer, texts, settings)


def random_model(settings: dict[str, Any], folder: Path) -> tuple[Any, Any]:
    """Return a preset with random weights and a tokenizer of words w3, w4, ..."""
    from keras_attention import Tokenizer, Transformer

    words = folder / "words"
    words.write_text("\n".join(f"w{i}" for i in range(3, settings["vocabulary_size"])))
    tokenizer = Tokenizer.from_vocabulary(words)
    preset, depths = preset_and_depths(settings["preset"])
    model = Transformer.from_preset(preset, tokenizer.vocabulary_size, seed=1, **depths)
    never_end(model)
    return model, tokenizer


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
    block = model.decoder_blocks[-1]
    # Where attention has the network in its branches, it comes last.
    residual = block.feed_forward_residual or block.cross_attention_residual
    last = model.decoder_normalization if model.normalize_first else residual.normalization
    last.beta.assign(-NEVER * end / (end @ end))


def trained_model(run: Path) -> tuple[Any, Any]:
    """Return the model and the tokenizer of a run's folder."""
    import keras

    from keras_attention import Tokenizer

    model = keras.saving.load_model(run / "model.keras", compile=False)
    return model, Tokenizer.load(run / "tokenizer")


def random_sentences(count: int, vocabulary_size: int, seed: int = 2014) -> list[str]:
    """Sentences of random words with lengths like those of newstest2014."""
    random = np.random.default_rng(seed)
    mean = np.log(MEAN_LENGTH) - SIGMA**2 / 2
    lengths = np.clip(np.exp(random.normal(mean, SIGMA, count)), 2, LONGEST).astype(int)
    return [
        " ".join(f"w{i}" for i in random.integers(3, vocabulary_size, length)) for length in lengths
    ]


def write_job(
    folder: Path, model: Any, tokenizer: Any, texts: list[str], settings: dict[str, Any]
) -> None:
    """Write all files of the job."""
    from keras_attention.interop import export_ctranslate2

    forced = settings["run"] is None
    save_model(model, folder / "model.keras")
    np.savez(folder / "weights.npz", **weights_of(model))
    tokenizer.save(folder / "tokenizer")
    try:
        export_ctranslate2(model, tokenizer, folder / "ctranslate2")
    except ImportError as error:
        print(error)  # The subject is missing, too.
    job = {
        "config": {**model.get_config(), "dtype": None},
        "sentences": tokenizer.encode(texts),
        "texts": texts,
        "forced": forced,
        "checked": min(settings["checked"], len(texts)) if forced else len(texts),
        **{name: settings[name] for name in ("extra_length", "beam_size", "length_penalty")},
    }
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")


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


if __name__ == "__main__":
    main()
