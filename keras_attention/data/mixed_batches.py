"""Batches of several corpora with weights, in stages."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_attention.data.batches import TokenBatches
from keras_attention.data.buckets import Plan, with_varied_start
from keras_attention.data.mixture import Stage
from keras_attention.data.token_store import TokenStore
from keras_attention.utils.arguments import checked


class JoinedStore(TokenStore):
    """Several token stores of one tokenizer, seen as one: the pairs of the first, then of the second, ..."""

    def __init__(self, stores: Mapping[str, TokenStore]) -> None:
        self.stores = dict(stores)
        parts = list(self.stores.values())
        self.starts = np.cumsum([0, *map(len, parts)])
        summed = ("pairs", "dropped_empty", "source_tokens", "target_tokens")
        sums = {name: sum(part.metadata[name] for part in parts) for name in summed}
        self.metadata = {**parts[0].metadata, **sums}
        self.source_lengths = np.concatenate([part.source_lengths for part in parts])
        self.target_lengths = np.concatenate([part.target_lengths for part in parts])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.stores,)

    def padded(self, side: str, indices: np.ndarray, length: int) -> np.ndarray:
        """Return the sentences of several pairs as one padded array; see `TokenStore.padded`."""
        rows = np.full((len(indices), length), self.pad_token_id, "int32")
        for store, start, end in self._ranges():
            inside = (indices >= start) & (indices < end)
            if inside.any():
                rows[inside] = store.padded(side, indices[inside] - start, length)
        return rows

    def _ranges(self) -> Iterable[tuple[TokenStore, int, int]]:
        starts = self.starts.tolist()
        return zip(self.stores.values(), starts[:-1], starts[1:], strict=True)

    def _sentence(self, side: str, index: int) -> np.ndarray:
        for store, start, end in self._ranges():
            if start <= index < end:
                return store._sentence(side, index - start)
        raise IndexError(f"The stores hold pairs 0 to {len(self) - 1}. Received: {index}")


class MixedBatches(TokenBatches):
    """Batches of several corpora, each batch of one of them, so often as its share says.

    The batches of a corpus are those of its own passes: every pair once in each, in another order. A corpus
    that is used up begins its next pass. Which corpus comes next is fixed: the one that is furthest behind
    its share. So `batch(epoch, i)` is a pure function of the stores, the arguments, epoch and i, as in
    `TokenBatches`. An epoch has as many batches as a pass over each corpus together. The corpora share their
    buckets, but each has smaller last batches of its own: there may be a few more shapes than `max_shapes`.

    The stores, by the names of their corpora, are of one tokenizer; `stages` are what `parse_mixture`
    returned.
    """

    @checked
    def __init__(
        self, stores: Mapping[str, TokenStore], stages: Sequence[Stage], **options: Any
    ) -> None:
        stores = dict(sorted(stores.items()))  # The order in which they are given must not matter.
        self.stages = tuple(stages)
        self._names = list(stores)
        # Where each epoch begins: batches done of each corpus, in all and in the stage; the stage.
        self._begun: dict[int, tuple[list[int], list[int], int]] = {
            0: ([0] * len(stores), [0] * len(stores), 0)
        }
        joined = JoinedStore(stores)
        self._starts = joined.starts
        super().__init__(joined, **{**options, "shuffle": True})

    def _make_caches(self) -> None:
        super()._make_caches()
        self._part_plan = functools.lru_cache(maxsize=2 * len(self._names))(self._make_part_plan)

    @functools.cached_property
    def _parts(self) -> list[list[np.ndarray]]:
        """The pairs of each bucket, for each corpus."""
        parts = [
            [pairs[(pairs >= start) & (pairs < end)] for pairs in self._pairs]
            for start, end in itertools.pairwise(self._starts)
        ]
        for name, pairs in zip(self._names, parts, strict=True):
            if not any(map(len, pairs)):
                raise ValueError(
                    f"No pair of '{name}' is left: all are longer than `max_length` ({self.max_length}) "
                    "tokens. Raise `max_length`, or leave out this text."
                )
        return parts

    def _make_part_plan(self, part: int, number: int) -> Plan:
        return self._planned_pass(self._parts[part], [self.seed, part, number])

    @functools.cached_property
    def passes(self) -> dict[str, int]:
        """Number of batches in a pass over each corpus."""
        return {name: len(self._part_plan(i, 0)) for i, name in enumerate(self._names)}

    @functools.cached_property
    def _epoch_batches(self) -> int:
        return -(-sum(self.passes.values()) // self.epochs_per_pass)

    def _make_plan(self, epoch: int) -> Plan:
        for before in range(len(self._begun) - 1, epoch):
            # By number: threads that draw the same epoch find the same.
            self._begun[before + 1] = self._drawn(before)[1]
        parts, after = self._drawn(epoch)
        done = list(self._begun[epoch][0])
        lengths = list(self.passes.values())
        plan = []
        for part in parts:
            number, index = divmod(done[part], lengths[part])
            plan.append(self._part_plan(part, number)[index])
            done[part] += 1
        # TensorFlow's `fit` looks at the first two. A stage's batches stay within it.
        is_one_stage = after[2] == self._begun[epoch][2]
        return with_varied_start(plan) if is_one_stage else plan

    def _drawn(self, epoch: int) -> tuple[list[int], tuple[list[int], list[int], int]]:
        """Return the corpus of each batch of an epoch, and where the next epoch begins."""
        total, taken, stage = self._begun[epoch]
        total, taken = list(total), list(taken)
        parts: list[int] = []
        first = epoch * self._epoch_batches
        for update in range(first, first + self._epoch_batches):
            until = self.stages[stage].until
            if until is not None and update >= until:
                stage, taken = stage + 1, [0] * len(taken)
            shares = [self.stages[stage].shares.get(name, 0.0) for name in self._names]
            after = sum(taken) + 1
            behind = [share * after - count for share, count in zip(shares, taken, strict=True)]
            part = max(range(len(behind)), key=lambda i: (shares[i] > 0, behind[i], -i))
            taken[part] += 1
            total[part] += 1
            parts.append(part)
        return parts, (total, taken, stage)
