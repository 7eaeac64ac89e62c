"""Early errors for token ids that a model does not have; they cost nothing inside compiled graphs."""

from typing import Any

import numpy as np

INPUT_NAMES = ("encoder_token_ids", "decoder_token_ids")


def check_token_ids(data: Any, vocabulary_size: int) -> None:
    """Refuse ids outside of the vocabulary, before a backend fails obscurely or, as JAX, not at all.

    Looked at are NumPy arrays of integers, alone or in dicts, lists and tuples, and the
    `vocabulary_size` of objects that say theirs, such as `TokenBatches`. Tensors are passed over: they
    may not have values yet, and reading them would make the device wait.

    Args:
        data: What a model was given.
        vocabulary_size: Number of tokens V of the model.

    Raises:
        ValueError: With the ids that came, those that are allowed, and the probable cause.

    Example:

    >>> check_token_ids({"encoder_token_ids": np.array([[5, 1]])}, vocabulary_size=6)
    >>> check_token_ids({"encoder_token_ids": np.array([[6, 1]])}, vocabulary_size=6)
    Traceback (most recent call last):
    ValueError: 'encoder_token_ids' holds ids outside of the model's vocabulary of 6 tokens ...
    """
    if isinstance(data, dict):
        for name, value in data.items():
            _check(repr(name), value, vocabulary_size)
    else:
        _check("The batch", data, vocabulary_size)


def _check(name: str, value: Any, vocabulary_size: int) -> None:
    if isinstance(value, dict):
        check_token_ids(value, vocabulary_size)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _check(name, part, vocabulary_size)
    elif isinstance(value, np.ndarray):
        if value.size and np.issubdtype(value.dtype, np.integer):
            _check_range(name, int(value.min()), int(value.max()), vocabulary_size)
    elif isinstance(getattr(value, "vocabulary_size", None), int):
        if value.vocabulary_size > vocabulary_size:
            raise ValueError(
                f"The batches were made by a tokenizer of {value.vocabulary_size} tokens; the "
                f"model's vocabulary has {vocabulary_size}. {_ADVICE}"
            )


_ADVICE = (
    "Probably the ids come from another tokenizer than the model: build the model with "
    "`vocabulary_size=tokenizer.vocabulary_size` of the tokenizer that made them."
)


def _check_range(name: str, least: int, most: int, vocabulary_size: int) -> None:
    if 0 <= least and most < vocabulary_size:
        return
    raise ValueError(
        f"{name} holds ids outside of the model's vocabulary of {vocabulary_size} tokens (ids 0 to "
        f"{vocabulary_size - 1}). Received: ids from {least} to {most}. {_ADVICE}"
    )


def split_inputs(inputs: Any) -> tuple[Any, Any]:
    """The source and target ids of a `Transformer`'s inputs.

    Raises:
        ValueError: The inputs are no dict of the two.
    """
    if not isinstance(inputs, dict) or any(name not in inputs for name in INPUT_NAMES):
        received = sorted(inputs) if isinstance(inputs, dict) else type(inputs).__name__
        raise ValueError(
            "Transformer expects a dict with the keys 'encoder_token_ids' and 'decoder_token_ids'. "
            f"Received: {received}"
        )
    source, target = (inputs[name] for name in INPUT_NAMES)
    rows = source.shape[0], target.shape[0]
    if None not in rows and rows[0] != rows[1]:
        raise ValueError(
            "'encoder_token_ids' and 'decoder_token_ids' must have as many rows as each other: a row "
            f"is a pair of sentences. Received: shapes {tuple(source.shape)} and {tuple(target.shape)}"
        )
    return source, target
