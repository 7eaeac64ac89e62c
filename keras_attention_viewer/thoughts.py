"""What an entry holds beside its weights: predictions, the beam's alternatives, norms of values.

All three may be absent: older records and other models have none.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

LARGEST_INTEGER = 2**53  # JavaScript has no exact larger ones, and a float may not hold them


def encode_norms(norms: Sequence[Any]) -> str:
    """Return the norms of a kind's layers, each (N, S), as text: base64 of float32, little-endian.

    First the first bytes of all numbers, then all second ones, ...: that packs better.

    Raises:
        ValueError: If these are no norms.
    """
    values = np.asarray(norms, "float32")
    if values.ndim != 3 or not (np.isfinite(values).all() and (values >= 0).all()):
        raise ValueError(
            "Expected norms of values of shape (heads, columns) in each layer, finite and at least 0. "
            f"Received: {norms!r}"
        )
    planes = values.astype("<f4").view("u1").reshape(-1, 4).T
    return base64.b64encode(planes.tobytes()).decode()


def decode_norms(text: str, shape: tuple[int, int, int]) -> np.ndarray:
    """Return the norms (layers, N, S) that `encode_norms` wrote.

    Raises:
        ValueError: If the text is damaged, or of another size.
    """
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"The norms of values are damaged. ({error})") from None
    if len(content) != 4 * math.prod(shape):
        raise ValueError(
            f"Expected {4 * math.prod(shape)} bytes of norms, of shape {shape}. Received: {len(content)}"
        )
    planes = np.frombuffer(content, "u1").reshape(4, -1).T
    norms = np.ascontiguousarray(planes).view("<f4").reshape(shape)
    if not (np.isfinite(norms).all() and (norms >= 0).all()):
        raise ValueError("The norms of values are not finite, or below 0.")
    return norms


def thought_problem(header: Mapping[str, Any]) -> str | None:
    """Return what is wrong with these parts of a header; None if nothing is."""
    return _prediction_problem(header) or _alternative_problem(header) or _norm_problem(header)


def _prediction_problem(header: Mapping[str, Any]) -> str | None:
    predictions = header.get("predictions")
    if predictions is None:
        return None
    count = len(header["tokens"]["decoder_output"])
    if not isinstance(predictions, list) or len(predictions) != count:
        return f"it should have a prediction for each of {count} tokens."
    for prediction in predictions:
        if not isinstance(prediction, dict) or not is_probability(prediction.get("p")):
            return "a prediction has no probability."
        others = prediction.get("others")
        if not isinstance(others, list) or not all(map(_is_other, others)):
            return "the runners-up of a prediction should be pairs of a text and a probability."
    return None


def _alternative_problem(header: Mapping[str, Any]) -> str | None:
    alternatives = header.get("alternatives")
    if alternatives is None:
        return None
    if not isinstance(alternatives, list) or not all(map(_is_alternative, alternatives)):
        return "each of its alternatives should have a text, a score, and whether it is finished."
    return None


def _norm_problem(header: Mapping[str, Any]) -> str | None:
    norms = header.get("value_norms")
    if norms is None:
        return None
    kinds = {kind["name"]: kind for kind in header["kinds"]}
    if not isinstance(norms, dict) or not set(norms) <= set(kinds):
        return "its norms of values are of kinds that it does not have."
    for name, text in norms.items():
        kind = kinds[name]
        shape = kind["layers"], kind["heads"], len(header["tokens"][kind["columns"]])
        try:
            decode_norms(text if isinstance(text, str) else "", shape)
        except ValueError as error:
            return str(error)
    return None


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < LARGEST_INTEGER
    return isinstance(value, float) and math.isfinite(value)


def is_probability(value: Any) -> bool:
    """Whether a value from a file is a number from 0 to 1."""
    return _is_number(value) and 0 <= value <= 1


def _is_other(other: Any) -> bool:
    is_pair = isinstance(other, list) and len(other) == 2
    return is_pair and isinstance(other[0], str) and is_probability(other[1])


def _is_alternative(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and isinstance(one.get("text"), str)
        and _is_number(one.get("score"))
        and isinstance(one.get("is_finished"), bool)
    )
