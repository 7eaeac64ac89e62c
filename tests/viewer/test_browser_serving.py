"""The page of `keras-attention serve` in a real browser."""

import pytest

pytest.importorskip("uvicorn", reason="an extra: serve")

from keras_attention import Translator
from keras_attention.serving.app import Service
from keras_attention.serving.attention import translator_masked
from keras_attention.serving.fields import Limits
from keras_attention.serving.models import ServedModel
from keras_attention.spec.heads import Head, without_heads
from keras_attention_light import load_translator
from tests.serving.served import running
from tests.viewer.looks import expect_accessible, expect_text, texts

pytestmark = pytest.mark.backends("torch")

NAME = "demo_en_de"


@pytest.fixture(scope="module")
def translator():
    return load_translator(NAME)


@pytest.fixture(scope="module")
def address(translator):
    served = ServedModel(NAME, "en", "de", translator)
    with running(Service([served], Limits(), lambda: None)) as port:
        yield f"http://127.0.0.1:{port}/"


def test_one_types_and_sees_translation_and_attention(visits, translator, address):
    page = visits.open(address)
    text, translation = page.get_by_label("Text"), page.locator("#translation")
    text.press_sequentially("The dog sleeps.")
    expect_text(translation, "Der Hund schläft.")
    best = translator.translate("The dog sleeps.", n_best=4)
    expect_text(page.locator("#alternatives li span").nth(2), best[1].text)
    expect_text(page.locator("#alternatives .score").nth(1), f"{best[1].score:.2f}")
    page.locator(".attention-viewer .picture .title").wait_for()
    page.get_by_role("button", name="Matrix").click()

    text.fill("The cat  sleeps.\n")
    expect_text(translation, "Die Katze schläft.")
    page.locator(".matrix-body").wait_for()  # as it was chosen
    page.locator(".tokens").get_by_text("Katze", exact=True).first.wait_for()
    expect_text(page.locator("#message"), "")

    page.get_by_label("Beginning of the translation").fill("Eine Frau")
    best = translator.translate("The cat sleeps.", prefixes="Eine Frau")[0]
    expect_text(translation, best.text)
    page.locator(".tokens").get_by_text("Frau", exact=True).first.wait_for()
    page.get_by_label("Beginning of the translation").fill("")
    expect_text(translation, "Die Katze schläft.")

    text.fill("<img src=x onerror=alert(1)>")
    expect_text(translation, translator("<img src=x onerror=alert(1)>"))
    expect_text(page.locator("#message"), "")  # the attention is there, too
    assert page.locator("img").count() == 0
    text.fill("")
    expect_text(translation, "")
    page.locator("#attention").wait_for(state="hidden")


def test_heads_are_switched_off_and_on(visits, translator, address):
    heads = [Head("cross", 0, head) for head in range(4)]
    without = Translator(without_heads(translator.model, heads), translator.tokenizer)
    (best,) = without.translate("The dog sleeps.")
    (whole,) = translator.translate("The dog sleeps.")
    assert best.text != whole.text
    page = visits.open(f"{address}?q=The+dog+sleeps.#layer=1&kind=cross")
    translation, off = page.locator("#translation"), page.locator("#attention .thumbs .off")
    expect_text(translation, whole.text)
    page.get_by_role("button", name="All heads").click()
    page.get_by_role("button", name="Switch off").click()
    expect_text(translation, best.text)
    off.nth(3).wait_for()  # The picture comes after the text.
    assert off.count() == 4 and page.locator(".off-heads button").count() == 5
    name = off.nth(2).get_attribute("aria-label")
    assert name.startswith("1.3,") and name.endswith(", switched off")
    expect_text(page.locator("#whole span span").first, whole.text)
    expect_text(page.locator("#whole .score"), f"{whole.score:.2f}")
    expect_text(page.locator("#alternatives .score").first, f"{best.score:.2f}")

    again = visits.open(page.url)  # the address says it all
    expect_text(again.locator("#translation"), best.text)
    again.get_by_role("button", name="Switched off", exact=True).wait_for()
    again.get_by_role("button", name="Switch on Cross 1.3").click()
    without = Translator(
        without_heads(translator.model, [*heads[:2], heads[3]]), translator.tokenizer
    )
    expect_text(
        again.locator("#alternatives .score").first,
        f"{without.translate('The dog sleeps.')[0].score:.2f}",
    )
    again.get_by_role("button", name="All on").click()
    expect_text(again.locator("#translation"), whole.text)
    again.locator("#whole").wait_for(state="hidden")
    again.locator("#attention .thumbs .off").first.wait_for(state="detached")
    expect_text(again.locator("#message"), "")


def test_a_double_click_masks_a_word_and_one_asks_why_not_another(visits, axe, translator, address):
    text = "A woman sees the small house."
    page = visits.open(f"{address}?q={text.replace(' ', '+')}#kind=cross")
    translation, masked = page.locator("#translation"), page.locator("li.masked")
    expect_text(translation, translator(text))
    word = page.locator(".word-side li").filter(has_text="small")
    word.dblclick()
    expect_text(masked, "small")
    shown = translator_masked(translator, (5,))(text)
    assert "klein" not in shown and "Haus" in shown
    expect_text(translation, shown)
    expect_text(page.locator("#whole span span").first, translator(text))
    again = visits.open(page.url)  # the address says it all
    expect_text(again.locator("li.masked"), "small")
    expect_text(again.locator("#translation"), shown)

    page.get_by_role("button", name="Haus 0.").click()
    other = page.locator(".thought-details button").first
    name = other.text_content()
    other.click()
    why = page.locator(".why table")
    expect_text(why.locator("q"), ["▁Haus", name])
    lost = [float(one.replace("−", "-")) for one in texts(why.locator("td"))]
    assert texts(why.locator("th")) == [*text[:-1].split(), "."]
    assert lost.index(max(lost)) == 5 and lost[4] == 0  # the house; what is masked adds nothing
    expect_accessible(page, axe)

    page.get_by_role("button", name="Mask", exact=True).focus()
    page.get_by_role("button", name="Unmask small").click()
    expect_text(translation, translator(text))
    masked.wait_for(state="detached")
    word.click()
    page.get_by_role("button", name="Mask", exact=True).press("Enter")  # the same by keys
    expect_text(translation, shown)
    page.get_by_label("Text", exact=True).fill("A man sees the small house.")
    expect_text(translation, translator("A man sees the small house."))


def test_the_picture_is_on_the_first_screen(visits, address):
    found = {}
    for width in (320, 400, 640, 901, 1280):
        size = {"width": width, "height": 800}
        page = visits.open(f"{address}?q=A+woman+sees+the+small+house.", viewport=size)
        page.locator(".thumbs canvas").first.wait_for()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.locator(f".attention-viewer[data-theme={scheme}]").wait_for()
            row = page.locator(".columns li").first.bounding_box()
            found[width, scheme] = row["y"] + row["height"]
    assert max(found.values()) <= 760, found


def test_a_changed_word_and_its_lines_are_on_one_screen_and_axe_finds_nothing(visits, axe, address):
    page = visits.open(f"{address}?q=The+dog+sleeps.")
    page.locator(".thumbs canvas").first.wait_for()
    page.set_viewport_size({"width": 1280, "height": 720})
    page.get_by_label("Text", exact=True).fill("The dog sees 7 cats.")
    page.locator(".tokens").get_by_text("7").first.wait_for()
    last = page.locator(".columns .word-side.asks li").last.bounding_box()
    assert last["y"] + last["height"] <= 720
    expect_accessible(page, axe)
