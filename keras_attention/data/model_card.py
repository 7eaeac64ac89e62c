"""The card of a model: what it was trained on, with what, and how well it translates."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_attention.utils.files import DamagedFile
from keras_attention.utils.languages import base_language
from keras_attention.utils.run_folder import RunFolder

# Of a run, what is said elsewhere in the card.
ELSEWHERE = ("corpus", "languages", "start_from", "guided_alignment")
# What a corpus has as language if nobody named one.
UNNAMED = ("source", "target")


def card_of_run(run: RunFolder) -> dict[str, Any]:
    """Return what the settings and the report of a run say for its card, as far as they have it."""
    settings, report = run.settings(), {}
    with contextlib.suppress(DamagedFile):  # It is not needed to translate.
        report = run.finished_report() or {}
    training, test = report.get("training", {}), report.get("test", {})
    cost = report.get("evaluation", {}).get("training_cost") or {}
    start = settings.get("start_from")
    fingerprints = {
        name.removesuffix("_fingerprint"): value
        for name, value in settings.items()
        if name.endswith("_fingerprint") and name != "start_fingerprint"
    }
    others = {
        name: value
        for name, value in settings.items()
        if name not in ELSEWHERE and not name.endswith("_fingerprint")
    }
    return _without_empty(
        {
            "languages": settings.get("languages"),
            "corpus": {
                "name": settings.get("corpus"),
                "description": report.get("description"),
                "synthetic": report.get("synthetic"),
                "filters": report.get("filters"),
                "pairs": report.get("pairs"),
                "sha256": fingerprints,
            },
            "training": {
                # A path on this machine is nobody's business.
                "started_from": start if start and "://" in start else start and Path(start).name,
                "start_fingerprint": settings.get("start_fingerprint"),
                "updates": training.get("updates"),
                "minutes": training.get("training_minutes"),
                "flops": cost.get("flops"),
                "best_checkpoint": training.get("best_checkpoint"),
                "settings": others,
            },
            "alignment": report.get("alignment") or {"head": settings.get("guided_alignment_head")},
            "environment": report.get("environment"),
            "scores": {
                **{name: v for name, v in test.items() if name not in ("examples", "seconds")},
                "validation_perplexity": report.get("validation_perplexity"),
            },
            "examples": test.get("examples"),
        }
    )


def languages_of(card: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the source and the target language of a card; None if it does not name them, or not well.

    >>> languages_of({"languages": ["en", "de"]}), languages_of({"languages": "de"})
    (('en', 'de'), None)
    """
    said: Any = card.get("languages")
    is_pair = isinstance(said, list | tuple) and len(said) == 2
    if not is_pair or not all(isinstance(name, str) and name not in UNNAMED for name in said):
        return None
    return said[0], said[1]


def check_card(card: Mapping[str, Any]) -> None:
    """Raise a ValueError unless a user's entries are of the form that a card needs.

    >>> check_card({"languages": "en-de"})
    Traceback (most recent call last):
    ValueError: `card["languages"]` must be a pair of codes, such as ["en", "de"]. Received: 'en-de'
    """
    languages, examples = card.get("languages"), card.get("examples")
    is_pair = isinstance(languages, list) and len(languages) == 2
    if languages is not None and not (is_pair and all(isinstance(one, str) for one in languages)):
        raise ValueError(
            '`card["languages"]` must be a pair of codes, such as ["en", "de"]. Received: '
            f"{languages!r}"
        )
    if examples is not None and not (
        isinstance(examples, list) and all(isinstance(row, dict) for row in examples)
    ):
        raise ValueError(f'`card["examples"]` must be a list of dicts. Received: {examples!r}')


def other_direction(card: Mapping[str, Any], languages: tuple[str, str]) -> str | None:
    """Return a warning if a corpus has other languages than a card says; None if not or if unknown."""
    said = languages_of(card)
    if said is None or any(name in UNNAMED for name in languages):
        return None
    if [*map(base_language, said)] == [*map(base_language, languages)]:
        return None
    return (
        f"The pretrained model translates from '{said[0]}' to '{said[1]}', as its card says; this text goes "
        f"from '{languages[0]}' to '{languages[1]}'."
    )


def card_text(card: Mapping[str, Any], name: str) -> str:
    """Return a card as Markdown, with the lines in front that hubs read.

    >>> print(card_text({"license": "cc0-1.0", "scores": {"bleu": 31.5}}, "tiny").partition("# tiny")[0])
    ---
    library_name: "keras"
    pipeline_tag: "translation"
    license: "cc0-1.0"
    ---
    <BLANKLINE>
    <BLANKLINE>
    """
    card = dict(card)
    front: dict[str, Any] = {"library_name": "keras", "pipeline_tag": "translation"}
    languages = card.get("languages") or []
    if all(isinstance(each, str) and re.fullmatch("[a-z]{2,3}", each) for each in languages):
        front["language"] = languages
    front["license"] = card.get("license")
    lines = [
        f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in front.items() if value
    ]
    text = ["---", *lines, "---", "", f"# {name}", ""]
    text += [str(card.pop("description")), ""] if card.get("description") else []
    text += [
        "A Transformer that translates text, saved by keras_attention, which runs on Keras 3 with "
        "TensorFlow, JAX or PyTorch. `keras_attention.json` has the checksums of all files.",
        "",
        "```py",
        "from keras_attention import Translator",
        "",
        'translator = Translator.from_preset("FOLDER")  # this folder, or hf://owner/name',
        "```",
    ]
    examples = card.pop("examples", None) or []
    plain = {key: value for key, value in card.items() if not isinstance(value, dict)}
    for title, part in {"Overview": plain, **card}.items():
        if isinstance(part, dict) and part:
            title = title[:1].upper() + title[1:].replace("_", " ")
            text += ["", f"## {title}", "", *_bullets(part)]
    if examples:
        text += ["", "## Examples"]
        for row in examples:
            text += ["", *_bullets(row)]
    return "\n".join(text) + "\n"


def _bullets(part: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for name, value in _without_empty(part).items():
        if isinstance(value, dict):
            yield f"{indent}* {name}:"
            yield from _bullets(value, f"{indent}  ")
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
            yield f"{indent}* {name}: {' '.join(str(shown).split())}"


def _without_empty(value: Any) -> Any:
    """Return a dict without what is None or empty, and so its dicts."""
    if not isinstance(value, dict):
        return value
    kept = {name: _without_empty(each) for name, each in value.items()}
    return {name: each for name, each in kept.items() if each not in (None, {}, [], ())}
