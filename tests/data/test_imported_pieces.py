"""Tokenizers of other programs: their pieces, their ids, their normalisation."""

import copy
import json

import numpy as np
import pytest
import sentencepiece

from keras_attention import ParallelText, TokenBatches, Tokenizer, TokenStore
from keras_attention.data.alignments import links_between, word_positions
from keras_attention.data.imported_pieces import ImportedPieces
from tests.data.counting_text import NumberText
from tests.helpers import pieces_of, sentence_piece_model

pytestmark = pytest.mark.backends("tensorflow")

IDS = {"pad_token_id": 9, "start_token_id": 8, "end_token_id": 3}
SPACES = ["b", "<unk>", "a", "</s>", ">>de<<", "c", "<0xC3>", "house", "<s>", "<pad>"]


def spaces(**changes):
    """A tokenizer of pieces between spaces."""
    options = {"pieces": [SPACES], "models": [None], "ids": IDS, "unknown": [1, 1], **changes}
    return Tokenizer(ImportedPieces.model(**options), "imported")


@pytest.fixture(scope="module")
def pair():
    """Two SentencePiece models with vocabularies of their own: ids are the pieces' places, backwards."""
    models = [
        sentence_piece_model(["a small house", "two houses"] * 9, 25),
        sentence_piece_model(["ein Haus", "zwei Häuser"] * 9, 27),
    ]
    pieces = []
    for model in models:
        others = [name for name in pieces_of(model) if name not in ("<s>", "</s>", "<unk>")]
        pieces.append(["<pad>", "</s>", "<unk>", "<s>", *reversed(others)])
    ids = {"pad_token_id": 0, "start_token_id": 3, "end_token_id": 1}
    return models, pieces, Tokenizer(ImportedPieces.model(pieces, models, ids, [2, 2]), "imported")


def test_ids_are_attributes():
    tokenizer = spaces()
    assert (tokenizer.pad_token_id, tokenizer.start_token_id) == (9, 8)
    assert (tokenizer.end_token_id, tokenizer.unknown_token_id) == (3, 1)
    assert tokenizer.encode("a  b x c") == [2, 0, 1, 5]
    assert tokenizer.decode([2, 0, 9, 5, 3, 7]) == "a b c"
    assert tokenizer.encode(["</s> <pad>", ""]) == [[1, 1], []]
    assert tokenizer.encode(">>de<< a >>de<<") == [4, 2, 4]
    known, unknown = tokenizer.encode(["house x", "x y a"])
    assert sum(tokenizer.familiarity[i] for i in known) >= 0
    assert sum(tokenizer.familiarity[i] for i in unknown) < 0
    assert (Tokenizer.pad_token_id, Tokenizer.end_token_id) == (0, 1)


def test_prefix_and_end():
    tokenizer = spaces(source_prefix=[8], ends_source=False)
    assert tokenizer.encode("a") == [8, 2] and not tokenizer.ends_source
    assert tokenizer.encode("a", side="target") == [2]


def test_two_models(pair):
    models, pieces, tokenizer = pair
    for side, model, names, text in zip(
        ("source", "target"), models, pieces, ("a small house", "zwei Häuser"), strict=True
    ):
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        expected = [names.index(piece) for piece in processor.encode(text, out_type=str)]
        assert tokenizer.encode(text, side=side) == expected
        assert tokenizer.decode(expected, side=side) == text
        assert tokenizer.tokens(text, side) == processor.encode(text, out_type=str)
    assert tokenizer.vocabulary_size == len(pieces[0])
    assert tokenizer.target_vocabulary_size == len(pieces[1]) != len(pieces[0])
    with pytest.raises(ValueError, match=f"from 0 to {len(pieces[0]) - 1}"):
        tokenizer.id_to_token(len(pieces[1]) - 1, "source")
    with pytest.raises(ValueError, match="side"):
        tokenizer.encode("a", side="both")


def test_store_and_batches_have_their_ids(tmp_path):
    """Sources have a prefix and no end; targets begin with the start token, and padding is not 0."""
    tokenizer = spaces(source_prefix=[8], ends_source=False)
    text = NumberText([("a b c", "c"), ("b", "a house"), ("c a", "b a c")])
    store = TokenStore.build(tmp_path, text, tokenizer, verbose=False)
    assert store.source(0).tolist() == [8, 2, 0, 5]
    assert store.target(1).tolist() == [2, 7, 3]
    assert store.padded("target", np.array([0, -1]), 3).tolist() == [[5, 3, 9], [9, 9, 9]]
    found = set()
    batches = TokenBatches(store, batch_tokens=40, shuffle=False)
    for index in range(len(batches)):
        inputs, labels = batches.batch(0, index)
        rows = (inputs["encoder_token_ids"], inputs["decoder_token_ids"], labels)
        for source, read, label in zip(*rows, strict=True):
            length = int((label != 9).sum())
            if length:
                assert read.tolist() == [8, *label[: length - 1], *[9] * (len(label) - length)]
                found.add((tuple(source[source != 9]), tuple(label[:length])))
    assert found == {((8, 2, 0, 5), (5, 3)), ((8, 0), (2, 7, 3)), ((8, 5, 2), (0, 2, 5, 3))}


