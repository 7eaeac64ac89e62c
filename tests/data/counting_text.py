"""Parallel text and tokenizer whose tokens are written numbers: tests see what went where."""

import hashlib

import numpy as np


class NumberText:
    """Pairs of str; what `TokenStore` needs of a ParallelText."""

    def __init__(self, pairs):
        self.pairs = list(pairs)

    def __iter__(self):
        return iter(self.pairs)

    def __len__(self):
        return len(self.pairs)

    def fingerprint(self):
        return hashlib.sha256(repr(self.pairs).encode()).hexdigest()


class NumberTokenizer:
    """ "5 7" is the tokens 5 and 7."""

    end_token_id = 1

    def __init__(self, vocabulary_size=60_000):
        self.vocabulary_size = vocabulary_size

    def encode(self, texts):
        return [[int(number) for number in text.split()] for text in texts]

    def fingerprint(self):
        return hashlib.sha256(str(self.vocabulary_size).encode()).hexdigest()


def number_text(lengths, seed=5):
    """Pair i has the given numbers of tokens (end token counted) and begins with token 10 + i."""
    random = np.random.default_rng(seed)

    def sentence(first, length):
        rest = random.integers(2, 60_000, length - 2) if length > 2 else []
        return " ".join(map(str, [first, *rest][: length - 1]))

    return NumberText(
        (sentence(10 + i, source), sentence(10 + i, target))
        for i, (source, target) in enumerate(lengths)
    )


def natural_lengths(pairs, seed=11):
    """Lengths like those of captions: source about 15 tokens, target about as many."""
    random = np.random.default_rng(seed)
    source = np.exp(random.normal(2.65, 0.3, pairs)).astype(int) + 2
    target = (source * np.exp(random.normal(0.0, 0.18, pairs))).astype(int) + 2
    return list(zip(source.tolist(), target.tolist(), strict=True))
