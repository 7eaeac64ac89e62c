"""Links, keys, themes and hostile words in a real browser; and what may be slow and must not be."""

import numpy as np
import pytest

from keras_attention_viewer import measured, show
from keras_attention_viewer.page import page as document
from tests.viewer.heads import SOURCE, TARGET, cross, entry, pointing
from tests.viewer.looks import (
    cell,
    expect_pressed,
    expect_text,
    expect_theme,
    saved_svg,
    svg_lines,
    texts,
)

pytestmark = pytest.mark.backends("torch")

S, T = len(SOURCE), len(TARGET)
GOLD = "#D4A017"


def two_layers(steps=(0, 10)):
    heads = [pointing(columns, S, 0.8) for columns in ((0, 1, 3, 5), (5, 5, 5, 5), (1, 0, 4, 2))]
    return [entry({"cross": [np.stack(heads), np.stack(heads[::-1])]}, step=step) for step in steps]


def test_a_link_holds_the_whole_state_and_back_goes_back(visits):
    page = visits.show(two_layers(), "view=matrix")
    page.locator(".thumbs button").nth(1).click()
    expect_text(page.locator(".picture .title"), "Cross · layer 1 · head 2")
    page.get_by_role("button", name="Content words only").click()
    page.get_by_label("Compare with").select_option("head")
    page.get_by_role("slider", name="Step").press("Home")
    page.locator(".matrix-rows li").nth(2).click()
    expect_text(page.locator(".readings q"), "▁sleeps")
    expect_text(page.locator(".step"), "step 0")
    shown = texts(page.locator(".values span"))

    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    page.get_by_text("copied").wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url

    other = visits.open(link)
    expect_text(other.locator(".picture .title"), "Cross · layer 1 · head 2")
    expect_text(other.locator(".readings q"), "▁sleeps")
    expect_text(other.locator(".step"), "step 0")
    expect_pressed(other.get_by_role("button", name="Content words only"))
    assert other.get_by_label("Compare with").input_value() == "head"
    assert texts(other.locator(".values span")) == shown
    assert other.url == page.url

    for _ in range(3):  # word, comparison, content words
        page.go_back()
    expect_pressed(page.get_by_role("button", name="Content words only"), False)
    expect_text(page.locator(".picture .title"), "Cross · layer 1 · head 2")
    page.go_back()
    expect_text(page.locator(".picture .title"), "Cross · layer 2 · all heads")


@pytest.mark.parametrize(
    "state", ["layer=99&heads=77,x&step=nine&word=r999&view=none", "%E0%A4%A&&=&x=%"]
)
def test_a_senseless_link_shows_something(visits, state):
    page = visits.show(two_layers(), state)
    expect_text(page.locator(".picture .title"), "Cross · layer 2 · all heads")
    assert texts(page.locator(".columns .tokens").first.locator("li")) == TARGET


def test_everything_by_keyboard(visits):
    page = visits.show(two_layers())
    title = page.locator(".picture .title")
    for key, expected in [
        ("h", "Cross · layer 2 · head 1"),
        ("h", "Cross · layer 2 · head 2"),
        ("Shift+H", "Cross · layer 2 · head 1"),
        ("l", "Cross · layer 1 · head 1"),
        ("a", "Cross · layer 1 · all heads"),
    ]:
        page.keyboard.press(key)
        expect_text(title, expected)
    page.keyboard.press("2")
    page.locator(".values").wait_for()
    page.keyboard.press("w")
    expect_text(page.locator(".matrix-columns li").nth(1), "Hunde")
    page.keyboard.press("w")
    page.keyboard.press("1")

    page.get_by_role("button", name="Head 1", exact=True).press("ArrowRight")
    assert page.evaluate("document.activeElement.ariaLabel") == "Head 2"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "All heads"  # one stop a group
    while page.evaluate("document.activeElement.parentNode.className") != "thumbs":
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")  # from the first head of layer 1 to that of layer 2
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect_text(title, "Cross · layer 2 · head 2")
    while page.evaluate("document.activeElement.getAttribute('role')") != "option":
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect_text(page.locator(".columns li[aria-selected=true]"), "▁sleeps")
    tree = page.locator("table.readings").aria_snapshot()
    assert 'table "▁sleeps reads"' in tree
    assert 'row "</s> 0.80"' in tree and 'row "▁der 0.04"' in tree
    page.keyboard.press("Escape")
    page.locator("table.readings").wait_for(state="hidden")

    # Many keyboards have brackets only with Option, or with AltGr.
    for key, step in (("Alt+[", 0), ("Control+Alt+]", 10), ("Control+[", 10)):
        page.keyboard.press(key)
        expect_text(page.locator(".step"), f"step {step}")


