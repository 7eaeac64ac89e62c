"""From text to text: the `Translator`.

Shape letters: B sentences, S source length, K beams, L longest output, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, overload

from keras_attention.data.parallel_text import read_lines
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.decoding.batching import Batching
from keras_attention.decoding.hypotheses import BeamSearchResult, check_search_options
from keras_attention.decoding.model_search import ModelSearch
from keras_attention.engine.select import EngineChoice
from keras_attention.spec.files import load_spec
from keras_attention.utils.checks import check_boolean, check_has, check_integer, check_path
from keras_attention.utils.files import check_destination, write_atomically
from keras_attention.utils.progress import Progress
from keras_attention.utils.run_folder import SEARCH_SETTINGS, RunFolder

if TYPE_CHECKING:
    from keras_attention.decoding.constraints import TextConstraint


@dataclasses.dataclass(frozen=True)
class Translation:
    """One translation of a sentence, as `Translator.translate` returns it.

    Attributes:
        text: The translation.
        score: Log-probability divided by the length penalty; not divided if `is_finished` is False. An
            empty line scores 0.
        token_ids: The target tokens, without the end token.
        is_finished: False if the maximum length cut it off.
    """

    text: str
    score: float
    token_ids: tuple[int, ...]
    is_finished: bool


class NonFiniteLogits(ValueError, FloatingPointError):
    """The model's logits are infinite or not a number: nothing can be chosen."""


