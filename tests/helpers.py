"""What tests of several rooms share."""

import io
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
from keras import ops

ROOT = Path(__file__).resolve().parent.parent

# For `compile` where the graph is not what a test is about: TensorFlow takes seconds to trace and compile
# what it computes step by step in a few tenths. (JAX would compile each operation, PyTorch nothing.)
STEP_BY_STEP = {"run_eagerly": keras.backend.backend() == "tensorflow"}


def python(*words, environment=(), **options):
    """Runs Python in the checkout to a good end; returns it, with what it printed."""
    own = {**os.environ, "PYTHONPATH": str(ROOT), **dict(environment)}
    options = {"cwd": ROOT, "env": own, "timeout": 600, **options}
    words = [sys.executable, *map(str, words)]
    done = subprocess.run(words, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-5000:]
    return done


def contents(folder, folders=False):
    """By its path below a folder each file's bytes, and None for a folder if they are asked for."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in Path(folder).rglob("*")
        if folders or path.is_file()
    }


def changed_copies(content, number, front=None, seed=1):
    """Copies of a file's bytes of which four bits are turned, some of them also cut off.

    Of every third only the first `front` bytes are touched, where the sizes and the names are.
    """
    random = np.random.default_rng(seed)
    for count in range(number):
        damaged = bytearray(content)
        for place in random.integers(0, len(content) if count % 3 else front or len(content), 4):
            damaged[place] ^= 1 << random.integers(8)
        yield bytes(damaged[: random.integers(len(damaged))] if count % 4 == 0 else damaged)


def log_probabilities(model, source, target):
    """Of each token of one target, from the forward pass of training on ids of one source."""
    inputs = {
        "encoder_token_ids": np.array([source]),
        "decoder_token_ids": np.array([[model.start_token_id, *target[:-1]]]),
    }
    logits = ops.convert_to_numpy(model(inputs, training=False))[0].astype("float64")
    logits -= logits.max(-1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    return logits[np.arange(len(target)), target]


def numpy(tensor):
    """A tensor of any backend and float dtype as a float32 NumPy array."""
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def assert_each(found, expected, rtol=0.0, atol=0.0):
    """Arrays and as many others: each pair is equal, or close."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def sentence_piece_model(texts, size, **options):
    """A SentencePiece model as another program trains it."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=size, hard_vocab_limit=False,
        minloglevel=2, **options,
    )  # fmt: skip
    return model.getvalue()


def pieces_of(model):
    """The piece of each id of a SentencePiece model."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(processor.vocab_size())]
