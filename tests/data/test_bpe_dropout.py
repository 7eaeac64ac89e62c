"""BPE-dropout: against SentencePiece without dropout, and against enumerated probabilities with it."""

import collections
import itertools
import json
import random

import pytest

from keras_attention import Tokenizer
from keras_attention.data.normalization import normalize
from keras_attention.data.sentence_pieces import BpeDropout
from tests.helpers import python, sentence_piece_model

pytestmark = pytest.mark.backends("tensorflow")

TEXTS = [
    "The quick brown fox jumps over the lazy dog, the brown dog.",
    "Der schnelle braune Fuchs springt über den faulen Hund, den braunen.",
] * 3


class Vocabulary:
    """What is asked of a SentencePiece processor; scores fall from piece to piece."""

    def __init__(self, pieces):
        self.pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]

    def vocab_size(self):
        return len(self.pieces)

    def id_to_piece(self, i):
        return self.pieces[i]

    def piece_to_id(self, piece):
        return self.pieces.index(piece)

    def get_score(self, i):
        return -float(i)

    def is_control(self, i):
        return False

    def is_unknown(self, i):
        return i == 0

    def is_byte(self, i):
        return 0 < i <= 256


def probabilities(word, ranks, dropout):
    """Every segmentation of a word and its probability, by following both ends of each decision."""

    def follow(symbols, skipped):
        """`symbols`: (text, number of its own); `skipped`: pairs of numbers that stay apart."""
        pairs = [
            (ranks[left + right], place)
            for place, ((left, a), (right, b)) in enumerate(itertools.pairwise(symbols))
            if left + right in ranks and (a, b) not in skipped
        ]
        if not pairs:
            return {tuple(text for text, _ in symbols): 1.0}
        _, place = min(pairs)
        (left, a), (right, b) = symbols[place : place + 2]
        union = (left + right, max(number for _, number in symbols) + 1)
        found = collections.Counter()
        for share, rest in (
            (dropout, follow(symbols, skipped | {(a, b)})),
            (1 - dropout, follow([*symbols[:place], union, *symbols[place + 2 :]], skipped)),
        ):
            for segmentation, probability in rest.items():
                found[segmentation] += share * probability
        return found

    return follow([(letter, number) for number, letter in enumerate(word)], frozenset())


def test_probabilities_are_those_of_the_merges():
    pieces = ["an", "na", "▁b", "ana", "▁ban", "nan", "▁bana", "▁banana", "▁", "a", "b", "n"]
    vocabulary, draws = Vocabulary(pieces), 20_000
    ranks = {piece: rank for rank, piece in enumerate(pieces)}
    expected = probabilities("▁banana", ranks, 0.3)
    assert sum(expected.values()) == pytest.approx(1) and len(expected) > 15
    rows = BpeDropout(vocabulary).encode(["banana"] * draws, 0.3, seed=4)
    found = collections.Counter(tuple(map(vocabulary.id_to_piece, row)) for row in rows)
    assert found.keys() <= expected.keys()
    for segmentation, probability in expected.items():
        deviation = (draws * probability * (1 - probability)) ** 0.5
        assert abs(found[segmentation] - draws * probability) < 5 * deviation, segmentation


def test_without_dropout_it_is_sentencepiece():
    tokenizer = Tokenizer.train(TEXTS, 400)
    generator = random.Random(3)
    letters = [chr(i) for i in (*range(32, 127), *range(160, 700), 0x2581, 0x4E2D, 0x1F600)]
    texts = [
        normalize("".join(generator.choices(letters + [" ", "e", "n"] * 99, k=k)))
        for k in range(300)
    ]
    texts += [*TEXTS, "", "▁", "a▁b", "</s> <pad> a", "fox" * 200]
    pieces = tokenizer._pieces
    assert BpeDropout(pieces._processor).encode(texts, 0.0, seed=1) == pieces.encode(texts)


@pytest.mark.parametrize(
    "options",
    [
        {"normalization_rule_name": "nmt_nfkc"},
        {"normalization_rule_name": "nmt_nfkc_cf"},
        {"add_dummy_prefix": False},
        {"treat_whitespace_as_suffix": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_models_that_split_in_another_way_are_refused(options):
    """Their dropout would rewrite the text as their own splitting does not."""
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "model_type": "bpe"}
    options = {**ids, "byte_fallback": True, "normalization_rule_name": "identity", **options}
    tokenizer = Tokenizer(sentence_piece_model(TEXTS, 400, **options))
    with pytest.raises(ValueError, match="rewrites no letters"):
        tokenizer.encode("fox", dropout=0.1, seed=1)


def test_as_many_of_each_piece_as_sentencepiece_samples():
    tokenizer, dropout = Tokenizer.train(TEXTS, 400), 0.4
    processor, texts = tokenizer._pieces._processor, TEXTS * 300
    peer = processor.encode(texts, enable_sampling=True, alpha=dropout, nbest_size=-1)
    counts = [
        collections.Counter(itertools.chain.from_iterable(rows))
        for rows in (tokenizer.encode(texts, dropout=dropout, seed=6), peer)
    ]
    for piece in counts[0] | counts[1]:
        ours, theirs = (count[piece] for count in counts)
        # Twice the spread of independent events: a piece can be several times in a sentence.
        assert abs(ours - theirs) <= 5 * 2**0.5 * (ours + theirs + 1) ** 0.5, piece


def test_same_in_another_process(tmp_path):
    tokenizer = Tokenizer.train(TEXTS, 400)
    tokenizer.save(tmp_path / "tokenizer")
    many = [f"{text} {number}" for number in range(30) for text in TEXTS]
    program = (
        "import json, sys, keras_attention_light\n"  # without Keras
        "from keras_attention.data.tokenizer import Tokenizer\n"
        "texts, many = json.load(sys.stdin)\n"
        "print(Tokenizer.load(sys.argv[1]).encode(texts, dropout=0.3, seed=2**40 + 7))\n"
        "print(Tokenizer.train(many, 500, max_sentences=101).fingerprint())"
    )
    own = {"environment": {"PYTHONHASHSEED": "17"}, "input": json.dumps([TEXTS, many])}
    ids, fingerprint = python("-c", program, tmp_path / "tokenizer", **own).stdout.splitlines()
    assert ids == str(tokenizer.encode(TEXTS, dropout=0.3, seed=2**40 + 7))
    assert fingerprint == Tokenizer.train(many, 500, max_sentences=101).fingerprint()


def test_nothing_to_merge():
    vocabulary = Vocabulary(["▁", "a"])
    expected = [[257, 258, 258], [257, 0xC3 + 1, 0xA9 + 1], [], [257, 257]]
    assert BpeDropout(vocabulary).encode(["aa", "é", "", " "], 0.2, seed=0) == expected
