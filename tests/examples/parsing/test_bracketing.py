"""Bracketing F1 against the sample that comes with EVALB, line by line, and against small trees by hand."""

import dataclasses

import pytest
from nltk import Tree
from parsing.bracketing import BracketingRules, bracketing_counts, bracketing_f1

pytestmark = pytest.mark.backends("tensorflow")

# EVALB's sample.prm: "." is not deleted, and two pairs count as equal.
SAMPLE = BracketingRules(
    deleted_labels=frozenset({"TOP", "-NONE-", ",", ":", "``", "''"}),
    equal_labels={"TT": "T"},
    equal_words={"This": "this"},
    quote_tags=frozenset(),
)
GOLD = "(S (A (P this)) (B (Q is) (A (R a) (T test))))"
LONG = f"(S {'(A (P this)) (B (Q is) (A (R a) (T test))) ' * 11})"
TRACED, DASHED = (GOLD[:-1] + end for end in (" (-NONE- *))", " (: *))"))
# gold, test, status, length, matched, gold and test brackets, crossing, words, correct tags: sample.rsl.
CASES = [
    (GOLD, GOLD, "valid", 4, 4, 4, 4, 0, 4, 4),
    (GOLD, "(S (A (P this)) (B (Q is) (C (R a) (T test))))", "valid", 4, 3, 4, 4, 0, 4, 4),
    (GOLD, "(S (A (P this)) (B (Q is) (A (R a) (U test))))", "valid", 4, 4, 4, 4, 0, 4, 3),
    (GOLD, "(S (C (P this)) (B (Q is) (A (R a) (U test))))", "valid", 4, 3, 4, 4, 0, 4, 3),
    (GOLD, "(S (A (P this)) (B (Q is) (R a) (A (T test))))", "valid", 4, 3, 4, 4, 0, 4, 4),
    (GOLD, "(S (A (P this) (Q is)) (A (R a) (T test)))", "valid", 4, 2, 4, 3, 1, 4, 4),
    (GOLD, "(S (P this) (Q is) (R a) (T test))", "valid", 4, 1, 4, 1, 0, 4, 4),
    (GOLD, "(P this) (Q is) (R a) (T test)", "valid", 4, 0, 4, 0, 0, 4, 4),
    (GOLD, "(S (A (P this)) (B (Q is) (A (A (R a) (T test)))))", "valid", 4, 4, 4, 5, 0, 4, 4),
    (GOLD, "(S (A (P this)) (B (Q is) (A (A (A (A (A (R a) (T test))))))))",
     "valid", 4, 4, 4, 8, 0, 4, 4),
    (GOLD, "", "skipped", 4, 0, 4, 0, 0, 0, 0),
    (GOLD, "(S (A (P this)) (B (Q was) (A (A (R a) (T test)))))", "error", 4, 0, 4, 0, 0, 0, 0),
    (GOLD, "(S (A (P this)) (B (Q is) (U not) (A (A (R a) (T test)))))",
     "error", 4, 0, 4, 0, 0, 0, 0),
    (GOLD, "", "skipped", 4, 0, 4, 0, 0, 0, 0),
    (GOLD, f"(TOP {GOLD})", "valid", 4, 4, 4, 4, 0, 4, 4),
    (GOLD, "(S (A (P this)) (NONE *) (B (Q is) (A (R a) (T test))))",
     "error", 4, 0, 4, 0, 0, 0, 0),
    (GOLD, "(S (A (P this)) (S (NONE abc) (A (NONE *))) (B (Q is) (A (R a) (T test))))",
     "error", 4, 0, 4, 0, 0, 0, 0),
    (GOLD, "(S (A (P this)) (B (Q is) (A (R a) (TT test))))", "valid", 4, 4, 4, 4, 0, 4, 4),
    (GOLD, "(S (A (P This)) (B (Q is) (A (R a) (T test))))", "valid", 4, 4, 4, 4, 0, 4, 4),
    (GOLD, "(S (A (P That)) (B (Q is) (A (R a) (T test))))", "error", 4, 0, 4, 0, 0, 0, 0),
    ("(S (A-SBJ-1 (P this)) (B-WHATEVER (Q is) (A (R a) (T test))))", GOLD,
     "valid", 4, 4, 4, 4, 0, 4, 4),
    (LONG, LONG, "valid", 44, 34, 34, 34, 0, 44, 44),
    (TRACED, TRACED, "valid", 4, 4, 4, 4, 0, 4, 4),
    (DASHED, DASHED, "valid", 5, 4, 4, 4, 0, 4, 4),
]  # fmt: skip


