"""How a `Translator` is made from a run or a pretrained model, and saved as a preset."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from keras_attention.data import presets
from keras_attention.data.formats import run as run_format
from keras_attention.data.model_card import languages_of
from keras_attention.data.presets import Loaded, load
from keras_attention.decoding.onnx_export import export_onnx
from keras_attention.decoding.saved_model import export_saved_model
from keras_attention.decoding.saved_preset import SEARCH_OPTIONS, save_preset
from keras_attention.decoding.translation import Translation
from keras_attention.decoding.unusual_texts import UnusualTexts
from keras_attention.interop.foreign import POSITIONS
from keras_attention.spec.parts import SpecError
from keras_attention.utils.arguments import Has, check_fields
from keras_attention.utils.checks import check_choice, check_path, check_texts
from keras_attention.utils.languages import base_language
from keras_attention.utils.sides import LANGUAGES, in_languages

_Translator = Annotated[Any, Has("a Translator", "translate", "tokenizer", "card")]


@dataclasses.dataclass(frozen=True)
class Pivot:
    """Two translators, one behind the other: what `Translator.then` returns.

    Each keeps its own settings. The second translates the first one's best translation alone, so scores,
    n best, prefixes and phrases are its own, given that text.

    Args:
        first: Translates the texts into the language between.
        second: Translates that into the language wanted.

    Raises:
        ValueError: If they are no translators, or both say their languages, which do not meet.
    """

    first: _Translator
    second: _Translator

    def __post_init__(self) -> None:
        check_fields(self)
        (_, written), (read, _) = map(_languages, (self.first, self.second))
        # Other codes of three letters may be of a language with a shorter one, as `cmn` is of `zh`.
        one, other = (base_language(code or "") for code in (written, read))
        if one != other and len(one) == len(other):
            raise ValueError(
                f"The first model translates into '{written}', but the second one from '{read}': they do not "
                "meet. Take a model that reads what the first one writes."
            )

    def __call__(self, texts: str | Iterable[str], unusual: Any = None) -> Any:
        """Return the best translation of a string (str), or of each of several (list of str)."""
        if isinstance(texts, str):
            return self([texts], unusual)[0]
        return self.second(self.first(check_texts("texts", texts), unusual), _own(unusual))

    def translate(
        self, texts: str | Iterable[str], n_best: int = 1, unusual: Any = None, **asked: Any
    ) -> Any:
        """Return the second translator's translations of the first one's best; see its `translate`."""
        texts = texts if isinstance(texts, str) else check_texts("texts", texts)
        between = self.first(texts, unusual)
        found: list[list[Translation]] | list[Translation] = self.second.translate(
            between, n_best, unusual=_own(unusual), **asked
        )
        return found


def _own(unusual: Any) -> Any:
    """Return what collects unusual texts between; None where a warning tells of them."""
    return None if unusual is None else UnusualTexts()


def _languages(translator: Any) -> tuple[str | None, str | None]:
    """Return the languages that a translator reads and writes, as far as it says them."""
    known = languages_of(translator.card) or (None, None)
    source, target = (
        getattr(translator, name, None) or getattr(translator.tokenizer, name, None) or code
        for name, code in zip(LANGUAGES, known, strict=True)
    )
    return source, target


# What `export` writes, by what takes the model, the tokenizer and the folder, and options of its own.
FORMATS: dict[str, Callable[..., Path]] = {
    **{each.name: each.write for each in presets.FORMATS if each.write is not None},
    "onnx": export_onnx,
    "saved_model": export_saved_model,
}
# What no export and no preset has.
NOT_EXPORTED = (
    *("constraint", "sampling", "restrictions"),
    *("glossary", "break_loops", "split_sentences"),
)


class Pretrained:
    """Methods of `Translator` that make one, or one like it, and how it is saved."""

    @classmethod
    def from_run(cls, folder: str | os.PathLike[str], **options: Any) -> Self:
        """Return a translator with the model, the tokenizer and the search settings of a finished run.

        Args:
            folder: The folder of the run.
            **options: Arguments of `Translator` that override those of the run.

        Raises:
            ValueError: If there is no run in the folder, it is not finished, or its model is damaged.
        """
        from keras_attention.models.keras_folder import model_of_run  # needs Keras

        return _made(cls, run_format.read(check_path("folder", folder), model_of_run), options)

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike[str] | Loaded,
        *,
        positions: str = POSITIONS[0],
        **options: Any,
    ) -> Self:
        """Return a translator with a pretrained model: the package's, a run's, or another program's.

        An engine runs the model, on a CPU without Keras. For its attention, or to train it further, build a
        Keras model: `Translator(Transformer.from_preset(preset), Tokenizer.from_preset(preset))`.

        Args:
            preset: The name of a trained model in the package, `"demo_en_de"`; or a folder, which is
                recognised by its files: what `save_to_preset` wrote, a finished run, a MarianMT model of
                Hugging Face, a CTranslate2 model, one of Firefox' translation models, one of Marian, or the
                ONNX files that `export_onnx` wrote, which onnxruntime runs; or a handle of a model on a hub,
                `"hf://owner/name"` or `"kaggle://owner/model/framework/variation"`; or what
                `data.presets.load` has read.
            positions: `"as_trained"`, or `"as_transformers"` for the positions that Hugging Face computes for
                models that Marian has trained. Defaults to `"as_trained"`.
            **options: Arguments of `Translator` that override those of the preset.

        Raises:
            FileNotFoundError: If there is no such folder.
            DamagedFile: If a file is cut off or changed.
            ValueError: If the folder holds no model that is known, or one that cannot be represented.
            ImportError: If a library is missing that reads the files, or loads them from a hub.

        Example:

        >>> from keras_attention.decoding.translator import Translator
        >>> Translator.from_preset("demo_en_de")("The dog sleeps.")
        'Der Hund schläft.'
        """
        found = load(preset, positions)
        try:
            return _made(cls, found, options)
        except SpecError:  # No engine runs it without Keras.
            if {**found.options, **options}.get("engine") == "plain":
                raise
            import keras

            spec = found.spec.map_weights(lambda weight: keras.Variable(weight, trainable=False))
            return _made(cls, found._replace(spec=spec), options)

    def in_languages(
        self, source_language: str | None = None, target_language: str | None = None
    ) -> Self:
        """Return the translator for other languages. Both share one engine.

        Args:
            source_language, target_language: As of `Translator`; None for those of this one.

        Raises:
            ValueError: If the model has no such language.

        Example:

        ```python
        to_german = translator.in_languages(target_language="de")
        ```
        """
        chosen = object.__new__(type(self))
        kept: dict[str, Any] = {**self.__dict__}
        kept.pop("_requests", None)  # made of the tokenizer
        named = {
            name: code or kept[name]
            for name, code in zip(LANGUAGES, (source_language, target_language), strict=True)
        }
        tokenizer = in_languages(kept["tokenizer"], source_language, target_language)
        chosen.__dict__.update(kept, **named, tokenizer=tokenizer)
        return chosen

    def then(self, other: Any) -> Pivot:
        """Return what translates by way of a third language: this one's translations by another translator.

        Args:
            other: A `Translator` of the language that this one writes.

        Raises:
            ValueError: If both say their languages, and these do not meet.

        Example:

        ```python
        to_german = Translator.from_preset("EN_PT").then(Translator.from_preset("PT_DE"))
        to_german("The dog sleeps.")
        ```
        """
        return Pivot(self, other)

    def save_to_preset(
        self,
        folder: str | os.PathLike[str],
        *,
        card: Mapping[str, Any] | None = None,
        sample: Iterable[str] | None = None,
        weights_dtype: str = "float32",
        overwrite: bool = False,
    ) -> Path:
        """Write the model, the tokenizer and the search settings as a preset, a folder to keep or to publish.

        `from_preset` of `Translator`, `Transformer` and `Tokenizer` reads it on every backend, without Keras
        too; `keras.saving.load_model(folder)` gives the `Transformer`, and KerasHub's loader reads it. Beside
        the weights it has a card, for people (`README.md`) and for programs (`card.json`), made from the
        run if the translator comes from one; the checksums of all files, and a sample of its translations:
        see `verify_preset`.

        Args:
            folder: The folder to write, whole or not at all.
            card: Entries of the card that are added or replaced, such as `"license"`, `"description"` and
                `"languages"`, a pair. What JSON can hold.
            sample: Sentences for the sample; they are published with it. Defaults to the examples in the
                run's report or, without a run, to tokens of the vocabulary.
            weights_dtype: `"float16"` stores matrices in half the space, with rounded numbers. Defaults to
                `"float32"`.
            overwrite: Whether an unchanged preset in `folder` may be replaced. Nothing else is. Defaults to
                False.

        Returns:
            The folder's path.

        Raises:
            OccupiedPath: If something is in the folder that may not be replaced.
            SpecError: If no spec, or no `Transformer`, can describe the model.
            ValueError: If an argument is out of range, or the translator has a constraint, sampling,
                restrictions, a glossary or sentences to split, which a preset has not.

        Example:

        >>> import tempfile
        >>> from keras_attention.decoding.translator import Translator
        >>> translator = Translator.from_preset("demo_en_de")
        >>> folder = translator.save_to_preset(tempfile.mkdtemp() + "/mine", card={"license": "cc0-1.0"})
        >>> sorted(file.name for file in folder.iterdir())
        ['README.md', 'assets', 'card.json', 'config.json', 'keras_attention.json', 'metadata.json', \
'model.weights.h5', 'tokenizer.json']
        """
        _refuse_lost(self, "A preset")
        return save_preset(self, folder, card, sample, weights_dtype, overwrite)

    def export(self, folder: str | os.PathLike[str], format: str, **options: Any) -> Path:
        """Write model, tokenizer, languages and the search settings that it takes for another program.

        Args:
            folder: The folder to write, whole or not at all.
            format: `"hugging_face"`, a MarianMT or Pegasus folder: see `interop.export_hugging_face`;
                `"ctranslate2"`: see `interop.export_ctranslate2`; `"onnx"`: see `decoding.export_onnx`; or
                `"saved_model"`, text to text in TensorFlow: see `decoding.export_saved_model`.
            **options: The format's own options, such as `max_length`, `overwrite` or `quantization`.

        Returns:
            The folder's path.

        Raises:
            ValueError: If there is no such format or option, the format cannot represent the model, or the
                translator has a constraint, sampling, restrictions, a glossary or sentences to split, which
                none writes.
            ImportError: If the format's library is not installed.
            OccupiedPath: If something is in the folder that may not be replaced.

        Example:

        >>> import tempfile
        >>> from keras_attention.decoding.translator import Translator
        >>> translator = Translator.from_preset("demo_en_de")
        >>> path = translator.export(tempfile.mkdtemp() + "/marian", "hugging_face")  # doctest: +SKIP
        """
        translator: Any = self
        check_choice("format", format, tuple(FORMATS))
        export = FORMATS[format]
        parameters = inspect.signature(export).parameters.values()
        known = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
        for name in options:
            if name not in known:
                raise ValueError(
                    f"The format {format!r} has no option {name!r}; it has {', '.join(known)}."
                )
        own = {name: getattr(translator, name) for name in SEARCH_OPTIONS if name in known}
        own["languages"] = languages_of(translator.card)
        _refuse_lost(translator, f"What is written as format={format!r}")
        return export(translator.model, translator.tokenizer, folder, **{**own, **options})


def _refuse_lost(translator: Any, what: str) -> None:
    """Raise ValueError if a translator has settings that are not written."""
    lost = [name for name in NOT_EXPORTED if getattr(translator, name) not in (None, False)]
    if lost:
        raise ValueError(
            f"{what} has no {' and no '.join(lost)}. Write a translator without, and give them to the "
            "one that is read."
        )


def _made(cls: Any, preset: Loaded, options: Mapping[str, Any]) -> Any:
    return cls(preset.spec, preset.tokenizer, **{**preset.known(), **options})
