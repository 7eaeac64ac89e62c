"""Trees as text and back: by hand, by random trees, and all trees of two real treebanks."""

import os
import re

import numpy as np
import pytest
from nltk import Tree
from parsing.treebanks import load_treebank
from parsing.trees import (
    DEEPEST_PHRASES,
    LEAVES,
    delinearize,
    escape_word,
    linearize,
    read_trees,
    repair,
    strip_tree,
    unescape_word,
    write_tree,
)

pytestmark = pytest.mark.backends("tensorflow")

PHRASES = {"S", "NP", "VP", "PP"}
DOG = "(S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))"


def tree(text):
    return Tree.fromstring(text)


def random_tree(generator, depth=0):
    label = str(generator.choice(sorted(PHRASES)))
    children = []
    for _ in range(generator.integers(1, 4)):
        if depth < 5 and generator.random() < 0.5:
            children.append(random_tree(generator, depth + 1))
        else:
            tag = str(generator.choice(["NN", ".", "''", "-LRB-", "PRP$"]))
            children.append(Tree(tag, [str(generator.integers(1000))]))
    return Tree(label, children)


def test_random_trees_come_back():
    generator = np.random.default_rng(7)
    for _ in range(300):
        one = random_tree(generator)
        untagged = one.copy(deep=True)
        for node in untagged.subtrees(lambda node: node.height() == 2):
            node.set_label("XX")
        for leaves in LEAVES:
            words, symbols = linearize(one, leaves)
            assert words == one.leaves()
            expected = one if leaves == "tags" else untagged
            made = delinearize(words, symbols, leaves)
            assert made == expected == repair(words, symbols, leaves)


def test_what_is_stripped():
    raw = """( (S (NP-SBJ-1 (-NONE- *)) (PP=2 (IN in) (NP (NN it)))
                  (VP (-LRB- -LRB-) (NP (NP (-NONE- *T*-1)))) ) )"""
    [read] = read_trees(raw)
    stripped = Tree("S", [tree("(PP (IN in) (NP (NN it)))"), Tree("VP", [Tree("-LRB-", ["("])])])
    assert strip_tree(read) == stripped
    assert list(read_trees(raw, strip=True)) == [stripped]
    assert read == Tree.fromstring(raw, read_leaf=lambda word: word.replace("-LRB-", "("))
    assert strip_tree(tree("(TOP (NP (NN x)))")) == tree("(NP (NN x))")
    assert strip_tree(tree("( (NP (NN x)) (NP (NN y)))")).label() == "TOP"
    with pytest.raises(ValueError, match="no words"):
        strip_tree(tree("( (S (NP (-NONE- *))))"))


def test_spaces_of_unicode_are_no_borders():
    [read] = read_trees("( (NP (NN Xpd\u200aTTD) (NN \u2009x)) )")
    assert read.leaves() == ["XpdTTD", "x"]


# Brackets and their names, white space and its number, backslashes before either, and what others escape.
WORDS = ["(", ")", "t(est)", "-LRB-", "-RRB-", "\\-LRB-", "\\(", "\\", "-LRB", "-LRB(", "(LRB-", "New York",
         "x\u200ay", "\n", "-U0020-", "1/2", "1\\/2", "*", "[", "{", "<a>", "@@"]  # fmt: skip


def random_words(generator, number):
    parts = ["(", ")", "\\", "-", "LRB", "-RRB-", "B-", " ", "\u3000", "U0020", "a"]
    for _ in range(number):
        yield "".join(generator.choice(parts, generator.integers(1, 7)))


def test_every_word_goes_out_and_comes_back():
    written = {}
    for word in [*WORDS, *random_words(np.random.default_rng(5), 1000)]:
        form = escape_word(word)
        assert form.split() == [form] and not set(form) & set("()")
        assert unescape_word(form) == word
        assert written.setdefault(form, word) == word
        one = Tree("S", [Tree("NP", [Tree("NN", [word])]), Tree("XX", [word * 2])])
        assert list(read_trees(write_tree(one))) == [one]
        for leaves in LEAVES:
            words, symbols = linearize(one, leaves)
            assert words == one.leaves() and " ".join(symbols).split() == symbols
            back = delinearize(words, symbols, leaves)
            assert back.leaves() == words and repair(words, symbols, leaves) == back
    with pytest.raises(ValueError, match="at least one character"):
        escape_word("")


def test_brackets_are_written_as_the_treebank_does_and_all_else_stays():
    assert escape_word("t(est)") == "t-LRB-est-RRB-"
    assert escape_word("-LRB-") == "\\-LRB-"
    text = "(NP (-LRB- -LRB-) (CD 1\\/2) (CD 1/2) (NN -LCB-) (NN [) (: *) (SYM \\))"
    [one] = read_trees(text)
    assert one.leaves() == ["(", "1\\/2", "1/2", "-LCB-", "[", "*", "\\"]
    assert write_tree(one) == text


