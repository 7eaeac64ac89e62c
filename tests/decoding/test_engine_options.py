"""Which models engines run, in which precisions; every option of one: ../engine/test_spec_options.py."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

from keras_attention import Transformer, Translator
from keras_attention.spec.parts import ACTIVATIONS
from tests.decoding.letters import CopyModel, LetterTokenizer, random_texts, small_model
from tests.spec.test_spec import gated_attention, own_attention

BACKEND = keras.backend.backend()
OTHER_BACKEND = "jax" if BACKEND == "torch" else "torch"
# Numba's code is the same on every backend.
ENGINES = (BACKEND, *(("numba",) if BACKEND == "torch" else ()))


@pytest.mark.backends("torch")
@pytest.mark.parametrize("engine", ENGINES)
def test_activations(engine):
    """Against Keras' own, in the encoder and in steps: the rest of the model is the same."""
    if engine == "numba":
        pytest.importorskip("numba")
    refused = []
    for name in ACTIVATIONS:
        model = small_model(seed=11, activation=name)
        try:
            translator = Translator(model, LetterTokenizer(), engine=engine)
        except ValueError as error:
            assert f"engine={engine!r} has no activation {name!r}" in str(error)
            refused.append(name)
        else:
            assert translator.engine_for(1).name == engine
    assert not refused or engine == "numba"
    assert not {"relu", "gelu", "silu"} & {*refused}


@pytest.mark.backends("torch")
@pytest.mark.parametrize("change", [own_attention, gated_attention])
def test_what_no_engine_runs_is_decoded_plainly(change):
    """A block whose attention was replaced: never silently as if it were plain attention."""
    model = change(small_model(seed=11, num_layers=2))
    translator = Translator(model, LetterTokenizer(), beam_size=2, max_extra_length=1)
    choice = translator.engine_for(1)
    assert choice.name == "plain" and "decoder_block_2" in choice.reason
    assert len(translator(["bed"])) == 1
    with pytest.raises(ValueError, match="decoder_block_2"):
        dataclasses.replace(translator, engine=BACKEND)


@pytest.mark.backends("torch")
def test_searches_of_threads_do_not_cut_each_other_off():
    """A short text is searched while a long one is, as threads may."""

    class Interrupted(CopyModel):
        other = None

        def encode(self, encoder_token_ids):
            if self.other is not None and encoder_token_ids.shape[1] > 20:
                other, self.other = self.other, None
                other()
            return super().encode(encoder_token_ids)

    model = Interrupted()
    translator = Translator(model, LetterTokenizer(31), beam_size=2, max_extra_length=2)
    long = "abcdefgh" * 5
    model.other = lambda: translator("ab")
    assert translator(long) == long and model.other is None


@pytest.mark.backends("torch")
@pytest.mark.parametrize("engine", ["numpy", "plain", "torch"])
def test_a_translator_sees_lora_and_eight_bits_that_come_later(engine):
    model = small_model(key_dim=4)
    tokenizer, options = LetterTokenizer(), {"beam_size": 2, "max_extra_length": 3}
    early = Translator(model, tokenizer, engine=engine, **options)
    before = early.translate("abc")[0].score
    model.enable_lora(2)
    for layer in model.lora_layers().values():
        layer.lora_kernel_b.assign(np.full(layer.lora_kernel_b.shape, 0.5))
    late = Translator(model, tokenizer, engine=engine, **options)
    assert early.translate("abc")[0].score == late.translate("abc")[0].score != before


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
