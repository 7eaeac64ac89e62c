"""What tests look at in a page of the viewer. Expectations wait until they come true."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from tests.viewer.heads import SOURCE

WIDTH = len(SOURCE)
WAIT = 15_000  # milliseconds, at most


def texts(locator):
    return locator.all_text_contents()


def cell(page, row, column, columns=WIDTH):
    """The text in a cell of the matrix."""
    return page.locator(".values span").nth(row * columns + column)


def values(page):
    """The numbers in the cells of the matrix, row by row."""
    return np.array([float(text.replace("−", "-")) for text in texts(page.locator(".values span"))])


def _expect():
    # Not above: where there is no Playwright, the tests are skipped.
    from playwright.sync_api import expect

    return expect


def expect_text(locator, text):
    _expect()(locator).to_have_text(text, timeout=WAIT)


def expect_pressed(locator, pressed=True):
    _expect()(locator).to_have_attribute("aria-pressed", str(pressed).lower(), timeout=WAIT)


def expect_theme(locator, theme):
    _expect()(locator).to_have_attribute("data-theme", theme, timeout=WAIT)


def expect_accessible(page, axe):
    """axe-core finds nothing, in light and dark."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.locator(f".attention-viewer[data-theme={scheme}]").wait_for()
        assert problems_of(page, axe) == [], scheme


def problems_of(page, axe):
    """What axe-core finds in a page or a frame."""
    page.evaluate(axe)
    # The size of targets is a rule of WCAG 2.2, which is off as it stands.
    found = page.evaluate("axe.run({ rules: { 'target-size': { enabled: true } } })")
    assert len(found["passes"]) > 20
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]]


def saved(page, button):
    """The bytes of the file that a button saves."""
    with page.expect_download() as waiting:
        page.get_by_role("button", name=button, exact=True).click()
    return Path(waiting.value.path()).read_bytes()


def saved_svg(page):
    """The picture that the button SVG saves: its root, without namespaces."""
    root = ElementTree.fromstring(saved(page, "SVG"))
    for node in root.iter():
        node.tag = re.sub(r"{.*}", "", node.tag)
    return root


def svg_lines(root):
    """Lines of a picture: [(numbers x1, y1, x2, y2, colour, opacity, width)], in the order of drawing."""
    return [
        (
            *(float(line.get(key)) for key in ("x1", "y1", "x2", "y2")),
            line.get("stroke"),
            float(line.get("stroke-opacity")),
            float(line.get("stroke-width")),
        )
        for line in root.iter("line")
    ]
