"""The Attention tab of a real TensorBoard, in a real browser."""

import re
import shutil

import pytest

from keras_attention import SummaryWriter
from keras_attention_viewer.codec import PLUGIN_NAME, entry_tag
from tests.viewer.heads import SOURCE, entry, pointing, self_attention
from tests.viewer.looks import cell, expect_pressed, expect_text, expect_theme, problems_of, texts
from tests.viewer.served import NEEDS_PLUGIN, tensorboard, until

pytestmark = [pytest.mark.backends("torch"), NEEDS_PLUGIN]
S = len(SOURCE)
# How much the second head reads the right word, by run and step.
WEIGHTS = {"large": {0: 0.2, 100: 0.55, 200: 0.95}, "small": {0: 0.2, 100: 0.3, 200: 0.45}}


# The tab looks for new steps every ten seconds; here each is a twentieth of one.
SOONER = (
    "{ const later = setInterval; window.setInterval = (work, wait) => later(work, wait / 20) }"
)


def write_run(folder, weights):
    """As a run of the package does it; the page names it by its own folder."""
    with SummaryWriter(folder / "logs") as writer:
        for step, weight in weights.items():
            made = entry(
                self_attention(*(pointing(range(S), S, w) for w in (0.5, weight))), step=step
            )
            writer.blobs(entry_tag(0), made.to_blobs(), step, PLUGIN_NAME)
            writer.scalar("quality/loss", 5 - weight, step)
            writer.scalar("quality/bleu", 30 * weight, step)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tab") / "logs"


@pytest.fixture(scope="module")
def address(folder):
    """A TensorBoard with two runs that has read them."""
    for name, weights in WEIGHTS.items():
        write_run(folder / name, weights)
    with tensorboard(folder, "--reload_interval", "1") as server:
        until(lambda: len(server.runs()) == 2)
        yield server.address


@pytest.fixture
def tab(tab_visits, address):
    """Opens the tab with a state in TensorBoard's own address; (the whole page, the tab's frame)."""

    def open_tab(state="", dark=False):
        place = f"{address}?darkMode={str(dark).lower()}#attention{state}"
        page = tab_visits.open(place, script=SOONER)
        frame = page.frame_locator("iframe")
        frame.locator(".picture .title").wait_for()
        return page, frame

    return open_tab


def test_the_tab_opens_by_a_click_and_shows_the_newest_step(tab_visits, address):
    page = tab_visits.open(f"{address}#timeseries")
    page.get_by_role("tab", name=re.compile("attention", re.IGNORECASE)).first.click()
    frame = page.frame_locator("iframe")
    expect_text(frame.locator(".picture .title"), "Encoder · layer 1 · all heads")
    expect_text(frame.locator(".step"), "step 200")
    assert "loss 4.05" in frame.locator(".legend").inner_text()
    assert "BLEU 28.50" in frame.locator(".legend").inner_text()
    # The first picture needs three answers; what else is read, for the thumbnails, comes after it.
    data = "/plugin/attention/"
    asked = [url.split(data)[1].split("?")[0] for url in tab_visits.requests if data in url]
    assert [name for name in asked if "." not in name][:3] == ["index", "header", "weights"]


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_in_the_tab(tab, axe, dark):
    page, frame = tab("&p.attention.word=r1&p.attention.scatter=entropy,distance", dark)
    frame.locator(".thumbs canvas").first.wait_for()
    expect_theme(frame.locator(".attention-viewer"), "dark" if dark else "light")
    assert problems_of(page.frames[1], axe) == []


def test_layer_head_word_step_run_and_difference(tab):
    page, frame = tab("&p.attention.view=matrix&p.attention.words=0")
    frame.get_by_role("button", name="Head 2", exact=True).click()
    expect_text(cell(frame, 1, 1), "0.95")
    frame.get_by_role("slider", name="Step").press("ArrowLeft")
    expect_text(cell(frame, 1, 1), "0.55")
    frame.get_by_label("Run", exact=True).select_option("small")
    expect_text(cell(frame, 1, 1), "0.30")
    frame.get_by_text("Compare, find, save").click()
    frame.get_by_label("Compare with").select_option("run")
    expect_text(cell(frame, 1, 1), "−0.25")
    expect_text(frame.locator(".pane h3"), "small, step 100 − large, step 100")
    frame.get_by_label("Compare with").select_option("step")
    expect_text(cell(frame, 1, 1), "+0.10")
    frame.locator(".left .changes button").first.wait_for()
    frame.get_by_label("Compare with").select_option("")
    frame.locator(".matrix-rows li").nth(2).click()
    expect_text(frame.locator(".readings q"), SOURCE[2])
    frame.get_by_role("slider", name="Step").press("Home")
    frame.get_by_role("button", name="Play").click()
    expect_text(cell(frame, 1, 1), "0.45")


