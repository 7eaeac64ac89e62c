"""MarianMT of transformers with all that OPUS-MT's models have, computed by each backend."""

import keras
import numpy as np
import pytest

from keras_attention import Tokenizer, Transformer, Translator
from tests.interop.conftest import SOURCES, save_marian_mt, write_marian_mt

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
pytest.importorskip("transformers", reason="not installed: pip install transformers")
TOLERANCE = 1e-4
# Beside swish, biases everywhere, padding with the last id, a bias on the logits and stacks of other depths.
OPTIONS = {
    "one_vocabulary": {},
    "two_vocabularies": {
        "separate": True,
        "decoder_vocab_size": 61,
        "encoder_layers": 2,
        "decoder_layers": 3,
    },
}


@pytest.mark.parametrize("name", OPTIONS)
def test_logits_and_greedy_search(name, spm, tmp_path):
    folder = tmp_path / "model"
    theirs = write_marian_mt(folder, spm, **OPTIONS[name])
    with torch.no_grad():
        theirs.final_logits_bias[0, 0] -= 5.0  # Translations are to have some words.
    save_marian_mt(theirs, folder)
    model = Transformer.from_preset(folder, positions="as_transformers")
    assert model.num_layers == (theirs.config.encoder_layers, theirs.config.decoder_layers)
    pad = theirs.config.pad_token_id
    source = np.array([[5, 9, 2, 30, 17, 1, 0], [12, 3, 0, pad, pad, pad, pad]])
    target = np.array([[pad, 7, 12, 3, 3, 31], [pad, 6, 6, 2, 25, 1]])
    mask = torch.from_numpy((source != pad).astype("int64"))
    sources = torch.from_numpy(source)
    with torch.no_grad():
        expected = theirs(
            input_ids=sources, attention_mask=mask, decoder_input_ids=torch.from_numpy(target)
        ).logits.numpy()
    inputs = {"encoder_token_ids": source, "decoder_token_ids": target}
    logits = keras.ops.convert_to_numpy(model(inputs, training=False))
    assert np.std(expected) > 0.5
    np.testing.assert_allclose(logits, expected, atol=TOLERANCE)
    texts = SOURCES[:3]
    tokenizer = Tokenizer.from_preset(folder)
    translator = Translator(model, tokenizer, beam_size=1, max_extra_length=2, engine="plain")
    for text, [best] in zip(texts, translator.translate(texts), strict=True):
        ids = [*tokenizer.encode(text), 0]
        options = {"num_beams": 1, "do_sample": False, "bad_words_ids": [[pad]]}
        row = theirs.generate(torch.tensor([ids]), max_new_tokens=len(ids), **options)[0].tolist()
        found = list(best.token_ids)[: len(ids) - 1]
        assert row[1 : 1 + len(found)] == found and found
