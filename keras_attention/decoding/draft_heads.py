"""`DraftHeads`: small networks that read tokens further ahead from the decoder's last hidden state.

Shape letters: D hidden_dim, F inner width of a head, H heads, C candidates, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from keras_attention.decoding.draft_files import SavedDraft
from keras_attention.decoding.pairs_of_text import encoded_pairs
from keras_attention.utils.checks import check_boolean, check_has, check_integer
from keras_attention.utils.progress import Progress

FORMAT = 2
LEARNING_RATE, BATCH_ROWS = 1e-3, 512
# The output projection is most of a head's work, so rare tokens are not proposed.
MOST_CANDIDATES = 8192
# Of the hidden states of the text, so many numbers are kept: half a gigabyte, and three times that
# while they are put in order.
MOST_NUMBERS = 1 << 27
# Longer sentences teach little more; engines that compile each shape see few of them.
LONGEST, MULTIPLE = 128, 16


class HeadWeights(NamedTuple):
    """The weights of all heads, in float32."""

    inner: np.ndarray  # (H, D, F), of the state
    inner_of_token: np.ndarray  # (H, D, F), of the token before the predicted one
    inner_bias: np.ndarray  # (H, F)
    outer: np.ndarray  # (H, F, D)
    outer_bias: np.ndarray  # (H, D)
    kernel: np.ndarray  # (D, C), the model's output projection to the candidates
    bias: np.ndarray  # (C,)
    token_ids: np.ndarray  # int32 (C,), the candidates


class DraftHeads(SavedDraft):
    """Proposes what heads on the decoder's last hidden state predict (Stern, Shazeer and Uszkoreit 2018).

    From the state that a token was chosen from, head i predicts the token i places behind it: by a
    feed-forward layer with a residual connection, and then the model's own output projection, to the most
    frequent tokens. Beside the state it reads the token before the one that it predicts, which is the chosen
    one or that of the head before (Ankner et al. 2024). Where more tokens are wanted than there are heads,
    the last head goes on. The heads are trained on the frozen model with `train`; give them to a
    `Translator`. In float32 they change no translation. They propose nothing for the first pass, before
    which there is no state.

    Args:
        weights: The weights of the heads.

    Example:

    >>> from keras_attention import Tokenizer, Transformer, Translator
    >>> texts = ["a small house", "a house", "a small garden"]
    >>> tokenizer = Tokenizer.train(texts, vocabulary_size=280)
    >>> model = Transformer(tokenizer.vocabulary_size, 1, 8, 16, 2)
    >>> plain = Translator(model, tokenizer, beam_size=1, max_extra_length=3, engine="numpy")
    >>> heads = DraftHeads.train(model, tokenizer, zip(texts, texts), heads=2, epochs=1)
    >>> translator = Translator(
    ...     model, tokenizer, beam_size=1, max_extra_length=3, engine="numpy", draft=heads, lookahead=2
    ... )
    >>> translator("a garden") == plain("a garden")
    True
    """

    def __init__(self, weights: HeadWeights):
        check_has("weights", weights, "weights that `train` made", *HeadWeights._fields)
        self._weights = weights
        self._places = {int(token): place for place, token in enumerate(weights.token_ids)}

    @classmethod
    def train(
        cls,
        model: Any,
        tokenizer: Any,
        pairs: Iterable[tuple[str, str]],
        heads: int = 3,
        epochs: int = 10,
        max_pairs: int = 30_000,
        show_progress: bool = True,
    ) -> DraftHeads:
        """Train heads for a model, which stays as it is, with Keras' `fit`.

        Args:
            model: The `Transformer`, or its spec.
            tokenizer: The `Tokenizer` of the model.
            pairs: Pairs (source, target). The model's own translations are the best targets, since they are
                what is proposed: `zip(sources, translator(sources))`.
            heads: How many tokens ahead are predicted, H, at most 8. Defaults to 3.
            epochs: How often the text is read. Defaults to 10.
            max_pairs: How many pairs are read; the first ones. Defaults to 30,000.
            show_progress: Whether to show a progress bar. Defaults to True.

        Raises:
            ValueError: If an argument is out of range, or there are no pairs.
        """
        check_has("model", model, "a built Transformer", "vocabulary_size", "pad_token_id")
        check_integer("heads", heads, 1, 8)
        check_integer("epochs", epochs, 1)
        check_boolean("show_progress", show_progress)
        sources, targets = encoded_pairs(tokenizer, pairs, max_pairs)
        spec = model.spec() if hasattr(model, "spec") else model
        with Progress(len(sources), "reading hidden states", "pairs", show_progress) as progress:
            hidden, tokens = _examples(spec, sources, targets, heads, progress)
        counts = np.bincount(tokens[tokens >= 0], minlength=spec.target_vocabulary_size)
        kept = np.argsort(-counts, kind="stable")[: min(MOST_CANDIDATES, np.count_nonzero(counts))]
        places = np.full(len(counts) + 1, -1, "int32")  # the last one is that of no token
        places[kept] = np.arange(len(kept))
        kernel, bias = _projection(spec, kept)
        batches = epochs * max(1, len(hidden) // BATCH_ROWS)
        with Progress(batches, "training heads", "batches", show_progress) as progress:
            trained = _fitted(hidden, places[tokens], kernel, bias, epochs, progress)
        return cls(HeadWeights._make([*trained, kernel, bias, kept.astype("int32")]))

    def propose(
        self,
        source_ids: Sequence[int],
        output_ids: Sequence[int],
        n: int,
        hidden: np.ndarray | None = None,
    ) -> list[int]:
        """Return the likeliest `n` tokens; none without a hidden state."""
        if hidden is None:
            return []
        weights = self._weights
        if len(hidden) != len(weights.kernel):
            raise ValueError(
                f"`draft` has heads for states of {len(weights.kernel)} numbers, the model has "
                f"{len(hidden)}. Train heads for this model."
            )
        found: list[int] = []
        last = output_ids[-1] if output_ids else -1
        with np.errstate(over="ignore", invalid="ignore"):  # Of a file, which may hold any numbers.
            of_heads = hidden @ weights.inner + weights.inner_bias
            for number in range(n):
                head = min(number, len(of_heads) - 1)
                total, before = of_heads[head], self._places.get(last)
                if before is not None:
                    total = total + weights.kernel[:, before] @ weights.inner_of_token[head]
                x = hidden + np.maximum(total, 0.0) @ weights.outer[head] + weights.outer_bias[head]
                last = int(weights.token_ids[(x @ weights.kernel + weights.bias).argmax()])
                found.append(last)
        return found

    def arrays(self) -> dict[str, Any]:
        """Return the weights and the number of the format."""
        return {"heads": np.array([FORMAT]), **self._weights._asdict()}

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray]) -> Self:
        """Return the heads of a file's arrays; raise one of `draft_files.ERRORS` if they are none."""
        if arrays["heads"].tolist() != [FORMAT]:
            raise ValueError(f"its format is {arrays['heads'].tolist()}")
        weights = HeadWeights(*(arrays[name] for name in HeadWeights._fields))
        heads, width, depth = weights.outer.shape
        (count,) = weights.token_ids.shape
        shapes = [(heads, depth, width), (heads, depth, width), (heads, width)]
        shapes += [(heads, width, depth), (heads, depth), (depth, count), (count,), (count,)]
        if not heads * width * depth * count or [each.shape for each in weights] != shapes:
            raise ValueError("its parts do not fit each other")
        if [each.dtype.name for each in weights] != ["float32"] * 7 + ["int32"]:
            raise ValueError("its parts are not of the right kind")
        if not all(np.isfinite(each).all() for each in weights) or weights.token_ids.min() < 0:
            raise ValueError("it has weights or tokens that are none")
        return cls(weights)


