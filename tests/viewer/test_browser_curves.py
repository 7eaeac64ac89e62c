"""Heads over steps and measures, their rows, two pictures side by side, search, window and threshold."""

import numpy as np
import pytest

from keras_attention_viewer import measured
from tests.viewer.heads import SOURCE, TARGET, cross, entry, pointing, self_attention
from tests.viewer.looks import cell, expect_pressed, expect_text, saved_svg, svg_lines, texts

pytestmark = pytest.mark.backends("torch")

S = len(SOURCE)
RIGHT = (0, 1, 3, 5)
STEPS = (0, 10, 30)
ENTROPY = {"1.1": (0.9, 0.5, 0.1), "1.2": (0.4, 0.4, 0.4), "1.3": (0.1, 0.2, 0.9)}
DISTANCE = {"1.1": 1.0, "1.2": 5.0, "1.3": 2.0}


def measured_steps():
    """Three heads whose entropy falls, stays and rises over three steps."""
    maps = [pointing(RIGHT, S, weight) for weight in (0.9, 0.5, 0.3)]
    return [
        entry(
            cross(*maps),
            step=step,
            measures={
                "cross": [
                    [
                        {"entropy": ENTROPY[place][i], "distance": DISTANCE[place]}
                        for place in ENTROPY
                    ]
                ]
            },
        )
        for i, step in enumerate(STEPS)
    ]


def heights(page, place):
    """The values of a head's curve, 0 at its bottom and 1 at the top of all curves."""
    button = page.locator(f".thumbs button:has(.place:text-is('{place}'))")
    points = button.locator("polyline").get_attribute("points").split()
    return [(23 - float(point.split(",")[1])) / 20 for point in points]


def test_a_measure_of_each_head_over_the_steps_and_two_over_the_heads(visits):
    page = visits.show(measured_steps(), "heads=1&layer=1")
    assert page.locator(".head-curve").count() == 0
    page.get_by_label("Over the steps").select_option("entropy")
    page.locator(".head-curve").nth(2).wait_for()
    for place, values in ENTROPY.items():
        wanted = [(value - 0.1) / 0.8 for value in values]
        np.testing.assert_allclose(heights(page, place), wanted, atol=0.01)
    first = page.locator(".thumbs button").first
    assert "entropy from 0.90 at step 0 to 0.10 at step 30" in first.get_attribute("aria-label")
    page.keyboard.press("[")
    expect_text(page.locator(".step"), "step 10")
    page.get_by_label("Over the steps").select_option("")
    page.locator(".head-curve").first.wait_for(state="detached")

    page.keyboard.press("]")
    expect_text(page.locator(".step"), "step 30")
    page.get_by_text("Heads over two measures").click()
    dots = page.locator(".dots button")
    dots.nth(2).wait_for()
    found = {
        dot.get_attribute("data-place"): dot.evaluate("({style}) => [style.left, style.bottom]")
        for dot in dots.all()
    }
    assert found == {"1.1": ["0%", "0%"], "1.2": ["37.5%", "100%"], "1.3": ["100%", "25%"]}
    expect_pressed(dots.nth(0))
    page.get_by_label("Up").select_option("entropy")
    dots.nth(2).click()
    expect_text(page.locator(".picture .title"), "Cross · layer 1 · head 3")
    expect_pressed(dots.nth(2))
    assert dots.nth(2).evaluate("({style}) => style.bottom") == "100%"


def test_rows_of_all_measured_sentences(visits):
    source = ["▁<b>Katzen</b>", "▁schlafen", ".", "</s>"]
    weights = cross(pointing((1, 0, 3), 4), pointing((0, 0, 3), 4))
    other = entry(weights, source, ["▁cats", "▁sleep", "</s>"])
    entries = measured([entry(cross(pointing(RIGHT, S, 0.4), pointing(RIGHT, S, 0.3)))], [other])
    page = visits.show(entries, "heads=1&layer=1")
    strongest = page.locator(".examples ol[data-group=strongest] li")
    expect_text(strongest.nth(0), "cats reads <b>Katzen</b> schlafen 1.00. </s>")
    expect_text(strongest.nth(1), "sleep reads <b>Katzen</b> 1.00 schlafen. </s>")
    assert strongest.nth(2).get_attribute("data-sentence") == "0"
    assert page.locator(".examples ol[data-group=random] li").count() == 3
    page.get_by_role("button", name="read", exact=True).click()
    expect_text(strongest.nth(0).locator("b"), "<start>")
    page.keyboard.press("a")
    page.locator(".examples").wait_for(state="hidden")  # they are of one head


