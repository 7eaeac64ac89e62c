"""Words of scripts that have no spaces between them."""

import unicodedata

# Thai, Lao, Tibetan, Burmese, Khmer, and from the signs 々〆〇, the kana and Chinese characters on those of
# both planes, with kana of half width; Hangul has spaces.
NO_SPACES = (
    (0x0E00, 0x0FFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x3005, 0x3007),
    (0x3040, 0x30FF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),
    (0x20000, 0x3FFFF),
)

OPENING = ("Ps", "Pi")  # categories of Unicode: brackets and quotes


def has_no_spaces(letter: str) -> bool:
    """Whether a letter is of a script whose words have no spaces between them."""
    return any(first <= ord(letter) <= last for first, last in NO_SPACES)


def is_letter(char: str) -> bool:
    """Whether a character is of a word, in a script with spaces between words."""
    is_word = char.isalnum() or char == "_" or unicodedata.category(char)[0] == "M"
    return is_word and not has_no_spaces(char)


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return where the words between spaces begin and end; in scripts without spaces each letter is a word.

    Marks and closing punctuation belong to the letter before, opening punctuation to the one behind.

    >>> [text[start:end] for text in ["我有《OK》猫。 Well-known"] for start, end in word_spans(text)]
    ['我', '有', '《OK》', '猫。', 'Well-known']
    """
    spans: list[tuple[int, int]] = []
    is_apart, before = False, " "  # whether the letter before is of such a script; and its category
    for place, letter in enumerate(text):
        kind = unicodedata.category(letter)
        if letter.isspace():
            is_apart, before = False, " "
            continue
        is_added = kind[0] in "MP" and kind not in OPENING
        joins = is_added or before in OPENING or not (is_apart or has_no_spaces(letter))
        if before != " " and joins:
            spans[-1] = (spans[-1][0], place + 1)
        else:
            spans.append((place, place + 1))
        is_apart, before = has_no_spaces(letter) or (is_added and is_apart), kind
    return spans
