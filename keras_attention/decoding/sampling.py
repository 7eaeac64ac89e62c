"""Drawing translations at random from the model's distribution, in place of searching the likeliest.

One uniform number decides each token: it is looked up in the cumulative distribution over the vocabulary. The
numbers come from a generator that is seeded by the seed, the sentence and the number of the sample, so they
do not depend on the batch, the order or the engine.

This module does not import Keras; `sampled_tokens.py` has the choice of tokens in `keras.ops`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le

from keras_attention.engine.base import Draws
from keras_attention.utils.arguments import Count, check_fields

# Times a number below the total, the result is below the total, also when rounded.
LARGEST_UNIFORM = np.float32(1 - 2**-22)
# Samples of a sentence: all are in memory before the first is drawn.
MOST_SAMPLES = 100_000


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How a `Translator` draws translations at random.

    Each token is drawn from the model's distribution: first the logits are divided by the temperature, then
    all but the `top_k` likeliest tokens are left out, then all but the likeliest that together have the
    probability `top_p`. Tokens as likely as the last one that stays, stay as well.

    The same seed gives the same samples of a sentence, in any batch, order and call, and on every engine (but
    for float rounding). So a sentence that occurs twice gets the same samples twice: for others, ask for more
    samples or take another seed.

    Attributes:
        temperature: What logits are divided by, from 0.0001 to 10000: below 1 the likely tokens become
            likelier, above 1 less likely. Defaults to 1.0, the model's own distribution.
        top_k: How many of the likeliest tokens may be drawn. Defaults to all.
        top_p: Least probability that the tokens that may be drawn have together, at most 1. Defaults to all.
        seed: Integer seed from 0 to 2^32 - 1. Defaults to 0.

    Raises:
        ValueError: If a value is out of range.

    Example:

    >>> Sampling(temperature=0.7, top_k=20)
    Sampling(temperature=0.7, top_k=20, top_p=None, seed=0)
    """

    # 0 would be greedy search, which `beam_size=1` is.
    temperature: Annotated[float, Ge(1e-4), Le(1e4)] = 1.0
    top_k: Count | None = None
    top_p: Annotated[float, Gt(0), Le(1)] | None = None
    seed: Annotated[int, Ge(0), Le(2**32 - 1)] = 0

    def __post_init__(self) -> None:
        check_fields(self)

    def uniforms(self, source_ids: Sequence[int], sample: int, length: int) -> np.ndarray:
        """Return the numbers, float32 (length,), that decide the tokens of a sample of a sentence.

        Args:
            source_ids: The sentence's token ids.
            sample: Number of the sample, from 0.
            length: How many; a longer row begins with a shorter one.
        """
        seeds = np.random.SeedSequence([self.seed, *source_ids], spawn_key=(sample,))
        numbers = np.random.Generator(np.random.Philox(seeds)).random(length, "float32")
        return np.minimum(numbers, LARGEST_UNIFORM)

    def draws(self, uniforms: Any) -> Draws:
        """Return these rules for an engine, with the numbers (B, L) of a batch."""
        return Draws(uniforms, self.temperature, self.top_k or 0, self.top_p or 1.0)
