"""A `Translation`, and which of its words come from which of the source."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from keras_attention.data.alignments import Links, links_between
from keras_attention.engine.watched import WatchedSpec
from keras_attention.spec import SpecError, TransformerSpec
from keras_attention.spec.parts import as_array
from keras_attention.utils.arguments import BeamSize, check


@dataclasses.dataclass(frozen=True)
class Translation:
    """One translation of a sentence, as `Translator.translate` returns it.

    Attributes:
        text: The translation.
        score: Log-probability divided by the length penalty, or not divided if `is_finished` is False. 0
            for an empty line.
        token_ids: The target tokens, without the end token.
        is_finished: Whether the translation ended by itself, before the maximum length.
        alignment: Pairs of a source and a target word, numbered from 0, as `recipes.aligning.with_details`
            adds them; else None. A word is what stands between spaces.
        token_scores: Log-probability of each token, that of the end token behind them; None as above.
        had_loop: Whether the likeliest translation repeated itself, and this was found when that was
            forbidden, or nothing else was found: see `break_loops` of `Translator`.
    """

    text: str
    score: float
    token_ids: tuple[int, ...]
    is_finished: bool
    alignment: tuple[tuple[int, int], ...] | None = None
    token_scores: tuple[float, ...] | None = None
    had_loop: bool = False


# Lengths are padded to a multiple of this, so that few shapes occur.
LENGTH_MULTIPLE = 8
BATCH_TOKENS = 2048


def attention_of(model: Any) -> Any:
    """Return what has the `attention_scores` of a translator's model: itself, or a spec's in NumPy."""
    check_head(model, None)
    return WatchedSpec(model) if isinstance(model, TransformerSpec) else model


def asked_head(
    card: Mapping[str, Any], head: Sequence[int] | None
) -> tuple[Sequence[int] | None, str]:
    """Return the head to ask and what its rows stand for, by what the model's card knows."""
    known: Any = card.get("alignment")
    own = known.get("head") if isinstance(known, Mapping) else None
    if own is None or (head is not None and not np.array_equal(head, own)):
        return head, "read"
    return own, "predicted" if known.get("rows") == "predicted" else "read"


def check_head(model: Any, head: Sequence[int] | None) -> None:
    """Raise a ValueError unless a translator's model has attention to read, and the head."""
    is_spec = isinstance(model, TransformerSpec)
    if not (is_spec or hasattr(model, "attention_scores")):
        raise SpecError(
            "The model must be one whose attention can be read: a Keras model, or a spec. Received: "
            f"{type(model).__name__}"
        )
    if head is not None:
        blocks = model.decoder.blocks if is_spec else model.decoder_blocks
        _check_within(head, len(blocks), model.num_heads)


def _check_within(head: Sequence[int], layers: int, heads: int) -> None:
    is_pair = np.shape(head) == (2,) and np.asarray(head).dtype.kind in "iu"
    if not (is_pair and 0 <= head[0] < layers and 0 <= head[1] < heads):
        raise ValueError(
            f"`head` must be a layer from 0 to {layers - 1} and a head from 0 to {heads - 1}. "
            f"Received: {head!r}"
        )


def word_links(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    texts: Sequence[tuple[str, str]],
    asked: tuple[Any, str],
    splits_scripts: bool = False,
) -> list[Links]:
    """Return the links of pairs of token ids: of each target word, the source word that it comes from.

    `model` is what `attention_of` returns; sources end as the model reads them, targets have no end token.
    Words are numbered as in `texts`, a source and a target each; `asked` is what `asked_head` returns. For
    `splits_scripts` see `links_between`.
    """
    links: list[Links] = [()] * len(sources)
    rows = [row for row, pair in enumerate(zip(sources, targets, strict=True)) if all(pair)]
    read, written = [sources[row] for row in rows], [targets[row] for row in rows]
    for batch in batches_of(read, written):
        sides = [read[i] for i in batch], [written[i] for i in batch]
        weights = _weights(model, tokenizer, *sides, asked[0], asked[1] == "predicted")
        for i, weights_of_pair in zip(batch, weights, strict=True):
            links[rows[i]] = links_between(
                tokenizer, read[i], written[i], weights_of_pair, splits_scripts, texts[rows[i]]
            )
    return links


