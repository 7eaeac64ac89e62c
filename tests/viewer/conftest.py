"""One real browser for all tests of the viewer, without a network."""

import os
import shutil
from importlib import resources
from pathlib import Path

import pytest

FLAGS = (
    "--no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
# No host has an address but this machine.
NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
WAIT = 20_000  # milliseconds, at most


def unavailable(what):
    """Skips the tests that need a browser; in continuous integration they fail instead."""
    message = f"{what} is missing: apt-get install chromium, pip install playwright"
    if os.environ.get("CI"):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


@pytest.fixture(scope="package")
def chromium():
    """Debian's Chromium, driven by Playwright."""
    program = shutil.which("chromium")
    if program is None:
        unavailable("Chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        unavailable("Playwright")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*FLAGS, NO_NETWORK])
        yield browser
        browser.close()


class Visits:
    """Opens pages, and remembers what they ask for and complain about."""

    def __init__(self, browser, folder):
        self.browser = browser
        self.folder = Path(folder)
        self.contexts = []
        self.errors = []
        self.requests = []

    def open(self, address, tour=False, script="", **options):
        """A new window of 1440 x 900 pixels (or `options`); only with `tour` it is a first visit.

        A `script` runs in it before those of the page.
        """
        context = self.browser.new_context(
            **{"viewport": {"width": 1440, "height": 900}, **options}
        )
        self.contexts.append(context)
        context.set_default_timeout(WAIT)
        context.add_init_script(script)
        if not tour:
            context.add_init_script(
                "try { localStorage.setItem('keras-attention-viewer-tour', 'done') } catch {}"
            )
        context.on("request", lambda request: self.requests.append(request.url))
        page = context.new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda line: line.type == "error" and self.errors.append(line.text))
        page.on("dialog", lambda dialog: self.errors.append(f"a dialog: {dialog.message}"))
        page.goto(address)
        return page

    def show(self, entries, state="", scalars=None, **options):
        """The viewer's HTML file of these entries, opened from disk with a state in the link.

        Pieces are apart unless the state says something of words: most matrices of tests are of pieces.
        The menu of what one needs less often is open.
        """
        from keras_attention_viewer.page import page as document

        html = document(entries, scalars=scalars)
        path = self.folder / f"{len(self.contexts)}.html"
        path.write_text(html, "utf-8")
        state = state if "words=" in state else f"{state}&words=0"
        page = self.open(f"file://{path}#{state}", **options)
        page.locator(".picture .title").wait_for()
        page.locator(".more").evaluate("node => { node.open = true }")
        return page


@pytest.fixture
def visits(chromium, tmp_path):
    """Pages of a test; nobody may ask another host, or write an error to the console."""
    made = Visits(chromium, tmp_path)
    yield made
    for context in made.contexts:
        context.close()
    own = ("file:", "data:", "blob:", "http://127.0.0.1:")
    assert [url for url in made.requests if not url.startswith(own)] == []
    assert made.errors == []


@pytest.fixture
def tab_visits(visits):
    """Pages of TensorBoard, which complains about things that are not ours."""
    yield visits
    visits.errors[:] = [text for text in visits.errors if "attention" in text]


@pytest.fixture(scope="package")
def axe():
    """The script of axe-core, a checker of accessibility."""
    name = "axe_playwright_python"
    pytest.importorskip(name, reason="axe-core is missing: pip install axe-playwright-python")
    return (resources.files(name) / "axe.min.js").read_text("utf-8")
