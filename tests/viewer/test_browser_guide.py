"""What the viewer says of itself: the sentence, terms, legends, axes, and the tour of the first visit."""

import itertools

import pytest

from tests.viewer.heads import SOURCE, cross, entry, pointing, self_attention
from tests.viewer.looks import expect_text, texts

pytestmark = pytest.mark.backends("torch")

S = len(SOURCE)


def heads(step=0, weight=0.8):
    return entry(cross(*[pointing(c, S, weight) for c in ((0, 1, 3, 5), (5, 5, 5, 5))]), step=step)


def sentence(page):
    return page.locator(".sentence")


def test_one_sentence_says_what_one_sees(visits):
    page = visits.show([heads(), heads(10, 0.4)], "heads=1&layer=1")
    start = "Layer 1, head 1 of the cross-attention: "
    expect_text(
        sentence(page),
        f"{start}when it predicts the word on the left, it reads the source words on the right; "
        "the stronger the colour, the more weight.",
    )
    page.keyboard.press("2")
    page.keyboard.press("r")
    expect_text(
        sentence(page),
        f"{start}when it has just read the word on the left, it reads the source words above; "
        "the stronger the colour, the more weight.",
    )
    page.keyboard.press("a")
    expect_text(
        sentence(page),
        "Layer 1, all 2 heads of the cross-attention: when the model has just read the word on the "
        "left, they read the source words above; the stronger the colour, the more weight.",
    )
    page.get_by_label("Compare with").select_option("step")
    page.get_by_text("orange = more weight than step 0, blue = less.").wait_for()
    expect_text(page.locator(".scale"), "−1+1 weight, against step 0mean of 2 heads")
    assert "rgb(47, 123, 234)" in page.locator(".scale-bar").evaluate("n => n.style.background")
    page.get_by_label("Compare with").select_option("")
    expect_text(page.locator(".scale"), "weight 01mean of 2 heads")
    page.keyboard.press("3")
    page.get_by_text("each line goes from a word of the translation").wait_for()
    assert page.locator(".scale").is_hidden()
    own = visits.show([entry(self_attention(pointing(range(S), S)), source=SOURCE)])
    expect_text(
        sentence(own),
        "Layer 1, head 1 of the encoder's self-attention: the source word on the left reads the "
        "source words on the right; the stronger the colour, the more weight.",
    )


def test_terms_are_explained_to_mouse_finger_and_keyboard(visits):
    page = visits.show([heads()], "heads=1&layer=1")
    tip = page.locator(".tip")
    term = page.locator(".sentence .term").nth(1)
    assert tip.is_hidden()
    term.hover()
    page.get_by_text("A layer reads with several heads at once.").wait_for()
    assert term.get_attribute("aria-describedby") == tip.get_attribute("id")
    page.mouse.move(2, 2)
    tip.wait_for(state="hidden")
    page.keyboard.press("2")  # the keyboard is in use
    term.focus()
    tip.wait_for()
    page.keyboard.press("Escape")
    tip.wait_for(state="hidden")

    phone = {"viewport": {"width": 400, "height": 800}, "has_touch": True}
    touched = visits.show([heads()], "heads=1&layer=1", **phone)
    touched.locator(".sentence .term").last.tap()
    touched.get_by_text("The attention weight: how much").wait_for()
    box, width = touched.locator(".tip").bounding_box(), 400
    assert box["x"] >= 0 and box["x"] + box["width"] <= width


def test_curves_have_axes(visits):
    scalars = {
        "run": {
            "loss": [[0, 8.25], [5, 12.5], [10, 2.125]],
            "bleu": [[10, 31.0]],
            "perplexity": [[5, 12345.0], [10, 9876.0]],
        }
    }
    page = visits.show([heads(), heads(10)], scalars=scalars)
    # Beside the curves, and beside one another: nothing covers their ends, and no name is cut.
    boxes = [one.bounding_box() for one in page.locator(".axis, .curves").all()]
    spans = sorted((box["x"], box["x"] + box["width"]) for box in boxes)
    assert len(spans) == 4
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    for name in page.locator(".axis span").all():
        assert name.evaluate("node => node.scrollWidth <= node.clientWidth")
    assert page.get_by_text("steps not to scale").count() == 0
    visits.show([heads(), heads(10), heads(100)]).get_by_text("steps not to scale").wait_for()
    assert texts(page.locator(".axis[data-curve=loss] span")) == ["12.5", "loss", "2.13"]
    assert texts(page.locator(".axis[data-curve=bleu] span")) == ["31.0", "BLEU", "31.0"]
    page.locator(".axis[data-curve=bleu]").hover()
    page.locator(".tip").get_by_text("higher is better").wait_for()


def test_the_tour_is_shown_once_and_can_be_skipped_for_good(visits):
    page = visits.show([heads(), heads(10)], tour=True)
    tour = page.get_by_role("complementary", name="Tour")
    tour.wait_for()
    expect_text(tour.locator(".number"), "1 of 4")  # no thoughts are logged here
    assert page.locator(".timeline.toured").count() == 1
    tour.get_by_role("button", name="Next").click()
    expect_text(tour.locator(".number"), "2 of 4")
    assert texts(page.locator(".toured h2")) == ["Cross heads"]
    tour.get_by_role("button", name="Skip the tour").click()
    tour.wait_for(state="hidden")
    assert page.locator(".toured").count() == 0
    page.reload()
    page.locator(".picture .title").wait_for()
    page.locator(".thumbs canvas").first.wait_for()
    page.wait_for_function("document.querySelector('.tour').hidden")
    page.get_by_role("button", name="Show the tour").click()
    tour.wait_for()
    for _ in range(3):
        tour.get_by_role("button", name="Next").click()
    tour.get_by_role("button", name="Done").click()
    tour.wait_for(state="hidden")


def test_the_tour_hears_escape_gives_the_focus_back_and_covers_no_star(visits):
    best = {"best_alignment": True, "aer": 0.1}
    weights = cross(*[pointing((0, 1, 3, 5), S)] * 3, layers=9)
    measures = {"cross": [[{}, {}, {}]] * 8 + [[{}, {}, best]]}
    page = visits.show([entry(weights, measures=measures)], viewport={"width": 700, "height": 500})
    start = page.get_by_role("button", name="Show the tour")
    start.press("Enter")
    tour = page.get_by_role("complementary", name="Tour")
    tour.wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Next"
    star = page.locator(".thumbs .star").bounding_box()
    assert star["y"] >= 0 and star["y"] + star["height"] <= tour.bounding_box()["y"]
    page.keyboard.press("Escape")
    tour.wait_for(state="hidden")
    assert start.evaluate("node => node === document.activeElement")
