"""The grammar's trees against nltk's own Viterbi parser; right-branching trees by hand."""

import numpy as np
import pytest
from nltk import Nonterminal, Production, Tree, ViterbiParser, induce_pcfg
from parsing.baselines import Pcfg, RightBranching, WordTags, word_form

pytestmark = pytest.mark.backends("tensorflow")

PREPOSITION = "(PP (IN with) (NP (DT a) (NN {})))"
NOUNS = ("dog", "telescope", "man")


def treebank(generator, number=40):
    """Sentences in which a prepositional phrase belongs to the verb or, more rarely, to the noun."""
    trees = []
    for _ in range(number):
        subject, thing, tool = generator.choice(NOUNS, 3)
        phrase = PREPOSITION.format(tool)
        if generator.random() < 0.3:
            rest = f"(VP (VBD saw) (NP (NP (DT a) (NN {thing})) {phrase}))"
        else:
            rest = f"(VP (VBD saw) (NP (DT a) (NN {thing})) {phrase})"
        trees.append(Tree.fromstring(f"(S (NP (DT a) (NN {subject})) {rest} (. .))"))
    trees += [Tree.fromstring("(S (NP (PRP it)) (VP (VBD rained)))")] * 2
    return trees


def viterbi(trees, horizontal):
    """nltk's parser with the grammar of the same trees."""
    productions = []
    for tree in (tree.copy(deep=True) for tree in trees):
        tree.collapse_unary(collapsePOS=True, collapseRoot=True, joinChar="+")
        tree.chomsky_normal_form(horzMarkov=horizontal, childChar="~")
        productions += [Production(Nonterminal(""), [Nonterminal(tree.label())])]
        productions += tree.productions()
    return ViterbiParser(induce_pcfg(Nonterminal(""), productions))


@pytest.mark.parametrize("horizontal", [0, 1, 2])
def test_the_tree_is_that_of_nltks_viterbi_parser(horizontal):
    generator = np.random.default_rng(3)
    trees = treebank(generator)
    ours, theirs = Pcfg(trees, horizontal), viterbi(trees, horizontal)
    sentences = {tuple(tree.leaves()) for tree in trees}
    assert len(sentences) > 10
    for words in sentences:
        [expected] = theirs.parse(words)
        expected = expected[0]
        expected.un_chomsky_normal_form(childChar="~", unaryChar="+")
        assert ours(list(words)) == Tree.convert(expected)


def test_the_grammar_resolves_what_right_branching_cannot():
    trees = treebank(np.random.default_rng(5))
    words = "a man saw a dog with a telescope .".split()
    tree = Pcfg(trees)(words)
    verb_phrase = next(tree.subtrees(lambda node: node.label() == "VP"))
    assert [child.label() for child in verb_phrase] == ["VBD", "NP", "PP"]  # the commoner one


def test_unknown_words_take_the_tag_of_their_form():
    trees = [Tree.fromstring(f"(S (NP (NN {w}) (VBG {v})))") for w, v in
             (("tea", "going"), ("pie", "coming"), ("sun", "trying"))]  # fmt: skip
    assert Pcfg(trees)(["fog", "lifting"]) == Tree.fromstring("(S (NP (NN fog) (VBG lifting)))")
    assert WordTags(trees)(["fog", "lifting"])[1] == "VBG"
    assert word_form("lifting") == word_form("going") != word_form("Going")


def test_a_sentence_outside_the_grammar_branches_to_the_right():
    trees = treebank(np.random.default_rng(9))
    words = ["saw", "saw", "."]
    assert Pcfg(trees)(words) == RightBranching(trees)(words)
    assert Pcfg(trees)(["saw"]).leaves() == ["saw"]


def test_right_branching_leaves_punctuation_where_it_is():
    trees = [Tree.fromstring("(SINV (X (A a)) (VP (VBZ b) (PP (C c) (NP (D d)))) (. .))")] * 2
    trees += [Tree.fromstring("(SINV (A a) (NP (VBZ b) (, ,)))")]
    parser = RightBranching(trees)
    assert (parser.root, parser.inner) == ("SINV", "NP")
    expected = "(SINV (A a) (, ,) (NP (VBZ b) (NP (C c) (. .))))"
    assert parser(["a", ",", "b", "c", "."]) == Tree.fromstring(expected)
