"""What is seen: at every width, of long sentences, in all scripts, in both themes, with every colour."""

import dataclasses

import numpy as np
import pytest

from keras_attention_viewer import show
from tests.viewer.heads import entry, pointing, self_attention
from tests.viewer.looks import expect_text, saved, saved_svg, texts

pytestmark = pytest.mark.backends("torch")

ENGLISH = "▁A ▁nervous ▁painter ▁who ▁reads ▁the ▁news paper ▁greets ▁our ▁sister . </s>".split()
GERMAN = "▁Ein ▁nervös er ▁Maler , ▁der ▁Zeitung ▁liest , ▁grüßt ▁unsere ▁Schwester . </s>".split()
WIDTHS = [360, 400, 500, 640, 768, 901, 1024, 1280, 1440, 1920, 2560]
FAULTS = """() => {
  const faults = [];
  const viewer = document.querySelector(".attention-viewer");
  const box = (node) => node.getBoundingClientRect();
  const seen = (node) => node.checkVisibility();
  if (document.documentElement.scrollWidth > window.innerWidth) faults.push("the page is too broad");
  const hasText = (node) => [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
  for (const node of viewer.querySelectorAll("*")) {
    if (!seen(node) || node.closest("select, svg")) continue;
    if (!hasText(node) && !node.matches("canvas, select")) continue;
    const { left, right } = box(node);
    const name = `${node.tagName}.${node.className} ${node.textContent.slice(0, 20)}`;
    if (left < -1 || right > window.innerWidth + 1) faults.push(`${name}: outside of the page`);
    for (let around = node.parentElement; around !== viewer; around = around.parentElement) {
      if (getComputedStyle(around).overflowX === "visible") continue;
      const edge = box(around);
      const isHidden = left < edge.left - 1 || right > edge.right + 1;
      if (isHidden) faults.push(`${name}: hidden by ${around.className}`);
    }
  }
  for (const word of viewer.querySelectorAll(".columns li")) {
    if (word.scrollWidth > word.clientWidth) faults.push(`${word.textContent}: cut`);
  }
  const ticks = [...viewer.querySelectorAll(".ticks span")].map(box);
  if (ticks.some((tick, i) => i && tick.left < ticks[i - 1].right)) faults.push("step numbers overlap");
  const [asks, reads] = viewer.querySelectorAll(".word-side");
  const wires = viewer.querySelector(".wires");
  if (box(wires).width < 119.5) faults.push(`lines of ${box(wires).width} pixels`);
  for (const canvas of wires.querySelectorAll("canvas")) {
    if (Math.abs(box(canvas).width - box(wires).width) > 1) faults.push("lines end beside the words");
  }
  const apart = box(asks).right <= box(wires).left + 1 && box(reads).left >= box(wires).right - 1;
  if (!apart) faults.push("words lie on lines");
  return faults;
}"""


def translation(steps=(0,), heads=8, **options):
    """Two layers of random cross-attention between words of common lengths."""
    rng = np.random.default_rng(40)
    shape = (2, heads, len(GERMAN), len(ENGLISH))
    weights = rng.dirichlet(np.full(shape[-1], 0.3), shape[:-1])
    return [entry({"cross": list(weights)}, ENGLISH, GERMAN, step, **options) for step in steps]


def test_nothing_is_hidden_or_overlaps_at_any_width(visits, tmp_path):
    """In a frame, as in a notebook: with one head, with all of them, and with the table of a word."""
    steps = [*range(0, 20_000, 1000), 123_400]
    cell_output = show(translation(steps))._repr_html_()
    (tmp_path / "frame.html").write_text(
        f"<!DOCTYPE html><body style='margin: 0'>{cell_output}", "utf-8"
    )
    page = visits.open(f"file://{tmp_path}/frame.html")
    frame = page.frames[1]
    frame.locator(".picture .title").wait_for()
    found = {}
    for key in ("h", "a"):
        frame.locator("body").press(key)
        frame.locator(".columns li").nth(1).click()
        frame.locator(".readings q").wait_for()
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            # Two frames: what is watched is told after the first, and drawn in the second.
            frame.evaluate(
                "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
            )
            found[key, width] = frame.evaluate(FAULTS)
        frame.locator("body").press("Escape")
    assert {place: faults for place, faults in found.items() if faults} == {}


