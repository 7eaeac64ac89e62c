"""Downloads of public files: verified, resumable, and complete or absent."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path
from typing import Any, NamedTuple

from filelock import Timeout

from keras_attention.utils.cache import cache_folder
from keras_attention.utils.files import OccupiedPath, flush, locked, sha256_of, write_atomically
from keras_attention.utils.progress import Progress, activity

CHUNK_BYTES = 1 << 16
LARGEST_TEXT = 1 << 30
RETRY_CODES = (408, 429, 500, 502, 503, 504)
ATTEMPTS = 4
TIMEOUT = 30.0  # seconds without an answer, after which an attempt fails
DELAY = 1.0  # seconds before the second attempt, doubled before each further one
# What is known of a file: its sha256; or, where none is published, what raises a ValueError for another one.
Known = str | Callable[[Path], None]


class Origin(NamedTuple):
    """Where the files of a corpus come from: a folder of the user's, or the web by way of the cache."""

    data_dir: str | os.PathLike[str] | None  # the user's folder; None to download
    cache_dir: str | os.PathLike[str] | None  # folder for downloads; None for the usual one
    base_url: str | None  # mirror to download from; None for the usual address

    def folder(self, name: str) -> Path:
        """Return the folder with the files of the corpus of this name."""
        if self.data_dir is not None:
            return Path(self.data_dir)
        return cache_folder(name, self.cache_dir)


@contextlib.contextmanager
def advising(advice: str) -> Iterator[None]:
    """Add to the message of a failed download what to do without a connection."""
    try:
        yield
    except ConnectionError as error:
        raise ConnectionError(f"{error}\nWithout a connection, {advice}") from error


def download(
    url: str, path: str | os.PathLike[str], known: Known, max_bytes: int = LARGEST_TEXT
) -> Path:
    """Download a file to `path` unless it exists already.

    The bytes go to `path` + ".part", which a later call continues if the server still has the same file.
    The file gets its name only if it is the right one. If no checksum is published, that of the first
    download is recorded in `path` + ".sha256", and later downloads must match it. If several processes ask
    for the same file, one downloads it and the others wait.

    Args:
        url: An http or https URL.
        path: File to write; its folder is made.
        known: Expected checksum, in hexadecimal. Or a function, which is called with the file before it gets
            its name, and raises a ValueError if the file is not what was asked for, such as an error page.
        max_bytes: Largest size; a download that is larger ends. Defaults to 1 GiB.

    Raises:
        ConnectionError: If the download fails. What was received is kept for the next call.
        ValueError: If `url` is not such a URL, or the content is not the expected one. Such a download is
            deleted; a file that was at `path` before is kept.
    """
    if not (isinstance(url, str) and re.match("https?://[^/?#]", url, re.I)):
        raise ValueError(f"`url` must be an http or https URL. Received: url={url!r}")
    path = Path(path)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            if not path.exists():
                _download(_Wanted(url, known, max_bytes), path)
                return path
    remedy = f"Delete '{path}' to download it again from {url}"
    if isinstance(known, str):
        _check(path, known, remedy)
    else:
        check_recorded(path, remedy)
    return path


def check_recorded(path: Path, remedy: str) -> None:
    """Compare a file with its recorded checksum; records it if there is none yet."""
    recorded = _recorded(path)
    if recorded is None:
        record(path, sha256_of(path))
    else:
        _check(path, recorded, f"{remedy}; if it is right, delete '{_record_file(path)}'")


def record(path: Path, sha256: str) -> None:
    """Write a checksum beside a file, in the format of `sha256sum --check`."""
    write_atomically(_record_file(path), f"{sha256}  {path.name}\n")


def _recorded(path: Path) -> str | None:
    file = _record_file(path)
    if not file.exists():
        return None
    return file.read_text(encoding="utf-8").partition(" ")[0]


def _record_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(path, timeout=0))
        except Timeout:
            with activity(f"waiting for another process, which downloads {path.name}"):
                stack.enter_context(locked(path))
        yield


@dataclasses.dataclass(frozen=True)
class _Wanted:
    """What is downloaded, and what is known of it; see `download`."""

    url: str
    known: Known
    max_bytes: int

    @property
    def has_checksum(self) -> bool:
        return isinstance(self.known, str)

    def refused(self, why: str) -> ValueError:
        """Return an error about the content, which another attempt would not change."""
        return ValueError(f"What came from {self.url} was not kept: {why}")

    def check_size(self, size: int) -> None:
        if size > self.max_bytes:
            raise self.refused(f"it has {size:,} bytes, more than the {self.max_bytes:,} expected.")

    def check(self, path: Path, part: Path) -> None:
        """Raise unless what was downloaded is the file, as far as can be told."""
        expected = self.known if isinstance(self.known, str) else _recorded(path)
        if expected is not None:
            _check(part, expected, f"It came from {self.url} and was removed")
        if not isinstance(self.known, str):
            try:
                self.known(part)
            except ValueError as error:
                raise self.refused(str(error)) from error


