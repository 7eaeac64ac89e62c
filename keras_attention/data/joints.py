"""Which tokens of a vocabulary are joined to one word.

Shape letters: V vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_attention.utils.scripts import is_letter

# Korean particles stand behind their word without a space, whatever the word.
HANGUL = ((0x1100, 0x11FF), (0x3130, 0x318F), (0xAC00, 0xD7FF))
BYTE = re.compile("<0x([0-9A-F]{2})>")  # a piece of SentencePiece that is a byte of a letter


class Joints(NamedTuple):
    """How the tokens of a vocabulary are joined: a word goes on from a to b if `goes_on[a] & continues[b]`.

    Attributes:
        goes_on: (V,) bool, whether the word that a token ends with may go on in the next one.
        continues: (V,) bool, whether a token may go on with the word of the one before.
    """

    goes_on: np.ndarray
    continues: np.ndarray

    @classmethod
    def of_pieces(cls, pieces: Sequence[str], before: str = "", behind: str = "") -> Joints:
        """Return the joints of pieces.

        Args:
            pieces: The piece of each id.
            before: What a piece begins with that goes on with a word, such as `"##"`. Defaults to nothing: a
                piece that goes on with no word has a mark or a space there.
            behind: What a piece ends with whose word goes on, such as `"@@"`. Defaults to nothing.

        Example:

        >>> Joints.of_pieces(["▁Kater", "ft", ",", "猫"]).continues.tolist()
        [False, True, False, False]
        >>> Joints.of_pieces(["Kater", "ft", "Wasch@@"], behind="@@").goes_on.tolist()
        [False, False, True]
        """
        pieces = [_shown(piece) for piece in pieces]
        goes_on = [p.endswith(behind) and _is_joined(p.removesuffix(behind)[-1:]) for p in pieces]
        continues = [
            p.startswith(before) and _is_joined(p.removeprefix(before)[:1]) for p in pieces
        ]
        return cls(np.array(goes_on, "bool"), np.array(continues, "bool"))

    def join(self, left: int, right: int) -> bool:
        """Whether the word of a token goes on in the next one."""
        return bool(self.goes_on[left] and self.continues[right])


def _is_joined(char: str) -> bool:
    """Whether a character of a piece's edge, if there is one, belongs to the word on the other side."""
    is_hangul = any(first <= ord(each) <= last for first, last in HANGUL for each in char)
    return char != "" and is_letter(char) and not is_hangul


def _shown(piece: str) -> str:
    """Return a piece, or a letter for a byte that is of one, as far as a byte alone says so.

    Those of two bytes are letters, but for the first row of signs; of three, signs are as many.
    """
    found = BYTE.fullmatch(piece)
    if found is None:
        return piece
    byte = int(found[1], 16)
    if byte < 0x80:
        return chr(byte)
    return "x" if byte < 0xC0 or 0xC3 <= byte < 0xE0 else ""
