"""Draw attention in the style of the paper's Figures 3 to 5, for any run and sentence, and the paper's own.

Without arguments, this first trains the small model of the demo corpus (synthetic; about five minutes on a
CPU, in OUTPUT_DIR/run; a stopped training continues). Then it draws the attention of a demo sentence. With
`--run` it uses a run of yours. The pictures are PNG and SVG. Figure 3 shows what one word reads in all
heads; Figure 4 what all words read in one head, and what the word reads in two; Figure 5 what all words
read in two other heads. No two of them show the same: a layer with fewer than four heads has fewer pictures.

What to expect, written before the first run: the paper's own pictures come out the same, line by line,
because they are drawn from the weights in its PDF (`paper_heads.json` has the heads of which it shows
every word). A small model's encoder heads look at neighbours and at
the end of the sentence. A link to a distant word, such as "making ... more difficult", needs the paper's
depth.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import common
import numpy as np

from keras_attention import load_corpus
from keras_attention.cli.streams import typed_text
from keras_attention.data.normalization import normalize
from keras_attention.recipes.catalog import DEMO
from keras_attention.spec.presets import preset_arguments
from keras_attention.utils.checks import check_integer, depths_of
from keras_attention.utils.run_folder import RunFolder
from keras_attention_viewer.tokens import describe_tokens, word_text

START = "<start>"
KINDS = ("encoder", "decoder", "cross")


class Picture(NamedTuple):
    """What one word reads in a picture of the appendix: encoder self-attention, layer 5 of 6, 8 heads.

    The weights are the opacities in the PDF, by the number of the head. The paper's pictures also have
    padding after the sentence.
    """

    sentence: str
    query: str
    weights: Mapping[int, Mapping[str, float]]


FIGURE_3 = Picture(
    "It is in this spirit that a majority of American governments have passed new laws since 2009 "
    "making the registration or voting process more difficult . <EOS>",
    "making",
    {
        1: {"more": 0.525, "difficult": 0.455},
        2: {"making": 0.067, "more": 0.863, "difficult": 0.063},
        3: {"more": 0.376, "difficult": 0.600},
        4: {"more": 0.161, "difficult": 0.835},
        5: {"making": 0.557, "more": 0.035, "difficult": 0.169, "<EOS>": 0.196},
        6: {"difficult": 0.980},
        7: {"laws": 0.086, "2009": 0.533, "making": 0.145, ".": 0.055, "<EOS>": 0.106},
        8: {"making": 0.020, "more": 0.812, "difficult": 0.161},
    },
)
FIGURE_4 = Picture(
    "The Law will never be perfect , but its application should be just - this is what we are "
    "missing , in my opinion . <EOS>",
    "its",
    {
        5: {"Law": 0.914, "application": 0.035},
        6: {"The": 0.020, "Law": 0.412, "application": 0.502},
    },
)

# All words' weights in one head: the upper half of Figure 4 and both of Figure 5, whose sentence is the same.
# For each asking word, [attended word, opacity in 255ths].
PAPER_HEADS = Path(__file__).with_name("paper_heads.json")


def parser() -> argparse.ArgumentParser:
    """Make the parser of the options."""
    made = common.new_parser(__doc__, __file__, "--steps 30")
    add = made.add_argument
    add(
        "--run", type=Path, metavar="RUN", help="a finished run (one of the demo corpus is trained)"
    )
    add("--steps", type=common.at_least(1), metavar="N", help="updates of that run (its recipe's)")
    add("--sentence", type=typed_text, help="a sentence in the run's source language")
    add("--translation", type=typed_text, help="its translation (the model's own)")
    add("--kind", choices=KINDS, default="encoder", help="which attention (encoder)")
    add("--layer", type=int, metavar="N", help="the layer, from 1 (the last but one)")
    add(
        "--word",
        type=typed_text,
        help="the word whose attention Figure 3 shows (the one that looks farthest)",
    )
    add(
        "--heads",
        type=int,
        nargs="+",
        metavar="H",
        help="four different heads, from 1: two for Figure 4, two for Figure 5 (two in which the word's "
        "attention is sharpest, and two others that differ most)",
    )
    return made


def main(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Draw the pictures of a run, after training one if there is none."""
    run = options.run
    sentence = options.sentence
    if sentence is None:
        # The longest of the first 20: Figure 3 shows a long sentence.
        sources = load_corpus("demo").validation.sources()
        sentence = max(itertools.islice(sources, 20), key=len)
    for name, text in (("--sentence", sentence), ("--translation", options.translation)):
        if text is not None and not normalize(text).strip():
            raise ValueError(f"{name} has no words. Received: {text!r}")
    if options.steps and run is not None:
        raise ValueError(
            "--steps, which --quick sets, is for a run that is trained here. Leave it out."
        )
    settings = vars(DEMO) if run is None else RunFolder(run).settings(("preset", "model_arguments"))
    sizes = {**preset_arguments(settings["preset"]), **settings["model_arguments"]}
    if options.kind == "decoder" and sizes.get("decoder_cell", "attention") != "attention":
        raise ValueError("--kind decoder: this model's decoder has SSRUs, which attend to nothing.")
    last = depths_of(sizes["num_layers"])[0 if options.kind == "encoder" else 1]
    layer = max(1, last - 1) if options.layer is None else options.layer
    check_integer("--layer", layer, 1, last)
    heads = None if options.heads is None else checked_heads(options.heads, sizes["num_heads"])
    common.start_keras()
    if run is None:
        from keras_attention import train_translation

        run = folder / "run"
        config = dataclasses.replace(DEMO, **({"steps": options.steps} if options.steps else {}))
        train_translation(load_corpus("demo"), config, run)
        folder = folder / "figures"
    return draw(
        run, sentence, folder, options.translation, options.kind, layer, options.word, heads
    )


