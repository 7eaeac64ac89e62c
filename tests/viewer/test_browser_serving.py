"""The page of `keras-attention serve` in a real browser."""

import pytest

pytest.importorskip("uvicorn", reason="an extra: serve")

from keras_attention import Tokenizer, Transformer, Translator
from keras_attention.serving.app import Service
from keras_attention.serving.fields import Limits
from keras_attention.serving.models import ServedModel
from keras_attention_light import load_translator
from tests.serving.served import running
from tests.viewer.looks import expect_text

pytestmark = pytest.mark.backends("torch")

NAME = "demo_en_de"


def load(name):
    return Translator(Transformer.from_preset(name), Tokenizer.from_preset(name))


def test_one_types_and_sees_translation_and_attention(visits):
    translator = load_translator(NAME)
    served = ServedModel(NAME, "en", "de", translator)
    with running(Service([served], Limits(), load)) as port:
        page = visits.open(f"http://127.0.0.1:{port}/")
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

        text.fill("<img src=x onerror=alert(1)>")
        expect_text(translation, translator("<img src=x onerror=alert(1)>"))
        expect_text(page.locator("#message"), "")  # the attention is there, too
        assert page.locator("img").count() == 0
        text.fill("")
        expect_text(translation, "")
        page.locator("#attention").wait_for(state="hidden")
