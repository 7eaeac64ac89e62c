"""Batches of sentence pairs of similar length, with about the same number of tokens each."""

from __future__ import annotations

import copy
import functools
import warnings
from typing import Annotated, Any

import keras
import numpy as np
from annotated_types import Ge

from keras_attention.data import buckets
from keras_attention.data.alignments import TokenAlignments
from keras_attention.data.token_store import TokenStore
from keras_attention.utils.arguments import Count, FromZero, Has, checked
from keras_attention.utils.checks import check_boolean, check_integer, divisors


class TokenBatches(keras.utils.PyDataset):
    """Batches for `fit`, `evaluate` and your own loops, from a `TokenStore`.

    A batch is `({"encoder_token_ids": (B, S), "decoder_token_ids": (B, T)}, labels)` with labels (B, T),
    all int32 and padded with the padding id. Labels are the target with its end token. The decoder input
    is the target shifted right by one: it begins with the padding id, whose embedding is the zero vector,
    and lacks the end token. With `alignments`, the inputs also have `"alignments"`, float32 (B, T, S), for
    guided alignment; see `Transformer.compile`.

    **Shapes.** Pairs are sorted into buckets by source and target length. The buckets are chosen from the
    lengths in the store so that there is little padding. All full batches of a bucket have the same shape
    (B, S, T), with B = `batch_tokens` // max(S, T), rounded down to a multiple of `num_replicas`. So
    `batch_tokens` limits the positions of a batch on either side, padding included, as in the authors'
    code. There are at most `max_shapes` shapes, the same ones in each epoch.

    **Every pair once.** An epoch shows each pair exactly once (but see `epochs_per_pass`). Pairs that do
    not fill a batch of their bucket move on to a bucket with room for their lengths. If there is none,
    they form a smaller batch. Rows of padding, which a loss that masks padding ignores, fill it up to a
    multiple of `num_replicas`.

    **Order.** `batch(epoch, i)` is a pure function of the store, the arguments, epoch and i. In each
    epoch, `shuffle` permutes the pairs of each bucket and the order of the batches; without it, all epochs
    are the same. The first two batches differ in S and in T, if any do: on TensorFlow, `fit` learns from
    them which axes vary.

    **Short epochs.** Checkpoints, validation and reports come at the end of an epoch. With
    `epochs_per_pass` N above 1, which needs `shuffle`, a pass over all pairs takes N epochs with the same
    number of batches; the first batches of the pass fill up the last epoch.

    **In fit.** `batches[i]` is a batch of the epoch `batches.epoch`, which grows by one when Keras ends an
    epoch of which all batches were read. Pass `fit(batches, shuffle=False)`: by default, Keras shuffles
    the batches once more, from the global random state. To resume, call `batches.set_epoch(k)` before
    `fit(..., initial_epoch=k)`.

    Args:
        store: A `TokenStore`.
        batch_tokens: Largest number of positions of a batch on either side. Defaults to 4096; the
            paper's batches hold about 25,000 tokens.
        shuffle: Whether each epoch has another order, as for training. Defaults to True.
        seed: Integer seed of the order. Defaults to 0.
        max_length: Pairs with more tokens on a side, end token included, are dropped, as in the authors'
            training. `None` keeps all, as for evaluation. Defaults to 256.
        num_replicas: B is a multiple of this. Defaults to 1.
        max_shapes: Largest number of different (B, S, T). Fewer shapes compile sooner, but need more
            padding. Defaults to 24.
        length_multiple: S and T are multiples of this. Some accelerators prefer 8. Defaults to 1.
        epochs_per_pass: Number of epochs that show every pair once; more than 1 suits a large corpus.
            Defaults, with `shuffle`, to the number of `samples` of the text in the store, else to 1.
        alignments: The `TokenAlignments` of the store. Defaults to none.

    Raises:
        ValueError: If no pair is left, or a batch cannot hold the longest pair on every replica.

    Example:

    >>> import tempfile
    >>> from keras_attention.data.corpora import load_corpus
    >>> from keras_attention.data.tokenizer import Tokenizer
    >>> text = load_corpus("demo").validation
    >>> tokenizer = Tokenizer.train([*text.sources(), *text.targets()], vocabulary_size=600)
    >>> store = TokenStore.build(tempfile.mkdtemp(), text, tokenizer)
    >>> batches = TokenBatches(store, batch_tokens=512)
    >>> inputs, labels = batches[0]
    >>> inputs["decoder_token_ids"].shape == labels.shape
    True
    >>> ends = [(labels == tokenizer.end_token_id).sum() for _, labels in batches]
    >>> int(sum(ends)) == len(text)
    True

    Reference: section 5.1 of [Attention Is All You Need](https://arxiv.org/abs/1706.03762).
    """

    @checked
    def __init__(
        self,
        store: Annotated[
            TokenStore, Has("a TokenStore, from `TokenStore.build`", "padded", "metadata")
        ],
        batch_tokens: Count = 4096,
        shuffle: bool = True,
        seed: FromZero = 0,
        max_length: Count | None = 256,
        num_replicas: Count = 1,
        max_shapes: Annotated[int, Ge(2)] = 24,
        length_multiple: int = 1,
        epochs_per_pass: Count | None = None,
        alignments: Annotated[TokenAlignments, Has("TokenAlignments", "padded", "pairs")]
        | None = None,
    ) -> None:
        super().__init__()
        check_integer("length_multiple", length_multiple, 1, batch_tokens)
        if epochs_per_pass is None:
            epochs_per_pass = store.metadata.get("samples", 1) if shuffle else 1
        if epochs_per_pass > 1 and not shuffle:
            raise ValueError(
                f"`epochs_per_pass` needs `shuffle=True`. Received: epochs_per_pass={epochs_per_pass}"
            )
        if alignments is not None and len(alignments) != len(store):
            raise ValueError(
                f"`alignments` must be those of the {len(store)} pairs in the store. Received: "
                f"alignments of {len(alignments)} pairs"
            )
        self.store = store
        self.batch_tokens = batch_tokens
        self.shuffle = shuffle
        self.seed = seed
        self.max_length = max_length
        self.num_replicas = num_replicas
        self.epochs_per_pass = epochs_per_pass
        self.alignments = alignments

        lengths = np.stack([store.source_lengths, store.target_lengths])
        kept = buckets.kept_pairs(lengths, max_length)
        self.dropped_long = len(store) - len(kept)
        lengths = buckets.round_up(lengths[:, kept], length_multiple)
        least = int(lengths.max()) * num_replicas
        if batch_tokens < least:
            raise ValueError(
                f"`batch_tokens` ({batch_tokens}) is too small for the longest sentence: a batch has at "
                f"least {num_replicas} row(s), each of {lengths.max()} positions. Raise it to {least}, or "
                "lower `max_length`."
            )
        self._shapes, bucket_of_pair = buckets.choose_buckets(
            lengths, batch_tokens, num_replicas, max_shapes
        )
        self._pairs = [kept[bucket_of_pair == bucket] for bucket in range(len(self._shapes))]
        self._make_caches()
        self._length = len(self._plan(0))
        self._shard = (0, 1)
        self.epoch = 0
        self._read = np.zeros(self._length, bool)

    def _make_caches(self) -> None:
        self._plan = functools.lru_cache(maxsize=2)(self._make_plan)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.items()
        return {name: value for name, value in state if not hasattr(value, "cache_info")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._read = self._read.copy()
        self._make_caches()

    @property
    def workers(self) -> int:
        """Number of Keras' workers: one, the thread that trains. See `use_multiprocessing`."""
        return 1

    @workers.setter
    def workers(self, workers: int) -> None:
        if check_integer("workers", workers, 0) > 1:
            self._say_unused("workers", workers)

    @property
    def use_multiprocessing(self) -> bool:
        """Always False: a batch is gathered in less than a millisecond, from files that are in memory.

        Keras' workers would take longer, and their queue passes what was read ahead in one epoch on to the
        next.
        """
        return False

    @use_multiprocessing.setter
    def use_multiprocessing(self, use: bool) -> None:
        if check_boolean("use_multiprocessing", use):
            self._say_unused("use_multiprocessing", use)

    def _say_unused(self, name: str, value: Any) -> None:
        warnings.warn(
            f"TokenBatches are read by the thread that trains, which takes less than a millisecond a "
            f"batch: {name}={value} has no effect.",
            stacklevel=3,
        )

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        batch = self.batch(self.epoch, index)
        self._read[index] = True
        return batch

    @property
    def vocabulary_size(self) -> int:
        """Vocabulary size of the tokenizer that made the store."""
        return self.store.metadata["vocabulary_size"]

    @property
    def target_vocabulary_size(self) -> int:
        """The same of the target, which may have a vocabulary of its own."""
        return self.store.metadata["target_vocabulary_size"]

    @property
    def longest(self) -> int:
        """The largest S or T of a batch."""
        return max(max(shape.source_length, shape.target_length) for shape in self._shapes)

    @property
    def signature(self) -> tuple[dict[str, keras.KerasTensor], keras.KerasTensor]:
        """Shapes and dtypes of `(inputs, labels)`. The batch axis, and lengths that vary, are None."""

        def tensor(lengths: set[int]) -> keras.KerasTensor:
            length = lengths.pop() if len(lengths) == 1 else None
            return keras.KerasTensor((None, length), "int32")

        source = tensor({shape.source_length for shape in self._shapes})
        target = tensor({shape.target_length for shape in self._shapes})
        inputs = {"encoder_token_ids": source, "decoder_token_ids": target}
        if self.alignments is not None:
            shape = (None, target.shape[1], source.shape[1])
            inputs["alignments"] = keras.KerasTensor(shape, "float32")
        return inputs, target

    def batch(self, epoch: int, index: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return batch `index` of an epoch: inputs and labels."""
        shape, pairs = self._planned(epoch, index)
        shard, count = self._shard
        pairs = np.split(pairs, count)[shard]
        labels = self.store.padded("target", pairs, shape.target_length)
        inputs = {
            "encoder_token_ids": self.store.padded("source", pairs, shape.source_length),
            "decoder_token_ids": _shifted_right(
                labels, self.store.pad_token_id, self.store.start_token_id
            ),
        }
        if self.alignments is not None:
            lengths = (shape.target_length, shape.source_length)
            inputs["alignments"] = self.alignments.padded(pairs, *lengths)
        return inputs, labels

    def pairs(self, epoch: int, index: int) -> np.ndarray:
        """Return the indices in the store of a batch's pairs, int64 (B,); -1 is a row of padding."""
        return self._planned(epoch, index)[1]

    def batch_shape(self, epoch: int, index: int) -> tuple[int, int, int]:
        """Shape (B, S, T) of a batch, padding included, without reading it."""
        shape, pairs = self._planned(epoch, index)
        return len(pairs), shape.source_length, shape.target_length

    def tokens_in_batch(self, epoch: int, index: int) -> tuple[int, int]:
        """Return the numbers of real source and target tokens in a batch, end tokens included."""
        pairs = self.pairs(epoch, index)
        pairs = pairs[pairs != buckets.PADDING_ROW]
        lengths = self.store.source_lengths, self.store.target_lengths
        return int(lengths[0][pairs].sum()), int(lengths[1][pairs].sum())

    @checked
    def set_epoch(self, epoch: FromZero) -> None:
        """Make `batches[i]` read this epoch; for resuming."""
        self.epoch = epoch
        self._read[:] = False

    @checked
    def shard(self, index: FromZero, count: Count) -> TokenBatches:
        """Return one process' share of each batch, for several processes that train together.

        Reading the result gives rows `index` B / `count` to (`index` + 1) B / `count` of each batch. The
        methods that describe batches (`pairs`, `batch_shape`, `statistics`, ...) still describe whole
        ones.

        Args:
            index: Number of the process, from 0.
            count: Number of processes, a divisor of `num_replicas`.

        Raises:
            ValueError: If the numbers do not fit.
        """
        if index >= count:
            raise ValueError(f"`index` must be below `count` ({count}). Received: index={index}")
        if self.num_replicas % count:
            raise ValueError(
                f"`count` must divide num_replicas={self.num_replicas} ({divisors(self.num_replicas)} "
                f"do), so that processes share each batch evenly. Received: count={count}. Make "
                "TokenBatches with the number of replicas of all processes together."
            )
        part = copy.copy(self)  # with an epoch of its own
        part._plan = self._plan  # which is the same
        part._shard = (index, count)
        return part

    def on_epoch_end(self) -> None:
        """Move on to the next epoch if all batches were read; Keras calls it."""
        # Keras also calls it before the first epoch, after reading a few batches to build the model.
        if self._read.all():
            self.set_epoch(self.epoch + 1)

    def statistics(self) -> dict[str, Any]:
        """Return statistics of an epoch; with `epochs_per_pass`, of the first.

        Returns:
            A dict with `pairs`, `dropped_long` (of the whole store), `batches`, `shapes` (list of
            (B, S, T)), `longest_source` (the largest S), `source_tokens`, `target_tokens` (without
            padding), `source_tokens_per_batch`, `target_tokens_per_batch` (means) and `padding` (the share
            of padding in all positions of both sides).
        """
        shapes = self.shape_statistics()
        sums = ("pairs", "source_tokens", "target_tokens")
        pairs, source, target = (sum(one[name] for one in shapes) for name in sums)
        sizes = ((one["batches"], *one["shape"]) for one in shapes)
        positions = sum(count * rows * (s + t) for count, rows, s, t in sizes)
        return {
            "pairs": pairs,
            "dropped_long": self.dropped_long,
            "batches": self._length,
            "shapes": sorted(one["shape"] for one in shapes),
            "longest_source": max(shape.source_length for shape in self._shapes),
            "source_tokens": source,
            "target_tokens": target,
            "source_tokens_per_batch": source / self._length,
            "target_tokens_per_batch": target / self._length,
            "padding": 1 - (source + target) / positions,
        }

    def shape_statistics(self, epoch: int = 0) -> list[dict[str, Any]]:
        """Return statistics of an epoch for each batch shape, from short to long.

        Returns:
            A dict for each shape: `shape` (B, S, T), `batches`, `pairs`, `source_tokens`,
            `target_tokens` (without padding) and `padding` (its share in all positions).
        """
        lengths = self.store.source_lengths, self.store.target_lengths
        return buckets.statistics_by_shape(self._plan(epoch if self.shuffle else 0), lengths)

    def _planned(self, epoch: int, index: int) -> tuple[buckets.BatchShape, np.ndarray]:
        check_integer("epoch", epoch, 0)
        if not 0 <= check_integer("index", index) < self._length:
            raise IndexError(f"An epoch has batches 0 to {self._length - 1}. Received: {index}")
        return self._plan(epoch if self.shuffle else 0)[index]

    def _make_plan(self, epoch: int) -> buckets.Plan:
        number, part = divmod(epoch, self.epochs_per_pass)
        plan = self._planned_pass(self._pairs, [self.seed, number])
        length = -(-len(plan) // self.epochs_per_pass)
        start = part * length
        return buckets.with_varied_start(
            [plan[i % len(plan)] for i in range(start, start + length)]
        )

    def _planned_pass(self, pairs: list[np.ndarray], seed: list[int]) -> buckets.Plan:
        random = np.random.default_rng(seed) if self.shuffle else None
        return buckets.planned_pass(self._shapes, pairs, self.num_replicas, random)


def _shifted_right(labels: np.ndarray, pad: int, start: int) -> np.ndarray:
    """Return the decoder input (B, T) for labels (B, T): the start token, then all but the end token."""
    shifted = np.full_like(labels, start)
    shifted[:, 1:] = labels[:, :-1]
    return np.where(labels == pad, pad, shifted)
