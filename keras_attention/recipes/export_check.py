"""`check_export`: whether an export translates as the model does, in the programs that read it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from keras_attention.data.normalization import normalize
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.decoding.pretrained import NOT_EXPORTED
from keras_attention.decoding.translator import Translator
from keras_attention.engine.select import is_installed
from keras_attention.interop.export_folder import EXPORT, TARGET_TOKENIZER_FOLDER, TOKENIZER_FOLDER
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.arguments import Has, checked
from keras_attention.utils.checks import check_has
from keras_attention.utils.sides import encode_side, end_of, piece_of, start_of, target_size_of

# Greedy search has the same rules in all programs. They compute in float32.
SEARCH: dict[str, Any] = {"beam_size": 1, "precision": "float32", "show_progress": False}
SHOWN = 3


class Difference(NamedTuple):
    """A sentence that a program translates in another way than the model."""

    source: str
    model: str
    export: str


@dataclasses.dataclass(frozen=True)
class ExportCheck:
    """What `check_export` found. It prints as a report."""

    format: str
    sentences: int  # number of sentences that were translated
    # Of each program that read the export, the sentences with other translations.
    differences: Mapping[str, tuple[Difference, ...]]
    # The programs that read the format, too, and are not installed.
    not_installed: tuple[str, ...] = ()
    quantization: str | None = None  # what the weights are rounded to; None if they are not

    @property
    def passed(self) -> bool:
        """Whether all translations of all programs are those of the model."""
        return not any(self.differences.values())

    def __str__(self) -> str:
        lines = []
        for program, differences in self.differences.items():
            equal = self.sentences - len(differences)
            lines.append(f"{program}: {equal} of {self.sentences} translations are the model's.")
            for each in differences[:SHOWN]:
                lines += [f"  {each.source}", f"    model:  {each.model}"]
                lines.append(f"    export: {each.export}")
        lines += [f"{program} is not installed: not checked." for program in self.not_installed]
        if self.passed:
            return "\n".join([*lines, "The export translates as the model does."])
        lines.append("WRONG: the export translates in another way than the model.")
        if self.quantization is not None:
            lines.append(f"Its weights are rounded to {self.quantization}, which may be the cause.")
        return "\n".join(lines)


@checked
def check_export(
    translator: Annotated[Translator, Has("a Translator", "model", "tokenizer", "beam_size")],
    folder: str | os.PathLike[str],
    texts: Iterable[str] | None = None,
) -> ExportCheck:
    """Translate some sentences with a model and with its export, and compare the translations.

    The programs that read the export are this package, where it reads the format, and the program that the
    format is for, where it is installed. All search greedily, by which the same weights give the same
    translations in each, but for a rare tie; a SavedModel, whose search is its own, as it was exported.
    Weights that were rounded give others here and there.

    Args:
        translator: The translator that was exported.
        folder: The folder of the export.
        texts: Sentences, such as the model is for; empty ones are skipped. Defaults to the examples of the
            translator's card, which a finished run has.

    Returns:
        An `ExportCheck`; `passed` says whether all translations are equal.

    Raises:
        ValueError: If there are no sentences, the folder holds no export of ours, or one that cannot
            translate a sentence.
        DamagedFile: If a file of the export was changed.
        ImportError: If no program is installed that reads it.

    Example:

    >>> import tempfile
    >>> translator = Translator.from_preset("demo_en_de")
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     path = translator.export(f"{folder}/ctranslate2", "ctranslate2")
    ...     check_export(translator, path, ["The dog sleeps."]).passed
    True
    """
    if not isinstance(translator.model, TransformerSpec):
        expected = "a Transformer, or a TransformerSpec"
        check_has("translator.model", translator.model, expected, "spec")
    folder = Path(folder)
    if texts is None:
        examples = translator.card.get("examples") or []
        texts = [row["source"] for row in examples if "source" in row]
    full = [text for text in texts if normalize(text)]
    if not full:
        raise ValueError(
            "There is no sentence to translate: `texts`, or else the model's card, must have one."
        )
    manifest, programs, not_installed = programs_of(folder)
    plain: dict[str, Any] = {**dict.fromkeys(NOT_EXPORTED), "break_loops": False}
    changes = {**SEARCH, **manifest.get("search", {}), **plain, "engine": "auto"}
    original = dataclasses.replace(translator, **changes)
    wanted = original(full)
    differences = {
        name: tuple(
            Difference(*row)
            for row in zip(full, wanted, translate(folder, full, original), strict=True)
            # Some programs write several spaces where several pieces are one each.
            if row[1].split() != row[2].split()
        )
        for name, translate in programs.items()
    }
    rounded = manifest.get("quantization")
    rounded = None if rounded == "float32" else rounded
    return ExportCheck(manifest["exported"], len(full), differences, not_installed, rounded)


def programs_of(folder: Path) -> tuple[dict[str, Any], dict[str, Program], tuple[str, ...]]:
    """Return the manifest of an export, the programs here that read it, and those that are missing."""
    manifest = EXPORT.read(folder)
    kind = manifest["exported"]
    if kind not in PROGRAMS:
        raise ValueError(f"'{folder}' is no export that can be checked: {', '.join(PROGRAMS)} can.")
    here = {
        name: translate
        for name, (translate, libraries) in PROGRAMS[kind].items()
        if all(map(is_installed, libraries))
    }
    if not here:
        needed = " or ".join(" ".join(libraries) for _, libraries in PROGRAMS[kind].values())
        raise ImportError(f"Nothing here reads '{folder}'. Install it: pip install {needed}")
    return manifest, here, tuple(name for name in PROGRAMS[kind] if name not in here)


def _ours(folder: Path, texts: list[str], original: Translator) -> list[str]:
    names = ("length_penalty", "max_extra_length")
    search = {name: getattr(original, name) for name in names}
    return Translator.from_preset(folder, **SEARCH, **search)(texts)


def _ctranslate2(folder: Path, texts: list[str], original: Translator) -> list[str]:
    import ctranslate2

    source = target = Tokenizer.load(folder / TOKENIZER_FOLDER)
    if (folder / TARGET_TOKENIZER_FOLDER).is_dir():
        target = Tokenizer.load(folder / TARGET_TOKENIZER_FOLDER)
    ids_of = {piece_of(target, i, "target"): i for i in range(target_size_of(target))}
    program = ctranslate2.Translator(str(folder), compute_type="default")
    language = [piece_of(target, i, "target") for i in start_of(target)]
    results = []
    for ids in encode_side(source, texts, "source"):
        (found,) = program.translate_batch(
            [[piece_of(source, i, "source") for i in ids]],
            [language],
            beam_size=1,
            # The end token of the source counts for ours.
            max_decoding_length=len(ids)
            + len(end_of(source, "source"))
            + original.max_extra_length,
            min_decoding_length=0,
            max_input_length=0,
        )
        results.append(str(target.decode([ids_of[piece] for piece in found.hypotheses[0]])))
    return results


def _transformers(folder: Path, texts: list[str], original: Translator) -> list[str]:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    model.generation_config.forced_eos_token_id = None  # Ours are cut off without an end token.
    results = []
    for text in texts:
        given = tokenizer(text, return_tensors="pt")["input_ids"]
        longest = 1 + given.shape[1] + original.max_extra_length  # The start token counts.
        found = model.generate(given, num_beams=1, do_sample=False, max_length=longest)
        results.append(str(tokenizer.decode(found[0], skip_special_tokens=True)))
    return results


def _tensorflow(folder: Path, texts: list[str], original: Translator) -> list[str]:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  It has the operations of SentencePiece.

    program = tf.saved_model.load(str(folder)).signatures["translate"]
    found = program(texts=tf.constant(texts), n_best=tf.constant(1))["translations"]
    return [text.decode("utf-8") for text in found[:, 0].numpy()]


Program = Callable[[Path, list[str], Translator], list[str]]
# Of each format: the programs that read it, how they translate, and the libraries that they need.
PROGRAMS: dict[str, dict[str, tuple[Program, tuple[str, ...]]]] = {
    "ctranslate2": {
        "keras_attention": (_ours, ()),
        "CTranslate2": (_ctranslate2, ("ctranslate2",)),
    },
    "hugging_face": {
        "keras_attention": (_ours, ("safetensors",)),
        "transformers": (_transformers, ("transformers", "torch")),
    },
    "onnx": {"onnxruntime": (_ours, ("onnxruntime",))},
    "saved_model": {"TensorFlow": (_tensorflow, ("tensorflow", "tensorflow_text"))},
}
