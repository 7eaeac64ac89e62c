"""The fast search of a Transformer finds what the plain one finds; its precisions."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

from keras_attention import Transformer, Translator
from tests.decoding.letters import CopyModel, LetterTokenizer, random_texts, small_model

BACKEND = keras.backend.backend()
OTHER_BACKEND = "jax" if BACKEND == "torch" else "torch"


def test_present_weights_of_a_transformer():
    model, other = small_model(seed=7), small_model(seed=11)
    translator = Translator(model, LetterTokenizer(), beam_size=2, max_extra_length=3)
    texts = ["cab", "gabel"]
    before = translator(texts)
    model.set_weights(other.get_weights())
    wanted = dataclasses.replace(translator, model=other)(texts)
    assert translator(texts) == wanted != before


@pytest.mark.backends("torch")
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_precision(precision):
    model = small_model()
    translator = Translator(model, LetterTokenizer(), beam_size=2, max_extra_length=1)
    if precision == "int8":
        pytest.importorskip("numba")
    texts = ["bed", "cabin"]
    scores = [best[0].score for best in translator.translate(texts)]
    chosen = dataclasses.replace(translator, precision=precision)
    got = [best[0].score for best in chosen.translate(texts)]
    assert np.isfinite(got).all() and (got == scores) == (precision == "float32")
    if precision == "bfloat16":
        mixed = dataclasses.replace(translator, model=small_model(dtype="mixed_bfloat16"))
        assert np.isfinite([best[0].score for best in mixed.translate(texts)]).all()


@pytest.mark.backends("torch")
def test_several_threads_at_once():
    translator = Translator(small_model(seed=7), LetterTokenizer(), beam_size=2, max_extra_length=5)
    texts = random_texts(12, longest=9)
    wanted = [translator(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(translator, texts)) == wanted


@pytest.mark.backends("torch")
def test_a_subclass_with_a_forward_of_its_own_is_decoded_plainly():
    class Silent(Transformer):
        """Likes no letter, only the end."""

        def _project(self, x):
            ends = keras.ops.arange(self.vocabulary_size) == self.end_token_id
            return super()._project(x) * 0.0 + 9.0 * keras.ops.cast(ends, x.dtype)

    model = Silent(17, num_layers=1, hidden_dim=12, intermediate_dim=20, num_heads=3)
    assert Translator(model, LetterTokenizer(), beam_size=2)(["bed"]) == [""]


@pytest.mark.parametrize(
    "make_model, options, message",
    [
        (small_model, {"precision": np.array(["a", "b"])}, "`precision` must be one of .*array"),
        (small_model, {"engine": np.array(["a", "b"])}, "`engine` must be one of .*array"),
        (small_model, {"precision": "float32", "engine": "plain"}, "in the model's own dtype"),
        (CopyModel, {"precision": "bfloat16"}, "CopyModel has no `spec"),
        (CopyModel, {"engine": BACKEND}, "CopyModel has no `spec"),
        (small_model, {"engine": OTHER_BACKEND}, f"set KERAS_BACKEND={OTHER_BACKEND}"),
        (small_model, {"engine": BACKEND, "precision": "int8"}, "computes in .*'int8'"),
    ],
)
def test_unavailable_engines_and_precisions_are_refused(make_model, options, message):
    model = make_model()
    with pytest.raises(ValueError, match=message):
        Translator(model, LetterTokenizer(model.vocabulary_size), **options)
