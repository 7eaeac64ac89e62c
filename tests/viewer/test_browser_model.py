"""From a model to the screen: the page shows what the layers computed."""

import keras
import numpy as np
import pytest

from keras_attention import Tokenizer, Transformer, Translator
from keras_attention.visualization import save_attention
from tests.viewer.looks import expect_text, values

pytestmark = pytest.mark.backends("torch")

SOURCE = "the small dog sees an old house"
TARGET = "der kleine Hund sieht ein altes Haus"


def test_the_page_shows_what_the_layers_computed(visits, tmp_path):
    tokenizer = Tokenizer.train([SOURCE, TARGET], vocabulary_size=300)
    model = Transformer.from_preset("tiny", vocabulary_size=tokenizer.vocabulary_size)
    for variable in model.trainable_variables:
        variable.assign(variable * 3)  # weights that differ from one another
    path = save_attention(tmp_path / "a.html", Translator(model, tokenizer), SOURCE, TARGET)
    source = [*tokenizer.encode(SOURCE), tokenizer.end_token_id]
    read = [tokenizer.start_token_id, *tokenizer.encode(TARGET)]
    scores = model.attention_scores(np.array([source]), np.array([read]))

    page = visits.open(
        f"file://{path}#view=matrix&words=0", viewport={"width": 2600, "height": 1400}
    )
    for kind in ("encoder", "decoder", "cross"):
        page.get_by_role("button", name=kind.capitalize(), exact=True).click()
        page.get_by_label("Layer", exact=True).select_option("2")
        page.get_by_role("button", name="Head 3", exact=True).click()
        expect_text(page.locator(".picture .title"), f"{kind.capitalize()} · layer 2 · head 3")
        expected = keras.ops.convert_to_numpy(scores[kind][1])[0, 2]
        np.testing.assert_allclose(values(page), expected.ravel(), atol=0.00501)
        assert expected.max() > 2 * expected.mean()  # not all the same
