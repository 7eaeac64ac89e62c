"""The attention that the page shows: of the Keras model, for the translation that the server gave."""

import base64

import keras
import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="an extra: serve")

from keras_attention import Tokenizer, Transformer, Translator
from keras_attention.serving.app import Service
from keras_attention.serving.fields import Limits
from keras_attention.serving.models import ServedModel
from keras_attention_light import load_translator
from keras_attention_viewer.codec import ONE, Entry
from tests.serving.served import ask, running

pytestmark = pytest.mark.backends("torch")

NAME = "demo_en_de"


def test_attention_is_that_of_the_keras_model_which_is_loaded_once():
    model = Transformer.from_preset(NAME)
    loaded = []

    def load(name):
        loaded.append(name)
        return Translator(model, Tokenizer.from_preset(NAME))

    translator = load_translator(NAME)
    served = ServedModel(NAME, "en", "de", translator)
    with running(Service([served], Limits(), load)) as port:
        assert not loaded
        for step, text in enumerate(["The dog sleeps.", "A woman sees the small house."], start=1):
            asked = {"q": text, "source": "en", "target": "de"}
            status, _, data = ask(port, "/attention", asked)
            assert status == 200
            (best,) = translator.translate(text)
            (run,) = data["index"]["runs"]
            (sentence,) = run["sentences"]
            told = [sentence[key] for key in ("text", "target_text", "target", "steps")]
            assert [run["name"], *told] == [NAME, text, best.text, "output", [step]]

            blobs = data["entries"][NAME][sentence["tag"]][str(step)]
            entry = Entry.from_blobs([base64.b64decode(blob) for blob in blobs])
            end, start = translator.tokenizer.end_token_id, translator.tokenizer.start_token_id
            source = np.array([[*translator.tokenizer.encode(text), end]])
            scores = model.attention_scores(source, np.array([[start, *best.token_ids]]))
            for kind in ("encoder", "decoder", "cross"):
                expected = [keras.ops.convert_to_numpy(layer)[0] for layer in scores[kind]]
                found = [layer / ONE for layer in entry.weights[kind]]
                np.testing.assert_allclose(found, expected, atol=2e-5)
            assert entry.header["measures"]["cross"][0][0]["rows"] == len(best.token_ids) + 1
    assert loaded == [NAME]