def test_heads_and_steps_side_by_side(visits):
    steps = [
        entry(cross(pointing(RIGHT, S, weight), pointing(RIGHT, S, 0.3)), step=10 * i)
        for i, weight in enumerate((0.1, 0.9))
    ]
    page = visits.show(steps, "view=matrix&heads=1&layer=1&compare=head&against=1.2")
    expect_text(cell(page, 0, 0), "+0.60")
    page.get_by_role("button", name="Side by side").click()
    panes = page.locator(".pane")
    expect_text(panes.nth(1).locator("h3"), "layer 1 head 2")
    values = panes.nth(1).locator(".values span")
    expect_text(values.first, "0.30")
    expect_text(panes.nth(0).locator(".values span").first, "0.90")
    assert page.locator(".note").is_hidden()

    page.get_by_label("Compare with").select_option("step")
    expect_text(panes.nth(1).locator("h3"), "step 0")
    expect_text(values.first, "0.10")
    page.get_by_role("button", name="Lines").click()
    page.locator(".pane").nth(0).locator(".word-side li").nth(2).hover()
    expect_text(panes.nth(1).locator("li.query"), TARGET[2])  # pointed at in both


def test_lines_below_a_threshold_are_not_drawn(visits):
    page = visits.show([entry(cross(pointing(RIGHT, S, 0.7)))], "heads=1&layer=1")
    assert len(svg_lines(saved_svg(page))) == len(TARGET) * S
    page.get_by_label("Faintest line").fill("0.1")  # all others have 0.06
    expect_text(page.locator(".threshold output"), "0.10")
    assert len(svg_lines(saved_svg(page))) == len(TARGET)
    assert "least=0.1" in page.evaluate("location.hash")


def long_page(visits, state):
    """A head of 100 words, each of which reads the word 30 places after it, in a circle."""
    words = [f"▁word{i}" for i in range(99)] + ["</s>"]
    weights = np.roll(np.eye(100), 30, axis=1)
    return visits.show([entry(self_attention(weights), source=words)], f"view=matrix&{state}")


def test_a_window_on_a_long_text(visits):
    page = long_page(visits, "heads=1&layer=1&words=1")
    rows = page.locator(".matrix-rows li")
    expect_text(rows.last, "</s>")
    page.get_by_label("Window").select_option(label="words 21 to 60")
    expect_text(rows.first, "word20")
    assert texts(rows) == texts(page.locator(".matrix-columns li"))
    assert len(texts(rows)) == 40
    expect_text(page.locator(".sieve > .quiet"), "75 % of what these words read lies outside")
    rows.first.click()
    expect_text(page.locator(".readings tbody th").first, "word50")
    page.get_by_label("Window").select_option(label="words 61 to 100")
    expect_text(rows.last, "</s>")


def test_words_are_found_also_outside_of_the_window(visits):
    page = long_page(visits, "heads=1&layer=1&words=1&window=1")
    page.keyboard.press("/")
    page.keyboard.type("WORD75")
    expect_text(page.locator(".sieve .number").first, "1 of 2")
    chosen = page.locator(".matrix-rows li.query")
    expect_text(chosen, "word75")
    assert page.get_by_label("Window").input_value() == "4"  # words 61 to 100
    page.keyboard.press("Enter")
    expect_text(page.locator(".matrix-columns li.query"), "word75")
    page.keyboard.type("x")
    expect_text(page.locator(".sieve .number").first, "not found")
    page.keyboard.press("Escape")
    assert page.get_by_label("Find a word").input_value() == ""
