"""Filters for training pairs, with a count of the pairs that each rule removes."""

from __future__ import annotations

import array
import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from keras_attention.data.held_out import text_hash
from keras_attention.data.normalization import normalize
from keras_attention.data.parallel_text import Pair, ParallelText
from keras_attention.data.symbols import without_tags
from keras_attention.utils.arguments import Count, Has, check_fields, checked

if TYPE_CHECKING:
    import numpy as np

KEPT = 0
RULES = ("empty", "over_long", "length_ratio", "duplicate")  # in the order of the checks
EMPTY, OVER_LONG, LENGTH_RATIO, DUPLICATE = range(1, 5)


@dataclasses.dataclass(frozen=True)
class Filters:
    """Rules for dropping training pairs. Pairs with an empty side are always dropped.

    By default nothing else is, as in the authors' code. (That also drops pairs with too many tokens: see
    `max_length` of `TokenBatches`.)

    Args:
        max_words: Largest number of words on a side, separated by white space, tags before a source not
            counted; None for no limit.
        max_ratio: Largest ratio of the numbers of words on both sides; None for no limit.
        drop_duplicates: Whether to keep only the first of equal pairs. They are compared normalised, by
            64-bit hashes: among 36 million pairs, the chance of losing one to a collision is 1 in 28,000.
            Defaults to False.

    Raises:
        ValueError: If an argument is out of range.

    >>> Filters(max_words=80, max_ratio=2.5)
    Filters(max_words=80, max_ratio=2.5, drop_duplicates=False)
    """

    max_words: Count | None = None
    max_ratio: Annotated[float, Ge(1)] | None = None
    drop_duplicates: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    def rule_against(self, pair: Pair) -> int:
        """Return the number of the first rule that drops a pair, or `KEPT`; ignores duplicates."""
        sides = without_tags(pair[0]), pair[1]
        source, target = (len(normalize(side).split()) for side in sides)
        if not source or not target:
            return EMPTY
        if self.max_words is not None and max(source, target) > self.max_words:
            return OVER_LONG
        if self.max_ratio is not None and max(source, target) > self.max_ratio * min(
            source, target
        ):
            return LENGTH_RATIO
        return KEPT


class FilteredText(ParallelText):
    """A parallel text without the pairs that `filters` drop.

    The first pass decides about each pair, counts and computes the fingerprint; later passes only skip
    pairs. Memory is one byte per pair of `text`; with `drop_duplicates`, about 30 bytes during the first
    pass (1.1 GB for 36 million pairs).

    Args:
        text: A `ParallelText`.
        filters: The `Filters`.

    Attributes:
        unfiltered: `text`.

    Example:

    >>> pairs = [("a dog", "ein Hund"), ("", "leer"), ("no", "nein nein nein"), ("a dog", "ein Hund")]
    >>> text = FilteredText(ParallelText("four", pairs), Filters(max_ratio=2, drop_duplicates=True))
    >>> list(text)
    [('a dog', 'ein Hund')]
    >>> print(describe(text.report()))
    4 pairs read, 1 kept (25.0%); left out: 1 empty, 0 over-long, 1 length ratio, 1 duplicate
    """

    @checked
    def __init__(
        self,
        text: Annotated[ParallelText, Has("a ParallelText", "sources", "targets", "fingerprint")],
        filters: Filters,
    ) -> None:
        super().__init__(text.name, text)
        self.filters = filters
        self.unfiltered = text
        self._kept = b""  # a byte for each pair of text, 1 if it stays
        self._report: dict[str, int] = {}

    def __iter__(self) -> Iterator[Pair]:
        self._scan()
        return itertools.compress(self.unfiltered, self._kept)

    def report(self) -> dict[str, Any]:
        """Return the numbers of pairs `read`, `kept` and dropped by each rule; a pair counts once."""
        self._scan()
        return dict(self._report)

    def _scan(self) -> tuple[int, str]:
        if self._summary is None:
            rules, digest = self._judged()
            import numpy as np

            counts = np.bincount(rules, minlength=len(RULES) + 1).tolist()
            self._report = {"read": len(rules), "kept": counts[KEPT]} | dict(
                zip(RULES, counts[1:], strict=True)
            )
            if not counts[KEPT]:
                raise ValueError(f"No pair of '{self.name}' is left: {describe(self._report)}.")
            self._kept = (rules == KEPT).tobytes()
            settings = json.dumps(dataclasses.asdict(self.filters), sort_keys=True)
            fingerprint = hashlib.sha256(f"{settings}\n{digest}".encode()).hexdigest()
            self._summary = counts[KEPT], fingerprint
        return self._summary

    def _judged(self) -> tuple[np.ndarray, str]:
        """Return the rule that drops each pair, uint8 (pairs,), and the fingerprint of all pairs."""
        rules, hashes = array.array("B"), array.array("Q")

        def judge(pair: Pair) -> None:
            rules.append(rule := self.filters.rule_against(pair))
            if self.filters.drop_duplicates and rule == KEPT:
                hashes.append(text_hash(*pair))

        _, digest = self.unfiltered.read_through(judge)
        import numpy as np

        result = np.array(rules, np.uint8)
        if hashes:
            kept = np.flatnonzero(result == KEPT)
            _, first = np.unique(np.frombuffer(hashes, np.uint64), return_index=True)
            result[np.delete(kept, first)] = DUPLICATE
        return result, digest


def describe(report: dict[str, Any]) -> str:
    """Return a filter report as a sentence."""
    removed = [
        f"{report[rule]:,} {rule.replace('_', '-' if rule == 'over_long' else ' ')}"
        for rule in RULES
    ]
    share = report["kept"] / report["read"]
    return (
        f"{report['read']:,} pairs read, {report['kept']:,} kept ({share:.1%}); "
        f"left out: {', '.join(removed)}"
    )