@pytest.mark.parametrize("label", ["(", "N P", ")S", "a\u2009b"])
def test_a_label_has_no_bracket_and_no_white_space(label):
    for one in (Tree("S", [Tree(label, ["x"])]), Tree(label, [tree("(NN x)")])):
        for write in (write_tree, linearize):
            with pytest.raises(
                ValueError, match=f"A label has no .* Received: {re.escape(repr(label))}"
            ):
                write(one)
    with pytest.raises(ValueError, match="phrase without words"):
        write_tree(Tree("S", [Tree("NP", [])]))


def test_trees_that_are_too_deep_for_python_are_never_made():
    for levels in (DEEPEST_PHRASES, 300):
        symbols = ["(NP"] * levels + ["NN"] + [")NP"] * levels
        made = repair(["a"], symbols)
        assert made.height() == DEEPEST_PHRASES + 2
        assert list(read_trees(f"( {write_tree(made)} )", strip=True)) == [made]
    with pytest.raises(ValueError, match="more than 198 phrases are open"):
        delinearize(["a"], symbols)
    with pytest.raises(ValueError, match="bank.mrg, line 2: a tree of more than 200 levels"):
        list(read_trees("\n" + "(S " * 300 + "(NN a)" + ")" * 300, "bank.mrg"))


def test_a_tree_of_traces_alone_is_named_by_file_and_line():
    text = GOOD + "( (S (NP (-NONE- *))) )\n"
    assert len(list(read_trees(text, "bank.mrg"))) == 3
    with pytest.raises(ValueError, match="bank.mrg, line 4: The tree has no words"):
        list(read_trees(text, "bank.mrg", strip=True))


GOOD = "( (S (NN a)) )\n( (S\n   (NN b)) )\n"


@pytest.mark.parametrize(
    "text, line, reason",
    [
        (GOOD + "( (S (NP (NN c)) )\n", 4, "1 .* missing"),
        ("( (S (NN a) )\n" + GOOD, 1, "1 .* missing"),
        (GOOD + "( (S (NN c))))\n", 4, "closes nothing"),
        (GOOD + "\nThe cat sat.\n" + GOOD, 5, "sentence without a tree.*The cat sat"),
        (GOOD + "The end", 4, "sentence without a tree"),
        (GOOD + "( )", 4, "sentence without a tree"),
        (GOOD + "(\n(S (NP ) (NN c)))", 4, "phrase without words"),
        (GOOD + "( (S (NP The cat)) )", 4, "tag must stand before each word"),
        (GOOD + "( (S (NP cat) (NN a) dog) )", 4, "tag must stand before each word"),
        (GOOD + "(cat)", 4, "sentence without a tree"),
    ],
)
def test_broken_trees_are_named_by_file_and_line(text, line, reason):
    with pytest.raises(ValueError, match=f"bank.mrg, line {line}: .*{reason}"):
        list(read_trees(text, "bank.mrg"))


@pytest.mark.parametrize(
    "symbols, reason",
    [
        ("(S (NP NN )NP", "not closed"),
        ("(S NN )NP )S", "closes no phrase"),
        ("(S )S", "closes no phrase"),
        (")S", "closes no phrase"),
        ("", "not closed"),
        ("(S NN NN NN )S", "more leaves than the 2 words"),
        ("(S NN )S", "fewer leaves than the 2 words"),
        ("(S NN )S (S NN )S", "follows the end"),
    ],
)
def test_malformed_symbols_are_refused(symbols, reason):
    with pytest.raises(ValueError, match=reason):
        delinearize(["a", "b"], symbols.split())


@pytest.mark.parametrize(
    "words, reason", [(["a", "c"], "is 'b', the word is 'c'"), (["a"], "more")]
)
def test_other_words_in_a_tree_are_refused(words, reason):
    with pytest.raises(ValueError, match=reason):
        delinearize(words, "(S a b )S".split(), "words")


def test_a_phrase_may_have_the_name_of_a_tag():
    one = tree("(S (NN (NN dog)) (X y))")
    assert delinearize(*linearize(one)) == one


def test_leaves_are_tags_words_or_neither():
    with pytest.raises(ValueError, match="`leaves` must be one of .*Received: leaves='tag'"):
        linearize(tree(DOG), "tag")


def test_what_is_no_phrase_is_repaired_to_the_same_tree_too():
    for leaves, symbols in (("tags", ["NN"]), ("XX", ["XX"]), ("words", ["a"])):
        made = repair(["a"], symbols, leaves)
        assert (
            made
            == delinearize(["a"], symbols, leaves)
            == Tree(symbols[0] if leaves == "tags" else "XX", ["a"])
        )
    assert repair(["a"], []) == tree("(S (XX a))")