def test_a_word_that_is_hovered_or_chosen_from_either_side(visits):
    page = visits.show(two_layers(), "heads=1&layer=1")
    columns = page.locator(".columns .tokens").last.locator("li")
    columns.nth(1).hover()
    expect_text(page.locator(".readings caption"), "▁Hund is read by")
    assert page.locator(".readings tbody tr").first.inner_text().split() == ["▁dog", "0.80"]
    page.locator(".picture .title").hover()
    page.locator("table.readings").wait_for(state="hidden")
    columns.nth(1).click()
    [*_, strongest] = sorted(svg_lines(saved_svg(page)), key=lambda line: line[5])
    assert strongest[5] == pytest.approx(0.8, abs=1e-4)
    assert len(svg_lines(saved_svg(page))) == T  # from every row to this word


def test_hostile_wide_and_right_to_left_words_stay_text(visits):
    words = [
        "<img src=x onerror=alert(1)>",
        "\"'><script>alert(1)</script>",
        "مرحبا",
        "日本語",
        "x" * 200,
        "&lt;b&gt;",
        "</script>",
        "</s>",
    ]
    made = entry({"encoder": [pointing(range(8), 8)[None]]}, source=words)
    page = visits.show({"<b>run</b>": [made]})
    for view in ("lines", "matrix"):
        page.get_by_role("button", name=view.capitalize()).click()
        lists = page.locator(".pane .tokens")
        expect_text(lists.first.locator("li").first, words[0])
        assert texts(lists.first.locator("li")) == texts(lists.last.locator("li")) == words
    arabic = page.locator(".matrix-rows li span").nth(2)
    assert arabic.evaluate("node => getComputedStyle(node).direction") == "rtl"
    page.locator(".matrix-rows li").nth(0).click()
    expect_text(page.locator(".readings q"), words[0])
    svg = saved_svg(page)
    assert words[0] in [text.text for text in svg.iter("text")]
    assert page.evaluate("document.images.length") == 0
    assert page.evaluate("document.scripts.length") == 2


def test_in_a_notebook_the_frame_has_no_address(visits, tmp_path):
    cell_output = show(two_layers())._repr_html_()
    (tmp_path / "notebook.html").write_text(f"<!DOCTYPE html><body>{cell_output}", "utf-8")
    frame = visits.open(f"file://{tmp_path}/notebook.html").frame_locator("iframe")
    frame.get_by_role("button", name="Whole words").click()
    expect_text(frame.locator(".picture .title"), "Cross · layer 2 · all heads")
    frame.locator(".thumbs button").nth(1).click()
    frame.get_by_role("button", name="Matrix").click()
    expect_text(cell(frame, 0, 5), "0.80")
    assert not frame.get_by_role("button", name="Copy link").is_visible()


def test_a_cell_of_a_notebook_has_the_theme_of_the_notebook(visits, tmp_path):
    """As JupyterLab does it: an attribute of the body, on which its colours depend."""
    style = "body { background: #111 } body[data-jp-theme-light=true] { background: #fff }"
    html = f"<!DOCTYPE html><style>{style}</style><body><div>{show(two_layers())._repr_html_()}"
    (tmp_path / "notebook.html").write_text(html, "utf-8")
    page = visits.open(f"file://{tmp_path}/notebook.html", color_scheme="light")
    viewer = page.frame_locator("iframe").locator(".attention-viewer")
    expect_theme(viewer, "dark")
    page.evaluate("document.body.dataset.jpThemeLight = 'true'")
    expect_theme(viewer, "light")
    page.emulate_media(color_scheme="dark")
    expect_theme(viewer, "light")


