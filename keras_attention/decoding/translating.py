"""What a `Translator` does with the texts of a call: it makes requests of them, and searches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from keras_attention.decoding.batching import Batching
from keras_attention.decoding.requests import SHOWN_LETTERS, Request, WrongText, read_requests
from keras_attention.decoding.translation import Translation, hypotheses_of
from keras_attention.decoding.unusual_texts import UnusualTexts
from keras_attention.spec.parts import NonFiniteModel
from keras_attention.utils.progress import Progress


def check_same_vocabulary(model: Any, tokenizer: Any) -> None:
    """Raise a ValueError unless a model and a tokenizer have the same sizes and special ids."""
    names = ("vocabulary_size", "pad_token_id", "start_token_id", "end_token_id")
    # Of one vocabulary for both sides, neither says the target's size.
    for name in (*names, "target_vocabulary_size"):
        ours, theirs = (getattr(each, name, each.vocabulary_size) for each in (model, tokenizer))
        if ours != theirs:
            raise ValueError(
                f"The model has {name} {ours}, the tokenizer {theirs}: they do not belong "
                "together. Use the tokenizer that the model was trained with."
            )


def requests_of(
    translator: Any,
    texts: Sequence[str],
    noted: UnusualTexts,
    prefixes: Sequence[str] | None,
    phrases: Sequence[Sequence[str]] | None,
) -> list[Request]:
    """Return a request for each text; unusual ones are noted, and what cannot be had is refused."""
    tokenizer, search = translator.tokenizer, translator.search
    requests = read_requests(tokenizer, texts, _batching(translator), prefixes, phrases)
    search.check_room(requests)
    if translator.glossary is not None:
        requests = translator.glossary.required(requests, tokenizer, search.room, noted)
    noted.add([request.source for request in requests], tokenizer, translator.longest_source)
    return requests


def best_of(
    translator: Any, requests: Sequence[Request], n_best: int, copies: int
) -> list[list[Translation]]:
    """Return the translations of each request, those of its copies one after the other."""
    found = [[] if one.source else [Translation("", 0.0, (), True)] for one in requests]
    copied = [one._replace(sample=i) for one in requests for i in range(copies)]
    of_copies: list[list[Translation]] = [[] for _ in copied]
    total = sum(1 for request in copied if request.source)
    with Progress(total, "translating", "sentences", translator.show_progress) as progress:
        for rows, result in translator.search(copied, _batching(translator), progress, n_best):
            hypotheses = hypotheses_of(result, len(rows), translator.tokenizer)
            for row, best in zip(rows, hypotheses, strict=True):
                if not best:
                    _refuse(translator, row // copies, copied[row])
                of_copies[row] = best
            progress.add(len(rows))
    for row, best in enumerate(of_copies):
        found[row // copies] += best
    return found


def first_of(found: Iterable[Translation], number: int, is_unique: bool) -> list[Translation]:
    """Return the first of some translations, or the first with different texts."""
    kept: dict[Any, Translation] = {}
    for one in found:
        if len(kept) < number:
            kept.setdefault(one.text if is_unique else len(kept), one)
    return list(kept.values())


def _batching(translator: Any) -> Batching:
    return Batching(
        translator.batch_tokens,
        translator.batch_size,
        translator.model.max_length,
        translator.beams,
        translator.max_extra_length,
    )


def _refuse(translator: Any, index: int, request: Request) -> NoReturn:
    translator.search.check_weights()
    is_restricted = translator.constraint or translator.restrictions
    if is_restricted or request.phrases or request.prefix:
        raise WrongText(
            index,
            "has no translation that keeps all restrictions and constraints within its maximum length, "
            f"or its logits are not finite. Ask for less: {request.text[:SHOWN_LETTERS]!r}",
        )
    raise NonFiniteModel(
        f"The model's logits for text {index} are not finite, so nothing could be chosen. Has its "
        "training diverged?"
    )
