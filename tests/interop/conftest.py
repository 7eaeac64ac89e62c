"""Small models of other programs, with every option that theirs have."""

import json
import shutil

import numpy as np
import pytest

from keras_attention.data.presets import load
from tests.helpers import pieces_of, sentence_piece_model

SOURCES = [
    "the old house is red",
    "a dog sees the red cat",
    "the cat sleeps in the house",
    "dogs and cats ½",
]
TARGETS = [
    "das alte Haus ist rot",
    "ein Hund sieht die Katze",
    "die Katze schläft im Haus",
    "Hunde und Katzen",
]


def sentence_pieces(texts, size):
    """A SentencePiece model as Marian's: a unigram model with its usual normalisation."""
    options = {"character_coverage": 1.0, "eos_id": 0, "unk_id": 1, "bos_id": -1}
    return sentence_piece_model(texts * 5, size, **options)


@pytest.fixture(scope="session")
def spm():
    """SentencePiece models of source and target."""
    return sentence_pieces(SOURCES, 40), sentence_pieces(TARGETS, 44)


def assert_refused(folder, message):
    """Reading a folder raises one error, which names it."""
    with pytest.raises(ValueError, match=message) as caught:
        load(folder)
    assert str(folder) in str(caught.value)


def number_of_refused(path, copies, read=load, named=None):
    """How many changed copies of a file are refused, by an error that names what is read; others are read."""
    refused, named = 0, named or path.parent
    for changed in copies:
        path.write_bytes(changed)
        try:
            read(named)
        except ValueError as error:
            assert str(named) in str(error)
            refused += 1
    return refused


def replace(path, content):
    """Another content for a file; None for no file."""
    path.unlink()
    if content is not None:
        path.write_text(content)


def write_marian_mt(folder, spm, separate=False, **config):
    """A random MarianMT of transformers with its tokenizer; returns the model."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir()
    for name, model in zip(("source", "target"), spm, strict=True):
        (folder / f"{name}.spm").write_bytes(model)
    sides = [pieces_of(model) for model in spm]
    both = sides if separate else [[*dict.fromkeys([*sides[0], *sides[1], ">>de<<"])]]
    size = max(map(len, both))
    vocabularies = [{piece: i for i, piece in enumerate(side)} for side in both]
    for vocabulary, name in zip(vocabularies, ("vocab.json", "target_vocab.json"), strict=False):
        vocabulary["<pad>"] = size
        (folder / name).write_text(json.dumps(vocabulary))
    settings = {"source_lang": "en", "target_lang": "de", "separate_vocabs": separate}
    settings["tokenizer_class"] = "MarianTokenizer"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    options = {
        "vocab_size": size + 1,
        "d_model": 16,
        "encoder_layers": 3,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
        "activation_function": "swish",
        "scale_embedding": True,
        "pad_token_id": size,
        "decoder_start_token_id": size,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "share_encoder_decoder_embeddings": not separate,
        "tie_word_embeddings": True,
        "max_position_embeddings": 50,
    }
    torch.manual_seed(5)
    model = MarianMTModel(MarianConfig(**{**options, **config})).eval()
    random = np.random.default_rng(7)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" not in name:
                noise = random.normal(0.0, 0.3, weight.shape).astype("float32")
                weight += torch.from_numpy(noise)
        for name, weight in model.named_parameters():
            if name.endswith(("shared.weight", "embed_tokens.weight", "lm_head.weight")):
                weight[size] = 0.0
        bias = random.normal(0.0, 0.5, model.final_logits_bias.shape).astype("float32")
        model.final_logits_bias.copy_(torch.from_numpy(bias))
    save_marian_mt(model, folder)
    return model


def save_marian_mt(model, folder):
    """The weights and the settings, with some of a search that the model itself does not know."""
    model.save_pretrained(folder)
    never = [[model.config.pad_token_id]]
    generation = {"num_beams": 3, "bad_words_ids": never, "eos_token_id": 0}
    (folder / "generation_config.json").write_text(json.dumps(generation))


@pytest.fixture(scope="session")
def marian_mt(spm, tmp_path_factory):
    """A folder of a MarianMT; `folder` is a copy of it."""
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("marian_mt") / "model"
    write_marian_mt(folder, spm)
    return folder


@pytest.fixture
def folder(marian_mt, tmp_path):
    """A folder of a MarianMT, to be changed."""
    return shutil.copytree(marian_mt, tmp_path / "model")