STRICT = "default-src 'none'; style-src 'unsafe-inline'; script-src "


def webview(visits, folder, policy=None, sandbox=None, **options):
    """The page in a frame of 400 x 760 pixels, as VS Code shows what an extension or a cell gives it."""
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if policy else ""
    frame = show(two_layers())._repr_html_()
    if sandbox is not None:
        frame = frame.replace("<iframe ", f'<iframe sandbox="{sandbox}" ')
    html = f"<!DOCTYPE html>{meta}<style>body {{ margin: 0 }}</style><body>{frame}"
    (folder / "webview.html").write_text(html, "utf-8")
    size = {"width": 400, "height": 760}
    page = visits.open(f"file://{folder}/webview.html", viewport=size, **options)
    return page.frame_locator("iframe")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_webview_that_lets_scripts_run_shows_the_picture(visits, tmp_path, scheme):
    policy = f"{STRICT}'unsafe-inline'"
    frame = webview(visits, tmp_path, policy, "allow-scripts", color_scheme=scheme)
    frame.locator(".thumbs canvas").first.wait_for()
    row = frame.locator(".columns li").first.bounding_box()
    assert row["y"] + row["height"] <= 760 and row["x"] + row["width"] <= 400
    frame.get_by_role("button", name="Matrix").click()
    frame.locator(".matrix-rows li").first.wait_for()


@pytest.mark.parametrize(
    "policy, sandbox, options",
    [
        (None, None, {"java_script_enabled": False}),
        (None, "", {}),
        ("default-src 'none'", None, {}),
        ("script-src 'self'", None, {}),
        (f"{STRICT}'nonce-2b7e1516'", "allow-scripts", {}),
    ],
)
def test_without_scripts_a_sentence_stands_in_the_frame(visits, tmp_path, policy, sandbox, options):
    frame = webview(visits, tmp_path, policy, sandbox, **options)
    sentence = frame.get_by_text("drawn by a script, which may not run here")
    sentence.wait_for()
    box = sentence.bounding_box()
    assert box["y"] + box["height"] <= 760 and box["x"] + box["width"] <= 400
    refused = ("Content Security Policy", "the document's frame is sandboxed")
    assert all(any(reason in text for reason in refused) for text in visits.errors)
    visits.errors.clear()


def aligned(steps=(0, 10)):
    """Head 2 of layer 1 reads, for the word read, what the true alignment says; at step 0 it does not."""
    gold = [(0, 0), (1, 1), (2, 2)]  # der - the, Hunde - dog, schläft - sleeps
    right = pointing((5, 0, 1, 3), S, 0.9)  # rows: <start> the dog sleeps
    wrong = pointing((5, 4, 5, 4), S, 0.9)
    wrong[:, 0] += 0.01
    wrong /= wrong.sum(axis=1, keepdims=True)
    made = []
    for step in steps:
        heads = np.stack([wrong, right if step else wrong])
        still = np.stack([wrong, wrong])
        made += measured([entry({"cross": [heads, still]}, step=step, alignment=gold)])
    return made


