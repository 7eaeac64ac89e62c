"""The paper's Figures 3 to 5 for any run and sentence, and the paper's own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.decoding.translator import Translator
from keras_attention.experiments.published import FIGURE_3, FIGURE_4, AttentionPicture
from keras_attention.experiments.tables import Measurements, Table, write_results
from keras_attention.utils.checks import check_choice, check_integer
from keras_attention.visualization.attention_entries import START, padded_pairs
from keras_attention.visualization.paper_lines import check_drawable, paper_attention_figure
from keras_attention_viewer.tokens import describe_tokens, word_text

KINDS = ("encoder", "decoder", "cross")
NAME = "attention_figures"


def paper_scores(picture: AttentionPicture) -> np.ndarray:
    """The weights (N, T, T) in one of the paper's pictures; those of other words are 0."""
    size = len(picture.tokens)
    scores = np.zeros((picture.num_heads, size, size), "float32")
    row = picture.tokens.index(picture.query)
    for head, weights in picture.weights.items():
        for word, weight in weights.items():
            scores[head - 1, row, picture.tokens.index(word)] = weight
    return scores


def paper_figures() -> dict[str, Any]:
    """Figure 3 and the lower half of Figure 4, drawn from the weights in the paper's PDF."""
    return {
        f"paper_{name}": paper_attention_figure(
            paper_scores(picture),
            picture.tokens,
            query=picture.tokens.index(picture.query),
            heads=[head - 1 for head in picture.weights],
        )
        for name, picture in (("figure_3", FIGURE_3), ("figure_4_its", FIGURE_4))
    }


