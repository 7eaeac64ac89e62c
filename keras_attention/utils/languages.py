"""Codes of languages, such as `"de"`, `"de-AT"`, `"deu_Latn"`: which language each is of."""

from __future__ import annotations

import functools
import re

# ISO 639's codes of each language, the shortest first, and those of NLLB-200 where they differ.
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
def by_code() -> dict[str, str]:
    """Return the shortest code of a language by each of its codes, without region and script."""
    return {code: codes.split()[0] for codes in ISO_639.split(", ") for code in codes.split()}


def base_language(code: str) -> str:
    """Return the shortest code of a language, without region and script, in small letters.

    >>> [base_language(code) for code in ("pt_BR", "zho-Hans", "deu_Latn", "ger", "ast")]
    ['pt', 'zh', 'de', 'de', 'ast']
    """
    base = re.split("[-_]", code, maxsplit=1)[0].lower()
    return by_code().get(base, base)