def test_the_alignment_head_is_marked_and_its_links_are_drawn(visits):
    page = visits.show(aligned())
    expect_text(
        page.locator(".picture .title"), "Cross · layer 1 · head 2"
    )  # opens on the first screen
    assert page.locator(".thumbs .best .place").all_text_contents() == ["1.2"]
    page.locator(".thumbs .head-curve").nth(3).wait_for()  # how it came to that
    assert page.get_by_label("Over the steps").input_value() == "aer"
    page.get_by_role("button", name="Alignment", exact=True).click()
    expect_text(page.locator(".error-rate"), "AER of this sentence: 0.00")
    expect_pressed(page.get_by_role("button", name="read", exact=True))
    rows = page.locator(".columns .tokens").first.locator("li")
    assert texts(rows) == ["<start>", "the", "dog", "sleeps"]
    expect_text(page.locator(".alignment-notes h3"), "AER of all measured sentences, by head")
    assert page.locator(".grid").get_by_text("No star").count() == 0
    first = page.locator(".alignment-notes .changes button").first
    assert texts(first.locator("span")) == ["★ layer 1 head 2", "AER 0.00"]
    expect_text(
        page.locator(".alignment-notes p").last, "best AER: 0.67 at step 0, 0.00 at step 10"
    )

    lines = svg_lines(saved_svg(page))
    links = [[round(line[1] / 11.27 - 0.5), round(line[3] / 11.27 - 0.5)] for line in lines]
    assert links == [[1, 0], [2, 1], [3, 2]] * 2  # rows and columns of whole words
    assert [line[4] for line in lines] == [GOLD] * 3 + ["#FF7F0E"] * 3

    page.get_by_role("button", name="predicted", exact=True).click()
    expect_text(rows.first, "the")
    expect_text(page.locator(".error-rate"), "AER of this sentence: 1.00")
    lines = svg_lines(saved_svg(page))
    links = [[round(line[1] / 11.27 - 0.5), round(line[3] / 11.27 - 0.5)] for line in lines]
    assert links[:3] == [[0, 0], [1, 1], [2, 2]]  # the true links move one row up
    assert links[4:] == [[1, 0], [2, 1]]  # the head's do not, but stand for the next word


def test_alignment_of_several_heads_and_of_heads_that_align_nothing(visits):
    page = visits.show(aligned(steps=(0,)), "view=alignment&layer=1&heads=1,2")
    page.get_by_text(
        "No star: even the best head, layer 1 head 1, has AER 0.67 (at most 0.5 is needed)."
    ).wait_for()
    assert "the mean of 2 heads reads most" in page.locator(".alignment-notes").inner_text()
    assert page.get_by_text("★").count() == 0
    colors = {line[4] for line in svg_lines(saved_svg(page))}
    assert colors == {GOLD, "#4F46E5"}  # not the colour of one of them
    page.get_by_text("4 rows were measured: too few to say what a head does").wait_for()


@pytest.mark.parametrize("here", [0.61, 0.59])
def test_a_star_says_of_what_and_how_well_and_a_text_that_is_none_has_none(visits, here):
    """What a run's head reads in this text looks like an alignment, or does not."""
    best = {"rows": 240, "labels": ["alignment"], "best_alignment": True}
    best |= {"aer": 0.125, "alignment_score": 0.75}
    measures = {"cross": [[{"rows": 240}, {**best, "score_here": here}]]}
    made = entry(cross(*[pointing((0, 1, 3, 5), S)] * 2), measures=measures)
    made.header.update(measured_sentences=15, measures_of="run")
    page = visits.show([made], "heads=2&layer=1")
    expect_text(
        page.locator(".side h3").first, "This head, over the 15 measured sentences of its run"
    )
    badges = texts(page.locator(".roles .badge"))
    if here == 0.61:
        assert badges == ["★ best alignment: AER 0.13", "alignment"]
        border = page.locator(".thumbs .best .frame").evaluate(
            "node => getComputedStyle(node).borderColor"
        )
        assert border == "rgb(28, 35, 48)"  # ink: true links alone are golden
    else:
        assert badges == ["alignment"] and page.get_by_text("★").count() == 0
        page.get_by_text(
            "No star: of the run, layer 1 head 2 aligns best (AER 0.13), but what it reads here looks "
            "less like an alignment (alignment score 0.59, there 0.75)."
        ).wait_for()


def test_a_page_without_steps_has_no_timeline(visits):
    page = visits.show(two_layers(steps=(7,)))
    assert not page.locator(".timeline").is_visible()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="SVG").click()
    assert waiting.value.suggested_filename == "attention_cross_layer_2.svg"