def _weights(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    head: Sequence[int] | None,
    is_predicting: bool,
) -> np.ndarray:
    """Return the weights (B, T, S) of the row in which the decoder reads, or predicts, each target token."""
    pad, most = tokenizer.pad_token_id, getattr(model, "max_length", None)
    # A first row reads the start token. One that was cut off may have no position left to be read at.
    read = padded([[tokenizer.start_token_id, *ids][:most] for ids in targets], pad, most)
    rows = np.arange(max(map(len, targets))) + (not is_predicting)
    rows = np.minimum(rows, read.shape[1] - 1)
    layers = model.attention_scores(padded(sources, pad, most), read)["cross"]
    if head is None:
        return np.mean([as_array(layer).mean(axis=1) for layer in layers], axis=0)[:, rows]
    _check_within(head, len(layers), layers[0].shape[1])
    return as_array(layers[head[0]])[:, head[1], rows]


def batches_of(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Iterator[list[int]]:
    """Yield the indices of pairs of about equal length, as many as memory has room for; longest first."""
    longest = [max(map(len, pair)) for pair in zip(sources, targets, strict=True)]
    order = sorted(range(len(sources)), key=lambda index: longest[index])
    while order:
        rows = max(1, BATCH_TOKENS // longest[order[-1]])
        yield order[-rows:]
        order = order[:-rows]


def padded(rows: Sequence[Sequence[int]], pad: int, most: int | None = None) -> np.ndarray:
    """Return rows of ids as an array, filled up to a multiple of `LENGTH_MULTIPLE`, if `most` has room."""
    longest = max(map(len, rows))
    length = -(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
    length = length if most is None else max(longest, min(length, most))
    return np.array([[*row, *[pad] * (length - len(row))] for row in rows], "int32")


def most_useful(texts: Sequence[str]) -> int:
    """Return the index of the translation with the greatest expected utility.

    The utility of a translation, if another one were right, is its chrF as sacreBLEU computes it for a
    sentence. It is expected with each text as likely as it is often among the given ones. Ties go to the
    first.

    Args:
        texts: The translations of one sentence, at least one; a text may occur several times.

    Example: two of three agree more with each other than with the third.

    >>> most_useful(["a cat", "the dog sleeps", "the dogs sleep"])
    1

    Reference: [Kumar and Byrne, 2004](https://aclanthology.org/N04-1022); with samples and chrF,
    [Eikema and Aziz, 2020](https://aclanthology.org/2020.coling-main.398).
    """
    from sacrebleu.metrics import CHRF

    metric = CHRF()
    times = Counter(texts)
    utilities = {
        text: sum(
            number * metric.sentence_score(text, [other]).score for other, number in times.items()
        )
        for text in times
    }
    best = max(utilities, key=lambda text: utilities[text])  # The first of equal ones.
    return list(texts).index(best)


class MinimumBayesRisk:
    """Method of `Translator` that chooses by agreement."""

    translate: Callable[..., Any]

    @overload
    def translate_mbr(self, texts: str, candidates: int, **options: Any) -> Translation: ...
    @overload
    def translate_mbr(
        self, texts: Iterable[str], candidates: int, **options: Any
    ) -> list[Translation]: ...

    def translate_mbr(self, texts, candidates, **options):
        """Return the translation that agrees best with all candidates: minimum Bayes risk.

        The candidates are the n best or, with `sampling`, samples. Each is as good as the mean of its chrF
        (sacreBLEU's, of a sentence) with all of them, itself included. Ties go to the first.

        Args:
            texts: A string, or an iterable of strings.
            candidates: Number of candidates of each text, `n_best` of `translate`; at most 1,000.
            **options: Further arguments of `translate`.

        Returns:
            A `Translation` for a string, or a list of them for several.

        Example: see `most_useful`.
        """
        check("candidates", candidates, BeamSize)  # Each is compared with each.
        if isinstance(texts, str):
            best = self.translate(texts, candidates, **options)
            return best[most_useful([one.text for one in best])]
        results = self.translate(texts, candidates, **options)
        return [best[most_useful([one.text for one in best])] for best in results]
