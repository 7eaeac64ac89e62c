"""The `Translator`: from text to text.

Shape letters: B sentences, S source length, W beams, L longest output, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, overload

from keras_attention.data.text_files import read_lines
from keras_attention.decoding.batching import Batching
from keras_attention.decoding.hypotheses import BeamSearchResult, check_search_options
from keras_attention.decoding.model_search import ModelSearch
from keras_attention.decoding.pretrained import Pretrained
from keras_attention.decoding.unusual_texts import UnusualTexts
from keras_attention.engine.select import EngineChoice, check_engine
from keras_attention.spec.parts import NonFiniteModel
from keras_attention.utils.checks import (
    check_boolean,
    check_has,
    check_integer,
    check_path,
    check_texts,
)
from keras_attention.utils.files import check_destination, write_atomically
from keras_attention.utils.progress import Progress
from keras_attention.utils.sides import end_of

if TYPE_CHECKING:
    from keras_attention.decoding.constraints import TextConstraint


@dataclasses.dataclass(frozen=True)
class Translation:
    """One translation of a sentence, as `Translator.translate` returns it.

    Attributes:
        text: The translation.
        score: Log-probability divided by the length penalty, or not divided if `is_finished` is False. 0
            for an empty line.
        token_ids: The target tokens, without the end token.
        is_finished: Whether the translation ended by itself, before the maximum length.
        alignment: Pairs of a source and a target word, numbered from 0, as `recipes.aligning.with_details`
            adds them; else None. A word is what stands between spaces.
        token_scores: Log-probability of each token, that of the end token behind them; None as above.
    """

    text: str
    score: float
    token_ids: tuple[int, ...]
    is_finished: bool
    alignment: tuple[tuple[int, int], ...] | None = None
    token_scores: tuple[float, ...] | None = None


class LongText(ValueError):
    """A text has more tokens than the model has learned positions, or than the search has room for.

    Args:
        index: Number of the text in its call, from 0.
        problem: What is wrong with it.
    """

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(f"Text {index} {problem}")
        self.index, self.problem = index, problem


@dataclasses.dataclass(frozen=True, eq=False)
class Translator(Pretrained):
    """Translates text with a trained model, by beam search (section 6.1 of the paper).

    Call it with a string or an iterable of strings: it returns a string or a list. `translate` returns
    the n best translations with their scores. Sentences are sorted by length, batched, and put back in
    order.

    The translation of a sentence depends only on the sentence, not on its batch, the order or padding:
    its longest output comes from its own length, its search ends by itself, and masks are exact. Only
    float rounding may differ between batches of different shapes. That can swap hypotheses whose scores
    agree to about six digits (in bfloat16, to about two: compare translations with a float32 model).

    An engine decodes: it runs the `spec()` of a `Transformer` fast, keeps the keys and values of all
    beams of a sentence in one buffer, and drops finished sentences from the batch. On every backend,
    `engine="auto"` takes Numba's on a CPU, if it is installed and can run the model, else that of the
    backend. The choice does not depend on a clock or on the batch, so results do not, either. `engine_for`
    names the choice. The plain `decode_step` and `beam_search` define the result: `engine="plain"` uses
    them, and so does `"auto"` for a model that no engine can run. The weights are read at each call, so
    the translator of a model in training uses its current weights.

    Numba compiles at the first call and keeps the result for later processes. TensorFlow compiles two
    programs at the first call, for all shapes. PyTorch runs eagerly. JAX, and every backend with
    `engine="plain"`, compiles each shape at its first use, as the progress line shows: there, sources are
    padded to 16, 32, 64, ... tokens and batches to 1, 4, 16, 64, ... rows.

    Edge cases:

    * no lines give `[]`; an empty line, or one of white space, gives `""` with score 0;
    * a line longer than the model's learned positions raises a `ValueError` that names it, before
      anything is translated; sinusoids have no limit;
    * characters unknown to the tokenizer become whatever it makes of them (bytes, or its unknown
      token);
    * each call warns once (`UnusualText`) of texts that consist mostly of such characters and, with the
      model of a run, of those that are longer than any in its training;
    * a beam larger than the vocabulary works, and there may be fewer than `n_best` translations;
    * a forked process translates with one PyTorch thread, because threads do not survive a fork.
      Processes started with `multiprocessing.get_context("spawn")` have all threads.

    Args:
        model: A built `Transformer`, or an object with its `encode`, `initial_cache`, `decode_step`,
            `vocabulary_size`, `max_length` and special token ids; or a `TransformerSpec` of NumPy
            arrays, which is decoded without Keras.
        tokenizer: A `Tokenizer` with the vocabulary of the model, for source and target.
        beam_size: Number of hypotheses to keep; 1 is greedy search. Defaults to 4.
        length_penalty: The paper's alpha; 0 compares plain log-probabilities. Defaults to 0.6.
        max_extra_length: Largest number of tokens that a translation may have more than its source, end
            tokens included. Learned positions may set a lower limit. Defaults to 50.
        batch_tokens: Largest number of source positions of a batch, padding included. Memory grows with
            `batch_tokens` times `beam_size`. Defaults to 2048.
        batch_size: Largest number of sentences in a batch. Defaults to no limit but `batch_tokens`.
        show_progress: Whether to write a progress line to standard error after 3 seconds. Defaults to
            True.
        precision: Precision of weights and activations: `"float32"`, `"bfloat16"`, `"float16"`, or
            `"int8"`, which multiplies 8-bit integers with a scale for each output of the weights and
            for each row of activations (by Numba, on a CPU). Defaults to that of the model's dtype
            policy.
        engine: `"auto"`, `"numba"`, the engine of the backend (`"tensorflow"`, `"torch"` or `"jax"`),
            `"plain"`, or `"ctranslate2"`, if that is installed: it has its own search and may choose other
            translations; see `export_ctranslate2`. Defaults to `"auto"`.
        constraint: A `TextConstraint` on the translations, which needs the backend's own engine or the plain
            search. Defaults to none.

    Raises:
        ValueError: If an argument is out of range, the tokenizer does not belong to the model, or the
            model cannot be decoded with this `engine` or `precision`.

    Example:

    >>>     >>> from keras_attention.models.transformer import Transformer
    >>> tokenizer = Tokenizer.train(["ein kleines Haus", "a small house"], vocabulary_size=280)
    >>> model = Transformer.from_preset("tiny", vocabulary_size=tokenizer.vocabulary_size)
    >>> translator = Translator(model, tokenizer, beam_size=2, max_extra_length=3)
    >>> type(translator("a house"))  # an untrained model babbles
    <class 'str'>
    >>> translator(["", " "])
    ['', '']
    >>> found = translator.translate(["a house", "a small house"], n_best=2, unique=False)
    >>> [len(best) for best in found]
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
    # Tokens of the longest source in training, end token included; None if not known.
    longest_source: int | None = dataclasses.field(default=None, init=False)
    # What is known of the model: arguments of `Transformer` that are not in a spec, and its card.
    model_options: Mapping[str, Any] = dataclasses.field(default_factory=dict, init=False)
    card: Mapping[str, Any] = dataclasses.field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        check_options({field.name: getattr(self, field.name) for field in dataclasses.fields(self)})
        check_boolean("show_progress", self.show_progress)
        if self.constraint is not None:
            check_has("constraint", self.constraint, "a TextConstraint", "constraint", "of_batch")
        check_has("model", self.model, "a built Transformer", "vocabulary_size", "pad_token_id")
        check_has("tokenizer", self.tokenizer, "a Tokenizer", "encode", "decode", "end_token_id")
        named = ("vocabulary_size", "pad_token_id", "start_token_id", "end_token_id")
        # Of one vocabulary for both sides, neither says the target's size.
        for name in (*named, "target_vocabulary_size"):
            ours, theirs = (
                getattr(each, name, each.vocabulary_size) for each in (self.model, self.tokenizer)
            )
            if ours != theirs:
                raise ValueError(
                    f"The model has {name} {ours}, the tokenizer {theirs}: they do not belong "
                    "together. Use the tokenizer that the model was trained with."
                )
        _ = self._search  # Refuses what cannot be decoded now, not at the first text.

    def __getstate__(self) -> dict[str, Any]:
        # What was compiled stays behind: a copy in another process compiles for itself.
        return {name: value for name, value in self.__dict__.items() if name != "_search"}

    @overload
    def __call__(self, texts: str) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, texts: Iterable[str]) -> list[str]: ...

    def __call__(self, texts):
        """Return the best translation of a string (str), or of each of several (list of str)."""
        if isinstance(texts, str):
            return self.translate(texts)[0].text
        return [best[0].text for best in self.translate(texts)]

    @overload
    def translate(  # type: ignore[overload-overlap]
        self,
        texts: str,
        n_best: int = ...,
        unique: bool = ...,
        unusual: UnusualTexts | None = ...,
    ) -> list[Translation]: ...
    @overload
    def translate(
        self,
        texts: Iterable[str],
        n_best: int = ...,
        unique: bool = ...,
        unusual: UnusualTexts | None = ...,
    ) -> list[list[Translation]]: ...

    def translate(self, texts, n_best=1, unique=True, unusual=None):
        """Return the `n_best` translations, best first.

        Args:
            texts: A string, or an iterable of strings.
            n_best: Number of translations, at most `beam_size`. The best one does not depend on it.
                Defaults to 1.
            unique: Whether translations must differ in their text. Other tokens may spell the same text;
                of those the best one is kept, and the next best hypotheses of the beam fill up the list.
                If False, the hypotheses are returned as they are. Defaults to True.
            unusual: An `UnusualTexts` that collects the texts unlike those of the training, instead of a
                warning. Defaults to none.

        Returns:
            A list of `Translation` for a string, or a list of such lists for several. There may be fewer
            than `n_best`: a larger `beam_size` gives more to choose from. They are those that ended
            within the maximum length or, if there are none, those that were cut off.

        Raises:
            ValueError: If an argument is out of range, an item is not a string (the message names its index),
                or a line is too long for the model.
            NonFiniteModel: If a weight of the model, or its logits, are infinite or NaN.
        """
        check_boolean("unique", unique)
        if isinstance(texts, str):
            return self.translate([texts], n_best, unique, unusual)[0]
        if check_integer("n_best", n_best, 1) > self.beam_size:
            raise ValueError(
                f"`n_best` must be at most `beam_size`, which is {self.beam_size}. Received: n_best={n_best}"
            )
        texts = check_texts("texts", texts)
        if unusual is not None:
            check_has("unusual", unusual, "UnusualTexts", "add", "message")
        batching = Batching(
            self.batch_tokens,
            self.batch_size,
            self.model.max_length,
            self.beam_size,
            self.max_extra_length,
        )
        sources = self._encode(texts, batching)
        noted = UnusualTexts() if unusual is None else unusual
        noted.add(sources, self.tokenizer, self.longest_source)
        if unusual is None:
            noted.warn()
        results = [[Translation("", 0.0, (), True)] for _ in sources]
        total = sum(1 for source in sources if source)
        with Progress(total, "translating", "sentences", self.show_progress) as progress:
            for lines, result in self._search(sources, texts, batching, progress, n_best):
                found = self._translations(result, len(lines), n_best, unique)
                for line, translations in zip(lines, found, strict=True):
                    if not translations:
                        self._search.check_weights()
                        raise NonFiniteModel(
                            f"The model's logits for text {line} are not finite, so nothing could "
                            "be chosen. Has its training diverged?"
                        )
                    results[line] = translations
                progress.add(len(lines))
        return results

    def translate_file(
        self, source: str | os.PathLike[str], destination: str | os.PathLike[str]
    ) -> None:
        """Translate a UTF-8 text file, plain or packed, line by line.

        The result is written when it is complete: an interrupted translation leaves no file.

        Args:
            source: The file to translate.
            destination: The file to write.

        Raises:
            ValueError: If `source` is not UTF-8 text (the message names the line), or `destination`
                exists or its folder does not.
        """
        source = check_path("source", source)
        destination = check_destination(destination, sources=[source])
        # Byte tokens can form a line break, which would shift all following lines.
        translations = [" ".join(text.splitlines()) for text in self(read_lines(source))]
        write_atomically(destination, "".join(f"{text}\n" for text in translations))

    def engine_for(self, batch_size: int) -> EngineChoice:
        """Return which engine decodes a batch of this many sentences, and why.

        Args:
            batch_size: Number of sentences B.

        Returns:
            An `EngineChoice`: the `name` of an engine, or `"plain"`, and the `reason`, with the size of a
            step.
        """
        return self._search.choice(check_integer("batch_size", batch_size, 1))

    def _encode(self, texts: list[str], batching: Batching) -> list[list[int]]:
        """Return the source ids with the end token; `[]` for empty lines."""
        end = end_of(self.tokenizer, "source")
        sources = [
            [*ids, *end] if ids and text.strip() else []
            for text, ids in zip(texts, self.tokenizer.encode(texts), strict=True)
        ]
        limit = self.model.max_length
        for line, ids in enumerate(sources):
            if limit is not None and len(ids) > limit:
                raise LongText(
                    line,
                    f"has {len(ids)} tokens, end token included, but the model has learned {limit} "
                    f"positions. Split it into sentences: {texts[line][:60]!r}...",
                )
            if not batching.has_room(len(ids)):
                raise LongText(
                    line,
                    f"has {len(ids)} tokens, end token included, which is too long for beam_size="
                    f"{self.beam_size}: memory grows with its square. Take a smaller beam, or split the "
                    f"text into sentences: {texts[line][:60]!r}...",
                )
        return sources

    def _translations(
        self, result: BeamSearchResult, number: int, n_best: int, unique: bool
    ) -> Iterator[list[Translation]]:
        for row in range(number):
            kept: dict[Any, Translation] = {}
            for k in range(self.beam_size):
                if len(kept) < n_best and result.lengths[row, k]:
                    found = self._translation(
                        result.sequences[row, k, : result.lengths[row, k]].tolist(),
                        float(result.scores[row, k]),
                        bool(result.finished[row, k]),
                    )
                    kept.setdefault(found.text if unique else k, found)
            yield list(kept.values())

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


LEAST = {"beam_size": 1, "max_extra_length": 0, "batch_tokens": 1, "batch_size": 1}


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse arguments of `Translator` that no model can be decoded with, before there is a model.

    Args:
        options: The arguments that are given.

    Raises:
        ValueError: If one is out of range or unknown, or its engine is not installed.
    """
    for name in LEAST.keys() & options.keys():
        if options[name] is not None or name != "batch_size":
            check_integer(name, options[name], LEAST[name])
    defaults = {field.name: field.default for field in dataclasses.fields(Translator)}
    known = {**defaults, **options}
    check_search_options(known["beam_size"], known["length_penalty"])
    check_engine(known["engine"], known["precision"])
