"""JSON objects in files: plain ones, and signed ones, which hold their own checksum."""

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
    """Return the bytes that `write_signed_json` writes."""
    return plain_json({**value, CHECKSUM: json_checksum(value)})


def plain_json(value: Mapping[str, Any]) -> bytes:
    """Return the bytes that `write_json` writes."""
    # The name of a file in another encoding comes back as it was.
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode(
        "utf-8", "backslashreplace"
    )


def parse_json(content: bytes, path: str | os.PathLike[str], remedy: str = "") -> dict[str, Any]:
    """Like `read_json`, for the bytes of the file."""
    try:
        value = json.loads(content)
        if not isinstance(value, dict):
            raise TypeError("no JSON object")
    except (ValueError, TypeError, RecursionError) as error:
        text = f"'{path}' is damaged: it cannot be read ({error}). {remedy}"
        raise DamagedFile(text.strip()) from None
    return value


def parse_signed_json(
    content: bytes, path: str | os.PathLike[str], remedy: str = ""
) -> dict[str, Any]:
    """Like `read_signed_json`, for the bytes of the file."""
    value = parse_json(content, path, remedy)
    if CHECKSUM not in value:
        raise DamagedFile(f"'{path}' is damaged: it has no checksum. {remedy}".strip())
    if value.pop(CHECKSUM) != json_checksum(value):
        raise DamagedFile(
            f"'{path}' is damaged: it was changed after it was written. {remedy}".strip()
        )
    return value


def json_checksum(value: Mapping[str, Any]) -> str:
    """Return the hex sha256 of a JSON object, independent of the order of its entries and white space."""
    text = json.dumps(json.loads(json.dumps(dict(value))), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
