"""The models that commands take, runs and those of others; `keras-attention models` lists public ones."""

from __future__ import annotations

import functools
import json
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_attention.cli.options import Parser, adding, flag, given
from keras_attention.cli.quiet import start_backend
from keras_attention.data.parallel_text import FilePairs
from keras_attention.data.text_files import language_of_file
from keras_attention.spec.parts import SpecError
from keras_attention.spec.presets import TRAINED
from keras_attention.utils.progress import say
from keras_attention.utils.run_folder import SEARCH_SETTINGS, RunFolder
from keras_attention.utils.sides import LANGUAGES, in_languages

if TYPE_CHECKING:
    from keras_attention.data.presets import Loaded

MODEL_HELP = (
    f"{TRAINED[0]}, which comes with the package; a run's folder; or a preset, or a model of "
    "MarianMT, CTranslate2, Firefox, Marian or ONNX, in a folder or as hf://owner/name"
)


EXAMPLE = """
examples:
  keras-attention models
  keras-attention models en-de --json
  keras-attention models demo_en_de --measure test.en test.de >> measured.jsonl
"""


def main(arguments: Sequence[str], program: str) -> None:
    """List pretrained models, or measure one."""
    parser = Parser(
        prog=program,
        description="List pretrained models: what to give to other commands, languages, family, parameters, "
        "licence, and the score that its maker has published. An address is that of files to download and "
        "unpack into a folder. Or measure a model on your own sentences.",
        epilog=EXAMPLE,
    )
    add = adding(parser)
    add("MODEL", "the model to measure; or a word, to list those that have it", nargs="?")
    add("--json", "write one JSON object a line, with where the list of its files stands")
    measure = "translate these sentences, and write BLEU and chrF as a line of JSON"
    add("--measure SOURCE REFERENCE", measure, Path)
    language = "code of the language of a model that translates between many"
    add("--source-language CODE", f"{language}, of the source")
    add(
        "--target-language CODE", f"{language}, of the target; for BLEU, of any (the file's ending)"
    )
    options = parser.parse_args(arguments)
    named = given(options, LANGUAGES)
    if named and options.measure is None:
        parser.error(f"{' and '.join(map(flag, named))} can be used only with --measure")
    if options.measure is not None:
        if options.model is None:
            parser.error("--measure needs a MODEL")
        source, reference = options.measure
        print(json.dumps(_measured(options.model, source, reference, named)))
        return
    from keras_attention.data.presets import catalogue

    rows = [row for row in catalogue().values() if _has(row, options.model)]
    if not rows:
        raise ValueError(
            f"No model in the list has '{options.model}'. Without MODEL, all are listed."
        )
    for row in rows:
        print(json.dumps(row, ensure_ascii=False) if options.json else _shown(row))


def _has(row: dict[str, Any], word: str | None) -> bool:
    return word is None or any(
        word.lower() in str(row[name]).lower() for name in ("handle", "languages", "family")
    )


def _shown(row: dict[str, Any]) -> str:
    size = row["parameters"] and f"{row['parameters'] / 1e6:.0f} M"
    known = (row["languages"], row["family"], size, row["license"], row["published"])
    told = "  ".join(str(each) for each in known if each)
    if not sys.stdout.isatty():
        return f"{row['handle']}  {told}"
    # Only an address may be longer than the line.
    lines = textwrap.wrap(told, shutil.get_terminal_size().columns - 4)
    return "\n    ".join([row["handle"], *lines])


def _measured(
    model: str, source: Path, reference: Path, named: Mapping[str, str]
) -> dict[str, Any]:
    pairs = list(FilePairs(source, reference))
    texts, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    told = languages_for(model, named)
    check_model(model, **told)
    language = named.get("target_language") or language_of_file(reference)
    translations = light_translator(model, **told)(texts)
    start_backend()  # Without its messages: evaluation imports it.
    from keras_attention.evaluation.bleu import corpus_bleu, corpus_chrf

    scores = {
        "bleu": corpus_bleu(translations, references, language=language),
        "chrf": corpus_chrf(translations, references),
    }
    return {
        "handle": model,
        "test": [source.name, reference.name],
        "sentences": len(texts),
        **{name: round(each.score, 2) for name, each in scores.items()},
        "signatures": [each.signature for each in scores.values()],
    }


def languages_for(model: str, named: Mapping[str, str]) -> dict[str, str]:
    """Return the given languages that a model must be told; of others, the target is BLEU's alone."""
    if is_run(model):
        return {}
    tokenizer = preset_of(model).tokenizer
    known = tokenizer.languages or tokenizer.tags
    is_told = bool(tokenizer.languages) or named.get("target_language") in known
    return {name: code for name, code in named.items() if is_told or name == "source_language"}


def is_run(model: str) -> bool:
    """Whether a model is the folder of a run."""
    from keras_attention.data import presets  # Only when there is a model: `--help` does without.

    return presets.is_run(model)


@functools.lru_cache(maxsize=2)
def preset_of(model: str) -> Loaded:
    """Return a preset, or another program's model, checked first and used later: it is read once."""
    from keras_attention.data.presets import load

    return load(model)


def check_model(model: str, checkpoint: str | None = None, **languages: str) -> dict[str, Any]:
    """Return the search settings of a model; refuse what is no model, before a backend starts.

    So are languages that it does not translate between. Only a run has checkpoints.
    """
    if checkpoint is None and not is_run(model):
        found = preset_of(model)
        in_languages(found.tokenizer, **languages)
        return {**found.options}
    run = RunFolder(model)
    settings = run.settings(SEARCH_SETTINGS)
    if checkpoint is None:
        run.check_finished()
    else:
        run.check_checkpoint(checkpoint)
    if languages:
        from keras_attention.data.tokenizer import Tokenizer

        in_languages(Tokenizer.load(run.tokenizer), **languages)
    return settings


def light_translator(model: str, checkpoint: str | None = None, **options: Any) -> Any:
    """Return a `Translator` that needs no Keras, if a spec is there and an engine runs it.

    With a checkpoint of a run it has a Keras model.
    """
    if checkpoint is not None:
        start_backend()
        from keras_attention.recipes.finished_run import checkpoint_translator

        return checkpoint_translator(model, checkpoint, **options)
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
