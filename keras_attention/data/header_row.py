"""Recognises the names of two columns in the first row of a text."""

from __future__ import annotations

import re

# Words that name a column of sentences, and languages by their names and by their ISO 639-1 codes.
COLUMNS = (
    "source src target tgt trg reference ref hypothesis input output original translation translated text "
    "texts sentence sentences segment line lang language side left right column col id"
)
LANGUAGES = (
    "arabic bengali bulgarian catalan chinese croatian czech danish deutsch dutch english español estonian "
    "finnish français french german greek hebrew hindi hungarian indonesian irish italian italiano japanese "
    "korean latvian lithuanian norwegian persian polish portuguese romanian russian serbian slovak "
    "slovenian spanish swahili swedish tamil thai turkish ukrainian urdu vietnamese "
    "aa ab af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz "
    "ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii "
    "ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi "
    "mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw "
    "sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk "
    "ur uz ve vi vo wa wo xh yi yo za zh zu eng deu ger fra fre"
)


def looks_like_header(pair: tuple[str, str], languages: tuple[str, str] = ("", "")) -> bool:
    """Whether a pair is a row of column names: on each side, every word names a column or a language.

    Args:
        pair: The first pair of a text.
        languages: What its languages are called.

    >>> looks_like_header(("source_text", "Target")), looks_like_header(("en-GB", "deu_Latn"))
    (True, True)
    >>> looks_like_header(("It is so.", "Es ist so.")), looks_like_header(("yes", "ja"))
    (False, False)
    """
    known = {*f"{COLUMNS} {LANGUAGES}".split(), *map(str.lower, languages)}

    def names(side: str) -> bool:
        # A region or a script may follow a language: en-GB, pt_BR, eng_Latn.
        side = re.sub(r"\b([a-z]{2,3})[-_]([A-Z]{2}|[A-Z][a-z]{3})\b", r"\1", side.strip())
        words = [word.lower() for word in re.split(r"[\W_\d]+", side) if word]
        return bool(words) and not side.endswith((".", "!", "?")) and known.issuperset(words)

    return names(pair[0]) and names(pair[1])