def test_runs_that_cannot_be_read_are_named_and_the_others_work(visits, tmp_path):
    html = document(two_layers())
    sound = '"problems": []'
    assert html.count(sound) == 1
    broken = '{"name": "old", "sentences": [], "scalars": {}, "problems": ["It has version 0."]}, '
    html = html.replace(sound, '"problems": ["A file ends early."]')
    html = html.replace('"runs": [', '"runs": [' + broken)
    (tmp_path / "broken.html").write_text(html, "utf-8")
    page = visits.open(f"file://{tmp_path}/broken.html#view=matrix&heads=1&layer=1&words=0")
    expect_text(cell(page, 0, 0), "0.80")
    messages = page.locator(".messages")
    assert texts(messages.locator("> p")) == ["run: A file ends early."]
    old = messages.locator("details p")  # of other runs: folded away
    assert texts(old) == ["old: It has version 0."]
    assert not old.is_visible()
    messages.locator("summary").click()
    assert old.is_visible()


def test_a_damaged_step_is_named_and_the_others_work(visits, tmp_path):
    html = document(two_layers())
    start = html.index('"10": ["') + len('"10": ["')
    (tmp_path / "damaged.html").write_text(html[:start] + "AAAA" + html[start + 4 :], "utf-8")
    page = visits.open(f"file://{tmp_path}/damaged.html#view=matrix&heads=1&layer=1&words=0")
    expect_text(
        page.locator(".messages p"), "The record of run, attention/0/reference, step 10 is damaged."
    )
    page.get_by_role("slider", name="Step").press("Home")
    expect_text(cell(page, 0, 0), "0.80")


# Nodes, attributes and the calls of canvases: the time would tell what else the machine does.
COUNT_CHANGES = """() => {
  window.changes = 0;
  new MutationObserver((records) => {
    for (const record of records)
      window.changes += 1 + record.addedNodes.length + record.removedNodes.length;
  }).observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
  const drawing = CanvasRenderingContext2D.prototype;
  for (const [name, {value}] of Object.entries(Object.getOwnPropertyDescriptors(drawing)))
    if (typeof value === "function" && name !== "constructor")
      drawing[name] = function (...given) { window.changes += 1; return value.apply(this, given); };
}"""


def changes_while_crossing(page, tokens, right):
    """For each of some words: how much the page changes and draws while the mouse goes there."""
    changes = []
    for i in range(0, tokens.count(), 67):
        # A word that scrolls below the mouse is hovered before the count begins.
        page.mouse.move(2, 2)
        tokens.nth(i).scroll_into_view_if_needed()
        page.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        page.evaluate("window.changes = 0")
        box = tokens.nth(i).bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2 + right, box["y"] + box["height"] / 2)
        page.wait_for_function("() => window.changes > 0")  # the page forbids to evaluate text
        page.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        changes.append(page.evaluate("window.changes"))
    return changes


def test_the_mouse_crosses_400_words_and_little_is_drawn_anew(visits):
    rng = np.random.default_rng(26)
    words = [f"▁w{i}" for i in range(399)] + ["</s>"]
    weights = rng.gamma(0.1, size=(8, 400, 400)) + 1e-9
    weights /= weights.sum(axis=-1, keepdims=True)
    made = entry({"encoder": [weights]}, source=words)
    page = visits.show([made], "view=lines&heads=1,2,3,4,5,6,7,8&layer=1")
    page.evaluate(COUNT_CHANGES)
    # In a matrix the mouse is on the cells beside the words.
    for key, words, right in (("1", ".pane .tokens", 0), ("2", ".matrix-rows", 150)):
        page.keyboard.press(key)
        tokens = page.locator(words).first.locator("li")
        expect_text(tokens.last, "</s>")
        changes = changes_while_crossing(page, tokens, right)
        assert len(changes) == 6
        assert max(changes) < 10_000  # all eight heads have 1,280,000 weights
