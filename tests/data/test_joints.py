"""Which tokens are joined to one word: beside the words of what they are decoded to."""

import itertools
import re

import pytest

from keras_attention import Tokenizer
from keras_attention.data.imported_pieces import ImportedPieces
from keras_attention.data.joints import Joints
from keras_attention.decoding.requests import contains, phrase_ids
from tests.helpers import sentence_piece_model

pytestmark = pytest.mark.backends("torch")

PLAIN = "Kater\nMaus\n##ft\nwasser2\n, \n##.\n-\n##x".replace("##", "\u2581").splitlines()
HALVES = "Kater\nWasch@@\nbär\n,\n-@@\n_".splitlines()
IDS = {"pad_token_id": 0, "start_token_id": 0, "end_token_id": 1}


def learned(texts, size, **options):
    """A SentencePiece model of another program."""
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    return sentence_piece_model(texts * 9, size, **ids, **options)


TEXTS = ["Der Kater sitzt im Garten, die Katze schläft.", "Ein Waschbär wäscht 25 Äpfel!"]
TOKENIZERS = {
    "demo": lambda: Tokenizer.from_preset("demo_en_de"),
    "wordpiece": lambda: Tokenizer(
        "\n".join(["<pad>", "</s>", "<unk>", *PLAIN]).encode(), "wordpiece"
    ),
    "presegmented": lambda: Tokenizer(
        "\n".join(["<pad>", "</s>", "<unk>", *HALVES]).encode(), "presegmented"
    ),
    "unigram": lambda: Tokenizer(learned(TEXTS, 90, model_type="unigram")),
    "marks behind": lambda: Tokenizer(learned(TEXTS, 90, treat_whitespace_as_suffix=True)),
    "no mark at the beginning": lambda: Tokenizer(learned(TEXTS, 90, add_dummy_prefix=False)),
    "imported": lambda: Tokenizer(
        ImportedPieces.model([["<pad>", "</s>", "<unk>", *PLAIN]], [None], IDS, [2, 2]), "imported"
    ),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_joined_is_what_is_decoded_to_one_word(name):
    tokenizer = TOKENIZERS[name]()
    ids = range(3, min(tokenizer.target_vocabulary_size, 700), 1 if name != "demo" else 9)
    ids = [i for i in ids if not tokenizer.id_to_token(i).startswith("<")]
    found = {True: 0, False: 0}
    for pair in itertools.product(ids, repeat=2):
        words = [
            re.findall(r"\w+", tokenizer.decode([*each])) for each in (pair[:1], pair[1:], pair)
        ]
        is_one = len(words[2]) < len(words[0]) + len(words[1])
        assert tokenizer.joints.join(*pair) == is_one, [tokenizer.id_to_token(i) for i in pair]
        found[is_one] += 1
    assert found[False] and (found[True] or name == "imported")


def test_scripts_without_spaces_bytes_and_special_tokens():
    pieces = "猫 が แมว 고양이 кот a \u0301 <0xD0> <0xBA> <0xE2> <0x41>".split()
    limits = "<0x7F> <0x80> <0xBF> <0xC2> <0xC3> <0xDF> <0xE0>".split()
    joints = Joints.of_pieces([*pieces, "<0x2C>", "", "<2de>", "</s>", *limits])
    # Cyrillic and Latin letters, a mark, and bytes of letters
    joined = [4, 5, 6, 7, 8, 10, 16, 17, 19, 20]
    for part in joints:
        assert [i for i, is_there in enumerate(part) if is_there] == joined
    codes = {"deu_Latn": 3}
    model = ImportedPieces.model(
        [["<pad>", "end", "<unk>", "deu_Latn", "a"]], [learned(TEXTS, 90)],
        {**IDS, "pad_token_id": 0}, [2, 2], languages=codes,
    )  # fmt: skip
    tokenizer = Tokenizer(model, "imported")
    assert tokenizer.joints.continues.tolist() == [False] * 4 + [True]


def test_phrases_are_spelled_as_within_a_text():
    texts = ["黒い猫がいる。", "猫は白い。", "ผมเลี้ยงแมวสองตัว", "The cat sees the house."]
    tokenizer = Tokenizer.train(texts * 3, vocabulary_size=340)
    [cat, mew, house] = phrase_ids(tokenizer, ["猫", "แมว", " house"])
    assert tokenizer.decode([*tokenizer.encode("黒い"), *cat]) == "黒い猫"
    assert tokenizer.decode([*tokenizer.encode("เลี้ยง"), *mew]) == "เลี้ยงแมว"
    assert house == tokenizer.encode("house")
    # What is not seen before a letter is none.
    assert phrase_ids(tokenizer, ["\u200b猫", "\u2060แมว ", "\u2581猫"]) == [cat, mew, cat]
    assert tokenizer.decode([*tokenizer.encode("The cat"), *house]) == "The cat house"
    unmarked = TOKENIZERS["no mark at the beginning"]()
    [garden] = phrase_ids(unmarked, ["Garten"])
    assert unmarked.decode([*unmarked.encode("im"), *garden]) == "im Garten"
    assert unmarked.decode([*unmarked.encode("im"), *unmarked.encode("Garten")]) == "imGarten"


@pytest.mark.parametrize(
    "phrase, expected",
    [
        ("!", "Ja!"),
        ("! Nein", "Ja! Nein"),
        ("...", "Ja..."),
        (".de", "Ja .de"),
        ("..de", "Ja ..de"),
        ("(", "Ja ("),
        ("Nein!", "Ja Nein!"),
    ],
)
def test_a_closing_mark_stands_behind_a_word(phrase, expected):
    tokenizer = TOKENIZERS["demo"]()
    [ids] = phrase_ids(tokenizer, [phrase])
    assert tokenizer.decode([*tokenizer.encode("Ja"), *ids]) == expected


def test_a_closing_mark_keeps_the_space_that_the_vocabulary_is_used_to():
    tokenizer = Tokenizer.train(["Ça va bien !", "Il dort !"] * 9, vocabulary_size=300)
    [ids] = phrase_ids(tokenizer, ["!"])
    assert tokenizer.decode([*tokenizer.encode("va"), *ids]) == "va !"


@pytest.mark.parametrize(
    "text, phrase, is_ended, expected",
    [
        ("Der Kater", "Kater", True, True),
        ("Der Kater", "Kater", False, False),  # "Der Katerft"
        ("Der Kater,", "Kater", False, True),
        ("Der Katerft Kater.", "Kater", False, True),
        ("Der Katerft", "Kater", True, False),
        ("Der Kater", "Der Kater", True, True),
        ("Der", "Der Kater", True, False),
    ],
)
def test_a_phrase_is_in_a_text_as_words(text, phrase, is_ended, expected):
    tokenizer = TOKENIZERS["demo"]()
    ids, [phrase] = tokenizer.encode(text), phrase_ids(tokenizer, [phrase])
    assert contains(ids, phrase, tokenizer.joints, is_ended) is expected
