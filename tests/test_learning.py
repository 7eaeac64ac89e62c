"""A tiny Transformer learns to write words backwards, of a length it must find out itself.

Every part has to work for that: embeddings, positions, masks, attention to the source, loss, schedule,
optimizer, and the search that decodes. Nothing here touches `tf.data`.
"""

import numpy as np
import pytest

from keras_attention import (
    Adam,
    LabelSmoothedCrossentropy,
    LearningRateSchedule,
    TokenAccuracy,
    Transformer,
    Translator,
)

pytestmark = pytest.mark.backends("tensorflow")

PAD, END, FIRST, LETTERS = 0, 1, 3, 8
SHORTEST, LONGEST = 3, 5
WORDS, TEST_WORDS = 6400, 400


class Letters:
    """A tokenizer of the letters a to h; 2 is the id of everything else."""

    pad_token_id, start_token_id, end_token_id, unknown_token_id = PAD, PAD, END, 2
    vocabulary_size = FIRST + LETTERS

    def encode(self, texts):
        return [[ord(letter) - ord("a") + FIRST for letter in text] for text in texts]

    def decode(self, ids):
        return "".join(chr(ord("a") + i - FIRST) if i >= FIRST else "?" for i in ids)


def words(count, seed):
    random = np.random.default_rng(seed)
    lengths = random.integers(SHORTEST, LONGEST + 1, size=count)
    return ["".join(random.choice(list("abcdefgh"), size=length)) for length in lengths]


def padded(texts):
    """Ids with the end token, (B, LONGEST + 1)."""
    rows = [[*ids, END] for ids in Letters().encode(texts)]
    return np.array([row + [PAD] * (LONGEST + 1 - len(row)) for row in rows], "int32")


def test_learns_to_reverse_words_it_has_not_seen():
    known = words(WORDS, seed=1)
    new = [word for word in words(3 * TEST_WORDS, seed=2) if word not in set(known)][:TEST_WORDS]
    assert len(new) == TEST_WORDS
    labels = padded([word[::-1] for word in known])
    shifted = np.pad(labels, ((0, 0), (1, 0)))[:, :-1]
    shifted[shifted == END] = PAD
    model = Transformer(
        Letters.vocabulary_size, num_layers=1, hidden_dim=64, intermediate_dim=128, num_heads=4,
        dropout=0.0, seed=3,
    )  # fmt: skip
    model.compile(
        Adam(LearningRateSchedule(model.hidden_dim, warmup_steps=150, factor=0.5)),
        LabelSmoothedCrossentropy(0.05),
        metrics=[TokenAccuracy()],
    )
    inputs = {"encoder_token_ids": padded(known), "decoder_token_ids": shifted}
    history = model.fit(inputs, labels, batch_size=64, epochs=7, verbose=0).history
    assert history["token_accuracy"][-1] > 0.99, history

    translator = Translator(model, Letters(), beam_size=3, show_progress=False)
    exact = np.mean([got == word[::-1] for got, word in zip(translator(new), new, strict=True)])
    assert exact > 0.99
