"""The paper's BLEU: tokenised by Moses, case-sensitive, hyphens split, as get_ende_bleu.sh does it.

The 27.3 and 28.4 of Table 2 are this BLEU. On the same translations it differs from sacreBLEU's by some 0.7
to 1.5 points, so the two must not be compared.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
from collections.abc import Callable, Sequence
from typing import Any

from keras_attention.evaluation.bleu import CorpusScore, bleu_tokenizer, comparable_lines
from keras_attention.utils.arguments import checked
from keras_attention.utils.languages import base_language
from keras_attention.utils.lazily import check_moses

_HYPHEN = re.compile(r"(\S)-(\S)")


@checked
def tokenized_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    language: str,
    references_are_tokenized: bool = False,
) -> CorpusScore:
    """BLEU-4 as the authors' script `get_ende_bleu.sh` computes it; without Perl.

    The steps: `replace-unicode-punctuation.perl`, `tokenizer.perl -l de` with its escapes (`&quot;`,
    ...), hyphens inside of words as tokens `##AT##-##AT##`, then `multi-bleu.perl`: one reference,
    case-sensitive, no smoothing, so 0 if no 4-gram matches.

    The tokenizer comes from the package sacremoses. It differs from today's Perl scripts:

    * the dot after an abbreviation (`usw.`) that ends a line stays with it, as in the Perl of 2017;
      since then it is split off;
    * the wide digit one becomes `1`; the Perl script turns it into a quotation mark, by mistake;
    * Chinese, Japanese and Korean letters, Devanagari's virama and the control characters U+001C to
      U+001F, white space in Python, are cut at other places: score such text with the Perl script.

    Args:
        hypotheses: Translations as plain text, not tokenised.
        references: The reference of each translation, in the same order.
        language: Language code of both, for abbreviations and apostrophes: the paper's is "de".
        references_are_tokenized: Whether the references are already tokenized by Moses, such as
            `newstest2013.tok.de` in the script. Then only their hyphens are split.

    Returns:
        A `CorpusScore` with the name of the metric and its own signature.

    Raises:
        ImportError: If sacremoses is not installed.
        ValueError: If the lists are empty, differ in length or hold anything but strings, or Moses does not
            know the language.

    Example:

    >>> text = ["Ein Kind, das E-Mails liest."]
    >>> score = tokenized_bleu(text, text, language="de")
    >>> print(score)  # doctest: +ELLIPSIS
    tokenised, hyphen-split BLEU (get_ende_bleu.sh) 100.00 (...|tok:moses-de|hyphens:split|...)
    """
    from sacrebleu.metrics import BLEU

    hypotheses, references = comparable_lines(hypotheses, references)
    metric = BLEU(tokenize="none", smooth_method="none", force=True)  # as multi-bleu.perl
    split = split_hyphens if references_are_tokenized else moses_tokenizer(language)
    tokenized = [moses_tokenizer(language)(line) for line in hypotheses]
    result = metric.corpus_score(tokenized, [[split(line) for line in references]])
    name = "tokenised, hyphen-split BLEU (get_ende_bleu.sh)"
    details = result.format(score_only=False)
    return CorpusScore(name, result.score, signature(language), details)


def split_hyphens(text: str) -> str:
    """Split hyphens inside words into tokens, as papers on WMT14 English-German do.

    Matches do not overlap: the rule is Perl's `s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g`.

    >>> split_hyphens("state-of-the-art")
    'state ##AT##-##AT## of ##AT##-##AT## the ##AT##-##AT## art'
    >>> split_hyphens("a-b-c -5 end-")
    'a ##AT##-##AT## b-c -5 end-'
    """
    return _HYPHEN.sub(r"\1 ##AT##-##AT## \2", text)


def moses_tokenizer(language: str) -> Callable[[str], str]:
    """Return the function from a plain line of a language to its tokens, hyphens split, with single spaces.

    >>> moses_tokenizer("de")("„Das“ kostet 3,50 € (z. B. im E-Shop)…")
    '„ Das &quot; kostet 3,50 € ( z. B. im E ##AT##-##AT## Shop ) ...'
    """
    if not moses_knows(language):
        raise ValueError(f"Moses does not know the language. Received: language={language!r}")
    normalizer, tokenizer = _moses(base_language(language))

    def tokenize(line: str) -> str:
        line = normalizer.replace_unicode_punct(line)
        return split_hyphens(tokenizer.tokenize(line, return_str=True, escape=True))

    return tokenize


def moses_knows(language: str | None) -> bool:
    """Whether Moses knows how to cut a language: it has spaces, and Moses a list of its abbreviations.

    >>> [moses_knows(language) for language in ("pt_BR", "deu_Latn", "zh", "xx", None)]
    [True, True, False, False, False]
    """
    check_moses()
    from sacremoses.corpus import NonbreakingPrefixes

    known = NonbreakingPrefixes().available_langs.values()
    return base_language(language or "") in known and bleu_tokenizer(language) == "13a"


def signature(language: str) -> str:
    """Everything needed to repeat the score, in the form of sacreBLEU's signatures."""
    version = importlib.metadata.version
    return (
        f"nrefs:1|case:mixed|eff:no|punct:replace-unicode|tok:moses-{base_language(language)}|hyphens:split|"
        f"smooth:none|sacremoses:{version('sacremoses')}|version:{version('sacrebleu')}"
    )


@functools.cache
def _moses(language: str) -> tuple[Any, Any]:
    check_moses()
    import sacremoses

    return sacremoses.MosesPunctNormalizer(lang=language), sacremoses.MosesTokenizer(lang=language)
