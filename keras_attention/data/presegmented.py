"""What a tokenizer asks of an algorithm; text that is split already, for `algorithm="presegmented"`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SIDES = ("source", "target")
SPECIAL_TOKENS = ("<pad>", "</s>", "<unk>")  # ids 0, 1, 2
FOREIGN_SPECIAL_TOKENS = {"<s>", "<pad>", "</s>", "<unk>", ""}
UNKNOWN_ID = 2
UNKNOWN_TEXT = "⁇"
JOINER = "@@"  # ends a piece if the word continues in the next one, as in subword-nmt


def join_pieces(text: str) -> str:
    """Join the subwords of a line to words.

    >>> join_pieces("ein Wasch@@ bär schläft")
    'ein Waschbär schläft'
    """
    return f"{text} ".replace(f"{JOINER} ", "").rstrip()


class Pieces:
    """What a tokenizer asks of its algorithm, beside `encode` and `decode` for lists of one side."""

    names: Mapping[str, Sequence[str]]  # of each side, the piece of each id for display
    # Of special tokens, as attributes of a tokenizer, if they are not the usual ones.
    ids: Mapping[str, int] = {}
    symbols: tuple[str, ...] = ()
    languages: Mapping[str, int] = {}
    source_prefix: Sequence[int] = ()  # ids that every source begins with
    ends_source = True
    joined_by: Mapping[str, str] = {}  # what joins pieces to words: arguments of `Joints.of_pieces`


class ListedPieces(Pieces):
    """A vocabulary that is UTF-8 text, one piece per line, whose number is the id."""

    def __init__(self, model: bytes, kind: str = "pieces") -> None:
        try:
            self._tokens = model.decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"`model` is not a list of {kind}. ({error})") from error
        if tuple(self._tokens[: len(SPECIAL_TOKENS)]) != SPECIAL_TOKENS:
            raise ValueError(
                f"`model` is not a list of {kind}: it must begin with {SPECIAL_TOKENS}."
            )
        self.names = dict.fromkeys(SIDES, self._tokens)


class PresegmentedVocabulary(ListedPieces):
    """A vocabulary of pieces that spaces separate."""

    joined_by = {"behind": JOINER}

    def __init__(self, model: bytes) -> None:
        super().__init__(model)
        if len(set(self._tokens)) < len(self._tokens):
            raise ValueError("`model` is not a list of pieces: one of them occurs twice.")
        # "</s>" in a text must not end the sentence, so special tokens are left out.
        pieces = enumerate(self._tokens[len(SPECIAL_TOKENS) :], start=len(SPECIAL_TOKENS))
        self._ids = {token: index for index, token in pieces}

    @staticmethod
    def model(pieces: list[str]) -> bytes:
        """Return the model for a list of pieces, without special tokens of other toolkits."""
        kept = dict.fromkeys(piece for piece in pieces if piece not in FOREIGN_SPECIAL_TOKENS)
        return "\n".join([*SPECIAL_TOKENS, *kept]).encode()

    def encode(self, texts: list[str], side: str = "source") -> list[list[int]]:
        ids = self._ids
        return [[ids.get(piece, UNKNOWN_ID) for piece in text.split()] for text in texts]

    def decode(self, rows: list[list[int]], side: str = "target") -> list[str]:
        """Return the text of each row of ids, in words."""
        tokens = [*self._tokens]
        tokens[UNKNOWN_ID] = UNKNOWN_TEXT
        return [join_pieces(" ".join(tokens[token_id] for token_id in row)) for row in rows]
