"""The viewer as one HTML file, which works without a network, and in a notebook."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_attention_viewer.codec import Entry, entry_tag
from keras_attention_viewer.index import Curve, make_index, run_index, sentence_index

STATIC = Path(__file__).resolve().parent / "static"
MAIN_MODULE = "page.js"
STYLE_SHEET = "viewer.css"
WITHOUT_SCRIPT = (
    "The attention is drawn by a script, which may not run here. "
    "Open the page in a browser, as a file: <code>save_html</code> writes one."
)
# What precedes the checksum at the end of a page.
CHECKSUM = "<!-- sha256 of all before: "
Entries = Sequence[Entry] | Mapping[str, Sequence[Entry]]
Scalars = Mapping[str, Mapping[str, Curve]]

_IMPORT = re.compile(r'^import\s*\{[^}]*\}\s*from\s*"\./([\w-]+\.js)";[ \t]*\n?', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|const |let |class )", re.MULTILINE)
_LEFT_OVER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def save_html(
    path: str | os.PathLike[str],
    entries: Entries,
    *,
    title: str = "Attention",
    scalars: Scalars | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the attention viewer and its data into one HTML file.

    The file is self-contained: it opens from disk, without a network.

    Args:
        path: Where to write.
        entries: Entries from `make_entry`; or, to compare several runs, a dict of run names and
            entries. Entries of one sentence at several steps make the step slider.
        title: Title of the page.
        scalars: For each run, curves to draw over the steps: `"loss"`, `"bleu"` or `"perplexity"`
            with pairs of step and value.
        overwrite: Whether to replace a file that an earlier call wrote.

    Returns:
        The path of the file.

    Raises:
        ValueError: If there is no entry, if two entries have the same sentence and step, or if the file
            exists and `overwrite` is False or the file is not a viewer's page.
    """
    path = Path(path)
    check_place(path, overwrite)
    _write_whole(path, page(entries, title=title, scalars=scalars))
    return path


class AttentionPage:
    """A page, `height` pixels high, that a notebook shows when it is the last value of a cell."""

    def __init__(self, document: str, height: int):
        self.document = document
        self.height = height

    def _repr_html_(self) -> str:
        source = html.escape(self.document, quote=True)
        style = f"width: 100%; height: {self.height}px; border: none"
        return f'<iframe title="Attention" style="{style}" srcdoc="{source}"></iframe>'


def show(
    entries: Entries, *, title: str = "Attention", scalars: Scalars | None = None, height: int = 760
) -> AttentionPage:
    """Show the attention viewer in a notebook (Jupyter, Colab), in its own frame.

    Args:
        entries: As in `save_html`.
        title: Title of the page.
        scalars: As in `save_html`.
        height: Height of the frame in pixels.

    Returns:
        An object that the notebook displays; make it the last value of a cell.

    Raises:
        ValueError: As in `save_html`.
    """
    return AttentionPage(page(entries, title=title, scalars=scalars), int(height))


def page(entries: Entries, *, title: str = "Attention", scalars: Scalars | None = None) -> str:
    """Return the HTML document of `save_html`."""
    runs = entries if isinstance(entries, Mapping) else {"run": entries}
    data = json.dumps(page_data(runs, scalars or {}), ensure_ascii=True, allow_nan=False)
    data = data.replace("<", "\\u003c")  # no token may end the script element
    script = bundle(STATIC, MAIN_MODULE)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    style = (STATIC / STYLE_SHEET).read_text("utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="keras_attention_viewer">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<main id="attention"><p class="attention-missing">{WITHOUT_SCRIPT}</p></main>
<script type="application/json" id="attention-data">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def bundle(folder: Path, main: str) -> str:
    """Join JavaScript modules into one script, because browsers do not load modules from disk.

    The main module comes last, after everything that it imports. Only imports of names from modules in the
    same folder, and exports in front of a declaration, are joined; a ValueError says so of others, and of
    cycles. Top-level names must be unique across all modules.
    """
    parts: dict[str, str] = {}

    def add(name: str, importing: tuple[str, ...]) -> None:
        if name in importing:
            raise ValueError(f"These modules import one another: {' -> '.join([*importing, name])}")
        if name in parts:
            return
        code = (folder / name).read_text("utf-8")
        for imported in _IMPORT.findall(code):
            add(imported, (*importing, name))
        code = _EXPORT.sub("", _IMPORT.sub("", code))
        left = _LEFT_OVER.search(code)
        if left:
            raise ValueError(f"'{name}' has an import or export that cannot be joined: {left[0]}")
        parts[name] = code

    add(main, ())
    return "\n" + "\n".join(parts.values())


def page_data(runs: Mapping[str, Sequence[Entry]], scalars: Scalars) -> dict[str, Any]:
    """Return the index and all blobs of a page, as `source_embedded.js` reads them."""
    if not runs or not all(runs.values()):
        raise ValueError(f"Expected at least one entry in each run. Received: {dict(runs)}")
    if not set(scalars) <= set(runs):
        raise ValueError(
            f"Expected scalars of {sorted(runs)}. Received: those of {sorted(scalars)}"
        )
    index, blobs = [], {}
    for name, entries in runs.items():
        tagged = _tagged(entries)
        sentences = [
            sentence_index(tag, steps[min(steps)].header, sorted(steps))
            for tag, steps in tagged.items()
        ]
        index.append(run_index(name, sentences, scalars.get(name)))
        blobs[name] = {
            tag: {
                str(step): [base64.b64encode(blob).decode() for blob in steps[step].to_blobs()]
                for step in sorted(steps)
            }
            for tag, steps in tagged.items()
        }
    return {"index": make_index(index), "entries": blobs}


def _tagged(entries: Sequence[Entry]) -> dict[str, dict[int, Entry]]:
    """Entries by tag and step; sentences are numbered in the order of their first entries."""
    numbers: dict[str, int] = {}
    tagged: dict[str, dict[int, Entry]] = {}
    for entry in entries:
        header = entry.header
        number = numbers.setdefault(header["source_text"], len(numbers))
        steps = tagged.setdefault(entry_tag(number, header["target"]), {})
        if header["step"] in steps:
            raise ValueError(
                f"Two entries ({header['target']}) are of the sentence {header['source_text']!r} at "
                f"step {header['step']}. Give each step once; give other runs as a dict."
            )
        steps[header["step"]] = entry
    return tagged


def check_place(path: Path, overwrite: bool) -> None:
    """Raise a ValueError if the path exists, unless it is a page and `overwrite` is True."""
    if path.is_dir():
        raise ValueError(f"'{path}' is a folder. Name a file in it, such as 'attention.html'.")
    if not path.exists():
        return
    if not overwrite:
        raise ValueError(
            f"'{path}' exists. Choose another name, or replace it with `overwrite=True`."
        )
    if not is_page(path):
        raise ValueError(
            f"'{path}' was not written by this viewer and is kept. Choose another name."
        )


def is_page(path: Path) -> bool:
    """Whether a file is a page that this viewer wrote, unchanged."""
    content = path.read_bytes() if path.is_file() else b""
    document, _, digest = content.rpartition(CHECKSUM.encode())
    return digest == _digest(document)


def _digest(document: bytes) -> bytes:
    return f"{hashlib.sha256(document).hexdigest()} -->\n".encode()


def _write_whole(path: Path, text: str) -> None:
    """Write a page and its checksum; to a temporary name first, so that a crash leaves no half of it."""
    mark = CHECKSUM + _digest(text.encode()).decode()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes((text + mark).encode())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
