"""What a request says: read, and refused with a sentence if it is not what it should be."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from keras_attention.data.markup import LINE_END, split_blocks
from keras_attention.spec.heads import Head
from keras_attention.utils.checks import has_surrogate

# A client has so long to send its request; one that sends nothing more would hold up a clean stop.
BODY_SECONDS = 20.0
MOST_FIELDS = 100
MOST_HEADS = 1000
MOST_WORDS = 200
JSON, PARTS = "application/json", "multipart/form-data"
FORM = "application/x-www-form-urlencoded"
# What a text may be written in: not every codec of Python ends in linear time.
CHARSET = re.compile(
    r"utf-?(8|16|32)(-?[lb]e)?|us-ascii|iso-?8859-\d+|latin-?1|windows-125\d", re.IGNORECASE
)
# As zlib counts: its own header, which is called deflate, or that of gzip.
PACKED = {"deflate": 15, "gzip": 31, "x-gzip": 31}


class Limits(NamedTuple):
    """How much a server takes."""

    characters: int = 5_000  # of all texts of a request
    texts: int = 100  # in a request
    lines: int = 500  # with text, in a request
    line: int = 2_000  # characters of a line: the time of a search grows with its square
    waiting: int = 256  # requests in the queue
    body: int = 1 << 20  # bytes of a request's body


def refusal(message: str, status: int = 400, **headers: str) -> HTTPException:
    """Return an error that is answered with a message and a status."""
    # A name of the request in it may hold half of a surrogate pair, which cannot be sent.
    return HTTPException(status, message.encode(errors="replace").decode(), headers or None)


async def read_fields(request: Request, most_bytes: int) -> dict[str, Any]:
    """Return the fields of a request: of its address, and of its body as JSON or a form."""
    body = _unpacked(request, await _read_body(request, most_bytes), most_bytes)
    kind, _, rest = request.headers.get("content-type", "").partition(";")
    kind = kind.strip().lower()
    charset = re.search(r"""charset\s*=\s*["']?([\w.:-]+)""", rest, re.IGNORECASE)
    encoding = charset[1] if charset else "utf-8"
    if not CHARSET.fullmatch(encoding):
        raise refusal(f"The charset must be utf-8, or a usual one. Received: {encoding}", 415)
    try:
        pairs = _form(request.scope["query_string"].decode())
        if not body:
            return _named(pairs)
        text = body.decode(encoding).removeprefix("\ufeff")
        if kind == FORM:
            return _named([*pairs, *_form(text, encoding)])
    except (UnicodeError, LookupError) as error:
        raise refusal(f"The request is not {encoding.upper()}: {error}.") from None
    except ValueError as error:
        raise refusal(f"The form cannot be read: {error}.") from None
    if kind == PARTS:
        return _named([*pairs, *await _parts(request, body)])
    if kind != JSON:
        raise refusal(
            f"The content type must be {JSON}, {FORM} or {PARTS}. Received: {kind or 'none'}", 415
        )
    try:
        found = json.loads(text, object_pairs_hook=tuple)
    except (ValueError, RecursionError) as error:
        raise refusal(f"The body is not JSON: {error}.") from None
    if not isinstance(found, tuple):
        raise refusal('The body must be a JSON object, such as {"q": "A text."}.')
    return _named([*pairs, *found])


