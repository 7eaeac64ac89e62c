"""The viewer in a real browser: what its pages show of known matrices."""

import numpy as np
import pytest

from tests.viewer.heads import SOURCE, TARGET, cross, entry, pointing, self_attention
from tests.viewer.looks import cell, expect_pressed, expect_text, texts, values

pytestmark = pytest.mark.backends("torch")

S, T = len(SOURCE), len(TARGET)


def forming(weights=(0.1, 0.5, 0.9), columns=(0, 1, 3, 5)):
    """A head that forms: its weight on the right word grows with the steps 0, 10, 20."""
    return [
        entry(cross(pointing(columns, S, weight), pointing(columns, S, 0.3)), step=10 * i)
        for i, weight in enumerate(weights)
    ]


def test_steps_by_slider_by_key_and_by_play(visits):
    page = visits.show(forming(), "view=matrix&heads=1&layer=1&step=0")
    expect_text(cell(page, 0, 0), "0.10")
    expect_text(page.locator(".step"), "step 0")
    page.get_by_role("slider", name="Step").press("End")
    expect_text(cell(page, 0, 0), "0.90")
    expect_text(page.locator(".step"), "step 20")
    page.keyboard.press("[")
    expect_text(cell(page, 0, 0), "0.50")

    page.get_by_role("slider", name="Step").press("Home")
    page.get_by_label("Speed").select_option("3 ×")
    page.evaluate("""() => {
      window.waits = [];
      const wait = window.setTimeout;
      window.setTimeout = (done, time) => { window.waits.push(Number(time)); return wait(done, time); };
    }""")
    page.get_by_role("button", name="Play").click()
    expect_text(cell(page, 0, 0), "0.90")  # it goes on to the end, and stops there
    page.get_by_role("button", name="Play").wait_for()
    assert page.evaluate("window.waits")[0] == 150
    page.get_by_label("Speed").select_option("1 ×")

    page.get_by_role("slider", name="Step").press("Home")
    page.get_by_role("button", name="Play").click()
    page.evaluate(
        """() => {
            Object.defineProperty(document, "hidden", { value: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    page.get_by_role("button", name="Play").wait_for()  # hidden: it pauses, before the end
    assert page.locator(".step").text_content() in ("step 0", "step 10")


def test_runs_are_paired_by_the_text_of_their_sentences(visits):
    """The second run has another sentence first; its number is no name."""
    other = entry(cross(pointing((0, 1, 2), 3)), ["▁ja", ".", "</s>"], ["▁yes", ".", "</s>"])
    runs = {"one": forming()[2:], "two": [other, *forming((0.1, 0.2, 0.4))[2:]]}
    page = visits.show(runs, "view=matrix&heads=1&layer=1&compare=run&against=two")
    expect_text(cell(page, 0, 0), "+0.50")
    page.get_by_label("Run", exact=True).select_option("two")
    expect_text(page.locator(".matrix-columns li").first, SOURCE[0])
    page.get_by_label("Sentence", exact=True).select_option(index=0)
    page.get_by_label("The other").select_option("one")
    page.get_by_text("Run one has no record of this sentence.").wait_for()


def test_difference_of_two_steps_heads_or_runs_and_its_swap(visits):
    runs = {"one": forming(), "two": forming((0.1, 0.2, 0.4))}
    page = visits.show(runs, "view=matrix&heads=1&layer=1&step=0")
    page.get_by_label("Compare with").select_option("step")
    page.get_by_label("The other").select_option("20")
    expect_text(cell(page, 0, 0), "−0.80")
    expect_text(page.locator(".pane h3"), "step 0 − step 20")
    page.locator(".matrix-body").hover(position={"x": 5, "y": 5})
    expect_text(page.locator(".cell-text"), "▁the → ▁der: −0.80")
    page.get_by_role("button", name="Swap the two").click()
    expect_text(cell(page, 0, 0), "+0.80")
    expect_text(page.locator(".pane h3"), "step 20 − step 0")
    page.get_by_label("Compare with").select_option("head")
    page.get_by_label("The other").select_option("1.2")
    expect_text(cell(page, 0, 0), "+0.60")
    page.get_by_label("Compare with").select_option("run")
    expect_text(cell(page, 0, 0), "+0.50")
    page.get_by_role("button", name="Swap the two").click()
    expect_text(cell(page, 0, 0), "−0.50")
    expect_text(page.locator(".pane h3"), "two, step 20 − one, step 20")


def test_other_tokens_are_shown_side_by_side(visits):
    source = ["▁der", "▁Hunde", "▁schläft", ".", "</s>"]
    other = entry(cross(pointing((0, 1, 2, 4), 5), pointing((0, 1, 2, 4), 5)), source, step=20)
    runs = {"pieces": forming()[2:], "words": [other]}
    page = visits.show(runs, "view=matrix&heads=1&layer=1&compare=run&against=words")
    assert "The tokens differ" in page.locator(".note").text_content()
    expect_text(page.locator(".pane h3").nth(1), "words, step 20")
    counts = [
        len(texts(page.locator(".pane").nth(i).locator(".matrix-columns li"))) for i in (0, 1)
    ]
    assert counts == [6, 5]


def test_a_run_of_another_size_says_what_it_lacks(visits):
    small = [entry(cross(pointing((0, 1, 3, 5), S)), step=20)]
    large = [entry(cross(pointing((0, 1, 3, 5), S), layers=3), step=20)]
    state = "view=matrix&heads=1&layer=3&run=large&compare=run&against=small"
    page = visits.show({"small": small, "large": large}, state)
    expect_text(
        page.locator(".note"), "small, step 20 has no cross layer 3: nothing to compare with."
    )
    expect_text(cell(page, 0, 0), "1.00")


def divergence(one, other):
    """The Jensen-Shannon divergence in bits, mean over rows, from its definition by entropies."""

    def entropy(rows):
        return -(rows * np.log2(rows)).sum(axis=1)

    return (entropy((one + other) / 2) - (entropy(one) + entropy(other)) / 2).mean()


def test_what_changed_when_bleu_fell(visits):
    still = [pointing(columns, S, 0.7) for columns in ((0, 1, 3, 5), (1, 1, 3, 5), (2, 1, 3, 5))]
    turned = [still[0], still[1], pointing((5, 5, 5, 0), S, 0.9)]
    entries = [
        entry({"cross": [np.stack(still), np.stack(turned if step == 20 else still)]}, step=step)
        for step in (0, 10, 20, 30)
    ]
    entries[3] = entry({"cross": [np.stack(still), np.stack(turned)]}, step=30)
    scalars = {"run": {"bleu": [[0, 10.0], [10, 20.0], [20, 4.0], [30, 5.0]]}}
    page = visits.show(entries, "view=matrix", scalars)
    curve = page.locator("polyline[data-curve=bleu]").get_attribute("points").split()
    heights = [float(point.split(",")[1]) for point in curve]
    assert heights[1] < heights[0] < heights[3] < heights[2]  # 20, 10, 5, 4: the highest on top
    box = page.locator(".curves").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)  # between 10 and 20
    first = page.locator(".left .changes button").first
    expect_text(first.locator("span").first, "Cross layer 2 head 3")
    assert first.locator(".number").text_content() == f"{divergence(turned[2], still[2]):.2f}"
    assert set(texts(page.locator(".left .changes .number"))[1:]) == {"0.00"}
    expect_text(page.locator(".step"), "step 20")
    first.click()
    expect_text(page.locator(".picture .title"), "Cross · layer 2 · head 3")
    expect_text(cell(page, 0, 5), "+0.84")  # 0.9 now, 0.3 / 5 before


def measures_of(**columns):
    """Measures of one layer, from a list for each measure."""
    count = len(next(iter(columns.values())))
    return [[{key: values[i] for key, values in columns.items()} for i in range(count)]]


def test_the_grid_shows_roles_orders_and_filters(visits):
    labels = [["previous token"], [], ["broad", "diagonal"], ["sink"]]
    entropies = [0.1, 0.9, 0.5, 0.3]
    measures = {"encoder": measures_of(labels=labels, entropy=entropies, rows=[120] * 4)}
    heads = [pointing(range(S), S, 0.5)] * 4
    page = visits.show([entry(self_attention(*heads), measures=measures)])
    roles = page.locator(".thumbs .role")
    assert texts(roles) == ["previous token", "", "broad, diagonal", "sink"]
    page.get_by_label("Order").select_option("entropy")
    places = page.locator(".thumbs .place")
    expect_text(places.first, "1.1")
    assert texts(places) == ["1.1", "1.4", "1.3", "1.2"]
    assert texts(page.locator(".thumbs .number")) == ["0.10", "0.30", "0.50", "0.90"]
    page.get_by_label("entropy at most").fill("0.3")
    page.keyboard.press("Enter")
    expect_text(places.nth(1), "1.4")
    assert texts(places) == ["1.1", "1.4"]
    page.get_by_label("entropy at most").fill("")
    page.keyboard.press("Enter")
    page.get_by_label("Role").select_option("diagonal")
    expect_text(page.locator(".thumbs .caption"), "1.3 0.50 broad, diagonal")
    page.locator(".thumbs button").click()
    expect_text(page.locator(".picture .title"), "Encoder · layer 1 · head 3")
    assert texts(page.locator(".roles .badge")) == ["broad", "diagonal"]
    assert page.locator("dd[data-measure=entropy]").text_content() == "0.50"
    page.get_by_label("Role").select_option("punctuation")
    page.get_by_text("No head has the role “punctuation” at this step.").wait_for()


def test_kinds_and_heads(visits):
    weights = {
        "encoder": [np.stack([pointing(range(S), S)] * 3)] * 2,
        "cross": [np.stack([pointing((0, 1, 3, 5), S), pointing((5, 5, 5, 5), S)])] * 2,
    }
    page = visits.show([entry(weights)], "view=matrix")
    page.get_by_text("A decoder of recurrent cells has none").wait_for()
    for kind, expected, heads in (("encoder", S * S, 3), ("cross", T * S, 2)):
        page.get_by_role("button", name=kind.capitalize(), exact=True).click()
        expect_text(page.locator(".picture .title"), f"{kind.capitalize()} · layer 2 · all heads")
        assert page.locator(".values span").count() == expected
        assert page.locator(".thumbs button").count() == 2 * heads
        page.get_by_label("Layer", exact=True).select_option("1")
        page.get_by_role("button", name="Head 2", exact=True).click()
        expect_text(page.locator(".picture .title"), f"{kind.capitalize()} · layer 1 · head 2")
        expect_text(cell(page, 1, 5), "0.00" if kind == "encoder" else "1.00")
        page.get_by_role("button", name="Head 1", exact=True).click(modifiers=["Shift"])
        both = "heads 1, 2" if heads > 2 else "all heads"
        expect_text(page.locator(".picture .title"), f"{kind.capitalize()} · layer 1 · {both}")


def test_content_words_only(visits):
    """Nine tenths lie on the end token, and the rest on the words 0.06 to 0.04."""
    row = [0.06, 0.0, 0.0, 0.04, 0.0, 0.9]
    page = visits.show([entry(cross(np.tile(row, (T, 1))))], "view=matrix")
    expect_text(cell(page, 0, 5), "0.90")
    page.get_by_role("button", name="Content words only").click()
    expect_text(page.locator(".matrix-columns li").last, "▁schläft")
    assert texts(page.locator(".matrix-rows li")) == TARGET[:-1]  # no row of the end token either
    np.testing.assert_allclose(values(page), np.tile([0.6, 0, 0, 0.4], T - 1), atol=0.005)


def test_pieces_become_words(visits):
    """The weight on a word is the sum of its pieces; a word asks with the mean of its pieces."""
    target = ["▁the", "▁do", "gs", "▁sleep", "</s>"]
    rows = np.zeros((5, S))
    rows[:, 5] = 1
    rows[1] = [0, 0.5, 0.25, 0, 0, 0.25]
    rows[2] = [0, 0.1, 0.05, 0, 0.85, 0]
    page = visits.show([entry(cross(rows), target=target)], "view=matrix")
    assert texts(page.locator(".matrix-columns li")) == SOURCE
    page.get_by_role("button", name="Whole words").click()
    expect_text(page.locator(".matrix-columns li").nth(1), "Hunde")
    assert texts(page.locator(".matrix-columns li")) == ["der", "Hunde", "schläft", ".", "</s>"]
    assert texts(page.locator(".matrix-rows li")) == ["the", "dogs", "sleep", "</s>"]
    expect_text(cell(page, 1, 1, columns=5), "0.45")  # (0.75 + 0.15) / 2


def test_reference_and_beam_output(visits):
    output = ["▁a", "▁dog", "</s>"]
    many, few = (
        {"cross": measures_of(rows=[rows], labels=[labels], sink=[0.5])}
        for rows, labels in ((120, ["sink"]), (5, []))
    )
    entries = [
        entry(cross(pointing((0, 1, 3, 5), S)), step=10, measures=many),
        entry(
            cross(pointing((0, 1, 5), S)), target=output, version="output", measures=few, step=12
        ),
    ]
    page = visits.show(entries, "view=lines")
    rows = page.locator(".columns .tokens").first.locator("li")
    assert texts(rows) == TARGET
    page.get_by_role("button", name="Beam output").click()
    expect_text(rows.first, "▁a")
    assert texts(rows) == output
    expect_pressed(page.get_by_role("button", name="Reference"), False)
    # Of the references more sentences are measured: what they tell of the heads holds here, too.
    assert texts(page.locator(".roles .badge")) == ["sink"]
    expect_text(page.locator(".measures dd").last, "120")