def tree(text):
    return Tree.fromstring(text)


def roots(text):
    """Trees that stand side by side; none of an empty line."""
    return list(tree(f"(line {text})")) if text else None


@pytest.mark.parametrize("case", range(24))
def test_each_sentence_of_the_sample(case):
    gold, test, *expected = CASES[case]
    score = bracketing_counts(tree(gold), roots(test), SAMPLE)
    assert [getattr(score, name) for name in (
        "status", "length", "matched", "gold", "parsed", "crossing", "words", "correct_tags",
    )] == expected  # fmt: skip


def test_the_totals_of_the_sample():
    scores = bracketing_f1([tree(c[0]) for c in CASES], [roots(c[1]) for c in CASES], SAMPLE)
    names = ("sentences", "errors", "skipped", "valid", "recall", "precision", "complete_match",
             "average_crossing", "no_crossing", "two_or_less_crossing", "tagging_accuracy")  # fmt: skip
    expected = {
        "all": (24, 5, 2, 17, 87.76, 90.53, 52.94, 0.06, 94.12, 100.0, 98.15),
        "short": (23, 5, 2, 16, 81.25, 85.25, 50.0, 0.06, 93.75, 100.0, 96.88),
    }
    for part, score in scores.items():
        summary = score.summary()
        assert tuple(round(summary[name], 2) for name in names) == expected[part]
    score = scores["all"]
    assert (score.matched, score.gold, score.parsed) == (86, 98, 95)
    assert round(score.f1, 2) == 89.12
    # Seven sentences failed, with four gold brackets each.
    assert score.f1_of_all == pytest.approx(100 * 2 * 86 / (98 + 28 + 95))


def test_both_figures_are_equal_where_nothing_fails():
    valid = [(gold, test) for gold, test, status, *_ in CASES if status == "valid"]
    score = bracketing_f1(
        [tree(gold) for gold, _ in valid], [roots(test) for _, test in valid], SAMPLE
    )["all"]
    assert score.f1 == score.f1_of_all > 89


def test_punctuation_and_traces_do_not_count():
    gold = tree("( (S (NP-SBJ (NN a)) (, ,) (VP (VB b) (SBAR (-NONE- 0) (S (-NONE- *T*)))) (. .)))")
    # The comma is in another phrase, and the full stop outside: the same brackets over two words.
    parse = tree("(S (NP (NN a) (, ,)) (VP (VB b) (. .)))")
    score = bracketing_counts(gold, parse)
    assert (score.status, score.matched, score.gold, score.parsed) == ("valid", 3, 3, 3)
    assert (score.length, score.words) == (4, 2)


def test_a_particle_counts_as_an_adverb_phrase():
    gold = tree("(VP (VB give) (PRT (RP up)))")
    assert bracketing_counts(gold, tree("(VP (VB give) (ADVP (RB up)))")).matched == 2
    assert bracketing_counts(gold, tree("(VP (VB give) (PP (RP up)))")).matched == 1


def test_brackets_over_the_same_words_match_one_by_one():
    gold = tree("(NP (NP (NP (DT the) (NN man))))")
    score = bracketing_counts(gold, tree("(NP (NP (DT the) (NN man)))"))
    assert (score.matched, score.gold, score.parsed) == (2, 3, 2)


def test_a_wrong_tag_of_a_quotation_mark_is_put_back():
    """Only one of the trees would delete it; of other words with a wrong tag it is an error."""
    gold = tree('(S (NP (DT a) (`` ") (NN b)) (VP (VB c)))')
    score = bracketing_counts(gold, tree('(S (NP (DT a) (NN ") (NN b)) (VP (VB c)))'))
    assert (score.status, score.matched, score.words, score.correct_tags) == ("valid", 3, 4, 3)
    other = tree("(S (NP (DT a) (: --) (NN b)) (VP (VB c)))")
    score = bracketing_counts(other, tree("(S (NP (DT a) (NN --) (NN b)) (VP (VB c)))"))
    assert (score.status, score.gold, score.parsed) == ("error", 3, 0)