def test_the_picture_is_on_the_first_screen_and_the_rest_a_menu_away(visits):
    given = {"value_norms": {"cross": [np.ones((8, len(ENGLISH)))] * 2}}
    runs = {
        name: [
            dataclasses.replace(one, header={**one.header, "target": version})
            for version in ("reference", "output")
            for one in translation((0, 10, 500), **given)
        ]
        for name in ("one", "another")
    }
    scalars = {"one": {key: [[0, 7.0], [10, 5.0], [500, 54.7]] for key in ("loss", "bleu")}}
    page = visits.show(runs, "heads=4&layer=2", scalars)
    page.locator(".more summary").press("Enter")
    page.get_by_label("Compare with").wait_for(state="hidden")
    found = {}
    for width in (320, 400, 640, 901, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.locator(f".attention-viewer[data-theme={scheme}]").wait_for()
            row, heads = page.locator(".columns li").first.bounding_box(), page.locator(".thumbs")
            found[width, scheme] = row["y"] + row["height"]
            assert (heads.bounding_box()["y"] > row["y"]) == (width <= 901)  # else they are beside
    assert max(found.values()) <= 760, found
    page.keyboard.press("/")  # it opens the menu
    page.keyboard.type("Maler")
    expect_text(page.locator(".columns li.query"), "▁Maler")


def long_sentence(heads=8, length=60):
    """Each head reads one word only; no two of them the same."""
    words = [f"▁w{i}" for i in range(length - 1)] + ["</s>"]
    maps = [pointing([7 * head + 3] * length, length) for head in range(heads)]
    return entry(self_attention(*maps), source=words)


def test_thumbnails_show_every_column_and_a_long_matrix_is_seen_whole(visits):
    page = visits.show(
        [long_sentence()], "view=matrix&heads=1", viewport={"width": 1280, "height": 900}
    )
    canvases = page.locator(".thumbs canvas")
    page.wait_for_function("() => document.querySelector('.thumbs canvas').width > 1")
    for canvas in canvases.all():
        width, height, room, columns = canvas.evaluate("""(node) => {
          const { data, width, height } = node.getContext("2d").getImageData(0, 0, node.width, node.height);
          const columns = Array.from({ length: width }, (_, c) => data[4 * c + 3]);
          return [width, height, node.clientWidth * devicePixelRatio, columns];
        }""")
        assert width <= room and height <= room < 60  # the browser need not leave out any
        assert columns.count(255) == 1 and columns.count(0) == width - 1

    pane = page.locator(".pane")
    assert pane.evaluate("node => node.scrollWidth > node.clientWidth")
    page.get_by_role("button", name="Whole matrix").click()
    page.locator(".matrix.wordless").wait_for()
    assert pane.evaluate(
        "node => node.scrollWidth <= node.clientWidth && node.scrollHeight <= node.clientHeight"
    )
    width = page.locator(".cells").evaluate("node => node.getBoundingClientRect().width")
    page.locator(".matrix-body").hover(position={"x": width * 3.5 / 60, "y": 10})
    assert page.locator(".cell-text").text_content().endswith("→ ▁w3: 1.00")


def test_words_of_other_scripts(visits):
    words = [
        *["▁", "<0xE6>", "<0x88>", "<0x91>", "<0xE4>", "<0xBB>", "<0xAC>"],
        *["▁مرحبا", "▁", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "▁a", "<0xFF>", "▁", "</s>"],
    ]
    page = visits.show([entry(self_attention(pointing(range(17), 17)), source=words)])
    mark = page.locator(".columns li").first.locator(".mark")
    expect_text(mark, "▁")  # faint, as in front of a word
    svg = saved_svg(page)
    letters = ["".join(text.itertext()) for text in svg.iter("text")]
    assert letters == words * 2
    arabic = [text for text in svg.iter("text") if "مرحبا" in "".join(text.itertext())]
    assert [text.get("direction") for text in arabic] == ["rtl", "rtl"]
    # From the right, a word that ends at the lines starts there, and the other way round.
    assert [text.get("text-anchor") for text in arabic] == ["start", "end"]
    assert [float(text[0].get("fill-opacity")) for text in arabic] == [0.3, 0.3]

    page.get_by_role("button", name="Whole words").click()
    page.get_by_role("button", name="Matrix").click()
    shown = ["我们", "مرحبا", "😀", "a<0xFF>", "▁", "</s>"]
    expect_text(page.locator(".matrix-columns li").first, "我们")
    assert texts(page.locator(".matrix-columns li")) == shown
    sideways = page.locator(".matrix-columns li").first
    assert sideways.evaluate("node => getComputedStyle(node).textOrientation") == "sideways"


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["▁", "我", "喜", "欢", "吃", "苹果", "。"], ["我", "喜欢", "吃", "苹果", "。"]),
        (["▁ผม", "รัก", "แม", "ว"], ["ผม", "รัก", "แมว"]),
        (["▁dog", "s", "▁well", "-known"], ["dogs", "well-known"]),
    ],
)
def test_whole_words_of_texts_without_spaces(visits, pieces, words):
    count = len(pieces) + 1
    made = entry(self_attention(pointing(range(count), count)), source=[*pieces, "</s>"])
    page = visits.show([made], "words=1")
    assert texts(page.locator(".columns .tokens").first.locator("li")) == [*words, "</s>"]