async def _read_body(request: Request, most_bytes: int) -> bytes:
    # Nobody waits for a body that is declared too large: what of it still comes is thrown away.
    if int(request.headers.get("content-length", "0")) > most_bytes:
        raise _too_large(most_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most_bytes:
                    raise _too_large(most_bytes)
    except TimeoutError:
        raise refusal(f"The request did not end within {BODY_SECONDS:.0f} seconds.", 408) from None
    return bytes(body)


def _too_large(most_bytes: int) -> HTTPException:
    return refusal(f"The request's body is larger than {most_bytes} bytes.", 413)


def _unpacked(request: Request, body: bytes, most_bytes: int) -> bytes:
    """Return a body without its compression, of which no more is unpacked than the limit."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity":
        return body
    if encoding not in PACKED:
        raise refusal(f"A body may be packed by gzip or deflate. Received: {encoding}", 415)
    unpacking = zlib.decompressobj(PACKED[encoding])
    try:
        found = unpacking.decompress(body, most_bytes + 1)
    except zlib.error as error:
        raise refusal(f"The body is not packed by {encoding}: {error}.") from None
    if len(found) > most_bytes:
        raise _too_large(most_bytes)
    if not unpacking.eof or unpacking.unused_data:
        raise refusal(f"The body is not one whole stream of {encoding}.")
    return found


def _named(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the values by their names: several texts `q`, or `q[]`, are a list; all else comes once."""
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name == "q[]" and isinstance(value, str):
            name, value = "q", [value]
        if name not in fields:
            fields[name] = value
        elif name == "q" and all(isinstance(each, str | list) for each in (fields[name], value)):
            texts = ([each] if isinstance(each, str) else each for each in (fields[name], value))
            fields[name] = [text for each in texts for text in each]
        else:
            raise refusal(f"The request says `{name}` twice.")
    return fields


def _form(text: str, encoding: str = "utf-8") -> list[tuple[str, str]]:
    return parse_qsl(
        text, keep_blank_values=True, encoding=encoding, errors="strict", max_num_fields=MOST_FIELDS
    )


async def _parts(request: Request, body: bytes) -> list[tuple[str, Any]]:
    async def chunks() -> AsyncIterator[bytes]:
        yield body

    parser = MultiPartParser(
        request.headers,
        chunks(),  # type: ignore[arg-type]
        max_files=0,
        max_fields=MOST_FIELDS,
        max_part_size=len(body),
    )
    try:
        found = await parser.parse()
    except (MultiPartException, KeyError) as error:
        raise refusal(f"The form cannot be read: {error}.") from None
    # Without a charset of its own a part is read as UTF-8, which the whole body is.
    return found.multi_items()


class Asked(NamedTuple):
    """What is to be translated."""

    texts: Sequence[str]
    # For each its lines, or texts of HTML, in turn with what separates them, which stays.
    parts: Sequence[Sequence[str]]
    is_html: bool  # whether there are tags and entities
    is_list: bool  # whether they came as a list
    source: str  # code of their language, or `"auto"`
    target: str  # code of the language to translate to
    alternatives: int  # how many further translations are wanted


def read_asked(fields: Mapping[str, Any], limits: Limits) -> Asked:
    """Return what the fields of a request ask for."""
    for name in ("q", "source", "target"):
        if fields.get(name) in (None, "", []):
            raise refusal(f"Invalid request: missing {name} parameter")
    q = fields["q"]
    texts = q if isinstance(q, list) else [q]
    if not all(isinstance(text, str) for text in texts):
        raise refusal("`q` must be a text, or a list of texts.")
    form = fields.get("format") or "text"
    if form not in ("text", "html"):
        raise refusal(f"The format must be 'text' or 'html'. Received: {form!r}")
    is_html = form == "html"
    parts = [split_blocks(text) if is_html else LINE_END.split(text) for text in texts]
    lines = [line for each in parts for line in each[::2] if line.strip()]
    numbers = {
        "texts": (len(texts), limits.texts),
        "characters": (sum(map(len, texts)), limits.characters),
        "lines": (len(lines), limits.lines),
        "characters in a line": (max(map(len, lines), default=0), limits.line),
    }
    for what, (number, most) in numbers.items():
        if number > most:
            raise refusal(f"The request has {number} {what}; at most {most} are allowed.")
    languages = [fields[name] for name in ("source", "target")]
    if not all(isinstance(code, str) for code in languages):
        raise refusal("`source` and `target` must be codes of languages, such as 'en'.")
    if has_surrogate("".join([*texts, *languages])):
        raise refusal("The request holds half of a surrogate pair, which is no character.")
    source, target = (code.lower() for code in languages)
    is_list, number = isinstance(q, list), _alternatives(fields)
    return Asked(texts, parts, is_html, is_list, source, target, number)


class Tried(NamedTuple):
    """What the page changes in a translation, and asks of it; tokens count from 0."""

    prefix: str  # with what it must begin
    heads: tuple[Head, ...]  # which heads are switched off
    masked: tuple[int, ...]  # tokens of the source that nothing reads
    # A token of the translation and the rank of another one; then the tokens of each word of the source.
    # Nothing if it is not asked why the one is there and not the other.
    contrast: tuple[tuple[int, ...], ...]


def read_tried(fields: Mapping[str, Any], limits: Limits) -> Tried:
    """Return what a request tries, such as `"heads_off": "cross.2.1 encoder.1.4", "masked": "3 4.5"`."""
    prefix, heads = (fields.get(name) or "" for name in ("prefix", "heads_off"))
    if not isinstance(prefix, str) or LINE_END.search(prefix) or len(prefix) > limits.characters:
        raise refusal(f"`prefix` must be one line of at most {limits.characters} characters.")
    if has_surrogate(prefix):
        raise refusal("`prefix` holds half of a surrogate pair.")
    words = heads.split() if isinstance(heads, str) else [""]
    found = [re.fullmatch(r"([a-z]+)\.([1-9][0-9]{0,3})\.([1-9][0-9]{0,3})", one) for one in words]
    if len(found) > MOST_HEADS or not all(found):
        raise refusal(
            f"`heads_off` must be at most {MOST_HEADS} heads as kind.layer.head, counted from 1, such as "
            "'cross.2.1 encoder.1.4'."
        )
    places = {Head(one[1], int(one[2]) - 1, int(one[3]) - 1) for one in found if one}
    masked = (token for word in _words(fields, "masked") for token in word)
    contrast = _words(fields, "contrast")
    if contrast and len(contrast[0]) != 2:
        raise refusal("`contrast` begins with a token and the rank of another one, such as '3.1'.")
    return Tried(prefix, tuple(sorted(places)), tuple(sorted(masked)), contrast)


def _words(fields: Mapping[str, Any], name: str) -> tuple[tuple[int, ...], ...]:
    """Return the tokens of some words, which a request counts from 1: "3 4.5" are two words."""
    text = fields.get(name) or ""
    words = text.split() if isinstance(text, str) else [""]
    is_read = all(re.fullmatch(r"[1-9][0-9]{0,3}(\.[1-9][0-9]{0,3})*", one) for one in words)
    if len(words) > MOST_WORDS or not is_read:
        raise refusal(
            f"`{name}` must be at most {MOST_WORDS} words as the numbers of their tokens, counted from 1, "
            "such as '3 4.5'."
        )
    return tuple(tuple(int(number) - 1 for number in one.split(".")) for one in words)


def _alternatives(fields: Mapping[str, Any]) -> int:
    given = fields.get("alternatives", 0)
    if isinstance(given, str) and re.fullmatch("[0-9]{1,6}", given):  # of a form
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise refusal(f"`alternatives` must be a whole number from 0. Received: {given!r}")
    return given