# As CASES, by the compiled EVALB of 2013 with new.prm. These words are quotation marks.
QUOTED = [
    # Only the tree that deletes a quotation mark gets it back; neighbours move on.
    ("(S (NP (`` \") (`` \") (NN a)) (VP (VB b)))", "(S (NP (NN \") (POS \") (NN a)) (VP (VB b)))",
     "valid", 4, 3, 3, 3, 0, 4, 2),
    ("(S (NP (NN a)) ('' \") ('' \") (VP (VB b)))", "(S (NP (NN a) (NN \") ('' \")) (VP (VB b)))",
     "valid", 4, 2, 3, 3, 0, 3, 2),
    # The second mark is compared with the first, which is put back twice.
    ("(S (NP (`` \") (NN a)) (VP (VB b)))", "(S (NP (NN \") (NN \") (NN a)) (VP (VB b)))",
     "valid", 3, 3, 3, 3, 0, 4, 2),
    ("(NP ('' \") ('' \"))", "(S (NN \"))", "valid", 2, 0, 1, 1, 0, 1, 0),
    # A tree of deleted words only is no parse, whatever could be put back.
    ("(S (`` \") (NN a))", "(S (`` \"))", "skipped", 2, 0, 1, 0, 0, 0, 0),
    # A trace in one tree, another deleted word in the other: neither is counted among the words before.
    ("(S (NP (-NONE- a) (`` \") (NN b)) (VP (VB c)))", "(S (NP (, a) (NN \") (NN b)) (VP (VB c)))",
     "valid", 3, 3, 3, 3, 0, 3, 2),
    ("(S (NP (NN a)) (VP (VB b) (, ,)))", "(S (NP (NN a)) (VP (VB b)) (-NONE- x))",
     "valid", 3, 3, 3, 3, 0, 2, 2),
    # Of these labels nothing is left; they count all the same.
    ("(S (-LRB- (NN a)) (VP (VB b)))", "(S (-RRB- (NN a)) (VP (VB b)))",
     "valid", 2, 3, 3, 3, 0, 2, 2),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(QUOTED)))
def test_the_counts_of_evalb_where_tags_differ(case):
    gold, test, *expected = QUOTED[case]
    score = bracketing_counts(tree(gold), tree(test))
    assert list(dataclasses.astuple(score)) == expected


def test_phrases_without_words_and_words_without_tags():
    gold = tree("(S (NP (NN a)) (VP (VB b)))")
    empty = Tree("S", [Tree("NP", [tree("(NN a)")]), Tree("ADVP", []), tree("(VP (VB b) (NP))")])
    score = bracketing_counts(gold, empty)
    assert (score.status, score.matched, score.gold, score.parsed) == ("valid", 3, 3, 3)
    assert bracketing_counts(gold, Tree("S", [])).status == "skipped"
    for children in (["a", tree("(VP (VB b))")], [tree("(NN a)"), "b"], ["a", "b"]):
        score = bracketing_counts(gold, Tree("S", [tree("(NN a)"), Tree("VP", children)]))
        assert (score.status, score.gold, score.matched) == ("error", 3, 0)
    with pytest.raises(ValueError, match="`tree` must be .* Received: tree='.S .NN a..'"):
        bracketing_counts(gold, "(S (NN a))")
    with pytest.raises(ValueError, match="`tree` must be an nltk.Tree, .* Received: tree=3"):
        bracketing_counts(gold, [3])


def test_a_bracket_is_the_same_word_by_the_treebanks_name():
    """nltk's reader leaves the names in the trees, ours does not."""
    gold = tree("(NP (-LRB- -LRB-) (NN t-LRB-est-RRB-))")
    parse = Tree("NP", [Tree("-LRB-", ["("]), Tree("NN", ["t(est)"])])
    assert bracketing_counts(gold, parse).matched == 1
    assert bracketing_counts(gold, Tree("NP", [*parse[:1], tree("(NN test)")])).status == "error"


def test_a_parse_is_needed_for_each_tree():
    with pytest.raises(ValueError, match="Received: 2 gold trees, 1 parses"):
        bracketing_f1([tree(GOLD)] * 2, [tree(GOLD)])
    with pytest.raises(ValueError, match="at least one"):
        bracketing_f1([], [])