def _examples(
    spec: Any,
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    heads: int,
    progress: Progress,
) -> tuple[np.ndarray, np.ndarray]:
    """Return hidden states (T, D), and of each the token made of it and those ahead (T, 1 + H); or -1."""
    from keras_attention.engine.select import EngineSelector

    selector = EngineSelector(spec, "float32", needs=frozenset({"draft"}))
    engine: Any = selector.engine(sum(map(len, targets)))
    longest = min(LONGEST, spec.max_length or LONGEST)
    states, tokens, number = [], [], 0
    for source, target in zip(sources, targets, strict=True):
        progress.add(1)
        if len(target) < 2 or max(len(source), len(target)) > longest:
            continue
        source_ids, fed = (
            _padded(ids, longest, spec.pad_token_id)
            for ids in (source, [spec.start_token_id, *target[:-1]])
        )
        hidden = engine.verifier(source_ids[None], len(fed)).verify(fed, 0)[2]
        states.append(hidden[: len(target) - 1].copy())
        padded = np.array([*target, *[-1] * (heads - 1)])
        tokens.append(np.lib.stride_tricks.sliding_window_view(padded, 1 + heads))
        number += states[-1].size
        if number > MOST_NUMBERS:
            break
    if not number:
        raise ValueError(f"`pairs` must hold targets of 2 to {longest} tokens. Received none.")
    return np.concatenate(states), np.concatenate(tokens)


