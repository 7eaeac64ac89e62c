"""Greedy search that verifies drafts: several tokens are proposed, and one pass of the decoder checks them.

The pass says what the model chooses behind each proposed token. Those that it chooses itself are kept, up to
the first that it does not, which its own choice replaces. So the output is that of greedy search, token by
token (Stern, Shazeer and Uszkoreit 2018, with proposals of any origin).

Products of several rows may be rounded in another way than those of one. Where the two likeliest tokens are
nearly as likely as each other, a pass of one token decides, as greedy search does.

Shape letters: L longest output.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import Any, Protocol

import numpy as np

from keras_attention.decoding.hypotheses import (
    NO_HYPOTHESIS,
    BeamSearchResult,
    SearchRules,
    exist,
    penalty,
)
from keras_attention.engine.base import DraftTables, Verifier
from keras_attention.utils.checks import check_has

# Log-probabilities that differ by less are nearly equal, by the precision of the engine.
NEARLY_EQUAL = {"float32": 1e-4, "int8": 1e-4, "bfloat16": 0.1, "float16": 0.02}
# More proposals in one pass than any drafter has right.
MOST_PROPOSALS = 16


class Draft(Protocol):
    """What proposes the next tokens of a translation, such as a `LexicalDraft`."""

    def propose(
        self, source_ids: list[int], output_ids: list[int], n: int, hidden: np.ndarray | None
    ) -> list[int]:
        """Return at most `n` tokens that may follow `output_ids`; what they are changes no translation.

        Args:
            source_ids: The tokens of the source, end token included.
            output_ids: The tokens of the translation so far, without the start token.
            n: How many are wanted.
            hidden: float32 (D,), the decoder's last hidden state, of which the model made the last of
                `output_ids`; None before the first.
        """
        ...


@dataclasses.dataclass
class DraftReport:
    """What the drafts of a `Translator` came to, in all its calls.

    Attributes:
        steps: Passes of the decoder in searches with drafts.
        tokens: Tokens that they made, end tokens included.
        proposed: Tokens that were proposed.
        accepted: Of those, the ones that the model chose itself.
        undrafted: Sentences that were searched without drafts, because they came in batches of several or
            with a prefix or phrases.

    >>> report = DraftReport(steps=5, tokens=8, proposed=15, accepted=3)
    >>> report.tokens_per_step
    1.6
    >>> print(report)
    8 tokens in 5 passes, 1.60 a pass; 3 of 15 proposed tokens accepted
    """

    steps: int = 0
    tokens: int = 0
    proposed: int = 0
    accepted: int = 0
    undrafted: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    @property
    def tokens_per_step(self) -> float:
        """Tokens per pass; 1 without drafts."""
        return self.tokens / self.steps if self.steps else 1.0

    def __str__(self) -> str:
        found = (
            f"{self.tokens:,} tokens in {self.steps:,} passes, {self.tokens_per_step:.2f} a pass; "
            f"{self.accepted:,} of {self.proposed:,} proposed tokens accepted"
        )
        together = f"; {self.undrafted:,} sentences were searched together, without drafts"
        return found + together * (self.undrafted > 0)

    def add(self, **numbers: int) -> None:
        """Add to the numbers of these names."""
        with self._lock:  # The threads of a server share a translator.
            for name, number in numbers.items():
                setattr(self, name, getattr(self, name) + number)


class Drafting:
    """How a `Translator` drafts: by what, how many tokens for a pass, and what that came to."""

    def __init__(self, draft: Draft, lookahead: int):
        self.draft = check_has("draft", draft, "a draft, such as a LexicalDraft", "propose")
        self.lookahead = lookahead
        self.report = DraftReport()

    def tables(self, source: list[int], size: int) -> DraftTables | None:
        """Return what is proposed for a source, if tables for a vocabulary of this size say it."""
        tables = self.draft.tables(source) if hasattr(self.draft, "tables") else None
        return None if tables is None or len(tables.frequencies) > size else tables

    def proposals(
        self, source: list[int], output: list[int], hidden: np.ndarray | None, size: int
    ) -> list[int]:
        """Return what is proposed, of a vocabulary of this size."""
        proposed = self.draft.propose(source, output, self.lookahead, hidden)
        found = [int(token) for token in proposed]
        if any(not 0 <= token < size for token in found) or len(found) > self.lookahead:
            raise ValueError(
                f"`draft` must propose at most {self.lookahead} ids, each at least 0 and less than {size}, "
                f"the model's target vocabulary. Received: {found}. Was it made for this tokenizer?"
            )
        self.report.add(proposed=len(found))
        return found


def drafted_search(
    verifier: Verifier,
    source: list[int],
    limit: int,
    rules: SearchRules,
    drafting: Drafting,
    precision: str,
    vocabulary_size: int,
) -> BeamSearchResult:
    """Search greedily like `beam_search` with a beam of 1, in float32 with the same tokens.

    Args:
        verifier: The decoder, which has encoded the source and has `limit` positions.
        source: The source's token ids.
        limit: The longest hypothesis, end token included.
        rules: Special tokens and length penalty.
        drafting: What proposes tokens.
        precision: The engine's.
        vocabulary_size: V, the target's.

    Returns:
        A `BeamSearchResult` of one sentence. Its score may differ from `beam_search`'s in the last digit.
    """
    tables = drafting.tables(source, vocabulary_size)
    margin = NEARLY_EQUAL[precision]
    found = None if tables is None else verifier.search(tables, drafting.lookahead, margin)
    if found is not None:
        tokens, total, report = found
        drafting.report.add(**report)
        return _as_result(tokens, total, limit, rules)
    output: list[int] = []
    score, is_close, last = np.float32(0.0), False, None
    while len(output) < limit and np.isfinite(score) and rules.end_token_id not in output[-1:]:
        proposed: list[int] = []
        # Engines compile a program for each number of tokens, so there are two: one and all.
        if not is_close and len(output) + 1 + drafting.lookahead <= limit:
            proposed = drafting.proposals(source, output, last, vocabulary_size)
        number = len(proposed)
        if proposed:
            proposed += [rules.pad_token_id] * (drafting.lookahead - number)
        fed = [output[-1] if output else rules.start_token_id, *proposed]
        scores, ids, hidden = verifier.verify(np.array(fed, "int32"), len(output))
        begun = len(output)
        for row, (own_scores, choices) in enumerate(zip(scores, ids, strict=True)):
            distance = own_scores[0] - own_scores[-1] if len(choices) > 1 else np.inf
            is_close = bool(proposed) and distance < margin
            if is_close:
                break
            score += own_scores[0]
            output.append(int(choices[0]))
            if output[-1] == rules.end_token_id or proposed[row : row + 1] != output[-1:]:
                break
        made = len(output) - begun
        last = hidden[made - 1]
        # The last one is the model's own, unless the one behind it was too close to call.
        # What fills the proposals up was not proposed.
        accepted = min(made - (0 if is_close else 1), number)
        drafting.report.add(steps=1, tokens=made, accepted=accepted)
    return _as_result(output, score, limit, rules)


def _as_result(output: list[int], score: Any, limit: int, rules: SearchRules) -> BeamSearchResult:
    """Return a hypothesis as other searches do."""
    is_finished = rules.end_token_id in output[-1:]
    exists = bool(output) and bool(exist(score))
    length = len(output) if exists else 0
    sequence = np.full((1, 1, limit), rules.pad_token_id, "int32")
    sequence[0, 0, :length] = output[:length]
    factor = penalty(np.array(length, "float32"), rules.length_penalty, np) if is_finished else 1.0
    return BeamSearchResult(
        sequences=sequence,
        scores=np.full((1, 1), score / factor if exists else NO_HYPOTHESIS, "float32"),
        lengths=np.full((1, 1), length, "int32"),
        finished=np.full((1, 1), exists and is_finished),
    )
