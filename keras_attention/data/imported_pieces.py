"""The tokenizer of a model that another program has trained, for `Tokenizer(algorithm="imported")`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence

from keras_attention.data.presegmented import JOINER, SIDES, Pieces
from keras_attention.data.sentence_pieces import encoded, opened

# The first word may name the language to translate into, as in OPUS-MT's multilingual models.
LANGUAGE = re.compile(r"\s*(>>[^<>\s]+<<)\s*")
IDS = ("pad_token_id", "start_token_id", "end_token_id")


class ImportedPieces(Pieces):
    """SentencePiece models and vocabularies as they are, with their own ids and their own normalisation.

    Text is split by the SentencePiece model of its side, and each piece has the id that the vocabulary of
    this side says. Without a SentencePiece model, spaces separate pieces. Special tokens in a text are
    text.
    """

    def __init__(self, model: bytes) -> None:
        try:
            content = json.loads(model)
            special_ids = [content["ids"][name] for name in IDS]
            self.source_prefix = content["source_prefix"]
            self.ends_source = content["ends_source"]
            self.languages = content.get("languages", {})
            lists = content["pieces"]
            self.names = {
                side: pieces or lists[0] for side, pieces in zip(SIDES, lists, strict=True)
            }
            self._unknown: dict[str, int] = dict(zip(SIDES, content["unknown"], strict=True))
            names = (*IDS, "unknown_token_id", "target_unknown_token_id")
            self.ids = dict(zip(names, (*special_ids, *self._unknown.values()), strict=True))
            models = [
                None if text is None else base64.b64decode(text) for text in content["models"]
            ]
            processors = [None if model is None else opened(model)[0] for model in models]
            self._processors = dict(zip(SIDES, (processors[0], processors[-1]), strict=True))
            self._check()
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"`model` is not an imported tokenizer. ({error})") from error
        special = {*special_ids, *self.languages.values()}
        self._ids = {
            side: {piece: i for i, piece in enumerate(pieces) if i not in special}
            for side, pieces in self.names.items()
        }
        # What joins pieces of the target to words.
        self.joined_by = {"behind": JOINER} if self._processors["target"] is None else {}

    def _check(self) -> None:
        """Refuse pieces that are no texts, and ids without a piece: compiled code reads tables unchecked."""
        if not all(isinstance(one, str) for pieces in self.names.values() for one in pieces):
            raise TypeError("a piece is no text")
        ids = [*self._unknown.items(), *(("target", self.ids[name]) for name in IDS)]
        ids += [("source", i) for i in self.source_prefix]
        ids += [(side, i) for side in SIDES for i in self.languages.values()]
        for side, token_id in ids:
            if type(token_id) is not int or not 0 <= token_id < len(self.names[side]):
                raise ValueError(f"{token_id!r} is no id of the {side} vocabulary")

    @staticmethod
    def model(
        pieces: Sequence[Sequence[str]],
        models: Sequence[bytes | None],
        ids: Mapping[str, int],
        unknown: Sequence[int],
        source_prefix: Sequence[int] = (),
        ends_source: bool = True,
        languages: Mapping[str, int] | None = None,
    ) -> bytes:
        """Return the model for vocabularies and SentencePiece models.

        Args:
            pieces: The piece of each id: of the source, and of the target if it has another vocabulary.
            models: SentencePiece models of source and target; None where spaces separate the pieces.
            ids: `pad_token_id`, `start_token_id` and `end_token_id`.
            unknown: Id of the unknown token in source and target.
            source_prefix: Ids that every source begins with.
            ends_source: Whether every source ends with the end token.
            languages: Id of each language's code, with which translations begin, and sources, too; but if
                `ends_source` is False, sources end with the end token and then the code.
        """
        texts = [None if m is None else base64.b64encode(m).decode() for m in models]
        content = {
            "pieces": [list(pieces[0]), list(pieces[1]) if len(pieces) > 1 else None],
            "models": [*dict.fromkeys(texts)],
            "ids": {name: ids[name] for name in IDS},
            "unknown": list(unknown),
            "source_prefix": list(source_prefix),
            "ends_source": ends_source,
        }
        if languages:
            content["languages"] = dict(languages)
        return json.dumps(content, ensure_ascii=False, sort_keys=True).encode()

    def models(self) -> dict[str, bytes]:
        """Return the SentencePiece model of each side; none of one whose pieces spaces separate."""
        return {
            side: processor.serialized_model_proto()
            for side, processor in self._processors.items()
            if processor is not None
        }

    def encode(self, texts: list[str], side: str = "source") -> list[list[int]]:
        ids, unknown = self._ids[side], self._unknown[side]
        codes: list[list[str]] = [[] for _ in texts]
        texts = list(texts)
        for index, text in enumerate(texts):
            found = LANGUAGE.match(text)
            if found and found[1] in ids:
                codes[index], texts[index] = [found[1]], text[found.end() :]
        processor = self._processors[side]
        if processor is None:
            rows = [text.split() for text in texts]
        else:
            rows = encoded(processor, texts, str)
        prefix = self.source_prefix if side == "source" else []
        return [
            [*prefix, *(ids.get(piece, unknown) for piece in [*code, *row])] if code or row else []
            for code, row in zip(codes, rows, strict=True)
        ]

    def decode(self, rows: list[list[int]], side: str = "target") -> list[str]:
        """Return the text of each row of ids, in one line."""
        pieces, processor = self.names[side], self._processors[side]
        codes = {*self.languages.values()}
        lists = [[pieces[token_id] for token_id in row if token_id not in codes] for row in rows]
        if processor is None:
            return [" ".join(row) for row in lists]
        # It leaves the mark of a word's start in pieces of the other language.
        texts = (processor.decode(row).replace("\u2581", " ") if row else "" for row in lists)
        return [" ".join(text.splitlines()).strip() for text in texts]
