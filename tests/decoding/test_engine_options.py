"""Every option of `Transformer`: each engine finds what the plain search finds."""

import dataclasses
import inspect
import itertools

import keras
import numpy as np
import pytest

from keras_attention import Transformer, Translator
from keras_attention.spec.parts import ACTIVATIONS
from tests.decoding.letters import (
    CopyModel,
    LetterTokenizer,
    assert_alike,
    random_texts,
    small_model,
)
from tests.spec.test_spec import gated_attention, own_attention

BACKEND = keras.backend.backend()
# Numba's code is the same on every backend.
ENGINES = (BACKEND, *(("numba",) if BACKEND == "torch" else ()))
# Options that change what is computed in inference, one value that no other test has for each.
COMPUTED = {
    "num_layers": 2,
    "hidden_dim": 15,
    "intermediate_dim": 9,
    "num_heads": 1,
    "key_dim": 5,
    "value_dim": 6,
    "activation": "silu",
    "normalize_first": True,
    "use_attention_bias": True,
    "layer_norm_epsilon": 0.1,
    "position_layout": "halves",
    "max_length": 30,
    "tie_weights": False,
    "final_normalization": True,
    "embedding_normalization": True,
    "decoder_cell": "ssru",
    "use_logits_bias": True,
    "normalization": "rms",
    "gated_feed_forward": True,
}
# Those that do not: rates and what training keeps; and ids, which the tokenizer decides.
OTHERS = {"dropout", "attention_dropout", "activation_dropout", "recompute", "seed"}
IDS = {"vocabulary_size", "pad_token_id", "end_token_id"}
# Those that need another tokenizer, too: tests/engine/test_spec_options.py has them.
ELSEWHERE = {"target_vocabulary_size", "start_token_id", "suppressed_token_ids"}
REFUSED = {"attention_window"}  # by engines: tests/models/test_attention_window.py
VARIANTS = [
    {"position_layout": "learned", "max_length": 30, "normalize_first": True, "num_layers": 2},
    {"key_dim": 5, "value_dim": 6, "use_attention_bias": True, "activation": "silu"},
    {"hidden_dim": 15, "num_heads": 1, "intermediate_dim": 9, "tie_weights": False},
    {"position_layout": "halves", "layer_norm_epsilon": 0.1, "activation": "gelu"},
    {"decoder_cell": "ssru", "final_normalization": True, "use_logits_bias": True},
    {"decoder_cell": "ssru", "num_layers": (1, 2), "normalize_first": True},
    {"normalization": "rms", "gated_feed_forward": True, "activation": "silu"},
    {"embedding_normalization": True, "normalize_first": True, "layer_norm_epsilon": 0.1},
]


def test_every_option_is_in_a_variant():
    options = set(inspect.signature(Transformer).parameters) - {"kwargs"}
    assert options == {*COMPUTED} | OTHERS | IDS | ELSEWHERE | REFUSED
    assert {name for variant in VARIANTS for name in variant} == {*COMPUTED}


# On a compiler a few that hold each other's opposites; ../engine/test_spec_options.py has every option there.
OF_BACKEND = [{}, *VARIANTS] if BACKEND == "torch" else VARIANTS[::4]
CASES = itertools.product(ENGINES, OF_BACKEND)


@pytest.mark.parametrize(("engine", "options"), CASES, ids=str)
def test_token_for_token_what_the_plain_search_finds(engine, options):
    """Long enough for a second block of the buffers; sentences end at different steps."""
    pytest.importorskip(engine)
    model = small_model(seed=11, **options)
    plain = Translator(model, LetterTokenizer(), beam_size=3, max_extra_length=12, engine="plain")
    texts = random_texts(5, longest=15)
    found = dataclasses.replace(plain, engine=engine).translate(texts, n_best=2)
    assert_alike(found, plain.translate(texts, n_best=2))
    lengths = {len(best[0].token_ids) for best in found}
    assert options or (max(lengths) > 16 and len(lengths) > 1)


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
