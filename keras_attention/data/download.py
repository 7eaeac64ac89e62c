"""Downloads of public files: checked, resumed where they stopped, never half there."""

from __future__ import annotations

import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import keras

from keras_attention.utils.files import sha256_of, write_atomically

CHUNK_BYTES = 1 << 16
RETRY_CODES = (408, 429, 500, 502, 503, 504)


def cache_folder(cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """`cache_dir`, else the folder $KERAS_ATTENTION_CACHE, else ~/.cache/keras_attention.

    >>> cache_folder("downloads").name
    'downloads'
    """
    default = Path.home() / ".cache" / "keras_attention"
    return Path(cache_dir or os.environ.get("KERAS_ATTENTION_CACHE") or default).expanduser()


def download(
    url: str,
    path: str | os.PathLike[str],
    sha256: str | None,
    *,
    validate: Callable[[Path], None] | None = None,
    attempts: int = 4,
    timeout: float = 30.0,
    delay: float = 1.0,
    verbose: bool = True,
) -> Path:
    """Downloads a file to `path` unless it is there already.

    The bytes go to `path` + ".part", which a later call continues, and get their name only when
    the checksum is right. Where no checksum is published, that of the first download is recorded in
    `path` + ".sha256" and expected from then on.

    Args:
        url: http or https address.
        path: file to write; its folder is made.
        sha256: expected checksum, in hexadecimal, or None for the recorded one.
        validate: called with the file before it gets its name; raises ValueError if it is not
            what was asked for, such as a page that says so.
        attempts: how often to try before giving up.
        timeout: seconds without an answer that end an attempt.
        delay: seconds before the second attempt, doubled before each one that follows.
        verbose: show a progress bar.

    Returns:
        The path.

    Raises:
        ConnectionError: the file cannot be had; what came so far is kept for the next call.
        ValueError: its content is not the expected one. A download is removed then; a file that
            lay at `path` before is left alone.
    """
    path = Path(path)
    if path.exists():
        remedy = f"Delete '{path}' to download it again from {url}"
        if sha256 is None:
            check_recorded(path, remedy)
        else:
            _check(path, sha256, remedy)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    for attempt in range(attempts):
        try:
            _fetch(url, part, timeout, path.name if verbose else "")
            break
        except (OSError, http.client.HTTPException) as error:
            fatal = isinstance(error, urllib.error.HTTPError) and error.code not in RETRY_CODES
            if fatal or attempt == attempts - 1:
                raise ConnectionError(f"Could not download {url}: {error}") from error
            time.sleep(delay * 2**attempt)
    try:
        expected = sha256 or _recorded(path)
        if expected is not None:
            _check(part, expected, f"It came from {url} and was removed")
        if validate is not None:
            validate(part)
    except ValueError:
        part.unlink()
        raise
    if sha256 is None:
        record(path, sha256_of(part))
    os.replace(part, path)
    return path


def check_recorded(path: Path, remedy: str) -> None:
    """Compares a file with its recorded checksum; records it if there is none yet.

    Raises:
        ValueError: the file has changed since.
    """
    recorded = _recorded(path)
    if recorded is None:
        record(path, sha256_of(path))
    else:
        _check(path, recorded, f"{remedy}; if it is right, delete '{_record_file(path)}'")


def record(path: Path, sha256: str) -> None:
    """Writes a checksum beside a file, as `sha256sum --check` reads it."""
    write_atomically(_record_file(path), f"{sha256}  {path.name}\n")


def _recorded(path: Path) -> str | None:
    file = _record_file(path)
    if not file.exists():
        return None
    sha256 = file.read_text(encoding="utf-8").partition(" ")[0]
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ValueError(f"'{file}' holds no sha256: delete it if '{path}' is right.")
    return sha256


def _record_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _fetch(url: str, part: Path, timeout: float, label: str) -> None:
    """Appends to `part` what is missing; raises unless the file is complete after that."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "keras-attention"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # nothing after these bytes: complete, as the checksum will tell
            raise
        return
    with response:
        resumed = response.status == 206
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        with open(part, "ab" if resumed else "wb") as file:
            _copy(response, file, have, total, label)
    if total is not None and part.stat().st_size < total:
        raise ConnectionError(f"the connection ended after {part.stat().st_size} of {total} bytes")


def _copy(
    response: http.client.HTTPResponse, file: BinaryIO, have: int, total: int | None, label: str
) -> None:
    if label:
        print(f"Downloading {label}")
    kilobytes = None if total is None else -(-total // 1000)
    bar = keras.utils.Progbar(kilobytes, unit_name="kB", verbose=1 if label else 0)
    while chunk := response.read(CHUNK_BYTES):
        file.write(chunk)
        have += len(chunk)
        bar.update(-(-have // 1000), finalize=have == total)
    if label and have != total:  # the bar has not ended its line
        print()


def _check(path: Path, sha256: str, remedy: str) -> None:
    received = sha256_of(path)
    if received != sha256:
        raise ValueError(
            f"'{path}' does not have the expected content. Expected sha256: {sha256}. "
            f"Received: {received}. {remedy}."
        )