@dataclasses.dataclass(frozen=True, eq=False)
class Translator:
    """Translates text with a trained model, by beam search (section 6.1 of the paper).

    Call it on a string or on any iterable of strings; it returns a string or a list. `translate`
    gives the n best with their scores. Sentences are sorted by length, batched, and put back in
    order.

    The translation of a sentence depends on nothing but the sentence: not on its batch, the order,
    or padding. Its longest output comes from its own length, its search ends on its own, and masks
    are exact. Only float rounding may differ between batches of different shapes, which can swap
    hypotheses whose scores agree to about six digits (in bfloat16, to about two: decode with a float32
    model to compare translations).

    What decodes is an engine: the `spec()` of a `Transformer`, run fast, with the beams of a sentence in
    one buffer of keys and values; a sentence that is done is dropped from its batch. `engine="auto"` takes
    Numba's on a CPU, if it is installed and runs the model, on every backend alike; else that of the
    backend. Neither a clock nor the batch decides, so that results do not hang on them. `engine_for` says
    which. The plain `decode_step` and
    `beam_search` are the definition of what is found: `engine="plain"` decodes with them, as is done
    for any model that no engine runs. The weights are read at each call, so the translator of a model
    in training translates with its present weights.

    Numba compiles at the first call, and keeps it for later processes. TensorFlow compiles two
    programs at the first call, for all shapes; PyTorch runs eagerly. JAX, and every backend with
    `engine="plain"`, compiles each shape at its first use: there sources are padded to 16, 32, 64, ...
    tokens and batches to 1, 4, 16, 64, ... rows. The progress line says so.

    What happens at the edges:

    * no line at all gives `[]`; an empty line, or one of white space, gives `""` with score 0 and
      never meets the model;
    * a line longer than the model's learned positions raises a `ValueError` that names it, before
      anything is translated; with sinusoids there is no limit;
    * characters unknown to the tokenizer become whatever it makes of them (bytes, or its unknown
      token);
    * a beam larger than the vocabulary works, and there may be fewer than `n_best` translations;
    * a process that was forked translates with one thread of PyTorch: the others do not live on in it.
      Processes started with `multiprocessing.get_context("spawn")` have all.

    Args:
        model: A built `Transformer`, or what has its `encode`, `initial_cache`, `decode_step`,
            `vocabulary_size`, `max_length` and special token ids; or a `TransformerSpec` of NumPy
            arrays, which is decoded without Keras.
        tokenizer: A `Tokenizer` of the same vocabulary, for source and target.
        beam_size: Hypotheses kept; 1 is greedy search.
        length_penalty: The paper's alpha; 0 compares plain log-probabilities.
        max_extra_length: A translation may have this many tokens more than its source, end tokens
            counted. Learned positions may set a lower limit.
        batch_tokens: Source positions of a batch, padding included. Memory grows with it times
            `beam_size`.
        batch_size: Most sentences in a batch, `None` for as many as `batch_tokens` allows.
        show_progress: Whether work of more than 3 seconds writes a progress line to the standard
            error.
        precision: Precision of weights and activations: `"float32"`, `"bfloat16"`, `"float16"`, or
            `"int8"`, which multiplies 8-bit integers with a scale for each output of the weights and
            for each row of activations (by Numba, on a CPU). Defaults to that of the model's dtype
            policy.
        engine: What decodes: `"auto"`, `"numba"`, the backend's engine by its name (`"tensorflow"`,
            `"torch"` or `"jax"`), `"plain"`, or `"ctranslate2"`, where it is installed: its search is
            its own, and may choose other translations; see `export_ctranslate2`.
        constraint: What translations may be, a `TextConstraint`; with one, the plain search decodes.
        fast: Deprecated: `fast=False` is `engine="plain"`, `fast=True` is `engine="auto"`.

    Raises:
        ValueError: Arguments out of range, a tokenizer that does not belong to the model, or an
            `engine` or a `precision` that the model cannot be decoded by.

    Example:

    >>> from keras_attention.data.tokenizer import Tokenizer
    >>> from keras_attention.models.transformer import Transformer
    >>> tokenizer = Tokenizer.train(["ein kleines Haus", "a small house"], vocabulary_size=280)
    >>> model = Transformer.from_preset("tiny", vocabulary_size=tokenizer.vocabulary_size)
    >>> translator = Translator(model, tokenizer, beam_size=2, max_extra_length=3)
    >>> type(translator("a house"))  # an untrained model babbles
    <class 'str'>
    >>> translator(["", " "])
    ['', '']
    >>> [len(best) for best in translator.translate(["a house", "a small house"], n_best=2)]
    [2, 2]
    """

    model: Any
    tokenizer: Any
    _: dataclasses.KW_ONLY
    beam_size: int = 4
    length_penalty: float = 0.6
    max_extra_length: int = 50
    batch_tokens: int = 2048
    batch_size: int | None = None
    show_progress: bool = True
    precision: str | None = None
    engine: str = "auto"
    constraint: TextConstraint | None = None
    fast: bool | None = None

    def __post_init__(self) -> None:
        if self.fast is not None:
            check_boolean("fast", self.fast)
            engine = "auto" if self.fast else "plain"
            warnings.warn(
                f"`fast` will go in the next version: write engine={engine!r} instead.",
                DeprecationWarning,
                stacklevel=3,
            )
            object.__setattr__(self, "engine", engine)
            object.__setattr__(self, "fast", None)
        check_search_options(self.beam_size, self.length_penalty)
        smallest = {"beam_size": 1, "max_extra_length": 0, "batch_tokens": 1, "batch_size": 1}
        for name, least in smallest.items():
            value = getattr(self, name)
            if value is not None or name != "batch_size":
                check_integer(name, value, least)
        check_boolean("show_progress", self.show_progress)
        if self.constraint is not None:
            check_has("constraint", self.constraint, "a TextConstraint", "constraint", "start")
        check_has("model", self.model, "a built Transformer", "vocabulary_size", "pad_token_id")
        check_has("tokenizer", self.tokenizer, "a Tokenizer", "encode", "decode", "end_token_id")
        for name in ("vocabulary_size", "pad_token_id", "start_token_id", "end_token_id"):
            ours, theirs = getattr(self.model, name), getattr(self.tokenizer, name)
            if ours != theirs:
                raise ValueError(
                    f"The model has {name} {ours}, the tokenizer {theirs}: they do not belong "
                    "together. Use the tokenizer that the model was trained with."
                )
        _ = self._search  # refuses what cannot be decoded, before there is a text

    @classmethod
    def from_run(cls, folder: str | os.PathLike[str], **options: Any) -> Translator:
        """A translator with the model, the tokenizer and the search settings of a finished run.

        Args:
            folder: The folder that a training wrote.
            **options: Arguments of `Translator`, in place of the run's.

        Raises:
            ValueError: If it is not the folder of a run, the run is not finished, or its model is damaged.
        """
        import keras  # Here alone: who runs a spec does without it.

        def load(run: RunFolder) -> Any:
            return keras.saving.load_model(run.trained_model(), compile=False)

        return cls._of_run(folder, load, options)

    @classmethod
    def from_spec(cls, folder: str | os.PathLike[str], **options: Any) -> Translator:
        """The same without Keras: runs the spec that a finished run has written beside its model.

        What `from_run` gives translates the same. `keras_attention_light` says how a program starts
        without Keras.

        Args:
            folder: The folder that a training wrote.
            **options: Arguments of `Translator`, in place of the run's.

        Raises:
            ValueError: If it is not the folder of a run, the run is not finished or has no spec, or no
                engine runs it without Keras.
            DamagedFile: If the weights are not those that were written.
        """
        return cls._of_run(folder, lambda run: load_spec(run.spec), options)

    @classmethod
    def _of_run(
        cls,
        folder: str | os.PathLike[str],
        load: Callable[[RunFolder], Any],
        options: Mapping[str, Any],
    ) -> Translator:
        run = RunFolder(check_path("folder", folder))
        settings = run.settings(SEARCH_SETTINGS)
        run.check_finished()
        search = {name: settings[name] for name in SEARCH_SETTINGS}
        return cls(load(run), Tokenizer.load(run.tokenizer), **{**search, **options})

    @overload
    def __call__(self, texts: str) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, texts: Iterable[str]) -> list[str]: ...

    def __call__(self, texts):
        """The best translation of a string (str), or of each of many (list of str)."""
        if isinstance(texts, str):
            return self.translate(texts)[0].text
        return [best[0].text for best in self.translate(texts)]

    @overload
    def translate(self, texts: str, n_best: int = 1) -> list[Translation]: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, texts: Iterable[str], n_best: int = 1) -> list[list[Translation]]: ...

    def translate(self, texts, n_best=1):
        """The `n_best` translations, best first.

        Args:
            texts: A string, or an iterable of strings.
            n_best: How many are wanted, at most `beam_size`. The best one does not depend on it.

        Returns:
            A list of `Translation` for a string; a list of such lists for many. There are fewer
            than `n_best` where the search found fewer: those that ended within the maximum length
            or, if there are none, those that were cut off.

        Raises:
            TypeError: Something that is not a string, named by its index.
            ValueError: `n_best` out of range, a line too long for the model, or logits that are
                NaN.
        """
        if isinstance(texts, str):
            return self.translate([texts], n_best)[0]
        if not 1 <= n_best <= self.beam_size:
            raise ValueError(
                f"n_best must be between 1 and beam_size, which is {self.beam_size}; got {n_best}."
            )
        texts = _checked(texts)
        sources = self._encode(texts)
        results = [[Translation("", 0.0, (), True)] for _ in sources]
        batching = Batching(self.batch_tokens, self.batch_size, self.model.max_length)
        total = sum(1 for source in sources if source)
        with Progress(total, "translating", "sentences", self.show_progress) as progress:
            for lines, result in self._search(sources, texts, batching, progress, n_best):
                found = self._translations(result, len(lines), n_best)
                for line, translations in zip(lines, found, strict=True):
                    if not translations:
                        raise NonFiniteLogits(
                            f"The model's logits for text {line} are not finite, so nothing could "
                            "be chosen. Has its training diverged?"
                        )
                    results[line] = translations
                progress.add(len(lines))
        return results

    def translate_file(
        self, source: str | os.PathLike[str], destination: str | os.PathLike[str]
    ) -> None:
        """Translates a UTF-8 text file, plain or gzip; line i of the result belongs to line i.

        The result is written when it is complete; an interrupted translation leaves nothing behind.

        Raises:
            ValueError: What is no UTF-8 text, named by file and line, a `destination` that exists, or
                one in a folder that does not exist.
        """
        destination = check_destination(destination, sources=[source])
        # A tokenizer of bytes can spell a line break, which would shift all lines after it.
        translations = [" ".join(text.splitlines()) for text in self(read_lines(source))]
        write_atomically(destination, "".join(f"{text}\n" for text in translations))

    def engine_for(self, batch_size: int) -> EngineChoice:
        """What decodes a batch of this many sentences, and why.

        Args:
            batch_size: Number of sentences B.

        Returns:
            An `EngineChoice`: the `name` of an engine, or `"plain"`, and the `reason`, with the size of a
            step.
        """
        return self._search.choice(batch_size)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        """Source ids with the end token; `[]` for lines that hold nothing."""
        sources = [
            [*ids, self.tokenizer.end_token_id] if ids and text.strip() else []
            for text, ids in zip(texts, self.tokenizer.encode(texts), strict=True)
        ]
        limit = self.model.max_length
        for line, ids in enumerate(sources):
            if limit is not None and len(ids) > limit:
                raise ValueError(
                    f"Text {line} has {len(ids)} tokens, end token included, but the model has "
                    f"learned {limit} positions. Split it into sentences: {texts[line][:60]!r}..."
                )
        return sources

    def _translations(
        self, result: BeamSearchResult, number: int, n_best: int
    ) -> Iterator[list[Translation]]:
        for row in range(number):
            yield [
                self._translation(
                    result.sequences[row, k, : result.lengths[row, k]].tolist(),
                    float(result.scores[row, k]),
                    bool(result.finished[row, k]),
                )
                for k in range(n_best)
                if result.lengths[row, k]
            ]

    def _translation(self, token_ids: list[int], score: float, is_finished: bool) -> Translation:
        if is_finished:
            token_ids = token_ids[:-1]
        return Translation(self.tokenizer.decode(token_ids), score, tuple(token_ids), is_finished)

    @functools.cached_property
    def _search(self) -> ModelSearch:
        return ModelSearch(
            self.model,
            self.beam_size,
            self.length_penalty,
            self.max_extra_length,
            self.precision,
            self.engine,
            self.constraint,
        )


def _checked(texts: Iterable[str]) -> list[str]:
    texts = list(texts)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(
                f"Texts must be strings; text {index} is {type(text).__name__}: {text!r}."
            )
    return texts
