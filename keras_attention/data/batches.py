"""Batches of pairs of like length: about N source and N target tokens each."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import keras
import numpy as np

from keras_attention.data.token_store import TokenStore

PADDING_ROW = -1


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Pairs of like length, and the shape of their batches."""

    rows: int
    source_length: int
    target_length: int
    pairs: np.ndarray  # int64 (pairs of this bucket,), ascending

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.rows, self.source_length, self.target_length


class TokenBatches(keras.utils.PyDataset):
    """Batches for `fit` from a `TokenStore`.

    Batch i is `({"encoder_token_ids": (B, S), "decoder_token_ids": (B, T)}, labels (B, T))`, int32, padded
    with the padding id. Labels are the target with its end token, the decoder's input is the target
    shifted right by one: it starts with the padding id, whose embedding is the zero vector.

    **Shapes.** Pairs are sorted into at most `max_shapes` buckets by source and target length, chosen
    from the lengths in the store so that little is padded. All batches of a bucket have the same shape
    (B, S, T), B = `batch_tokens` // max(S, T), rounded down to a multiple of `num_replicas`: so
    `batch_tokens` bounds the positions, padding included, that a batch holds on either side (the
    authors' code counts so, too), and a graph is compiled for few shapes.

    **Every pair once.** An epoch shows each pair exactly once. What is left of a bucket after its whole
    batches moves on to a bucket with room for such lengths; only where there is none, a last batch
    is filled up with rows of padding. Loss and metrics that mask padding do not see them.

    **Order.** `batch(epoch, i)` is a pure function of (store, arguments, epoch, i), whatever was read
    before: any step can be reached and resumed. With `shuffle` the pairs of a bucket and the order of
    the batches are permuted anew each epoch; the first two batches differ in S and in T where any do,
    as Keras reads from them which axes vary (TensorFlow). Without `shuffle` all epochs are alike.

    Pass `fit(batches, shuffle=False)`: `fit` shuffles the order of the batches once more otherwise,
    which does no harm but cannot be resumed. `fit` needs no `steps_per_epoch`. To resume, call
    `set_epoch(initial_epoch)` before `fit(..., initial_epoch=initial_epoch)`.

    Args:
        store: `TokenStore`.
        batch_tokens: int: positions a batch may hold on either side. The paper: about 25,000.
        shuffle: bool: a new order every epoch (training), or always the same (evaluation).
        seed: int: decides the order.
        max_length: int: pairs with more tokens on a side, end token included, are dropped, as in the
            authors' code (training only); `None` keeps all (evaluation).
        num_replicas: int: B is a multiple of it.
        max_shapes: int: the greatest number of different (B, S, T).
        length_multiple: int: S and T are multiples of it; 8 may suit tensor cores and pads more.

    Example:

    >>> import tempfile
    >>> from keras_attention.data import load_corpus, Tokenizer, TokenStore
    >>> text = load_corpus("demo").validation
    >>> tokenizer = Tokenizer.train(text.sources(), vocabulary_size=400)
    >>> store = TokenStore.build(tempfile.mkdtemp(), text, tokenizer)
    >>> batches = TokenBatches(store, batch_tokens=512)
    >>> inputs, labels = batches[0]
    >>> sorted(inputs)
    ['decoder_token_ids', 'encoder_token_ids']
    >>> bool((inputs["decoder_token_ids"][:, 1:] == labels[:, :-1])[labels[:, 1:] != 0].all())
    True

    Reference: section 5.1 of [Attention Is All You Need](https://arxiv.org/abs/1706.03762).
    """

    def __init__(
        self,
        store: TokenStore,
        batch_tokens: int = 4096,
        shuffle: bool = True,
        seed: int = 0,
        max_length: int | None = 256,
        num_replicas: int = 1,
        max_shapes: int = 24,
        length_multiple: int = 1,
    ) -> None:
        super().__init__()
        _check_arguments(
            store, batch_tokens, seed, max_length, num_replicas, max_shapes, length_multiple
        )
        self.store = store
        self.batch_tokens = batch_tokens
        self.shuffle = shuffle
        self.seed = seed
        self.max_length = max_length
        self.num_replicas = num_replicas
        self.epoch = 0
        lengths = np.stack([store.source_lengths, store.target_lengths])
        longest = lengths.max(axis=0)
        kept = np.arange(len(store)) if max_length is None else np.flatnonzero(longest <= max_length)
        self.dropped_long = len(store) - len(kept)
        if not len(kept):
            raise ValueError(
                f"No pair is left: all {len(store)} are longer than `max_length` ({max_length}) tokens."
            )
        needed = _round_up(int(longest[kept].max()), length_multiple) * num_replicas
        if batch_tokens < needed:
            raise ValueError(
                f"`batch_tokens` ({batch_tokens}) is too small: the longest pair needs {needed} "
                f"(its length times {num_replicas} replicas). Raise `batch_tokens` or lower `max_length`."
            )
        rows = functools.partial(_rows, batch_tokens=batch_tokens, num_replicas=num_replicas)
        self.buckets = _choose_buckets(kept, lengths[:, kept], rows, max_shapes, length_multiple)
        self._next = _next_buckets(self.buckets)
        counts = _plan_counts([len(b.pairs) for b in self.buckets], self.buckets, self._next)
        self._length = sum(counts)
        self._seen = np.zeros(self._length, bool)
        self._plan = functools.lru_cache(maxsize=2)(self._make_plan)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        batch = self.batch(self.epoch, index)
        self._seen[index] = True
        return batch

    def batch(self, epoch: int, index: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Batch `index` of an epoch.

        Args:
            epoch: int from 0.
            index: int from 0, less than `len(self)`.

        Returns:
            The tuple described above.
        """
        if not 0 <= index < self._length:
            raise IndexError(f"An epoch has batches 0 to {self._length - 1}. Received: {index}")
        bucket_index, pairs = self._plan(epoch if self.shuffle else 0)[index]
        bucket = self.buckets[bucket_index]
        labels = self.store.padded("target", pairs, bucket.target_length)
        inputs = {
            "encoder_token_ids": self.store.padded("source", pairs, bucket.source_length),
            "decoder_token_ids": _shifted_right(labels),
        }
        return inputs, labels

    def pairs(self, epoch: int, index: int) -> np.ndarray:
        """Indices (B,) in the store of the pairs of a batch; -1 is a row of padding."""
        return self._plan(epoch if self.shuffle else 0)[index][1]

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the one that is read next; for resuming."""
        if not isinstance(epoch, int) or epoch < 0:
            raise ValueError(f"`epoch` must be an int of at least 0. Received: {epoch!r}")
        self.epoch = epoch
        self._seen[:] = False

    def on_epoch_end(self) -> None:
        # Keras calls this before the first epoch, too, and reads batches to build the model: an epoch
        # is over only when each of its batches was handed out.
        if self._seen.all():
            self.set_epoch(self.epoch + 1)

    def statistics(self) -> dict[str, Any]:
        """What an epoch holds.

        Returns:
            dict: `pairs`, `dropped_long`, `batches`, `shapes` (list of (B, S, T)), `source_tokens` and
            `target_tokens` (real ones, an epoch), `source_tokens_per_batch`, `target_tokens_per_batch`
            (means) and `padding` (the share of padding in the positions of both sides).
        """
        shapes = [self.buckets[bucket].shape for bucket, _ in self._plan(0)]
        positions = sum(rows * (source + target) for rows, source, target in shapes)
        kept = np.concatenate([bucket.pairs for bucket in self.buckets])
        source_tokens = int(self.store.source_lengths[kept].sum())
        target_tokens = int(self.store.target_lengths[kept].sum())
        return {
            "pairs": len(kept),
            "dropped_long": self.dropped_long,
            "batches": self._length,
            "shapes": sorted(set(shapes)),
            "source_tokens": source_tokens,
            "target_tokens": target_tokens,
            "source_tokens_per_batch": source_tokens / self._length,
            "target_tokens_per_batch": target_tokens / self._length,
            "padding": 1 - (source_tokens + target_tokens) / positions,
        }

    def _make_plan(self, epoch: int) -> list[tuple[int, np.ndarray]]:
        """The batches of an epoch: (index of the bucket, indices of the pairs)."""
        random = np.random.default_rng([self.seed, epoch])
        plan = []
        waiting: list[list[np.ndarray]] = [[bucket.pairs] for bucket in self.buckets]
        for index, bucket in enumerate(self.buckets):
            pairs = np.concatenate(waiting[index])
            if self.shuffle:
                pairs = random.permutation(pairs)
            whole = len(pairs) // bucket.rows * bucket.rows
            plan += [(index, rows) for rows in pairs[:whole].reshape(-1, bucket.rows)]
            rest = pairs[whole:]
            if not len(rest):
                continue
            if self._next[index] is not None:
                waiting[self._next[index]].append(rest)
            else:
                padding = np.full(bucket.rows - len(rest), PADDING_ROW)
                plan.append((index, np.concatenate([rest, padding])))
        if self.shuffle:
            plan = [plan[position] for position in random.permutation(len(plan))]
            _vary_first_two(plan, self.buckets)
        return plan


def _rows(source_length: int, target_length: int, batch_tokens: int, num_replicas: int) -> int:
    rows = batch_tokens // max(source_length, target_length)
    return rows // num_replicas * num_replicas


def _shifted_right(labels: np.ndarray) -> np.ndarray:
    """Decoder input (B, T) of labels (B, T): starts with padding, has no end token."""
    shifted = np.zeros_like(labels)
    shifted[:, 1:] = labels[:, :-1]
    shifted[labels == 0] = 0  # the end token would else be fed at the first padding
    return shifted


def _choose_buckets(pairs, lengths, rows, max_shapes, multiple) -> list[Bucket]:
    """Buckets with the least padding, found by splitting the worst rectangle of lengths again and again.

    The number of buckets, too, is the best one: more pad less inside, but leave more remainders.
    """
    groups = [np.arange(len(pairs))]
    best: list[Bucket] = []
    best_positions = None
    while True:
        buckets = [_bucket(pairs[group], lengths[:, group], rows, multiple) for group in groups]
        buckets.sort(key=lambda bucket: (max(bucket.shape[1:]), bucket.shape))
        following = _next_buckets(buckets)
        counts = _plan_counts([len(bucket.pairs) for bucket in buckets], buckets, following)
        positions = sum(n * b.rows * (b.source_length + b.target_length) for n, b in zip(counts, buckets))
        if best_positions is None or positions < best_positions:
            best, best_positions = buckets, positions
        splits = [_best_split(lengths[:, group], multiple) for group in groups]
        worst = int(np.argmax([gain for gain, _ in splits]))
        if len(groups) == max_shapes or splits[worst][0] <= 0:
            return best
        group, left = groups.pop(worst), splits[worst][1]
        groups += [group[left], group[~left]]


def _bucket(pairs, lengths, rows, multiple) -> Bucket:
    source_length, target_length = (_round_up(int(n), multiple) for n in lengths.max(axis=1))
    return Bucket(rows(source_length, target_length), source_length, target_length, pairs)


def _best_split(lengths: np.ndarray, multiple: int) -> tuple[int, np.ndarray]:
    """The threshold on one side that saves most positions: (saved, mask of the pairs below it)."""
    rounded = _round_up(lengths, multiple)
    whole = rounded.max(axis=1).sum()
    best = (0, np.zeros(lengths.shape[1], bool))
    for side in range(2):
        order = np.argsort(rounded[side], kind="stable")
        own, other = rounded[side][order], rounded[1 - side][order]
        below = own + np.maximum.accumulate(other)
        above = own[-1] + np.maximum.accumulate(other[::-1])[::-1]
        cuts = np.flatnonzero(own[1:] != own[:-1])
        if not len(cuts):
            continue
        count = cuts + 1
        saved = whole * len(own) - count * below[cuts] - (len(own) - count) * above[cuts + 1]
        cut = int(np.argmax(saved))
        if saved[cut] > best[0]:
            best = int(saved[cut]), rounded[side] <= own[cuts[cut]]
    return best


def _next_buckets(buckets: list[Bucket]) -> list[int | None]:
    """For each bucket the smallest later one whose shape has room for its pairs."""
    following: list[int | None] = []
    for index, bucket in enumerate(buckets):
        room = [
            (later.source_length + later.target_length, position)
            for position, later in enumerate(buckets)
            if position > index
            and later.source_length >= bucket.source_length
            and later.target_length >= bucket.target_length
        ]
        following.append(min(room)[1] if room else None)
    return following


def _plan_counts(pairs: list[int], buckets: list[Bucket], following: list[int | None]) -> list[int]:
    """Number of batches of each bucket, remainders moved on."""
    waiting = list(pairs)
    counts = []
    for index, bucket in enumerate(buckets):
        whole, rest = divmod(waiting[index], bucket.rows)
        target = following[index]
        if rest and target is not None:
            waiting[target] += rest
        counts.append(whole + (rest > 0 and target is None))
    return counts


def _vary_first_two(plan: list[tuple[int, np.ndarray]], buckets: list[Bucket]) -> None:
    """Swaps two batches to the front that differ in S and in T, if any batches differ there."""
    shapes = [buckets[bucket].shape for bucket, _ in plan]
    wanted = [len({shape[axis] for shape in shapes}) > 1 for axis in (1, 2)]

    def differ(first, second):
        return all(shapes[first][axis] != shapes[second][axis] for axis in (1, 2) if wanted[axis - 1])

    for first in range(len(plan)):
        for second in range(first + 1, len(plan)):
            if differ(first, second):
                plan[0], plan[first] = plan[first], plan[0]
                plan[1], plan[second] = plan[second], plan[1]
                return


def _round_up(length, multiple: int):
    return -(-length // multiple) * multiple


def _check_arguments(
    store, batch_tokens, seed, max_length, num_replicas, max_shapes, length_multiple
) -> None:
    if not isinstance(store, TokenStore):
        raise ValueError(
            f"`store` must be a TokenStore; make one with `TokenStore.build`. Received: {store!r}"
        )
    numbers = {
        "batch_tokens": batch_tokens,
        "num_replicas": num_replicas,
        "max_shapes": max_shapes,
        "length_multiple": length_multiple,
        "max_length": 1 if max_length is None else max_length,
    }
    for name, value in numbers.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` must be an int of at least 1. Received: {value!r}")
    if not isinstance(seed, int) or seed < 0:
        raise ValueError(f"`seed` must be an int of at least 0. Received: {seed!r}")
