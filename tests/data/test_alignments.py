"""Word alignments from files and corpora, spread over tokens, against loops over letters."""

import copy
import dataclasses
import gzip

import numpy as np
import pytest

from keras_attention import Corpus, ParallelText, TokenBatches, Tokenizer, TokenStore
from keras_attention.data.alignments import TokenAlignments, WordAlignments, links_between
from keras_attention.utils.files import DamagedFile

pytestmark = pytest.mark.backends("tensorflow")  # NumPy alone

PAIRS = [
    ("the old house.", "das alte Haus."),
    ("a dog, asleep", "ein schlafender Hund"),
    ("two cats", "zwei Katzen sind da"),
    ("unaligned", "nichts"),
    ("red", "rot"),
]
# Words between spaces; the second pair is crossed, a word has two links and another none.
LINES = ["0-0 1-1 2-2", "0-0 2-1 1-2", "0-0 1-1 1-2", "", "0-0 0-0"]
# Punctuation counts.
GOLD = {
    PAIRS[0]: ((0, 0), (1, 1), (2, 2), (3, 3)),
    PAIRS[1]: ((0, 0), (3, 1), (1, 2)),
    PAIRS[4]: ((0, 0),),
}


def corpus_of(pairs=PAIRS, **more):
    train, validation = (ParallelText(name, pairs[:]) for name in ("train", "validation"))
    return Corpus("five", "en", "de", False, "Five pairs.", train, validation, **more)


@pytest.fixture(scope="module")
def tokenizer():
    texts = [text for pair in PAIRS for text in pair]
    return Tokenizer.train(texts * 3, vocabulary_size=290)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "links.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), "utf-8")
    return str(path)


def letters_of(tokenizer, ids, side):
    """For each token, how many letters without spaces stand before it and after it."""
    texts = [
        "".join(tokenizer.id_to_token(token, side) for token in ids[:end]).replace("▁", "")
        for end in range(len(ids))
    ]
    return [*map(len, texts)]


def words_of_tokens(tokenizer, ids, side, words):
    """The number of the word that the first letter of each token is in; the end token has none."""
    ends = np.cumsum([len(word) for word in words])
    starts = letters_of(tokenizer, ids, side)
    return [int(np.searchsorted(ends, start, side="right")) for start in starts[:-1]] + [None]


def expected(tokenizer, store, number, words, links, shape):
    """(T, S) by brute force: each target token against each source token."""
    source, target = store.source(number).tolist(), store.target(number).tolist()
    names = words_of_tokens(tokenizer, source, "source", words[0])
    asking = words_of_tokens(tokenizer, target, "target", words[1])
    result = np.zeros(shape)
    for t, word in enumerate(asking):
        found = [s for s, name in enumerate(names) if (name, word) in links]
        for s in found:
            result[t + 1, s] = 1 / len(found)
    return result


@pytest.mark.parametrize("prefix", [None, "the old"])
@pytest.mark.parametrize("given", ["file", "gold"])
@pytest.mark.parametrize("sampling", [{}, {"dropout": 0.4, "samples": 3, "seed": 2}])
def test_tokens_are_aligned_as_their_words(tokenizer, tmp_path, file, given, sampling, prefix):
    tokenizer = copy.copy(tokenizer)
    tokenizer.source_prefix = prefix
    corpus = corpus_of(alignments=GOLD)
    links = WordAlignments(corpus, file if given == "file" else "gold")
    store = TokenStore.build(tmp_path / "store", corpus.train, tokenizer, **sampling)
    aligned = TokenAlignments.build(store, links, tokenizer)
    shape = (int(store.target_lengths.max()) + 2, int(store.source_lengths.max()) + 1)
    order = np.random.default_rng(1).permutation(len(store))
    found = aligned.padded(np.array([*order, -1]), *shape)
    assert found.shape == (len(store) + 1, *shape) and found.dtype == "float32"
    assert not found[-1].any() and found.any()
    split = {
        "the old house.": ["the", "old", "house", "."],
        "a dog, asleep": ["a", "dog", ",", "asleep"],
    }
    split |= {"das alte Haus.": ["das", "alte", "Haus", "."]}
    for row, number in zip(found, order.tolist(), strict=False):
        pair = PAIRS[number % len(PAIRS)]
        if given == "file":
            words = [text.split() for text in pair]
            line = LINES[number % len(PAIRS)].split()
            true = [tuple(map(int, link.split("-"))) for link in line]
        else:
            words, true = [split.get(text, text.split()) for text in pair], GOLD.get(pair, ())
        if prefix:
            before = prefix.split()
            words[0] = before + words[0]
            true = [(source + len(before), target) for source, target in true]
        np.testing.assert_allclose(
            row, expected(tokenizer, store, number, words, true, shape), rtol=1e-6
        )


