"""Models and a tokenizer of letters, with which this room's tests translate."""

import keras
import numpy as np
import pytest

from keras_attention import Transformer
from keras_attention.ops.compile import compile_for_inference

PAD, END, UNKNOWN = 0, 1, 2


class LetterTokenizer:
    """Ids 3.. are the letters a.. of the vocabulary; white space is dropped."""

    pad_token_id, start_token_id, end_token_id, unknown_token_id = PAD, PAD, END, UNKNOWN

    def __init__(self, vocabulary_size=17):
        self.vocabulary_size = vocabulary_size

    def encode(self, texts):
        ids = [[ord(letter) - ord("a") + 3 for letter in text if letter.strip()] for text in texts]
        return [[i if 3 <= i < self.vocabulary_size else UNKNOWN for i in row] for row in ids]

    def decode(self, ids):
        return "".join("_.?"[i] if i < 3 else chr(ord("a") + i - 3) for i in ids)


class CopyModel(keras.Model):
    """Likes token `source[i] + shift` at position i, and the letter "z" about a third as well."""

    vocabulary_size = 31
    pad_token_id, start_token_id, end_token_id = PAD, PAD, END

    def __init__(self, max_length=None, ends=True):
        super().__init__()
        self.max_length = max_length
        self.ends = ends
        self.shift = self.add_weight(shape=(), initializer="zeros", name="shift")
        self.built = True
        self.shapes = []

    def encode(self, encoder_token_ids):
        self.shapes.append(tuple(encoder_token_ids.shape))
        return {"ids": encoder_token_ids}

    def initial_cache(self, batch_size, beam_size, max_length):
        return [keras.ops.zeros((batch_size, beam_size, max_length), dtype="int32")]

    def decode_step(self, token_ids, index, memory, cache):
        last = memory["ids"].shape[1] - 1
        here = keras.ops.take(memory["ids"], keras.ops.minimum(index, last), axis=1)
        is_letter = keras.ops.cast(here > END, "float32")
        wanted = keras.ops.cast(here, "float32") + self.shift * is_letter
        wanted = keras.ops.where(here <= END, END if self.ends else 28, wanted)
        tokens = keras.ops.arange(self.vocabulary_size, dtype="float32")
        liked = keras.ops.cast(tokens == wanted[:, None], "float32")
        z = keras.ops.cast(tokens == 28, "float32") * is_letter[:, None]
        logits = 9 * liked + 8 * z + self.shift * 0
        return keras.ops.repeat(logits[:, None], token_ids.shape[1], axis=1), cache


def small_model(seed=7, vocabulary_size=17, scale=1.2, **options):
    """An untrained model, with weights so large that its source and history matter."""
    sizes = {"num_layers": 1, "hidden_dim": 12, "intermediate_dim": 20, "num_heads": 3}
    model = Transformer(vocabulary_size, **{**sizes, **options})
    random = np.random.default_rng(seed)
    for weight in model.weights:
        if len(weight.shape) > 1:
            weight.assign(scale * random.standard_normal(weight.shape))
    return model


def random_texts(number, longest=21, seed=1):
    random = np.random.default_rng(seed)
    return [
        "".join(random.choice(list("abcdefghijklmn"), random.integers(1, longest)))
        for _ in range(number)
    ]


def forward_log_probabilities(model, text, longest):
    """log P(next | prefix) by the training forward, the source without padding."""
    source = np.array([[*LetterTokenizer().encode([text])[0], END]], "int32")
    forward = compile_for_inference(
        lambda target: model({"encoder_token_ids": source, "decoder_token_ids": target}), model
    )
    known = {}

    def log_probabilities(prefix):
        if prefix not in known:
            target = np.zeros((1, longest + 1), "int32")
            target[0, 1 : len(prefix) + 1] = prefix
            logits = keras.ops.convert_to_numpy(forward(target))[0, len(prefix)].astype("float64")
            known[prefix] = logits - np.log(np.sum(np.exp(logits)))
        return known[prefix]

    return log_probabilities


def assert_found(translations, expected):
    """`expected`: [(score, tokens with EOS, is_finished)]."""
    for one, (score, tokens, is_finished) in zip(translations, expected, strict=True):
        ids = tokens[:-1] if is_finished else tokens
        assert (one.token_ids, one.is_finished) == (ids, is_finished)
        assert one.text == LetterTokenizer().decode(ids)
        assert one.score == pytest.approx(score, rel=1e-4)


def assert_alike(found, expected, rtol=1e-4, atol=1e-5):
    """The same translations of each text, with scores that agree to rounding."""
    for ours, theirs in zip(found, expected, strict=True):
        assert [(t.token_ids, t.text, t.is_finished) for t in ours] == [
            (t.token_ids, t.text, t.is_finished) for t in theirs
        ]
        scores = [[t.score for t in best] for best in (ours, theirs)]
        np.testing.assert_allclose(*scores, rtol=rtol, atol=atol)