def draw_attention_figures(
    run: str | os.PathLike[str],
    sentence: str,
    output_dir: str | os.PathLike[str],
    *,
    translation: str | None = None,
    kind: str = "encoder",
    layer: int | None = None,
    word: str | None = None,
    heads: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Draw the three kinds of picture in the paper's appendix, for a sentence and a run.

    `figure_3`: what one word reads in all heads. `figure_4`: what all words read in one head.
        `figure_4_word`: what the word reads in two heads. `figure_5_1`, `figure_5_2`: what all words read
        in two other heads. The paper's Figures 3 and 4 are drawn, too, from the paper's own weights.

    Args:
        run: The folder of a finished run.
        sentence: A sentence in the source language.
        output_dir: A new folder, or one of an earlier call with the same arguments.
        translation: Its translation; the model's own if not given.
        kind: Self-attention of the `"encoder"` or the `"decoder"`, or `"cross"`.
        layer: The layer, from 1; the last but one if not given, as in the paper.
        word: The word whose attention is drawn; by default the one that looks farthest away.
        heads: Four heads, from 1: two for `figure_4` and `figure_4_word`, two for `figure_5`. By default
            the two heads in which the word's attention is sharpest, and the two whose weights differ most.

    Returns:
        A dict: `tokens`, `word`, `layer`, `heads`, and `weights` of the word by head.

    Raises:
        ValueError: If the sentence has too many tokens to draw or lacks the word, or the model lacks the
            layer or a head.
    """
    check_choice("kind", kind, KINDS)
    settings = {
        "run": str(Path(run).resolve()),
        "sentence": sentence,
        "translation": translation,
        "kind": kind,
        "layer": layer,
        "word": word,
        "heads": None if heads is None else list(heads),
    }
    kept = Measurements(output_dir, settings)
    translator = Translator.from_run(run)
    model, tokenizer = translator.model, translator.tokenizer
    check_drawable(tokenizer.encode(sentence) + [tokenizer.end_token_id])
    layer = check_integer(
        "layer", max(1, model.num_layers - 1) if layer is None else layer, 1, model.num_layers
    )
    translation = translator(sentence) if translation is None else translation
    source, read, _ = padded_pairs(tokenizer, [(sentence, translation)])
    names = {
        "source": [tokenizer.id_to_token(token) for token in source[0]],
        "read": [START, *(tokenizer.id_to_token(token) for token in read[0][1:])],
    }
    attended = names["read" if kind == "decoder" else "source"]
    asking = names["source" if kind == "encoder" else "read"]
    check_drawable(attended, asking)
    all_scores = model.attention_scores(source, read)
    scores = np.asarray(translator_array(all_scores[kind][layer - 1]))[0]
    query = word_positions(asking, word) if word is not None else farthest_word(scores, asking)
    chosen = checked_heads(heads, len(scores)) or interesting_heads(scores, query)
    every = {"source_tokens": attended, "target_tokens": asking}
    figures = {
        "figure_3": paper_attention_figure(scores, **every, query=query),
        "figure_4": paper_attention_figure(scores, **every, heads=chosen[:1]),
        "figure_4_word": paper_attention_figure(scores, **every, query=query, heads=chosen[:2]),
        "figure_5_1": paper_attention_figure(scores, **every, heads=chosen[2:3]),
        "figure_5_2": paper_attention_figure(scores, **every, heads=chosen[3:]),
        **paper_figures(),
    }
    asked = " ".join(asking[t] for t in query)
    weights = scores[:, query].mean(axis=1)
    result = {
        "tokens": attended,
        "word": asked,
        "kind": kind,
        "layer": layer,
        "heads": [head + 1 for head in chosen],
        "weights": weights.tolist(),
        "translation": translation,
    }
    with kept.locked():
        table = weights_table(f"{kind}, layer {layer}: what {asked!r} reads", attended, weights)
        write_results(kept.folder, NAME, [table, *paper_tables()], figures, result)
    return result


def translator_array(scores: Any) -> np.ndarray:
    """Attention weights as float32."""
    import keras

    return np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(scores, "float32")))


def word_positions(tokens: Sequence[str], word: str) -> list[int]:
    """Positions of the pieces of a word at its first occurrence.

    >>> word_positions(["▁mak", "ing", "▁it", "</s>"], "making")
    [0, 1]
    """
    words = _words(tokens)
    for pieces, text in words:
        if text == word:
            return pieces
    raise ValueError(
        f"The sentence has no word {word!r}. Its words: {', '.join(text for _, text in words)}"
    )


def _words(tokens: Sequence[str]) -> list[tuple[list[int], str]]:
    """Positions and text of each word."""
    special = [i for i, token in enumerate(tokens) if token in (START, "</s>", "<pad>")]
    described = describe_tokens(tokens, special)
    words: dict[int, list[int]] = {}
    for position, token in enumerate(described):
        if token["word"] is not None:
            words.setdefault(token["word"], []).append(position)
    return [(pieces, word_text([described[i] for i in pieces])) for pieces in words.values()]


def farthest_word(scores: np.ndarray, tokens: Sequence[str]) -> list[int]:
    """The word whose pieces look, on average over all heads, at the most distant positions."""
    distance = np.abs(np.arange(scores.shape[2])[None] - np.arange(scores.shape[1])[:, None])
    mean = (scores.mean(axis=0) * distance).sum(axis=1)
    words = [pieces for pieces, _ in _words(tokens)] or [list(range(len(tokens)))]
    return max(words, key=lambda pieces: float(np.mean(mean[pieces])))


def interesting_heads(scores: np.ndarray, query: Sequence[int]) -> list[int]:
    """The two heads in which these words' attention is sharpest, and the two that differ most, from 0."""
    sharpness = scores[:, query].mean(axis=1).max(axis=-1)
    sharp = np.argsort(-sharpness, kind="stable")[:2].tolist()
    count = len(scores)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)] or [(0, 0)]
    apart = max(pairs, key=lambda pair: float(np.abs(scores[pair[0]] - scores[pair[1]]).sum()))
    return [sharp[0], sharp[-1], *apart]


def checked_heads(heads: Sequence[int] | None, count: int) -> list[int] | None:
    """Four heads counted from 0, if any are given from 1."""
    if heads is None:
        return None
    if len(heads) != 4:
        raise ValueError(f"`heads` must be four heads, counted from 1. Received: {list(heads)}")
    return [check_integer("heads", head, 1, count) - 1 for head in heads]


def weights_table(title: str, tokens: Sequence[str], weights: np.ndarray) -> Table:
    """For each head, the three tokens that it looks at most."""
    rows = [
        [f"head {head + 1}"]
        + [f"{tokens[s]} {row[s]:.3f}" for s in np.argsort(-row, kind="stable")[:3]]
        for head, row in enumerate(np.asarray(weights)[:, : len(tokens)])
    ]
    shown = min(3, len(tokens))
    return Table(title, ["", "most", "second", "third"][: shown + 1], rows)


def paper_tables() -> list[Table]:
    """What the paper's Figures 3 and 4 show."""
    pictures: Mapping[str, AttentionPicture] = {"Figure 3": FIGURE_3, "Figure 4": FIGURE_4}
    return [
        Table(
            f"The paper's {name}: what {picture.query!r} reads (encoder, layer 5 of 6)",
            ["", "words and weights"],
            [
                [f"head {head}", ", ".join(f"{word} {w:.3f}" for word, w in weights.items())]
                for head, weights in picture.weights.items()
            ],
        )
        for name, picture in pictures.items()
    ]