def test_pairs_with_an_empty_side_are_in_the_file_and_not_in_the_store(tokenizer, tmp_path):
    pairs = [PAIRS[0], ("", "leer"), PAIRS[4]]
    corpus, path = corpus_of(pairs), tmp_path / "links"
    path.write_text("0-0\n\n0-0\n", "utf-8")
    store = TokenStore.build(tmp_path / "store", corpus.train, tokenizer)
    aligned = TokenAlignments.build(store, WordAlignments(corpus, str(path)), tokenizer)
    assert len(aligned) == len(store) == 2
    assert aligned.padded(np.array([1]), 9, 9)[0, 1].any()


def test_batches_have_the_alignments_of_their_pairs(tokenizer, tmp_path, file):
    corpus = corpus_of()
    store = TokenStore.build(tmp_path / "store", corpus.train, tokenizer)
    aligned = TokenAlignments.build(store, WordAlignments(corpus, file), tokenizer)
    options = {"batch_tokens": 40, "max_shapes": 2, "num_replicas": 2}
    batches = TokenBatches(store, alignments=aligned, **options)
    plain = TokenBatches(store, **options)
    copied = copy.deepcopy(batches)  # as another process gets them
    for epoch in range(2):
        for index in range(len(batches)):
            inputs, labels = batches.batch(epoch, index)
            shape = (*labels.shape, inputs["encoder_token_ids"].shape[1])
            links = inputs.pop("alignments")
            assert links.shape == shape
            np.testing.assert_array_equal(
                links, aligned.padded(batches.pairs(epoch, index), *shape[1:])
            )
            np.testing.assert_array_equal(links, copied.batch(epoch, index)[0]["alignments"])
            half = batches.shard(1, 2).batch(epoch, index)[0]["alignments"]
            np.testing.assert_array_equal(half, links[len(links) // 2 :])
            same, same_labels = plain.batch(epoch, index)
            np.testing.assert_array_equal(same_labels, labels)
            assert same.keys() == inputs.keys()
            np.testing.assert_array_equal(same["encoder_token_ids"], inputs["encoder_token_ids"])
    signature = batches.signature[0]["alignments"]
    assert signature.dtype == "float32" and len(signature.shape) == 3
    other = TokenStore.build(tmp_path / "other", ParallelText("two", PAIRS[:2]), tokenizer)
    with pytest.raises(ValueError, match="2 pairs in the store.* 5 pairs"):
        TokenBatches(other, alignments=aligned)


def test_a_file_is_built_once_and_its_damage_is_found(tokenizer, tmp_path, file):
    corpus = corpus_of()
    store = TokenStore.build(tmp_path / "store", corpus.train, tokenizer)
    links = WordAlignments(corpus, file)
    built = TokenAlignments.build(store, links, tokenizer).file
    before = built.stat().st_mtime_ns
    assert TokenAlignments.build(store, links, tokenizer).file.stat().st_mtime_ns == before
    content = bytearray(built.read_bytes())
    entry = content.index(b"PK\1\2")  # Says a version, a password and a packing; nobody knows 255.
    bits = [content[: entry + at] + b"\xff" + content[entry + at + 1 :] for at in (6, 8, 10)]
    for damaged in (content[:-40], b"", content[:90] + b"\xff" * 8 + content[98:], *bits):
        built.write_bytes(bytes(damaged))
        with pytest.raises(DamagedFile, match="Delete it"):
            TokenAlignments.build(store, links, tokenizer)


def test_the_fingerprint_is_that_of_the_links(tmp_path, file):
    def fingerprint(lines, name):
        path = tmp_path / name
        path.write_bytes(lines)
        return WordAlignments(corpus_of(), str(path)).fingerprint

    lines = "".join(f"{line}\n" for line in LINES).encode()
    first = WordAlignments(corpus_of(), file).fingerprint
    assert fingerprint(gzip.compress(lines), "packed.gz") == first
    assert fingerprint(lines.replace(b"0-0 1-1 2-2", b"2-2 0-0  1-1"), "order") == first
    assert fingerprint(lines.replace(b"2-2", b"2-1"), "other") != first


@pytest.mark.parametrize(
    "lines, message",
    [
        (LINES[:-1], "4 lines, but 'train' has 5 training pairs"),
        ([*LINES, "0-0"], "6 lines, but 'train' has 5 training pairs"),
        (["0-0 3-1", *LINES[1:]], r"line 1: the link 3-1 has a source word.* has 3 words"),
        ([*LINES[:2], "1-4", *LINES[3:]], r"line 3: the link 1-4 has a target word.*pair 3 has 4"),
        ([*LINES[:3], "0-0 0:0", ""], "line 4: expected links such as 0-0 1-2.*'0:0'"),
        (["-1-0", *LINES[1:]], "line 1: expected links"),
    ],
)
def test_what_is_no_alignment_of_the_text(tmp_path, lines, message):
    path = tmp_path / "links"
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    with pytest.raises(ValueError, match=message):
        WordAlignments(corpus_of(), str(path))


def test_corpora_without_alignments(tmp_path, file):
    with pytest.raises(ValueError, match="no training pair of 'five' has true links"):
        WordAlignments(corpus_of(), "gold")
    wrong = {PAIRS[1]: ((0, 0), (4, 1))}
    with pytest.raises(ValueError, match="pair 2: the link 4-1 has a source word.* has 4 words"):
        WordAlignments(corpus_of(alignments=wrong), "gold")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        WordAlignments(corpus_of(), str(tmp_path / "absent"))
    split = dataclasses.replace(corpus_of(), vocabulary=tmp_path / "words")
    with pytest.raises(ValueError, match="already split into subwords"):
        WordAlignments(split, file)


def test_words_of_a_file_are_counted_as_aligners_do(tmp_path, tokenizer):
    """A space that no aligner splits at makes two words of one only when the text is normalised."""
    pairs = [("100\u00a0000 men came", "sie kamen"), PAIRS[4]]
    file = tmp_path / "links"
    file.write_text("2-1\n0-0\n", "utf-8")
    alignments = WordAlignments(corpus_of(pairs), str(file))
    assert alignments.words(pairs[0][0]) == ["100\u00a0000", "men", "came"]
    store = TokenStore.build(tmp_path / "store", alignments.text, tokenizer)
    found = TokenAlignments.build(store, alignments, tokenizer)
    assert found.padded(np.array([0]), 9, 9).sum() == 0 < found.padded(np.array([1]), 9, 9).sum()
    file.write_text("2-1\n", "utf-8")
    alignments = WordAlignments(corpus_of(pairs[:1]), str(file))
    store = TokenStore.build(tmp_path / "store", alignments.text, tokenizer)
    with pytest.raises(ValueError, match="No pair can be aligned"):
        TokenAlignments.build(store, alignments, tokenizer)


class Pieces:
    """A tokenizer whose ids are places in a list of pieces."""

    pieces = "▁like s ▁cats . ▁ 喜欢 猫 <0xE6> <0x88> <0x91> 。 </s>".split()
    end_token_id = 11

    def id_to_token(self, number):
        return self.pieces[number]


@pytest.mark.parametrize("splits", [False, True])
def test_letters_of_scripts_without_spaces(splits):
    source, target = [4, 7, 8, 9, 5, 6, 10], [0, 1, 2, 3]  # "我喜欢猫。", "likes cats."
    weights = np.full((4, 7), 0.1)
    weights[0, 4] = weights[1, 4] = weights[2, 5] = 0.9
    found = links_between(Pieces(), source, target, weights, splits)
    # 我 is three tokens, 喜 and 欢 are one; the stop belongs to the letter before it.
    assert set(found) == ({(1, 0), (2, 0), (3, 1)} if splits else {(0, 0), (0, 1)})
    back = links_between(Pieces(), target, source, weights.T, splits)
    assert {link for link in back if link[1]} == ({(0, 1), (0, 2), (1, 3)} if splits else set())


def test_tokens_that_are_no_whole_letters_are_one_word():
    found = links_between(Pieces(), [0, 2], [4, 7, 8, 5], np.eye(4, 2), splits_scripts=True)
    assert found == ((0, 0),)


@pytest.mark.parametrize(("source", "target"), [([11], [0, 2, 11]), ([0, 2, 11], [11]), ([], [])])
def test_a_text_without_words_has_no_links(source, target):
    weights = np.ones((len(target), len(source)))
    assert links_between(Pieces(), source, target, weights) == ()


class WordPieces:
    pieces = ("the", "cat", ",", "## ", "s", "##at", "</s>")
    end_token_id = 6

    def id_to_token(self, number):
        return self.pieces[number]


@pytest.mark.parametrize(
    "tokenizer, tokens, text, wanted",
    [
        # "the cat, sat" has a word for each row, and the comma is none.
        (WordPieces(), [0, 1, 2, 3, 4, 5], "the cat, sat", [0, 1, 2]),
        # A soft hyphen alone is a word of the text, and none of the tokens.
        (Pieces(), [0, 2], "like \u00ad cats", [0, 2]),
        # A letter that is three tokens is a letter, too.
        (Pieces(), [4, 7, 8, 9, 2], "\u200f \u6211 cats", [1, 2]),
        # SentencePiece's mark is a space.
        (Pieces(), [0, 2, 3], "like\u2581cats.", [0]),
        # Other letters than those of the text: words are as they are.
        (Pieces(), [0, 2], "dogs", [0, 1]),
    ],
)
def test_words_are_numbered_as_in_the_text(tokenizer, tokens, text, wanted):
    weights = np.eye(len(tokens))
    links = links_between(tokenizer, tokens, tokens, weights, texts=(text, text))
    assert links == tuple((number, number) for number in wanted)
