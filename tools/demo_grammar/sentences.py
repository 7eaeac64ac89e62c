"""The constructions of the synthetic `demo` corpus and how their sentences are finished."""

from __future__ import annotations

from collections.abc import Callable

from tools.demo_grammar import complex_sentences, main_clauses
from tools.demo_grammar.main_clauses import Sentence
from tools.demo_grammar.sampler import Sampler

# How often each construction is drawn.
CONSTRUCTIONS: dict[Callable[[Sampler], Sentence | None], int] = {
    main_clauses.statement: 14,
    main_clauses.separable: 8,
    main_clauses.fronted: 9,
    main_clauses.modal: 8,
    main_clauses.dative: 6,
    main_clauses.giving: 5,
    main_clauses.copula: 5,
    complex_sentences.subordinate: 9,
    complex_sentences.fronted_subordinate: 6,
    complex_sentences.it_because: 7,
    complex_sentences.but_it: 4,
    complex_sentences.and_it: 6,
    main_clauses.its_thing: 5,
    complex_sentences.relative_subject: 6,
    complex_sentences.relative_object: 6,
    complex_sentences.relative_whose: 3,
    complex_sentences.relative_place: 3,
    main_clauses.genitive: 4,
    complex_sentences.that_clause: 7,
    main_clauses.question: 8,
    main_clauses.motion: 5,
    main_clauses.position: 5,
    main_clauses.belonging: 3,
    main_clauses.occasion: 4,
}
WEIGHTED = tuple(draw for draw, weight in CONSTRUCTIONS.items() for _ in range(weight))


def finish(text: str) -> str:
    """Set the capital, the commas and the closing mark.

    >>> finish("leider ist der Hund , der schlief , , der müde ist ,")
    'Leider ist der Hund, der schlief, der müde ist.'
    """
    if "," in text:
        text = text.replace(" ,", ",").replace(",,", ",").rstrip(",").replace(", ?", " ?")
    text = text[0].upper() + text[1:]
    return text.replace(" ?", "?") if text.endswith("?") else f"{text}."
