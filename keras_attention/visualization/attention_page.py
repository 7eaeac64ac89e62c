"""The attention of a trained model on the user's texts, as an HTML file or in a notebook."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from keras_attention.utils.arguments import Has, checked
from keras_attention.utils.checks import check_iterable, check_texts
from keras_attention.utils.run_folder import RunFolder
from keras_attention.utils.sides import encode_side
from keras_attention.visualization.attention_entries import attention_entries
from keras_attention.visualization.event_files import logged_heads
from keras_attention_viewer.codec import Entry
from keras_attention_viewer.measures import measured
from keras_attention_viewer.page import AttentionPage, check_place, save_html, show

Texts = str | Sequence[str]
# What a record says about the heads of its model.
LOGGED_FIELDS = ("measured_sentences", "importance", "alignment_rows", "gold")


@checked
def save_attention(
    path: str | os.PathLike[str],
    translator: Annotated[Any, Has("a Translator", "translate", "model", "tokenizer")],
    source: Texts,
    translation: Texts | None = None,
    *,
    name: str = "model",
    run: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the attention viewer for texts and their translations into one HTML file.

    It shows all layers and heads, works offline, and needs only a browser.

    Args:
        path: The file to write, such as `"attention.html"`.
        translator: A `Translator`.
        source: A text, or several.
        translation: A translation for each text. Defaults to the translator's own.
        name: Name of the model on the page. Defaults to `"model"`.
        run: Folder of the model's run. Its last attention record says what the heads do: a few texts have
            too few rows for that. Defaults to None: the texts alone are measured.
        overwrite: Whether to replace an existing page. Defaults to False.

    Returns:
        The path of the file.

    Raises:
        ValueError: If texts and translations do not fit together, or `path` exists and may not be
            replaced.

    Example:

    >>> import tempfile
    >>> from keras_attention.data.tokenizer import Tokenizer
    >>> from keras_attention.decoding.translator import Translator
    >>> from keras_attention.models.transformer import Transformer
    >>> tokenizer = Tokenizer.train(["ein kleines Haus", "a small house"], vocabulary_size=280)
    >>> model = Transformer.from_preset("tiny", vocabulary_size=tokenizer.vocabulary_size)
    >>> translator = Translator(model, tokenizer)
    >>> path = Path(tempfile.mkdtemp()) / "attention.html"
    >>> save_attention(path, translator, "a small house", "ein kleines Haus").name
    'attention.html'
    """
    check_place(Path(path), overwrite)
    entries = translated_entries(translator, source, translation, run)
    return save_html(path, {name: entries}, title=f"Attention: {name}", overwrite=overwrite)


@checked
def show_attention(
    translator: Annotated[Any, Has("a Translator", "translate", "model", "tokenizer")],
    source: Texts,
    translation: Texts | None = None,
    *,
    name: str = "model",
    run: str | os.PathLike[str] | None = None,
) -> AttentionPage:
    """Show the page of `save_attention` in a notebook; make it the last value of a cell.

    Args:
        translator: A `Translator`.
        source: A text, or several.
        translation: A translation for each text. Defaults to the translator's own.
        name: Name of the model on the page. Defaults to `"model"`.
        run: Folder of the model's run, as in `save_attention`. Defaults to None.

    Raises:
        ValueError: If texts and translations do not fit together.
    """
    entries = translated_entries(translator, source, translation, run)
    return show({name: entries}, title=f"Attention: {name}")


def translated_entries(
    translator: Any,
    source: Texts,
    translation: Texts | None = None,
    run: str | os.PathLike[str] | None = None,
) -> list[Entry]:
    """Entries of texts and their translations, with measures; see `save_attention`."""
    sources = [source] if isinstance(source, str) else list(check_iterable("source", source))
    given = [translation] if isinstance(translation, str) else translation
    if given is not None:
        given = check_texts("translation", given)
    if (
        not sources
        or not all(isinstance(text, str) and text.strip() for text in sources)
        or not all(encode_side(translator.tokenizer, sources, "source"))  # invisible ones
    ):
        raise ValueError(f"`source` must be a text, or several, none empty. Received: {source!r}")
    if given is not None and len(given) != len(sources):
        raise ValueError(
            "`translation` must have a translation for each source text. Received: "
            f"{len(sources)} texts, {len(given)} translations"
        )
    # The whole beam: the best one does not depend on it. Samples are of no beam.
    beam_size = getattr(translator, "beam_size", None)
    has_beam = beam_size is not None and getattr(translator, "sampling", None) is None
    beam = None
    if given is None:
        beam = translator.translate(sources, *([beam_size] if has_beam else []))
    found = None if beam is None else [best[0] for best in beam]
    texts = [best.text for best in found] if found is not None else list(given or ())
    entries = attention_entries(
        getattr(translator, "watched", translator.model),
        translator.tokenizer,
        list(zip(sources, texts, strict=True)),
        target="reference" if found is None else "output",
        target_ids=None if found is None else [best.token_ids for best in found],
        alternatives=beam if has_beam else None,
    )
    return with_logged_heads(measured(entries), {} if run is None else logged_of(run))


def logged_of(run: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a run's last attention record says about the heads; empty if it has none."""
    return logged_heads(RunFolder(run).logs)


def with_logged_heads(entries: list[Entry], logged: Mapping[str, Any]) -> list[Entry]:
    """Return entries with what `logged_of` a run says about the heads, if it is of such a model."""

    def sizes(header: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return [(kind["name"], kind["layers"], kind["heads"]) for kind in header.get("kinds", ())]

    if not logged.get("measures") or sizes(logged) != sizes(entries[0].header):
        return entries
    fields = {key: logged.get(key) for key in LOGGED_FIELDS}
    fields |= {"measures_of": "run", "measures": _with_scores(logged["measures"], entries[0])}
    return [dataclasses.replace(one, header={**one.header, **fields}) for one in entries]


def _with_scores(measures: dict[str, Any], own: Entry) -> dict[str, Any]:
    """Return a run's measures; its alignment head has its score in these texts, too: they may be nonsense."""
    here = own.header["measures"].get("cross", [])
    cross = [
        [
            {**head, "score_here": mine["alignment_score"]} if head.get("best_alignment") else head
            for head, mine in zip(layer, heads, strict=True)
        ]
        for layer, heads in zip(measures.get("cross", []), here, strict=True)
    ]
    return {**measures, "cross": cross} if cross else measures