def test_the_link_is_tensorboards_own_and_survives_another_tab(tab, tab_visits):
    page, frame = tab()
    frame.locator(".thumbs button").nth(1).click()
    expect_text(frame.locator(".picture .title"), "Encoder · layer 1 · head 2")
    page.wait_for_url("**#attention&p.attention.layer=1&p.attention.heads=2")
    frame.get_by_role("button", name="Matrix").click()
    page.wait_for_url("**p.attention.view=matrix")
    frame.get_by_role("button", name="Whole words").click()
    page.wait_for_url("**p.attention.words=0")
    link = page.url
    page.get_by_role("tab", name=re.compile("scalars", re.IGNORECASE)).first.click()
    page.wait_for_url("**#scalars*")
    page.get_by_role("tab", name=re.compile("attention", re.IGNORECASE)).first.click()
    expect_text(cell(frame, 1, 1), "0.95")
    other = tab_visits.open(link).frame_locator("iframe")
    expect_text(other.locator(".picture .title"), "Encoder · layer 1 · head 2")
    expect_text(cell(other, 1, 1), "0.95")


def test_back_returns_within_the_tab_and_play_pauses_while_another_is_in_front(tab):
    page, frame = tab("&p.attention.step=0")
    title = frame.locator(".picture .title")
    for head in (1, 2):
        frame.locator(".thumbs button").nth(head - 1).click()
        expect_text(title, f"Encoder · layer 1 · head {head}")
    page.go_back()
    expect_text(title, "Encoder · layer 1 · head 1")
    page.go_back()
    expect_text(title, "Encoder · layer 1 · all heads")
    assert page.locator("iframe").first.evaluate(
        "node => [node.contentDocument.documentElement.lang, node.contentDocument.title]"
    ) == ["en", "Attention"]

    frame.get_by_role("button", name="Play").click()
    page.get_by_role("tab", name=re.compile("scalars", re.IGNORECASE)).first.click()
    page.wait_for_timeout(1200)  # longer than two steps are shown
    page.get_by_role("tab", name=re.compile("attention", re.IGNORECASE)).first.click()
    frame.get_by_role("button", name="Play").wait_for()
    assert frame.locator(".step").text_content() in ("step 0", "step 100")


def test_theme_keys_and_svg_in_the_tab(tab):
    page, frame = tab(dark=True)
    viewer = frame.locator(".attention-viewer")
    expect_theme(viewer, "dark")
    page.evaluate("document.body.classList.remove('dark-mode')")
    expect_theme(viewer, "light")
    frame.locator(".columns li").first.click()
    page.keyboard.press("h")
    expect_text(frame.locator(".picture .title"), "Encoder · layer 1 · head 1")
    page.keyboard.press("[")
    expect_text(frame.locator(".step"), "step 100")
    page.keyboard.press("w")
    expect_pressed(frame.get_by_role("button", name="Whole words"), False)
    frame.get_by_text("Compare, find, save").click()
    with page.expect_download() as waiting:
        frame.get_by_role("button", name="SVG").click()
    assert waiting.value.suggested_filename == "attention_encoder_layer_1_head_1_step_100.svg"


def test_new_runs_and_steps_appear_and_what_is_written_again_is_read_again(tab, folder):
    """Last: it adds a run to those of the other tests. Nobody presses reload."""
    _, frame = tab("&p.attention.words=0")
    runs = frame.get_by_label("Run", exact=True).locator("option")
    assert texts(runs) == ["large", "small"]
    write_run(folder / "new", {0: 0.2, 100: 0.75})
    until(lambda: runs.count() == 3)
    assert texts(runs) == ["large", "new", "small"]
    expect_text(frame.locator(".step"), "step 200")

    frame.get_by_label("Run", exact=True).select_option("new")
    frame.get_by_role("button", name="Head 2", exact=True).click()
    frame.get_by_role("button", name="Matrix").click()
    expect_text(cell(frame, 1, 1), "0.75")
    write_run(folder / "new", {200: 0.85})  # the run goes on
    until(lambda: frame.locator(".step").text_content() == "step 200")
    expect_text(cell(frame, 1, 1), "0.85")

    shutil.rmtree(folder / "new")  # made again in the same folder, with the same steps
    write_run(folder / "new", {0: 0.2, 100: 0.4, 200: 0.35})
    until(lambda: cell(frame, 1, 1).text_content() == "0.35")
    frame.get_by_role("slider", name="Step").press("ArrowLeft")
    expect_text(cell(frame, 1, 1), "0.40")
