"""Say whether wrong translations are the fault of the search or of the model (Stahlberg and Byrne 2019).

    python examples/diagnose.py runs/demo test.en test.de --output errors.jsonl

Sentences are translated, their references are scored, and a wider beam searches again. If the reference, or
what the wider beam finds, has a better score than the translation, the search has missed it. If not, and the
translation is not the reference, the model itself prefers the translation: a better search would not help.
Few errors of the search are found so: a text with a better score than both may exist.
"""

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

# First: Keras then starts only when it is needed, without TensorFlow's log messages.
import keras_attention_light  # noqa: F401
from keras_attention import Translation, Translator
from keras_attention.data.model_card import languages_of
from keras_attention.data.normalization import normalize
from keras_attention.data.parallel_text import FilePairs
from keras_attention.decoding.hypotheses import penalty
from keras_attention.utils.files import atomic_file
from keras_attention.utils.sides import encode_ended

TOLERANCE = 1e-3  # scores of one text by two computations differ by less
KINDS = {
    "right": "the translation is the reference",
    "search": "a text with a better score exists: the search has missed it",
    "model": "the model prefers its translation to the reference",
}


class Diagnosis(NamedTuple):
    """What is known of a sentence. Scores are log-probabilities divided by the length penalty."""

    kind: str  # a key of `KINDS`
    source: str
    reference: str
    translation: str
    wider: str  # what the wider beam has found
    reference_score: float
    score: float
    wider_score: float


def diagnose(
    translator: Translator, sources: Sequence[str], references: Sequence[str], wider_beam: int
) -> list[Diagnosis]:
    """Return what is known of each sentence; the translator has a Keras model."""
    wider = dataclasses.replace(translator, beam_size=wider_beam)
    found, more = ([best[0] for best in one.translate(sources)] for one in (translator, wider))
    scores = reference_scores(translator, sources, references)
    rows = []
    columns = zip(sources, references, scores, found, more, strict=True)
    for source, reference, score, one, other in columns:
        own, best = (comparable(each, translator.length_penalty) for each in (one, other))
        kind = "search" if max(score, best) > own + TOLERANCE else "model"
        if normalize(one.text) == normalize(reference):
            kind = "right"
        rows.append(Diagnosis(kind, source, reference, one.text, other.text, score, own, best))
    return rows


def reference_scores(
    translator: Translator, sources: Sequence[str], references: Sequence[str]
) -> list[float]:
    """Return the score of each reference, as the search would give it."""
    from keras_attention.recipes.scoring import token_log_probabilities

    model, tokenizer = translator.model, translator.tokenizer
    read = encode_ended(tokenizer, sources, "source")
    scored = encode_ended(tokenizer, references, "target")
    rows = token_log_probabilities(model, tokenizer, read, scored, translator.show_progress)
    return [float(row.sum() / penalty(len(row), translator.length_penalty, np)) for row in rows]


def comparable(translation: Translation, length_penalty: float) -> float:
    """Return the score of a translation divided by the penalty, which that of one cut off is not."""
    length, is_divided = len(translation.token_ids), translation.is_finished
    return float(translation.score / (1 if is_divided else penalty(length, length_penalty, np)))


def main() -> None:
    """Print how many sentences are of each kind, and BLEU with both beams."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("model", metavar="MODEL", help="a run, a folder of another program's model, or a handle")
    add("source_file", type=Path, metavar="SOURCE", help="sentences, one per line")
    add("reference_file", type=Path, metavar="REFERENCE", help="their translations")
    add("--wider-beam", type=int, metavar="N", help="(four times the model's)")
    add("--output", type=Path, metavar="FILE", help="a JSON object for each sentence (none)")
    given = parser.parse_args()
    if given.output is not None and given.output.exists():
        raise SystemExit(f"'{given.output}' exists. Choose a new file.")
    sources, references = zip(*FilePairs(given.source_file, given.reference_file), strict=True)

    from keras_attention.cli.models import keras_translator

    translator = keras_translator(given.model)
    rows = diagnose(translator, sources, references, given.wider_beam or 4 * translator.beam_size)
    if given.output is not None:
        with atomic_file(given.output, "w", is_new=True) as file:
            file.writelines(f"{json.dumps(r._asdict(), ensure_ascii=False)}\n" for r in rows)
    counts = Counter(row.kind for row in rows)
    for kind, meaning in KINDS.items():
        print(f"{kind:<7} {counts[kind]:>7,} {100 * counts[kind] / len(rows):6.1f} %  {meaning}")
    found, wider = ([getattr(row, name) for row in rows] for name in ("translation", "wider"))
    from keras_attention import corpus_bleu

    _, language = languages_of(translator.card) or (None, None)
    both = (corpus_bleu(texts, references, language=language).score for texts in (found, wider))
    print("BLEU {:.2f}; with the wider beam {:.2f}".format(*both))


if __name__ == "__main__":
    main()
