"""Paragraphs, split into sentences before they are translated and joined behind, by `sentencex`."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from collections.abc import Callable, Sequence

LANGUAGE = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{2,8})*")
# ISO 639's codes of each language, and of NLLB-200. sentencex knows the first ones, and
# splits other text as English, without a word.
ISO_639 = (
    "aa aar, ab abk, ae ave, af afr, ak aka, am amh, an arg, ar ara arb, as asm, av ava, ay aym ayr, "
    "az aze azj, ba bak, be bel, bg bul, bh, bi bis, bm bam, bn ben, bo bod tib, br bre, bs bos, ca "
    "cat, ce che, ch cha, co cos, cr cre, cs ces cze, cu chu, cv chv, cy cym wel, da dan, de deu ger, "
    "dv div, dz dzo, ee ewe, el ell gre, en eng, eo epo, es spa, et est ekk, eu eus baq, fa fas per "
    "pes, ff ful fuv, fi fin, fj fij, fo fao, fr fra fre, fy fry, ga gle, gd gla, gl glg, gn grn, gu "
    "guj, gv glv, ha hau, he heb, hi hin, ho hmo, hr hrv, ht hat, hu hun, hy hye arm, hz her, ia ina, "
    "id ind, ie ile, ig ibo, ii iii, ik ipk, io ido, is isl ice, it ita, iu iku, ja jpn, jv jav, ka "
    "kat geo, kg kon, ki kik, kj kua, kk kaz, kl kal, km khm, kn kan, ko kor, kr kau, ks kas, ku kur "
    "kmr, kv kom, kw cor, ky kir, la lat, lb ltz, lg lug, li lim, ln lin, lo lao, lt lit, lu lub, lv "
    "lav lvs, mg mlg plt, mh mah, mi mri mao, mk mkd mac, ml mal, mn mon khk, mr mar, ms msa may zsm, "
    "mt mlt, my mya bur, na nau, nb nob, nd nde, ne nep npi, ng ndo, nl nld dut, nn nno, no nor, nr "
    "nbl, nv nav, ny nya, oc oci, oj oji, om orm gaz, or ori ory, os oss, pa pan, pi pli, pl pol, ps "
    "pus, pt por, qu que quy, rm roh, rn run, ro ron rum, ru rus, rw kin, sa san, sc srd, sd snd, se "
    "sme, sg sag, sh hbs, si sin, sk slk slo, sl slv, sm smo, sn sna, so som, sq sqi alb als, sr srp, "
    "ss ssw, st sot, su sun, sv swe, sw swa swh, ta tam, te tel, tg tgk, th tha, ti tir, tk tuk, tl "
    "tgl, tn tsn, to ton, tr tur, ts tso, tt tat, tw twi, ty tah, ug uig, uk ukr, ur urd, uz uzb uzn, "
    "ve ven, vi vie, vo vol, wa wln, wo wol, xh xho, yi yid ydd, yo yor, za zha, zh zho chi, zu zul"
)


@functools.cache
def shortest_codes() -> dict[str, str]:
    """Return the first code of a language by each of its codes."""
    return {code: codes.split()[0] for codes in ISO_639.split(", ") for code in codes.split()}


def check_split_sentences(name: str, language: str) -> str:
    """Refuse what is no language code, and any if `sentencex` is not installed."""
    is_code = isinstance(language, str) and LANGUAGE.fullmatch(language) is not None
    first = _first_part(language) if is_code else ""
    if not is_code or (len(first) == 2 and first not in shortest_codes()):
        raise ValueError(
            f"`{name}` must be the language code of the texts, such as 'en', which ISO 639 knows. "
            f"Received: {name}={language!r}"
        )
    if "sentencex" not in sys.modules and importlib.util.find_spec("sentencex") is None:
        raise ImportError(
            f"`{name}` ({language!r}) needs the package sentencex: pip install sentencex"
        )
    return language


def translate_by_sentences(
    translate: Callable[[list[str]], Sequence[str]], texts: Sequence[str], language: str
) -> list[str]:
    """Translate each sentence of each text by itself.

    What stands between two sentences stays: a space, or the empty lines between paragraphs. Where nothing
    does, as in Chinese, a space comes between the translations.
    """
    import sentencex

    language = _first_part(language)
    texts_parts = [_parts(sentencex.segment(language, text)) for text in texts]
    sentences = [sentence for parts in texts_parts for sentence, _ in parts]
    found = iter(translate(sentences))
    results = []
    for parts in texts_parts:
        # What has no translation leaves no gap.
        translated = [(next(found), gap) for _, gap in parts]
        results.append("".join(text + gap for text, gap in translated if text).strip())
    return results


def _first_part(language: str) -> str:
    """Return the language of a code; sentencex may take any part for it: "xx-no" is no Norwegian.

    >>> _first_part("de_DE"), _first_part("deu_Latn"), _first_part("ger"), _first_part("ast")
    ('de', 'de', 'de', 'ast')
    """
    first = re.split("[-_]", language)[0].lower()
    return shortest_codes().get(first, first)


def _parts(segments: Sequence[str]) -> list[tuple[str, str]]:
    """Return each sentence and the white space behind it.

    >>> _parts(["One. ", "Two!", "\\n\\n", "Three", "Four"])
    [('One.', ' '), ('Two!', '\\n\\n'), ('Three', ' '), ('Four', '')]
    """
    parts: list[tuple[str, str]] = []
    for segment in segments:
        sentence = segment.strip()
        start = segment[: len(segment) - len(segment.lstrip())]
        if parts and start:
            parts[-1] = parts[-1][0], parts[-1][1] + start
        if sentence:
            if parts and not parts[-1][1]:
                parts[-1] = parts[-1][0], " "
            parts.append((sentence, segment[len(segment.rstrip()) :]))
    return parts
