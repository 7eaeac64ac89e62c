"""CTranslate2, another program, computes the same logits and finds the same translations."""

import json
import sys

import numpy as np
import pytest
import sentencepiece

from keras_attention import (
    Restrictions,
    Sampling,
    Tokenizer,
    Transformer,
    Translator,
    export_ctranslate2,
)
from keras_attention.data.presets import load
from keras_attention.utils.files import DamagedFile
from tests.engine.random_spec import random_spec
from tests.models.numpy_transformer import greedy

pytestmark = pytest.mark.backends("torch")

try:
    import ctranslate2
except ImportError:
    ctranslate2 = None

needs_ctranslate2 = pytest.mark.skipif(
    ctranslate2 is None, reason="CTranslate2 is not installed: pip install 'ctranslate2>=4.8'"
)

WORDS = [f"w{number}" for number in range(3, 23)]
TEXTS = ["w5 w17 w9 w4", "w3", "w22 w8 w8 w13 w21 w6 w19", "w11 w4"]
SMALL = {"num_layers": 1, "hidden_dim": 4, "intermediate_dim": 4, "num_heads": 1}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "words"
    path.write_text("\n".join(WORDS))
    return Tokenizer.from_vocabulary(path)


def open_translator(path):
    return ctranslate2.Translator(str(path), device="cpu", compute_type="default", intra_threads=1)


@needs_ctranslate2
def test_int8_is_smaller_and_near(tokenizer, tmp_path):
    model = Transformer.from_preset(
        "tiny", tokenizer.vocabulary_size, num_layers=1, hidden_dim=48, seed=1, dtype="float32"
    )
    folders = {
        kind: export_ctranslate2(model, tokenizer, tmp_path / str(kind), quantization=kind)
        for kind in (None, "int8")
    }
    sizes = {kind: (folder / "model.bin").stat().st_size for kind, folder in folders.items()}
    # All but the positions and the norms are a quarter of what they were.
    positions = 2048 * 48 * 4
    assert sizes["int8"] - positions < 0.35 * (sizes[None] - positions)
    target = ["w9", "w20", "w4"]
    scores = {
        kind: open_translator(folder).score_batch([["w5", "w6"]], [target])[0].log_probs
        for kind, folder in folders.items()
    }
    difference = np.abs(np.subtract(scores[None], scores["int8"]))
    assert 0 < difference.max() < 0.2 * np.abs(scores[None]).max()


@needs_ctranslate2
@pytest.mark.parametrize("format", ["ctranslate2", "onnx"])
def test_other_programs_get_the_normalisation(format, tmp_path):
    """SentencePiece alone gives our tokens; so a space at the end changes no translation."""
    translator = Translator.from_preset("demo_en_de", engine="numpy", show_progress=False)
    folder = translator.export(tmp_path / "model", format)
    path = folder / "tokenizer" / "tokenizer.model"
    peer, ours = sentencepiece.SentencePieceProcessor(model_file=str(path)), translator.tokenizer
    again = Tokenizer.load(folder / "tokenizer")
    for text in ("The dog sleeps. ", "  two \u00a0 spaces", "U\u0308ber so\u00adft", "½ ²", ""):
        assert peer.encode(text) == ours.encode(text) == again.encode(text)
        assert again.decode(again.encode(text)) == ours.decode(ours.encode(text))
    assert load(folder).tokenizer.fingerprint() == again.fingerprint()
    if format == "ctranslate2":
        path = folder / "model.bin"
        content = bytearray(path.read_bytes())
        content[-3000] ^= 4
        path.write_bytes(content)
        with pytest.raises(DamagedFile, match=r"model\.bin' is damaged"):
            load(folder)


@pytest.mark.parametrize("format", ["ctranslate2", "hugging_face", "onnx", "saved_model"])
@pytest.mark.parametrize(
    "option",
    [
        {"restrictions": Restrictions(no_repeat_ngram_size=3)},
        {"restrictions": {"min_length": 2}},
        {"sampling": Sampling(seed=1)},
    ],
)
def test_what_no_folder_says_is_not_exported(format, option, tmp_path):
    translator = Translator.from_preset("demo_en_de", show_progress=False, **option)
    with pytest.raises(ValueError, match=f"format='{format}' has no {next(iter(option))}"):
        translator.export(tmp_path / "model", format)
    assert not any(tmp_path.iterdir())


@needs_ctranslate2
def test_folder_holds_the_tokenizer_and_the_special_tokens(tokenizer, tmp_path):
    folder = export_ctranslate2(random_spec(), tokenizer, tmp_path / "a" / "model", max_length=31)
    assert Tokenizer.load(folder / "tokenizer").fingerprint() == tokenizer.fingerprint()
    config = json.loads((folder / "config.json").read_text())
    assert config["decoder_start_token"] == "<pad>" and config["eos_token"] == "</s>"
    assert config["unk_token"] == "<unk>" and config["layer_norm_epsilon"] == 1e-4
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    translator = open_translator(folder)
    translate = {"beam_size": 1, "min_decoding_length": 31, "max_decoding_length": 31}
    assert len(translator.translate_batch([["w4"]], **translate)[0].hypotheses[0]) == 31
    with pytest.raises(RuntimeError, match="position"):
        translator.translate_batch([["w4"] * 31], **translate)  # 32 with the end token


OTHER = random_spec(seed=4)


@needs_ctranslate2
def test_a_vocabulary_of_the_target(tokenizer, tmp_path):
    """With stacks of different depths and a bias on the logits; the export replaces itself."""
    spec = random_spec({"target_vocabulary", "depths", "logits_bias"})
    (tmp_path / "words").write_text("\n".join(f"z{number}" for number in range(16)))
    target = Tokenizer.from_vocabulary(tmp_path / "words")
    folder = tmp_path / "model"
    with pytest.raises(ValueError, match="target_vocabulary_size 19, the tokenizer 23"):
        export_ctranslate2(spec, tokenizer, folder)
    for overwrite in (False, True):
        export_ctranslate2(spec, tokenizer, folder, overwrite=overwrite, target_tokenizer=target)
    assert (folder / "target_tokenizer" / "tokenizer.json").is_file()
    options = {"beam_size": 1, "max_decoding_length": 6, "return_end_token": True}
    texts = [*TEXTS[:1], *TEXTS[2:]]
    results = open_translator(folder).translate_batch(list(map(tokenizer.tokens, texts)), **options)
    source = np.full((len(texts), 8), 0)
    for row, text in enumerate(texts):
        ids = [*tokenizer.encode(text), 1]
        source[row, : len(ids)] = ids
    for result, tokens in zip(results, greedy(spec, source, 6), strict=True):
        assert result.hypotheses[0] == [target.id_to_token(int(i)) for i in tokens if i]


def test_says_what_to_install(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    with pytest.raises(ImportError, match="pip install 'ctranslate2"):
        export_ctranslate2(OTHER, tokenizer, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_refuses_what_cannot_be_exported(tokenizer, tmp_path):
    folder = tmp_path / "model"
    with pytest.raises(ValueError, match="no activation 'elu'"):
        export_ctranslate2(Transformer(23, **SMALL, activation="elu"), tokenizer, folder)
    other = Transformer(9, **SMALL)
    with pytest.raises(ValueError, match="vocabulary_size 9, the tokenizer 23"):
        export_ctranslate2(other, tokenizer, folder)
    narrow = {**SMALL, "num_heads": 1, "key_dim": 3}
    with pytest.raises(ValueError, match="single head of the width"):
        export_ctranslate2(Transformer(23, **narrow), tokenizer, folder)
    assert not folder.exists()
