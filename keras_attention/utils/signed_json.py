"""JSON objects with their own checksum."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

CHECKSUM = "checksum"


class DamagedFile(ValueError):
    """A file is cut off, or was changed after it was written."""


def signed_json(value: Mapping[str, Any]) -> bytes:
    """Return the bytes that `write_json` writes."""
    content = {**value, CHECKSUM: json_checksum(value)}
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def parse_json(
    content: bytes, path: str | os.PathLike[str], remedy: str = "", unsigned: bool = False
) -> dict[str, Any]:
    """Like `read_json`, for the bytes of the file."""
    try:
        value = json.loads(content)
        if not isinstance(value, dict):
            raise TypeError("no JSON object")
        if unsigned and CHECKSUM not in value:
            return value
        checksum = value.pop(CHECKSUM)
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        reason = "has no checksum" if isinstance(error, KeyError) else "cannot be read"
        raise DamagedFile(f"'{path}' is damaged: it {reason} ({error}). {remedy}".strip()) from None
    if checksum != json_checksum(value):
        raise DamagedFile(
            f"'{path}' is damaged: it was changed after it was written. {remedy}".strip()
        )
    return value


def json_checksum(value: Mapping[str, Any]) -> str:
    """Return the hex sha256 of a JSON object, independent of the order of its entries and white space."""
    text = json.dumps(json.loads(json.dumps(dict(value))), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