@pytest.mark.parametrize(
    "symbols, expected",
    [
        ("(S (NP NN )NP NN )S", "(S (NP (NN a)) (NN b))"),  # nothing to repair
        ("(S (NP NN NN", "(S (NP (NN a) (NN b)))"),  # never closed
        ("(S (NP NN )S NN", "(S (S (NP (NN a))) (NN b))"),  # closes what is above; a second tree
        ("(S (NP NN )VP NN )NP )S", "(S (NP (NN a) (NN b)))"),  # closes nothing
        ("(S (NP )NP NN NN )S", "(S (NN a) (NN b))"),  # without a child
        ("(S NN NN NN NN )S", "(S (NN a) (NN b))"),  # more tags than words
        ("(S (NP NN", "(S (NP (NN a) (XX b)))"),  # fewer, and a phrase is open
        ("(NP NN )NP", "(NP (NN a) (XX b))"),  # fewer, and none is
        ("", "(S (XX a) (XX b))"),
        (")S NN", "(S (NN a) (XX b))"),
        ("NN NN", "(S (NN a) (NN b))"),
    ],
)
def test_repairs(symbols, expected):
    assert repair(["a", "b"], symbols.split()) == tree(expected)


@pytest.mark.parametrize(
    "symbols, expected",
    [
        ("(S (NP a )NP b c )S", "(S (NP (XX a)) (XX b) (XX c))"),  # nothing to repair
        ("(S (NP a )NP c )S", "(S (NP (XX a)) (XX b) (XX c))"),  # one is missing
        ("(S (NP a (VP c )VP )NP )S", "(S (NP (XX a) (VP (XX b) (XX c))))"),  # before the next one
        ("(S (NP a )NP x b c )S", "(S (NP (XX a)) (XX b) (XX c))"),  # one is not in the sentence
        ("(S (NP a b )NP b c )S", "(S (NP (XX a) (XX b)) (XX c))"),  # one twice
        ("(S (NP a )NP (VP b )VP )S", "(S (NP (XX a)) (VP (XX b)) (XX c))"),  # the last is missing
        ("(S (NP x )NP )S", "(S (XX a) (XX b) (XX c))"),  # none is of the sentence
    ],
)
def test_repairs_of_trees_with_words(symbols, expected):
    assert repair(["a", "b", "c"], symbols.split(), "words") == tree(expected)


def test_repair_makes_a_tree_of_anything():
    generator = np.random.default_rng(11)
    phrases = [f"{bracket}{label}" for bracket in "()" for label in sorted(PHRASES)]
    for _ in range(300):
        words = [f"w{i}" for i in range(generator.integers(1, 6))]
        for leaves, alphabet in (("tags", ["NN", "."]), ("words", ["w1", "w2", "w4", "x"])):
            choice = generator.choice([*phrases, *alphabet], generator.integers(0, 15))
            made = repair(words, [str(symbol) for symbol in choice], leaves)
            again, written = linearize(made)
            assert again == words
            assert delinearize(words, written) == made


@pytest.mark.parametrize("name, number", [("craft", 30_830), ("wsj_sample", 3_914)])
def test_every_real_tree_survives(name, number):
    """Its words are those that a regular expression finds in the file; the tree comes back."""
    variable = f"KERAS_ATTENTION_{name.upper()}"
    if variable not in os.environ:
        pytest.skip(f"set {variable} to a folder as `load_treebank` wants it")
    count = 0
    for files in load_treebank(name, os.environ[variable]).parts.values():
        expected = [
            word
            for file in files._files
            for tag, word in re.findall(
                r"\(([^ ()]+)[ \n]([^ ()]+)\)",
                re.sub("[\u200a\u2009\xa0]", "", file.read_text(encoding="utf-8")),
            )
            if tag != "-NONE-"
        ]
        found = []
        for one in files:
            words, symbols = linearize(one)
            assert delinearize(words, symbols) == one
            shape = delinearize(*linearize(one, "words"), "words")
            whole = one.copy(deep=True)
            for node in one.subtrees(lambda node: isinstance(node[0], str)):
                node.set_label("XX")
            assert shape == one
            found += map(escape_word, words)
            assert list(read_trees(write_tree(whole))) == [whole]
            count += 1
        assert found == expected
    assert count == number


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: list(read_trees(None)), "text"),
        (lambda: strip_tree(None), "tree"),
        (lambda: linearize("(S (NN dog))"), "tree"),
        (lambda: delinearize(None, ["(S"]), "words"),
        (lambda: delinearize(["dog"], [3]), "symbols"),
    ],
)
def test_what_is_no_tree_is_named(call, name):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        call()