def test_only_their_own_normalisation(pair):
    """NFKC, as SentencePiece does it: ours would have taken the soft hyphen, and kept the ligature."""
    models, _, tokenizer = pair
    text = "a ﬁne\u00ad house"
    processor = sentencepiece.SentencePieceProcessor(model_proto=models[0])
    assert tokenizer.normalization == "none"
    assert len(tokenizer.encode(text)) == len(processor.encode(text))
    assert tokenizer.encode("ｈｏｕｓｅ") == tokenizer.encode("house")


def test_saved_and_copied(pair, tmp_path):
    tokenizer = pair[2]
    tokenizer.save(tmp_path / "tokenizer")
    for same in (Tokenizer.load(tmp_path / "tokenizer"), copy.deepcopy(tokenizer)):
        assert same.fingerprint() == tokenizer.fingerprint()
        assert same.encode("two houses") == tokenizer.encode("two houses")
        assert same.start_token_id == 3
    path = tmp_path / "tokenizer" / "tokenizer.model"
    path.write_bytes(path.read_bytes().replace(b"hous", b"haus", 1))
    with pytest.raises(ValueError, match="tokenizer.model' is damaged"):
        Tokenizer.load(tmp_path / "tokenizer")


@pytest.mark.parametrize(
    "change",
    [
        {"pieces": 3},
        {"ids": {"end_token_id": 0}},
        {"unknown": [1]},
        {"models": ["AAAA"]},
        {"models": []},
    ],
)
def test_models_that_are_none(change):
    content = {**json.loads(spaces()._model), **change}
    with pytest.raises(ValueError, match="not an imported tokenizer"):
        Tokenizer(json.dumps(content).encode(), "imported")


SENTENCES = ["the dog sees the cat", "send the cat"] * 9
FAIRSEQ = {"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3}
T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}


@pytest.mark.parametrize("kind", ["unigram", "bpe", "word", "char"])
@pytest.mark.parametrize("ids", [FAIRSEQ, T5, {"pad_id": 3}])
def test_sentence_piece_models_of_others_keep_their_ids(kind, ids):
    model = sentence_piece_model(SENTENCES, 45, model_type=kind, **ids)
    peer, tokenizer = (sentencepiece.SentencePieceProcessor(model_proto=model), Tokenizer(model))
    assert tokenizer.pad_token_id == tokenizer.start_token_id == peer.pad_id()
    assert (tokenizer.end_token_id, tokenizer.unknown_token_id) == (peer.eos_id(), peer.unk_id())
    found = tokenizer.encode("the 日本 dog")
    assert found == peer.encode("the 日本 dog") and peer.unk_id() in found
    ends = [*found, tokenizer.end_token_id, found[0], tokenizer.pad_token_id]
    assert tokenizer.decode(ends) == "the ⁇ dog" and not tokenizer.symbols
    with pytest.raises(ValueError, match="`dropout` needs a model of BPE, with bytes"):
        tokenizer.encode("the dog", dropout=0.1, seed=1)


@pytest.mark.parametrize(
    "ids, lacking",
    [({}, "without pad_id:"), ({"eos_id": -1, "bos_id": -1}, "without pad_id and eos_id:")],
)
def test_sentence_piece_models_without_special_pieces(ids, lacking):
    with pytest.raises(ValueError, match=lacking):
        Tokenizer(sentence_piece_model(SENTENCES, 30, **ids))


@pytest.mark.parametrize("model", [b"", b"no model"])
def test_no_sentence_piece_model(model):
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        Tokenizer(model)


def test_what_every_source_begins_with_is_no_word_and_no_text(pair, tmp_path):
    """As the start token of CTranslate2's `add_source_bos`: the words of a text are numbered without it."""
    models, pieces, _ = pair
    ids = {"pad_token_id": 0, "start_token_id": 1, "end_token_id": 1}
    model = ImportedPieces.model(pieces, models, ids, [2, 2], source_prefix=[3, 2])
    tokenizer = Tokenizer(model, "imported")
    texts = "a small house", "zwei Häuser"
    source, target = tokenizer.encode(texts[0]), tokenizer.encode(texts[1], side="target")
    words = [word_positions(tokenizer, source, "source", True)]
    words.append(word_positions(tokenizer, target, "target", True))
    for text, ids, found, side, first in zip(
        texts, (source, target), words, ("source", "target"), (2, 0), strict=True
    ):
        assert [tokenizer.decode([ids[i] for i in word], side) for word in found] == text.split()
        assert found[0][0] == first
    weights = np.zeros((len(target), len(source)))
    weights[np.ix_(words[1][0], words[0][2])] = weights[np.ix_(words[1][1], words[0][1])] = 1
    assert links_between(tokenizer, source, target, weights, texts=texts) == ((2, 0), (1, 1))
    # What its normalisation leaves nothing of is empty, with a prefix, too.
    prefixed = copy.copy(tokenizer)
    prefixed.source_prefix = "two"
    for each in (tokenizer, prefixed):
        assert each.encode(["", " ", "\u200b"]) == [[], [], []]
    assert prefixed.encode("a house") == tokenizer.encode("two a house")
    text = ParallelText("three", [("a small house", "Häuser"), ("", "zwei"), ("\ufeff", "zwei")])
    store = TokenStore.build(tmp_path, text, tokenizer, verbose=False)
    assert len(store) == 1 and store.metadata["dropped_empty"] == 2
