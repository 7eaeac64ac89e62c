"""What the model thought, and contribution beside weight, on pages of known numbers."""

import dataclasses

import numpy as np
import pytest

from keras_attention_viewer.contribution import contributions
from tests.viewer.heads import SOURCE, TARGET, cross, entry, pointing, self_attention
from tests.viewer.looks import cell, expect_pressed, expect_text, texts, values

pytestmark = pytest.mark.backends("torch")

S, T = len(SOURCE), len(TARGET)
P = [0.9, 0.3, 0.8, 1.0]
# The second word was not the likeliest one.
PREDICTIONS = [
    {"p": p, "others": [["▁cat", 0.6], ["▁<b>x", 0.05], ["s", 0.0001]] if p == 0.3 else []}
    for p in P
]
BEAM = [
    {"text": "the dog sleeps", "score": -0.25, "is_finished": True},
    {"text": "the cat", "score": -1.5, "is_finished": False},
]
NORMS = np.array([1.0, 2.0, 8.0, 0.5, 0.0, 3.0])


def thought(step=0, columns=(0, 1, 3, 5), weight=0.5, norms=NORMS, **options):
    # Two layers of two heads; the norms of the second head of layer 2 are those of the test.
    heads = cross(pointing((5,) * len(columns), S), pointing(columns, S, weight), layers=2)
    all_norms = [np.ones((2, S)), np.stack([np.ones(S), norms])]
    given = {"predictions": PREDICTIONS, "alternatives": BEAM, "value_norms": {"cross": all_norms}}
    return entry(heads, step=step, **{**given, **options})


def shown(page):
    return values(page).reshape(-1, S)


def shares(norms=NORMS, columns=(0, 1, 3, 5), weight=0.5):
    products = pointing(columns, S, weight) * norms
    return products / products.sum(-1, keepdims=True)


def test_contributions_in_place_of_weights_in_all_views(visits):
    page = visits.show([thought()], "view=matrix&layer=2&heads=2")
    np.testing.assert_allclose(shown(page), pointing((0, 1, 3, 5), S, 0.5), atol=0.00501)
    assert "Kobayashi" in page.locator(".caveat").text_content()
    page.get_by_role("button", name="Contribution").click()
    expect_text(page.locator(".picture .title"), "Cross · layer 2 · head 2 · contribution")
    np.testing.assert_allclose(shown(page), shares(), atol=0.00501)
    assert shares()[0].argmax() == 2  # not the column with the largest weight
    assert "share of the row" in page.locator(".caveat").text_content()
    assert (
        "the stronger the colour, the more contribution" in page.locator(".sentence").text_content()
    )

    page.get_by_role("button", name="Lines").click()
    page.locator(".columns .tokens").first.locator("li").first.hover()
    first = page.locator(".readings tbody tr").first.inner_text().split()
    assert first == ["e", f"{shares()[0, 2]:.2f}"]
    page.get_by_role("button", name="Alignment").click()
    page.locator(".columns .tokens").first.locator("li").nth(2).hover()
    page.get_by_text("contributes most to it").wait_for()
    page.keyboard.press("k")
    page.get_by_text("is read most for it").wait_for()


def test_contributions_over_the_steps(visits):
    later = thought(step=10, norms=NORMS[::-1])
    page = visits.show([thought(), later], "view=matrix&layer=2&heads=2&contribution=1&step=0")
    np.testing.assert_allclose(shown(page), shares(), atol=0.00501)
    page.get_by_role("slider", name="Step").press("End")
    expect_text(cell(page, 0, 0), f"{shares(NORMS[::-1])[0, 0]:.2f}")
    page.get_by_label("Compare with").select_option("step")
    expect_text(page.locator(".pane h3"), "step 10 − step 0")
    difference = shares(NORMS[::-1])[0, 0] - shares()[0, 0]
    expect_text(cell(page, 0, 0), f"{difference:+.2f}".replace("-", "−"))
    # The weights are the same at both steps: only that one head's contributions changed.
    expect_text(page.locator(".changes .number").nth(1), "0.00")
    assert "layer 2 head 2" in page.locator(".changes button").first.text_content()


def test_the_python_side_says_the_same_shares():
    found = contributions(thought(), "cross")
    np.testing.assert_allclose(found[1][1], shares(), atol=2e-5)
    np.testing.assert_allclose(found[0][1], pointing((0, 1, 3, 5), S, 0.5), atol=2e-5)
    with pytest.raises(ValueError, match="no norms"):
        contributions(thought(value_norms=None), "cross")


