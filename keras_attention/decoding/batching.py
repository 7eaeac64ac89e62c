"""Batches of sentences of similar length, with few shapes if each is compiled; and how long they may be.

Shape letters: B sentences, S source length, L longest output, end token included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

SHORTEST_SOURCE = 16
# Numbers in a search's largest buffers: for each row and beam, a mask over the slots of all beams.
LARGEST_BUFFER = 2**28
# The lines of a batch, and its sizes (B, S, L), padding included.
Batch = tuple[list[int], tuple[int, int, int]]


class Batching(NamedTuple):
    """Groups lines into batches.

    Example:

    >>> Batching(batch_tokens=64, batch_size=None, max_length=None).of_like_length([3, 0, 20, 30])
    [([3, 2], (2, 30, 30)), ([0], (1, 3, 3))]
    """

    batch_tokens: int  # largest number of source positions of a batch, padding included
    # Largest number of lines in a batch; None for no limit but `batch_tokens`.
    batch_size: int | None
    max_length: int | None  # largest number of positions of the model; None for no limit
    beam_size: int = 1  # Number of beams W. Wide beams leave room for fewer rows.
    # Largest number of tokens that a translation may have more than its source.
    max_extra_length: int = 0
    # What `Restrictions` say of the lengths of translations, end token not included; 0 for nothing.
    min_output: int = 0
    max_output: int = 0

    def limits(self, length: int) -> dict[str, int]:
        """Return what limits a translation of a source of this length, by how to raise it: L is the least."""
        limits = {"raise `max_extra_length` (--max-extra-length)": length + self.max_extra_length}
        if self.max_length is not None:
            limits["take a model with more positions"] = self.max_length
        if self.max_output:
            limits["raise `max_length` of the `Restrictions` (--max-length)"] = self.max_output + 1
        return limits

    def of_like_length(self, lengths: Sequence[int]) -> list[Batch]:
        """Batches of lines that are not empty, longest first."""
        lines = _sorted_lines(lengths)
        batches: list[Batch] = []
        start = 0
        while start < len(lines):
            longest = lengths[lines[start]]
            batch = lines[start : start + self._most_rows(max(SHORTEST_SOURCE, longest))]
            batches.append((batch, (len(batch), longest, self._longest(longest))))
            start += len(batch)
        return batches

    def of_few_shapes(self, lengths: Sequence[int]) -> list[Batch]:
        """Return batches of few shapes: S depends only on a line's own length, and dummy rows fill up B."""
        groups: dict[int, list[int]] = {}
        for line in _sorted_lines(lengths):
            groups.setdefault(self._padded_length(lengths[line]), []).append(line)
        batches: list[Batch] = []
        for length, group in groups.items():
            most = self._most_rows(length)
            rows = most if len(group) >= most else min(most, _next_power(len(group), 4))
            sizes = (rows, length, self._longest(length))
            batches += [(group[i : i + rows], sizes) for i in range(0, len(group), rows)]
        return batches

    def _most_rows(self, length: int) -> int:
        """Return the largest number of lines of a padded length in a batch."""
        # Buffers grow with the square of the beam.
        most_searched = LARGEST_BUFFER // (self.beam_size**2 * self._longest(length))
        most = max(1, min(self.batch_tokens // length, most_searched))
        return most if self.batch_size is None else min(most, self.batch_size)

    def _longest(self, length: int) -> int:
        return min(self.limits(length).values())

    def _padded_length(self, length: int) -> int:
        padded = max(SHORTEST_SOURCE, _next_power(length, 2))
        return padded if self.max_length is None else min(padded, self.max_length)


def _sorted_lines(lengths: Sequence[int]) -> list[int]:
    return sorted(
        (line for line, length in enumerate(lengths) if length), key=lambda line: -lengths[line]
    )


def _next_power(number: int, base: int) -> int:
    power = 1
    while power < number:
        power *= base
    return power
