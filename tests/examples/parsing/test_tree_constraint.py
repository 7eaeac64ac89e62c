"""Searches whose hypotheses are trees, against the enumeration of all trees."""

import dataclasses

import keras
import numpy as np
import pytest
from parsing.tree_constraint import WellFormedTrees
from parsing.trees import delinearize

from keras_attention.decoding import TextConstraint, Translator
from tests.decoding.constrained import LastToken, assert_all_found, search
from tests.decoding.letters import LetterTokenizer, assert_alike, small_model

BACKEND = keras.backend.backend()
# Two phrases, two tags and the end, at ids in no order.
END, SYMBOLS = 3, {0: "(NP", 1: ")NP", 2: "NN", 4: "(S", 5: ")S", 6: "."}
PHRASES, TAGS = {"S": (4, 5), "NP": (0, 1)}, (2, 6)


def is_tree(words, symbols, leaves="tags"):
    """The reader of trees decides, not the automaton."""
    try:
        tree = delinearize(words, symbols, leaves)
    except ValueError:
        return False
    return tree.label() in PHRASES and all(len(node) for node in tree.subtrees())


def test_every_hypothesis_is_a_tree_and_every_tree_is_one():
    words, limits = ["a", "ab", "abc", "a"], [6, 6, 6, 5]
    tables = LastToken(seed=13, num_sentences=4, vocabulary_size=7, sharpness=1.0)
    constraint = WellFormedTrees(7, PHRASES, TAGS, END)
    beam_size = 60
    start = constraint.start([len(w) for w in words], limits, beam_size)
    got = search(tables, limits, beam_size, END, constraint, start)
    assert len({len(found) for found in got}) > 1

    def accepts(sentence, tokens):
        return is_tree(list(words[sentence]), [SYMBOLS[token] for token in tokens[:-1]])

    assert_all_found(got, tables, limits, END, accepts)


@pytest.mark.backends("torch")
def test_every_tree_holds_the_words_of_its_sentence():
    """The tokens 2 and 6 are pieces of words; a word must stand there whole."""
    words = [[[2]], [[2, 6]], [[2], [6]], [[6, 2], [2]], []]
    limits = [6, 7, 6, 7, 0]
    tables = LastToken(seed=3, num_sentences=5, vocabulary_size=7, sharpness=1.0)
    constraint = WellFormedTrees(7, PHRASES, (), END)
    beam_size = 60
    got = search(
        tables, limits, beam_size, END, constraint, constraint.start(words, limits, beam_size)
    )

    def accepts(sentence, tokens):
        pieces = [str(piece) for word in words[sentence] for piece in word]
        ends = np.cumsum([0, *map(len, words[sentence])])
        symbols, done = [], 0
        for token in tokens[:-1]:
            if str(token) in pieces:
                done += 1
            elif done not in ends:
                return False
            symbols.append(str(token) if str(token) in pieces else SYMBOLS[token])
        return is_tree(pieces, symbols, "words")

    def rescored(row):
        """Each piece counts as all pieces."""
        pieces = np.logaddexp(row[2], row[6])
        return np.where(np.isin(np.arange(7), [2, 6]), pieces, row)

    assert_all_found(got[:4], tables, limits[:4], END, accepts, rescored)
    assert len({len(found) for found in got}) > 2


@pytest.mark.backends("torch")
def test_narrow_beams_write_trees_whatever_the_model_prefers():
    """The model would open phrases for ever; the depth and the length are limited."""
    limits, words = [25, 12, 8], [list("abcdefg"), list("ab"), list("abcde")]
    tables = LastToken(seed=2, num_sentences=3, vocabulary_size=7)
    constraint = WellFormedTrees(7, PHRASES, TAGS, END, max_depth=6)
    start = constraint.start([len(w) for w in words], limits, 2)

    def prefers_to_open(sentence, prefix):
        row = LastToken.log_probabilities(tables, sentence, prefix) + 9.0 * (np.arange(7) == 4)
        return row - np.log(np.exp(row).sum())

    tables.log_probabilities = prefers_to_open
    got = search(tables, limits, 2, END, constraint, start)
    for sentence, found in enumerate(got):
        for _, tokens, is_finished in found:
            assert is_finished
            symbols = [SYMBOLS[token] for token in tokens[:-1]]
            assert delinearize(words[sentence], symbols).height() <= 6 + 2


def test_an_engine_finds_the_trees_that_the_plain_search_finds():
    """The letters are words, two in one; rows leave the batch at different steps."""
    trees = WellFormedTrees(17, {"S": (14, 15), "NP": (12, 13)}, (), 1)

    def words(text):
        ids = LetterTokenizer().encode([text])[0]
        return [[i] for i in ids[2:]] + [ids[:2]] * bool(text)

    constraint = TextConstraint(
        trees, lambda texts, *how: trees.start([words(text) for text in texts], *how)
    )
    plain = Translator(
        small_model(seed=11, num_layers=2), LetterTokenizer(), beam_size=3, batch_size=8,
        max_extra_length=23, constraint=constraint, engine="plain",
    )  # fmt: skip
    engine = dataclasses.replace(plain, engine="auto")
    assert (plain.engine_for(1).name, engine.engine_for(1).name) == ("plain", BACKEND)
    texts = ["abc", "", "degfabc", "hb", "gfedcbacbd"]
    both = [translator.translate(texts, n_best=3) for translator in (engine, plain)]
    assert len({len(found[0].token_ids) for found in both[0] if found}) > 1
    assert_alike(*both)


def trees(phrases, tags=(2,), **options):
    return WellFormedTrees(5, phrases, tags, 1, **options)


ROOT = {"S": (0, 3)}
TAGGED, SPELLED = trees(ROOT), trees(ROOT, ())
WRONG = [
    (lambda: trees({}), "Received: phrases={}"),
    (lambda: trees({"S": (0, 5)}), "Received: phrases=5"),
    (lambda: trees(ROOT, [3]), "twice"),
    (lambda: trees({"S": (0,)}), r"two ids.*phrases\['S'\]=\(0,\)"),
    (lambda: trees(ROOT, max_depth=10**12), "`max_depth` must be an int from 1 to 198"),
    (lambda: TAGGED.start([4], [6], 2), "4 leaf tokens .* the end 7"),
    (lambda: SPELLED.start([[[2, 4], [2]]], [5], 1), "3 leaf tokens"),
    (lambda: SPELLED.start([[[2, 3]]], [9], 1), r"\[2, 3\] in"),
    (lambda: SPELLED.start([[[2], []]], [9], 1), r"\[\] in"),
    (lambda: SPELLED.start([[[5]]], [9], 1), "from 0 to 4"),
]


@pytest.mark.backends("torch")
@pytest.mark.parametrize("make, message", WRONG)
def test_what_is_no_constraint_or_cannot_start_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
