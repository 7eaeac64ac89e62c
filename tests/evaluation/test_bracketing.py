"""Bracketing F1 against the sample that comes with EVALB, line by line, and against small trees by hand."""

import pytest
from nltk import Tree

from keras_attention.evaluation.bracketing import (
    BracketingRules,
    bracketing_counts,
    bracketing_f1,
)

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


def test_a_parse_is_needed_for_each_tree():
    with pytest.raises(ValueError, match="Received: 2 gold trees, 1 parses"):
        bracketing_f1([tree(GOLD)] * 2, [tree(GOLD)])
    with pytest.raises(ValueError, match="at least one"):
        bracketing_f1([], [])