def test_words_from_the_right_do_not_turn_numbers(visits):
    words = ["▁مرحبا", "▁صديق", "</s>"]
    page = visits.show([entry(self_attention(np.eye(3)), source=words)], "view=matrix")
    page.locator(".matrix-body").hover(position={"x": 5, "y": 5})
    expect_text(page.locator(".cell-text"), "▁مرحبا → ▁مرحبا: 1.00")
    # Each character where it is read: the number is the last, at the right.
    places = page.locator(".cell-text").evaluate("""(node) => {
      const range = document.createRange();
      return [...node.childNodes].map((part) => {
        range.selectNode(part);
        return range.getBoundingClientRect().left;
      });
    }""")
    assert len(places) == 4 and places == sorted(places)


def luminance(color):
    """The relative luminance of a colour of three bytes, from WCAG 2."""
    parts = np.asarray(color[:3], float) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one, other):
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


# For each text: its colour, and what lies below it, both as bytes.
TEXT_COLORS = """() => {
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const over = (colors) => {
    context.clearRect(0, 0, 1, 1);
    for (const color of colors) { context.fillStyle = color; context.fillRect(0, 0, 1, 1); }
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const found = [];
  for (const node of document.querySelectorAll(".attention-viewer *")) {
    const own = [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
    if (!own || !node.checkVisibility() || node.closest(".values, .mark, svg, option, :disabled")) continue;
    const below = [];
    for (let one = node; one; one = one.parentElement) below.unshift(getComputedStyle(one).backgroundColor);
    found.push([node.className + " " + node.textContent.slice(0, 20),
      over([...below, getComputedStyle(node).color]), over(below)]);
  }
  return found;
}"""
HEADS = 10
LEVELS = [i / 20 for i in range(21)]


