"""The models that commands take: finished runs, and pretrained models of others."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_attention.cli.quiet import start_backend
from keras_attention.spec.parts import SpecError
from keras_attention.spec.presets import TRAINED
from keras_attention.utils.progress import say
from keras_attention.utils.run_folder import SEARCH_SETTINGS, RunFolder
from keras_attention.utils.sides import in_languages

if TYPE_CHECKING:
    from keras_attention.data.presets import Loaded

MODEL_HELP = (
    f"{TRAINED[0]}, which comes with the package; a run's folder; or a preset, or a model of "
    "MarianMT, CTranslate2, Firefox, Marian or ONNX, in a folder or as hf://owner/name"
)


def is_run(model: str) -> bool:
    """Whether a model is the folder of a run."""
    from keras_attention.data import presets  # Only when there is a model: `--help` does without.

    return presets.is_run(model)


@functools.lru_cache(maxsize=2)
def preset_of(model: str) -> Loaded:
    """Return a preset, or another program's model, checked first and used later: it is read once."""
    from keras_attention.data.presets import load

    return load(model)


def check_model(model: str, **languages: str) -> dict[str, Any]:
    """Return the search settings of a model; refuse what is no model, before a backend starts.

    So are languages that it does not translate between.
    """
    if not is_run(model):
        found = preset_of(model)
        in_languages(found.tokenizer, **languages)
        return {**found.options}
    run = RunFolder(model)
    settings = run.settings(SEARCH_SETTINGS)
    run.check_finished()
    if languages:
        from keras_attention.data.tokenizer import Tokenizer

        in_languages(Tokenizer.load(run.tokenizer), **languages)
    return settings


def light_translator(model: str, **options: Any) -> Any:
    """Return a `Translator` that needs no Keras, if a spec is there and an engine runs it."""
    from keras_attention.data.presets import load
    from keras_attention.decoding.translator import Translator

    try:
        # A run may have trained on since it was read.
        found = load(model) if is_run(model) else preset_of(model)
        return Translator.from_preset(found, **options)
    except SpecError:
        start_backend()
        return keras_translator(model, **options)


def keras_translator(model: str, **options: Any) -> Any:
    """Return a `Translator` whose model is a Keras model, for its attention and its probabilities."""
    from keras_attention.decoding.translator import Translator

    if is_run(model):
        return Translator.from_run(model, **options)
    from keras_attention.models.transformer import Transformer

    found = preset_of(model)
    keras_model = Transformer.from_spec(found.spec, **found.model_options)
    return Translator(keras_model, found.tokenizer, **{**found.known(), **options})


def say_missing_heads(program: str, model: Any) -> None:
    """Say which kind of attention a Keras model does not have, since its decoder has cells."""
    if "decoder" not in model.attention_layers:
        say(
            f"{program}: The decoder has no attention of its own, since its blocks have "
            f"{model.decoder_cell.upper()}s. Shown are encoder and cross-attention."
        )


def name_of(model: str) -> str:
    """Return the last part of a model's name, for titles."""
    return Path(model).resolve().name
