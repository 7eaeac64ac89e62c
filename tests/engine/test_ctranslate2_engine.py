"""CTranslate2 as an engine: its own search over the same weights; greedily: `test_spec_options`."""

import keras
import numpy as np
import pytest

from keras_attention import Translator
from keras_attention.decoding import ForcedPrefix, TextConstraint
from keras_attention.spec.files import load_spec, save_spec
from tests.decoding.letters import LetterTokenizer, random_texts, small_model
from tests.helpers import log_probabilities

pytestmark = pytest.mark.backends("torch")

pytest.importorskip("ctranslate2")

TEXTS = ["bed", "", "a cab", "egg", "dad had a bad egg", *random_texts(6, longest=14)]


def translator_of(model, **options):
    settings = {"beam_size": 3, "max_extra_length": 4, "engine": "ctranslate2", **options}
    return Translator(model, LetterTokenizer(), **settings)


@pytest.fixture(scope="module")
def model():
    """Its end token has a higher logit, so that some translations end."""
    model = small_model(seed=11, num_layers=2)
    random = np.random.default_rng(7)
    for weight in model.trainable_weights:
        weight.assign(weight + 0.3 * random.standard_normal(weight.shape))
    end = keras.ops.convert_to_numpy(model.token_embedding.embeddings)[model.end_token_id]
    beta = model.decoder_blocks[-1].feed_forward_residual.normalization.beta
    beta.assign(beta + 10.0 * end / (end @ end))
    return model


def test_the_penalty_is_a_power_of_the_length(model):
    tokenizer, text, alpha, seen = LetterTokenizer(), TEXTS[2], 0.9, 0
    for one in translator_of(model, length_penalty=alpha).translate(text, n_best=3):
        if one.is_finished:
            length = len(one.token_ids) + 1  # The end counts.
            source = [*tokenizer.encode([text])[0], tokenizer.end_token_id]
            target = [*one.token_ids, tokenizer.end_token_id]
            expected = log_probabilities(model, source, target).sum() / length**alpha
            assert one.score == pytest.approx(expected, rel=1e-4)
            seen += length > 1
    assert seen


def test_a_batch_changes_nothing(model):
    together = translator_of(model).translate(TEXTS, n_best=3)
    alone = [translator_of(model).translate([text], n_best=3)[0] for text in TEXTS]
    for one, other in zip(together, alone, strict=True):
        assert [t.token_ids for t in one] == [t.token_ids for t in other]
        np.testing.assert_allclose([t.score for t in one], [t.score for t in other], rtol=1e-4)


def test_it_is_named_and_refuses_by_name(model):
    choice = translator_of(model).engine_for(2)
    assert choice.name == "ctranslate2" and "asked for; the search is its own." in choice.reason
    constraint = TextConstraint(ForcedPrefix(LetterTokenizer().vocabulary_size), lambda *_: None)
    with pytest.raises(ValueError, match=r"'ctranslate2' makes the whole search, without constr"):
        translator_of(model, constraint=constraint)
    with pytest.raises(ValueError, match=r"'ctranslate2' computes in float32, int8.*bfloat16"):
        translator_of(model, precision="bfloat16")
    with pytest.raises(ValueError, match="'ctranslate2' has no activation 'elu'"):
        translator_of(small_model(seed=11, activation="elu"))


def test_a_spec_is_written_once(model, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_ATTENTION_CACHE", str(tmp_path / "cache"))
    save_spec(model.spec(), tmp_path / "spec")
    expected = translator_of(model)(TEXTS)
    for _ in range(2):
        assert translator_of(load_spec(tmp_path / "spec"))(TEXTS) == expected
        (made,) = (tmp_path / "cache" / "ctranslate2").iterdir()
        written = (made / "model.bin").stat().st_mtime_ns
        assert written == (made / "model.bin").stat().st_mtime_ns and len(made.name) == 64
        monkeypatch.setattr("keras_attention.engine.ctranslate2.write_model", None)  # not again


def test_weights_that_change_are_read_again(model):
    changing = small_model(seed=11)
    translator = translator_of(changing, beam_size=1, length_penalty=0.0)
    before = translator(TEXTS)
    changing.set_weights(small_model(seed=12).get_weights())
    plain = translator_of(changing, beam_size=1, length_penalty=0.0, engine="plain")
    assert translator(TEXTS) == plain(TEXTS) != before