@pytest.mark.parametrize("scheme, paper", [("light", (255, 255, 255)), ("dark", (31, 34, 41))])
def test_everything_can_be_read_on_its_colour(visits, scheme, paper):
    """Values on cells of every head and weight, words on boxes, and all other text."""
    words = [f"▁w{i}" for i in range(20)] + ["</s>"]
    made = entry(self_attention(*[np.tile(LEVELS, (21, 1))] * HEADS), source=words)
    options = {"color_scheme": scheme, "viewport": {"width": 2560, "height": 1400}}
    page = visits.show([made], "view=matrix&heads=1&layer=1&word=r1", **options)
    for head in range(HEADS):
        page.get_by_role("button", name=f"Head {head + 1}", exact=True).click()
        expect_text(page.locator(".picture .title"), f"Encoder · layer 1 · head {head + 1}")
        color = (
            page.locator(".squares button")
            .nth(head)
            .evaluate("node => getComputedStyle(node).getPropertyValue('--head')")
        )
        color = [int(color.strip()[at : at + 2], 16) for at in (1, 3, 5)]
        inks = page.locator(".values span").evaluate_all(
            "nodes => nodes.slice(0, 21).map((node) => getComputedStyle(node).color)"
        )
        for level, text in zip(LEVELS[1:], inks[1:], strict=True):
            below = [
                level * one + (1 - level) * other for one, other in zip(color, paper, strict=True)
            ]
            assert contrast(bytes_of(text), below) >= 4.5, (head, level)
        pairs = page.evaluate(TEXT_COLORS)
        assert len(pairs) > 60
        assert [pair for pair in pairs if contrast(*pair[1:]) < 4.5] == []
        page.get_by_role("button", name="Lines").click()
        opacity = float(
            page.locator(".boxes").first.evaluate("node => getComputedStyle(node).opacity")
        )
        box = [
            opacity * one + (1 - opacity) * other for one, other in zip(color, paper, strict=True)
        ]
        ink = page.locator(".columns.chosen li").last.evaluate(
            "node => getComputedStyle(node).color"
        )
        assert contrast(bytes_of(ink), box) >= 4.5, head
        page.get_by_role("button", name="Matrix").click()


def bytes_of(color):
    """`rgb(1, 2, 3)` as numbers."""
    return [int(part) for part in color[4:-1].split(",")]


def test_lines_of_several_heads_between_two_words_lie_beside_one_another(visits):
    page = visits.show(
        [entry(self_attention(*[pointing(range(6), 6)] * 3), source=ENGLISH[:5] + ["</s>"])]
    )
    page.locator(".columns li").first.hover()
    colors = page.locator(".wires canvas").last.evaluate("""(node) => {
      const scale = node.height / node.getBoundingClientRect().height;
      const context = node.getContext("2d");
      return [10, 12, 14].map((y) => [...context.getImageData(20, y * scale, 1, 1).data].slice(0, 3));
    }""")
    heads = [(0x1F, 0x77, 0xB4), (0xFF, 0x7F, 0x0E), (0x2C, 0xA0, 0x2C)]
    np.testing.assert_allclose(colors, heads, atol=12)


def test_on_paper_the_whole_picture_stands_without_menus(visits):
    page = visits.show([long_sentence()], "heads=1&layer=1")
    page.emulate_media(media="print")
    assert page.locator(".pane").evaluate("node => node.scrollHeight <= node.clientHeight")
    assert page.locator(".columns li").last.is_visible()
    assert not [one for one in page.locator("select, input, .segments").all() if one.is_visible()]


def test_forced_colours_show_what_is_pressed(visits):
    page = visits.show(translation(), "heads=1", forced_colors="active")
    for selector in (".segments", ".squares"):
        styles = page.locator(f"{selector} button").evaluate_all(
            "nodes => nodes.map((node) => [node.ariaPressed, getComputedStyle(node).backgroundColor,"
            " getComputedStyle(node).outlineStyle])"
        )
        pressed = {tuple(style) for state, *style in styles if state == "true"}
        others = {tuple(style) for state, *style in styles if state == "false"}
        assert pressed and others and not pressed & others


def test_a_png_of_400_words_is_smaller_and_one_that_fails_says_so(visits):
    words = [f"▁w{i}" for i in range(399)] + ["</s>"]
    made = entry(self_attention(np.eye(400)), source=words)
    page = visits.show([made], "view=matrix")
    png = saved(page, "PNG")
    width, height = (int.from_bytes(png[start : start + 4], "big") for start in (16, 20))
    assert png[:4] == b"\x89PNG"
    assert 4000 < width <= 16_000 and width * height <= 64.1e6
    page.get_by_text("the PNG has fewer pixels than usual").wait_for()
    page.evaluate("() => { HTMLCanvasElement.prototype.toBlob = (done) => done(null); }")
    page.get_by_role("button", name="PNG").click()
    page.get_by_text("too large for a PNG: save it as SVG").wait_for()
