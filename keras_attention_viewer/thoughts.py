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
    """Return the norms (layers, N, S) that `encode_norms` wrote; a ValueError says that the text has none."""
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
    predictions, alternatives = header.get("predictions"), header.get("alternatives")
    if predictions is not None:
        count = len(header["tokens"]["decoder_output"])
        if not isinstance(predictions, list) or len(predictions) != count:
            return f"it should have a prediction for each of {count} tokens."
        if not has_form(predictions, [{"p": is_probability}]):
            return "a prediction has no probability."
        if not has_form(predictions, [{"others": [(str, is_probability)]}]):
            return "the runners-up of a prediction should be pairs of a text and a probability."
    found = {"text": str, "score": _is_number, "is_finished": bool}
    if alternatives is not None and not has_form(alternatives, [found]):
        return "each of its alternatives should have a text, a score, and whether it is finished."
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


def has_form(value: Any, form: Any) -> bool:
    """Whether a value from JSON is of a form: `{key: form}`, `[of each]`, `(form, form)`, a type or a check.

    >>> has_form([["a", 0.5]], [(str, is_probability)]), has_form({"text": 3}, {"text": str})
    (True, False)
    """
    if isinstance(form, dict):
        parts = form.items()
        return isinstance(value, dict) and all(has_form(value.get(key), one) for key, one in parts)
    if isinstance(form, list):
        return isinstance(value, list) and all(has_form(one, form[0]) for one in value)
    if isinstance(form, tuple):
        is_list = isinstance(value, list) and len(value) == len(form)
        return is_list and all(map(has_form, value, form))
    return isinstance(value, form) if isinstance(form, type) else form(value)


def is_index(value: Any) -> bool:
    """Whether a value from a file is a whole number from 0, as JavaScript has them."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return is_integer and 0 <= value < LARGEST_INTEGER


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < LARGEST_INTEGER
    return isinstance(value, float) and math.isfinite(value)


def is_probability(value: Any) -> bool:
    """Whether a value from a file is a number from 0 to 1."""
    return _is_number(value) and 0 <= value <= 1
