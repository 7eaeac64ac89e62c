"""The `Translator`: from text to text.

Shape letters: B sentences, S source length, W beams, L longest output, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, overload

from keras_attention.data.text_files import read_lines
from keras_attention.decoding.ensemble import Ensemble
from keras_attention.decoding.glossary import Glossary, check_glossary
from keras_attention.decoding.model_search import ModelSearch
from keras_attention.decoding.paragraphs import check_split_sentences, translate_by_sentences
from keras_attention.decoding.pretrained import Pretrained
from keras_attention.decoding.requests import Batching, RequestReader, check_same_vocabulary
from keras_attention.decoding.restrictions import (
    Restrictions,
    break_loops,
    check_restrictions,
    stricter,
)
from keras_attention.decoding.sampling import MOST_SAMPLES, Sampling
from keras_attention.decoding.translation import MinimumBayesRisk, Translation, attention_of
from keras_attention.decoding.unusual_texts import UnusualText, UnusualTexts
from keras_attention.engine.select import EngineChoice, EngineName, Precision
from keras_attention.utils.arguments import (
    BeamSize,
    Count,
    FromZero,
    Has,
    LengthPenalty,
    check_fields,
    checked,
)
from keras_attention.utils.checks import check_boolean, check_has, check_integer, check_texts
from keras_attention.utils.files import atomic_file, check_destination
from keras_attention.utils.sides import LANGUAGES, in_languages

if TYPE_CHECKING:
    from keras_attention.decoding.constraints import TextConstraint


@dataclasses.dataclass(frozen=True, eq=False)
class Translator(Pretrained, MinimumBayesRisk):
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
    backend. The choice does not depend on a clock or on the batch, so results do not, either, but for the
    last digits of a machine's or a process' first translations: see the next paragraph. `engine_for`
    names the choice. The plain `decode_step` and `beam_search` define the result: `engine="plain"` uses
    them, and so does `"auto"` for a model that no engine can run. The weights are read at each call, so
    the translator of a model in training uses its current weights.

    Numba compiles once on a machine, for a minute or two, and keeps the result for later processes. Until
    then, with `engine="auto"` and in float32, NumPy translates the first texts: if little is to be done, it
    ends before Numba would begin; a line on the standard error says so. So does a text that NumPy ends in
    half a second, before the process would have imported Numba. TensorFlow compiles two
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
            arrays, which is decoded without Keras, or an `OnnxModel`, which onnxruntime runs. Or a list of
            such models with one vocabulary, an ensemble: the score of a token is then the mean of its
            log-probabilities, and the backend's own engine or the plain search decodes.
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
            `"numpy"`, which compiles nothing, `"plain"`, or `"ctranslate2"`, if that is installed: it has
            its own search and may choose other translations; see `export_ctranslate2`. Defaults to `"auto"`.
        constraint: A `TextConstraint` on the translations, which needs the backend's own engine or the plain
            search. Defaults to none.
        sampling: A `Sampling`, with which translations are drawn at random: `n_best` are then so many samples
            of each sentence, and `beam_size` plays no part. Defaults to none.
        restrictions: `Restrictions` on the translations, or a dict of their attributes: banned words, no
            n-gram twice, least and greatest length. Defaults to none.
        glossary: Terms of the texts and the translations that must then occur, a dict or a file with lines
            of term, tab and translation; `decoding.glossary.Glossary` says how terms are found. Texts with a
            term need what phrases do. A translation that does not fit, or that the vocabulary cannot spell,
            is left out with a warning (`UnusualText`). Defaults to none.
        break_loops: Whether a text is translated again without repetitions if its best translation has a loop
            ("Salat Salat Salat"; `decoding.restrictions.has_loop` defines it), and marked with `had_loop`.
            No other translation changes. Defaults to False.
        split_sentences: Language code of the texts, such as `"en"`: a call then splits each text into
            sentences (by `sentencex`), translates these, and joins them. `translate`, whose scores and lists
            are of one sentence, is refused. Defaults to none.
        longest_source: Number of tokens of the longest source in the training, end token included, beyond
            which texts are unusual. Defaults to None, not known.
        source_language: The language of the texts, for a model that translates between many, M2M-100,
            NLLB-200 or mBART: a code of `tokenizer.languages`, such as `"eng_Latn"`. Such a model must be
            told it, here or in `translate`. Defaults to that of the tokenizer.
        target_language: The same, of the translations; or a key of `tokenizer.tags`, whose tag is then put
            before each text.
        model_options: Arguments of `Transformer` that are not in a spec, such as `dropout`, for
            `save_to_preset`. Defaults to those of the model.
        card: What is known of the model, for the card of `save_to_preset`. Defaults to nothing.

    Raises:
        ValueError: If an argument is out of range, the tokenizer does not belong to the model, or the
            model cannot be decoded with this `engine` or `precision`.

    Example:

    >>> from keras_attention import Tokenizer, Transformer
    >>> tokenizer = Tokenizer.train(["ein kleines Haus", "a small house"], vocabulary_size=280)
    >>> model = Transformer.from_preset("tiny", tokenizer.vocabulary_size, seed=1)
    >>> translator = Translator(model, tokenizer, beam_size=2, max_extra_length=3)
    >>> type(translator("a house"))  # an untrained model babbles
    <class 'str'>
    >>> translator(["", " "])
    ['', '']
    >>> found = translator.translate(["a house", "a small house"], n_best=2, unique=False)
    >>> [len(best) for best in found]
    [2, 2]
    >>> drawn = dataclasses.replace(translator, sampling=Sampling(top_k=9, seed=3))
    >>> drawn.translate("a house", n_best=5) == drawn.translate("a house", n_best=7)[:5]
    True
    """

    model: Any
    tokenizer: Annotated[Any, Has("a Tokenizer", "encode", "decode", "end_token_id")]
    _: dataclasses.KW_ONLY
    beam_size: BeamSize = 4
    length_penalty: LengthPenalty = 0.6
    max_extra_length: FromZero = 50
    batch_tokens: Count = 2048
    batch_size: Count | None = None
    show_progress: bool = True
    precision: Precision | None = None
    engine: EngineName = "auto"
    constraint: Annotated[TextConstraint, Has("a TextConstraint", "of_batch")] | None = None
    sampling: Sampling | None = None
    restrictions: Annotated[Restrictions, check_restrictions] | None = None
    glossary: Annotated[Glossary, check_glossary] | None = None
    break_loops: bool = False
    split_sentences: Annotated[str, check_split_sentences] | None = None
    source_language: str | None = None
    target_language: str | None = None
    longest_source: Count | None = dataclasses.field(default=None, repr=False)
    model_options: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    card: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        are_several = isinstance(self.model, list | tuple)
        for model in self.model if are_several else [self.model]:
            check_has("model", model, "a built Transformer", "vocabulary_size", "pad_token_id")
        if are_several:
            object.__setattr__(self, "model", Ensemble(self.model))
        check_same_vocabulary(self.model, self.tokenizer)
        chosen = in_languages(self.tokenizer, self.source_language, self.target_language)
        object.__setattr__(self, "tokenizer", chosen)
        _ = self.search  # Refuses what cannot be decoded now, not at the first text.
        if self.glossary is not None:
            if self.beams == 1:
                raise ValueError(
                    "`glossary` needs a beam, of which a part is for hypotheses with its translations. Raise "
                    "`beam_size`, and leave out `sampling`. Received: beam_size="
                    f"{self.beam_size}, sampling={self.sampling}"
                )
            self.engine_for(1, phrases=True)
        if self.break_loops:
            if self.sampling is not None:
                raise ValueError(
                    "`break_loops` is for the likeliest translation, not for samples. Leave out "
                    "`sampling`, or give `restrictions`."
                )
            _ = self._without_loops

    def __getstate__(self) -> dict[str, Any]:
        # What was compiled stays behind: a copy in another process compiles for itself.
        compiled = ("search", "_requests", "_without_loops")
        return {name: value for name, value in self.__dict__.items() if name not in compiled}

    @overload
    def __call__(self, texts: str, unusual: Any = ..., **languages: Any) -> str: ...
    @overload
    def __call__(self, texts: Iterable[str], unusual: Any = ..., **languages: Any) -> list[str]: ...

    def __call__(self, texts, unusual=None, **languages):
        """Return the best translation of a string (str), or of each of several (list of str).

        Args:
            texts: A string, or an iterable of strings.
            unusual, **languages: As of `translate`.
        """
        if languages:
            return self.in_languages(**languages)(texts, unusual)
        given = [texts] if isinstance(texts, str) else check_texts("texts", texts)
        if self.split_sentences is None:
            found = [best[0].text for best in self._translations(given, unusual=unusual)]
        else:
            noted = UnusualTexts("sentences") if unusual is None else unusual
            found = translate_by_sentences(
                lambda part: [best[0].text for best in self._translations(part, unusual=noted)],
                given,
                self.split_sentences,
            )
            if unusual is None and (message := noted.message()):
                warnings.warn(message, UnusualText, stacklevel=2)
        return found[0] if isinstance(texts, str) else found

    @overload
    def translate(self, texts: str, n_best: int = ..., **options: Any) -> list[Translation]: ...
    @overload
    def translate(
        self, texts: Iterable[str], n_best: int = ..., **options: Any
    ) -> list[list[Translation]]: ...

    def translate(
        self, texts, n_best=1, unique=None, unusual=None, prefixes=None, phrases=None, **languages
    ):
        """Return the `n_best` translations, best first, or so many samples in the order drawn.

        Args:
            texts: A string, or an iterable of strings.
            n_best: Number of translations, at most `beam_size`. The best one does not depend on it. With
                `sampling`, up to 100,000 samples; the first ones do not depend on it. Defaults to 1.
            unique: Whether translations must differ in their text. Other tokens may spell the same text;
                of those the best one is kept, and the next best hypotheses of the beam fill up the list.
                If False, the hypotheses are returned as they are. Defaults to True, for samples to False.
            unusual: An `UnusualTexts` that collects the texts unlike those of the training, instead of a
                warning. Defaults to none.
            prefixes: The text with which the translation of each text begins, `""` for none; a string if
                `texts` is one. What `restrictions` say holds behind it; lengths count its tokens, too.
                Defaults to none.
            phrases: The phrases that the translation of each text must contain, as whole words, a list of
                strings for each, or a list of strings if `texts` is a string. They need the backend's own
                engine or the plain search, and a beam. A tokenizer without `joints`, of your own, cannot tell
                where words end: there, a word may go on behind a phrase. Defaults to none.
            **languages: `source_language` and `target_language` of this call, instead of the translator's.

        Returns:
            A list of `Translation` for a string, or a list of such lists for several. There may be fewer
            than `n_best`: a larger `beam_size` gives more to choose from. They are those that ended
            within the maximum length or, if there are none, those that were cut off.

        Raises:
            ValueError: If an argument is out of range, an item is not a string (the message names its index),
                a line is too long for the model, or what is asked of its translation does not fit.
            NonFiniteModel: If a weight of the model, or its logits, are infinite or NaN.
        """
        if languages:
            asked = {"prefixes": prefixes, "phrases": phrases}
            chosen = self.in_languages(**languages)
            return chosen.translate(texts, n_best, unique=unique, unusual=unusual, **asked)
        is_one = isinstance(texts, str)
        if is_one:
            given = (texts, prefixes, phrases)
            texts, prefixes, phrases = (None if part is None else [part] for part in given)
        if self.split_sentences is not None:
            raise ValueError(
                "`translate` has scores, n best, prefixes and phrases of sentences, which do not go with "
                f"`split_sentences` ({self.split_sentences!r}). Call the translator itself, or leave it out."
            )
        is_unique = self.sampling is None if unique is None else check_boolean("unique", unique)
        check_integer("n_best", n_best, 1, None if self.sampling is None else MOST_SAMPLES)
        if self.sampling is None and n_best > self.beam_size:
            raise ValueError(
                f"`n_best` must be at most `beam_size`, which is {self.beam_size}. Received: n_best={n_best}"
            )
        texts = check_texts("texts", texts)
        found = self._translations(texts, n_best, is_unique, unusual, prefixes, phrases)
        return found[0] if is_one else found

    def _translations(
        self, texts, n_best=1, is_unique=False, unusual=None, prefixes=None, phrases=None
    ):
        if unusual is not None:
            check_has("unusual", unusual, "UnusualTexts", "add", "message")
        requests = self._requests(texts, prefixes, phrases, unusual)
        # By their text if it must differ, else by their number.
        found: list[dict[Any, Translation]] = [
            {} if one.source else {"": Translation("", 0.0, (), True)} for one in requests
        ]
        for indices, result in self.search(requests, n_best, self.show_progress):
            for row, index in enumerate(indices):
                kept, hypotheses = found[index], zip(*(part[row] for part in result), strict=True)
                for sequence, score, length, ended in hypotheses:
                    if length and len(kept) < n_best:
                        ids = sequence[: length - ended].tolist()
                        text = self.tokenizer.decode(ids)
                        one = Translation(text, float(score), tuple(ids), bool(ended))
                        kept.setdefault(text if is_unique else len(kept), one)
        results = [list(kept.values()) for kept in found]
        if self.break_loops:
            named = {name: getattr(self, name) for name in LANGUAGES}
            how = {"n_best": n_best, "unique": is_unique, **named}
            asked = {"prefixes": prefixes, "phrases": phrases}
            break_loops(self._without_loops, results, texts, asked, **how)
        return results

    @checked
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
        source = Path(source)
        destination = check_destination(destination, sources=[source])
        # Byte tokens can form a line break, which would shift all following lines.
        translations = [" ".join(text.splitlines()) for text in self(read_lines(source))]
        with atomic_file(destination, "w", is_new=True) as file:
            file.writelines(f"{text}\n" for text in translations)

    @checked
    def engine_for(
        self, batch_size: Count, prefixes: bool = False, phrases: bool = False
    ) -> EngineChoice:
        """Return which engine decodes a batch of this many sentences, and why.

        Args:
            batch_size: Number of sentences B.
            prefixes: Whether `translate` gets prefixes, which not every engine can. Defaults to False.
            phrases: Whether it gets phrases. Defaults to False.

        Returns:
            An `EngineChoice`: the `name` of an engine, or `"plain"`, and the `reason`, with the size of a
            step.
        """
        return self.search.choice(batch_size, (phrases, prefixes))

    @property
    def watched(self) -> Any:
        """What has the `attention_scores` of the model: the model itself, or, of a spec, NumPy's."""
        return attention_of(self.model)

    @functools.cached_property
    def search(self) -> ModelSearch:
        """What searches the best hypotheses: the model, run by an engine where one can."""
        rules = self.restrictions or Restrictions()
        lengths = (self.max_extra_length, rules.min_length, rules.max_length or 0)
        positions = self.model.max_length
        return ModelSearch(
            self.model,
            Batching(self.batch_tokens, self.batch_size, positions, self.beams, *lengths),
            self.length_penalty,
            self.precision,
            self.engine,
            self.constraint,
            self.sampling,
            rules.token_rules(self.tokenizer),
            self.tokenizer,
        )

    @functools.cached_property
    def _requests(self) -> RequestReader:
        batching = self.search.batching
        return RequestReader(self.tokenizer, batching, self.glossary, self.longest_source)

    @functools.cached_property
    def _without_loops(self) -> list[Translator]:
        return stricter(self)

    @property
    def beams(self) -> int:
        """Number of hypotheses that are kept of a sentence, or of a sample of it."""
        return self.beam_size if self.sampling is None else 1