def _padded(ids: list[int], longest: int, pad: int) -> np.ndarray:
    """Return ids, padded to one of a few lengths."""
    size = min(longest, -(-len(ids) // MULTIPLE) * MULTIPLE)
    return np.array([*ids, *[pad] * (size - len(ids))], "int32")


def _projection(spec: Any, token_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the output projection (D, C) to some tokens, and its bias (C,)."""
    from keras_attention.spec.parts import as_array

    embedding = spec.output_embedding
    kernel = embedding.reverse_embeddings
    kernel = as_array(embedding.embeddings).T if kernel is None else as_array(kernel)
    bias = spec.decoding_bias()
    bias = np.zeros(kernel.shape[1]) if bias is None else bias
    return (
        np.ascontiguousarray(kernel[:, token_ids], "float32"),
        bias[token_ids].astype("float32"),
    )


def _fitted(
    hidden: np.ndarray,
    places: np.ndarray,
    kernel: np.ndarray,
    bias: np.ndarray,
    epochs: int,
    progress: Progress,
) -> list[np.ndarray]:
    """Return the `HeadWeights` of heads, trained to predict places (T, 1 + H) of tokens; -1 is none."""
    import keras

    (depth, count), heads = kernel.shape, places.shape[1] - 1
    project = keras.layers.Dense(count, trainable=False, dtype="float32")
    project.build((None, depth))
    project.set_weights([kernel, bias])
    embed = keras.layers.Embedding(count + 1, depth, trainable=False, dtype="float32")
    embed.build()
    embed.set_weights([np.concatenate([kernel.T, np.zeros((1, depth), "float32")])])
    states = keras.Input((depth,), dtype="float32")
    before = keras.Input((heads,), dtype="int32")
    layers, outputs = [], []
    for head in range(heads):
        start = keras.initializers.GlorotUniform(seed=head)
        inner = keras.layers.Dense(2 * depth, "relu", kernel_initializer=start, dtype="float32")
        outer = keras.layers.Dense(depth, kernel_initializer="zeros", dtype="float32")
        layers.append((inner, outer))
        both = keras.ops.concatenate([states, embed(before[:, head])], axis=-1)
        outputs.append(project(keras.ops.add(states, outer(inner(both)))))
    trained = keras.Model([states, before], keras.ops.stack(outputs, axis=1))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    trained.compile(keras.optimizers.Adam(LEARNING_RATE), loss)
    order = np.random.default_rng(0).permutation(len(hidden))
    order = order[: max(1, len(order) // BATCH_ROWS) * BATCH_ROWS]  # one shape is compiled
    counting = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: progress.add(1)
    )
    options: dict[str, Any] = {"epochs": epochs, "shuffle": False, "verbose": 0}
    options |= {"batch_size": BATCH_ROWS, "callbacks": [counting]}
    places = places[order]
    known = np.where(places < 0, count, places)[:, :-1].astype("int32")
    trained.fit([hidden[order], known], places[:, 1:], **options)
    weights = [[*inner.get_weights(), *outer.get_weights()] for inner, outer in layers]
    of_both, *rest = (np.stack(parts) for parts in zip(*weights, strict=True))
    return [of_both[:, :depth], of_both[:, depth:], *rest]
