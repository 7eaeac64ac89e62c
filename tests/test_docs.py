"""What the docs say of files and rooms is so."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "keras_attention"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
# The last rooms may import all that stand above them.
ALL = "all of the above"


def rooms_in_table():
    """Room -> rooms that it may import, by the table; the order is that of the table."""
    rows = re.findall(r"^\| `(\w+)/` \|.*\|([^|]*)\|$", ARCHITECTURE, re.MULTILINE)
    allowed = {}
    for room, text in rows:
        above = set(allowed) | {"keras_attention_viewer"}
        names = {name.strip("`/") for name in re.findall(r"`[\w/]+`", text)}
        viewer = {"keras_attention_viewer"} if "the viewer" in text else set()
        allowed[room] = above if text.strip() == ALL else names | viewer
    return {room: names for room, names in allowed.items() if (PACKAGE / room).is_dir()}


def imported_rooms(room):
    """Rooms that a room's files import, within functions too."""
    for path in (PACKAGE / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for first, *rest in (name.split(".") for name in names):
                if first == "keras_attention_viewer":
                    yield first
                elif first == "keras_attention" and rest and rest[0] != room:
                    yield rest[0]


def test_the_table_names_every_room():
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert set(rooms_in_table()) == rooms


@pytest.mark.parametrize("room", sorted(rooms_in_table()))
def test_rooms_import_what_the_table_allows(room):
    assert set(imported_rooms(room)) <= rooms_in_table()[room]


def test_the_files_that_the_architecture_names_exist():
    names = set(re.findall(r"`([\w/]+/[\w.]+\.(?:py|js|md))`", ARCHITECTURE))
    assert len(names) > 10
    missing = [name for name in names if not any((at / name).exists() for at in (PACKAGE, ROOT))]
    assert not missing


@pytest.mark.parametrize("path", [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")], ids=str)
def test_links_lead_somewhere(path):
    text = path.read_text("utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
        assert (path.parent / target).exists(), target
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in headings}
    for anchor in re.findall(r"\]\(#([^)]+)\)", text):
        assert anchor in anchors, anchor