def _download(wanted: _Wanted, path: Path) -> None:
    part = path.with_name(path.name + ".part")
    if not wanted.has_checksum and part.exists() and not _validator_file(part).exists():
        raise OccupiedPath(
            f"'{part}' exists, and this package did not write it. Nothing was changed. Move it away."
        )
    try:
        for attempt in range(ATTEMPTS):
            try:
                _fetch(wanted, part)
                break
            except (OSError, http.client.HTTPException) as error:
                fatal = isinstance(error, urllib.error.HTTPError) and error.code not in RETRY_CODES
                if fatal or attempt == ATTEMPTS - 1:
                    raise ConnectionError(f"Could not download {wanted.url}: {error}") from error
                time.sleep(DELAY * 2**attempt)
        wanted.check(path, part)
    except ValueError:
        _forget(part)
        raise
    if not wanted.has_checksum:
        record(path, sha256_of(part))
    flush(part)
    os.replace(part, path)
    _forget(part)


def _answer(wanted: _Wanted, headers: dict[str, str]) -> Any:
    try:
        request = urllib.request.Request(wanted.url, headers=headers)
        return urllib.request.urlopen(request, timeout=TIMEOUT)
    except (ValueError, http.client.InvalidURL) as error:
        # Of urllib, which does not say what it cannot read.
        raise wanted.refused(f"its address, or where that leads, is wrong ({error}).") from error


def _fetch(wanted: _Wanted, part: Path) -> None:
    """Append to `part` what is missing; raise unless the file is then complete.

    Existing bytes are continued only if they are known to belong to the same file: by the validator that
    the server sent with them, or because a checksum is compared later.
    """
    validator_file = _validator_file(part)
    validator = validator_file.read_text("utf-8") if validator_file.exists() else ""
    have = part.stat().st_size if part.exists() and (validator or wanted.has_checksum) else 0
    headers = {"User-Agent": "keras-attention"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if validator:
            headers["If-Range"] = validator
    try:
        response = _answer(wanted, headers)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        if _range(error.headers) == (None, have):
            return  # There is nothing after these bytes.
        _forget(part)
        raise ConnectionError(
            "the server does not have that part of the file; the download starts again"
        ) from error
    with response:
        is_resumed = response.status == 206
        start, total = _range(response.headers) if is_resumed else (0, None)
        if start != (have if is_resumed else 0):
            _forget(part)
            raise ConnectionError(
                f"the server sent bytes from {start} on instead of {have}; the download starts again"
            )
        length = response.headers.get("Content-Length", "")
        if total is None and length.isdecimal():
            total = start + int(length)
        wanted.check_size(total or 0)
        if not is_resumed:
            _forget(part)
            write_atomically(validator_file, _validator(response.headers))
        received = have if is_resumed else 0
        kilobytes = None if total is None else total // 1000
        label = f"downloading {part.name.removesuffix('.part')}"
        with (
            open(part, "ab") as file,
            Progress(kilobytes, label, "kB", initial=received // 1000) as progress,
        ):
            while chunk := response.read1(CHUNK_BYTES):
                file.write(chunk)
                received += len(chunk)
                wanted.check_size(received)
                progress.reach(received // 1000)
    if total is not None and received != total:
        if received > total:
            _forget(part)
        raise ConnectionError(f"the connection ended after {received} of {total} bytes")


def _range(headers: Message) -> tuple[int | None, int | None]:
    """Return the first byte and the size of the whole file, from `Content-Range`."""
    found = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(?:(\d+)|\*)", headers.get("Content-Range", ""))
    numbers = found.groups() if found else (None, None)
    start, total = (None if number is None else int(number) for number in numbers)
    return start, total


def _validator(headers: Message) -> str:
    """Return the server's validator of a file, for `If-Range`; "" if it sends none."""
    tag = headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified", "")


def _validator_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.validator")


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _validator_file(part).unlink(missing_ok=True)


def _check(path: Path, sha256: str, remedy: str) -> None:
    received = sha256_of(path)
    if received != sha256:
        raise ValueError(
            f"'{path}' does not have the expected content. Expected sha256: {sha256}. "
            f"Received: sha256 {received}. {remedy}."
        )