def draw(
    run: Path,
    sentence: str,
    folder: Path,
    translation: str | None = None,
    kind: str = "encoder",
    layer: int = 1,
    word: str | None = None,
    heads: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Draw the paper's pictures for a sentence; see `parser`. Heads count from 0."""
    import keras

    from keras_attention import Translator
    from keras_attention.visualization import paper_attention_figure
    from keras_attention.visualization.attention_entries import padded_pairs

    asked: dict[str, Any] = {"run": str(run.resolve()), "sentence": sentence}
    asked |= {
        "translation": translation,
        "kind": kind,
        "layer": layer,
        "word": word,
        "heads": heads and list(heads),
    }
    results = common.Results(folder, asked)
    translator = Translator.from_run(run)
    model, tokenizer = translator.model, translator.tokenizer
    check_room("--sentence", len(tokenizer.encode(sentence)) + 1)
    translation = translator(sentence) if translation is None else translation
    check_room("The translation", len(tokenizer.encode(translation, side="target")) + 1)
    source, read, _ = padded_pairs(tokenizer, [(sentence, translation)])
    names = {
        "source": [tokenizer.id_to_token(token, "source") for token in source[0]],
        "read": [START, *(tokenizer.id_to_token(token) for token in read[0][1:])],
    }
    attended = names["read" if kind == "decoder" else "source"]
    asking = names["source" if kind == "encoder" else "read"]
    attention = model.attention_scores(source, read)[kind][layer - 1]
    scores = keras.ops.convert_to_numpy(keras.ops.cast(attention, "float32"))[0]
    query = farthest_word(scores, asking) if word is None else word_positions(asking, word)
    chosen = interesting_heads(scores, query) if heads is None else list(heads)
    every = {"source_tokens": attended, "target_tokens": asking}
    figures = {
        "figure_3": paper_attention_figure(scores, **every, query=query),
        "figure_4": paper_attention_figure(scores, **every, heads=chosen[:1]),
        "figure_4_word": paper_attention_figure(scores, **every, query=query, heads=chosen[:2]),
        **{
            f"figure_5_{number}": paper_attention_figure(scores, **every, heads=[head])
            for number, head in enumerate(chosen[1:][-2:], start=1)
        },
        **paper_figures(),
    }
    weights = scores[:, query].mean(axis=1)
    report = {
        "tokens": attended,
        "word": " ".join(asking[t] for t in query),
        "kind": kind,
        "layer": layer,
        "heads": [head + 1 for head in chosen],
        "weights": weights.tolist(),
        "translation": translation,
    }
    table = weights_table(
        f"{kind}, layer {layer}: what {report['word']!r} reads", attended, weights
    )
    with results.claimed():
        common.write(folder, "attention_figures", [table, *paper_tables()], figures, report)
    return report


def check_room(what: str, tokens: int) -> None:
    """Refuse a sentence that is too long to draw."""
    from keras_attention.visualization.paper_lines import MOST_TOKENS

    if tokens > MOST_TOKENS:
        raise ValueError(
            f"{what} has {tokens:,} tokens, and a picture has room for {MOST_TOKENS}. Choose a shorter one."
        )


def checked_heads(heads: Sequence[int], count: int) -> list[int]:
    """Return heads counted from 0: four different ones, or all that a layer with fewer has."""
    number = min(4, count)
    wrong = [head for head in heads if not 1 <= head <= count]
    if wrong or len(heads) != number or len(set(heads)) != number:
        given = " ".join(map(str, heads))
        raise ValueError(
            f"--heads must be {number} different heads from 1 to {count}. Received: {given}"
        )
    return [head - 1 for head in heads]


def interesting_heads(scores: np.ndarray, query: Sequence[int]) -> list[int]:
    """Return the two heads in which these words' attention is sharpest, and two others that differ most.

    Args:
        scores: Attention weights, shape (N, T, S).
        query: Positions of the words.

    Returns:
        Different heads, from 0: four, or as many as there are.
    """
    sharpness = scores[:, query].mean(axis=1).max(axis=-1)
    first, *rest = np.argsort(-sharpness, kind="stable").tolist()
    second, others = rest[:1], sorted(rest[1:])
    if len(others) > 2:
        pairs = list(itertools.combinations(others, 2))
        apart = [np.abs(scores[a] - scores[b]).sum() for a, b in pairs]
        others = list(pairs[int(np.argmax(apart))])
    return [first, *second, *others]


def farthest_word(scores: np.ndarray, tokens: Sequence[str]) -> list[int]:
    """Return the word whose pieces look, on average over all heads, at the most distant positions."""
    distance = np.abs(np.arange(scores.shape[2])[None] - np.arange(scores.shape[1])[:, None])
    mean = (scores.mean(axis=0) * distance).sum(axis=1)
    words = [pieces for pieces, _ in words_of(tokens)] or [list(range(len(tokens)))]
    return max(words, key=lambda pieces: float(np.mean(mean[pieces])))


def word_positions(tokens: Sequence[str], word: str) -> list[int]:
    """Return the positions of the pieces of a word at its first occurrence."""
    words = words_of(tokens)
    for pieces, text in words:
        if text == word:
            return pieces
    listed = ", ".join(text for _, text in words)
    raise ValueError(f"--word: the sentence has no word {word!r}. Its words: {listed}")


def words_of(tokens: Sequence[str]) -> list[tuple[list[int], str]]:
    """Return the positions and the text of each word."""
    special = [i for i, token in enumerate(tokens) if token in (START, "</s>", "<pad>")]
    described = describe_tokens(tokens, special)
    words: dict[int, list[int]] = {}
    for position, token in enumerate(described):
        if token["word"] is not None:
            words.setdefault(token["word"], []).append(position)
    return [(pieces, word_text([described[i] for i in pieces])) for pieces in words.values()]


def paper_figures() -> dict[str, Any]:
    """Draw Figures 3 to 5 from the weights in the paper's PDF."""
    from keras_attention.visualization import paper_attention_figure

    figures = {}
    for name, picture in (("figure_3", FIGURE_3), ("figure_4_its", FIGURE_4)):
        tokens = picture.sentence.split()
        query = tokens.index(picture.query)
        scores = np.zeros((8, len(tokens), len(tokens)), "float32")
        for head, weights in picture.weights.items():
            for word, weight in weights.items():
                scores[head - 1, query, tokens.index(word)] = weight
        heads = [head - 1 for head in picture.weights]
        figures[f"paper_{name}"] = paper_attention_figure(scores, tokens, query=query, heads=heads)
    tokens = FIGURE_4.sentence.split()
    for name, shown in json.loads(PAPER_HEADS.read_text("utf-8")).items():
        scores = np.zeros((8, len(tokens), len(tokens)), "float32")
        for t, reads in enumerate(shown["reads"]):
            for s, opacity in reads:
                scores[shown["head"] - 1, t, s] = opacity / 255
        figures[f"paper_{name}"] = paper_attention_figure(scores, tokens, heads=[shown["head"] - 1])
    return figures


def weights_table(title: str, tokens: Sequence[str], weights: np.ndarray) -> common.Table:
    """Make the table of the three tokens that each head looks at most."""
    rows = [
        [f"head {head + 1}"]
        + [f"{tokens[s]} {row[s]:.3f}" for s in np.argsort(-row, kind="stable")[:3]]
        for head, row in enumerate(weights)
    ]
    columns = ["", "most", "second", "third"]
    return common.Table(title, columns[: 1 + min(3, len(tokens))], rows)


def paper_tables() -> list[common.Table]:
    """Make the tables of what the paper's Figures 3 and 4 show."""
    return [
        common.Table(
            f"The paper's {name}: what {picture.query!r} reads (encoder, layer 5 of 6)",
            ["", "words and weights"],
            [
                [f"head {head}", ", ".join(f"{word} {w:.3f}" for word, w in weights.items())]
                for head, weights in picture.weights.items()
            ],
        )
        for name, picture in (("Figure 3", FIGURE_3), ("Figure 4", FIGURE_4))
    ]


if __name__ == "__main__":
    common.run(main, parser())