def test_probabilities_runners_up_and_unsure_words(visits):
    page = visits.show([thought()], "layer=2&heads=2")
    words = page.locator(".thought")
    assert texts(words.locator(".number")) == ["0.90", "0.30", "0.80", "1.00"]
    unsure = page.locator(".thought.unsure .said")
    assert texts(unsure) == ["▁dog"]
    assert texts(page.locator(".columns li.unsure")) == ["▁dog"]
    # The least sure word is open; runners-up stand in their order, the word itself among them.
    rows = page.locator(".thought-details tr")
    assert texts(rows.locator("th")) == ["▁cat", "▁dog", "▁<b>x", "s"]
    assert texts(rows.locator("td")) == ["0.60", "0.30", "0.05", "0.0001"]
    assert texts(page.locator(".thought-details .own th")) == ["▁dog"]
    words.nth(2).click()
    expect_pressed(words.nth(2))
    expect_text(page.locator(".readings q"), "▁sleeps")  # chosen in the picture, too
    assert texts(rows.locator("th")) == ["▁sleeps"]
    items = page.locator(".alternatives li")
    assert texts(items.locator(".number")) == ["-0.250", "-1.500 (cut off)"]
    assert page.locator("b").count() == 0
    # A row may stand for the word that was read: the mark goes along, one row down.
    page.keyboard.press("r")
    expect_text(page.locator(".columns .tokens").first.locator("li").first, "<start>")
    assert texts(page.locator(".columns li.unsure")) == ["▁dog"]


def test_a_word_of_pieces_has_the_product_of_their_probabilities(visits):
    target = ["▁the", "▁do", "g", "</s>"]
    made = thought(target=target)
    page = visits.show([made], "layer=2&heads=2&words=1")
    assert texts(page.locator(".thought .number")) == ["0.90", "0.24", "1.00"]  # 0.3 * 0.8
    assert texts(page.locator(".thought-details caption q")) == ["▁do", "g"]


def test_a_thought_marks_its_own_word_among_content_words_and_whole_words(visits):
    """Rows that are left out, or made of pieces, do not shift what is marked."""
    target = ["▁the", ".", "▁do", "g", "</s>"]
    options = {
        "target": target,
        "predictions": [{"p": p, "others": []} for p in (0.9, 0.2, 0.8, 0.7, 1.0)],
        "columns": (0, 1, 3, 5, 4),
    }
    page = visits.show([thought(**options)], "layer=2&heads=2&content=1")
    words = page.locator(".thought")
    rows = page.locator(".columns .tokens").first.locator("li")
    assert texts(rows) == ["▁the", "▁do", "g"]
    words.nth(2).click()
    expect_text(page.locator(".columns [aria-selected=true]"), "▁do")
    expect_pressed(words.nth(2))
    assert page.evaluate("document.activeElement.dataset.at") == "2"  # the keyboard's place is kept
    words.nth(1).click()  # no row is the full stop: it is opened, and the mark stays
    expect_pressed(words.nth(1))
    expect_text(page.locator(".columns [aria-selected=true]"), "▁do")
    rows.nth(2).click()
    expect_pressed(words.nth(3))

    page.get_by_role("button", name="Alignment").click()
    expect_text(rows.nth(2), "dog")
    words.nth(3).click()
    expect_text(page.locator(".columns [aria-selected=true]"), "dog")
    expect_pressed(words.nth(3))
    rows.nth(1).click()
    expect_text(page.locator(".columns [aria-selected=true]"), ".")
    expect_pressed(words.nth(1))


def test_contributions_are_never_compared_with_weights(visits):
    weights = {**cross(*[pointing((5, 5, 5, 5), S)] * 2, layers=2)}
    weights |= self_attention(pointing(range(S), S, 0.5))
    of_cross = {"cross": [np.ones((2, S)), np.stack([NORMS, NORMS])]}
    both = {**of_cross, "encoder": [np.stack([NORMS])]}
    made = [entry(weights, value_norms=of_cross), entry(weights, step=10, value_norms=both)]
    page = visits.show(made, "kind=cross&view=matrix&contribution=1&compare=step&against=0")
    changes = page.locator(".changes button")
    changes.first.wait_for()
    assert len(texts(changes)) == 4 and all("Cross" in text for text in texts(changes))
    page.keyboard.press("k")
    changes.nth(4).wait_for()  # of weights, the encoder's head is there, too


def test_a_record_without_thoughts_opens_as_before(visits):
    old = thought()
    header = {**old.header}
    for name in ("predictions", "alternatives", "value_norms"):
        del header[name]
    old = dataclasses.replace(old, header=header)
    page = visits.show([old, thought(step=5)], "view=matrix&layer=2&heads=2&contribution=1&step=0")
    page.get_by_text("This record has no contributions, so its weights are shown.").wait_for()
    np.testing.assert_allclose(shown(page), pointing((0, 1, 3, 5), S, 0.5), atol=0.00501)
    assert page.locator(".thoughts").is_hidden()
    assert page.get_by_role("button", name="Contribution").is_hidden()
    page.get_by_role("slider", name="Step").press("End")
    expect_text(cell(page, 0, 0), f"{shares()[0, 0]:.2f}")
    page.get_by_label("Compare with").select_option("step")
    page.get_by_text("step 0 has no contributions: nothing to compare with.").wait_for()
    assert page.locator(".thoughts").is_visible()
    assert len(texts(page.locator(".thought"))) == T
