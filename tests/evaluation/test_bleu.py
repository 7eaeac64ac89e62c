"""BLEU, chrF and TER against the vectors of the facts and what is counted by hand."""

import functools
import importlib.util
import math
import re
import subprocess
import sys
import unicodedata

import numpy as np
import pytest

from keras_attention import Tokenizer, corpus_bleu, corpus_chrf, paired_tests
from keras_attention.evaluation import Sentences, corpus_ter, moses_bleu, report_text
from keras_attention.evaluation import corpus_scores as scores_of_language
from keras_attention.evaluation.bleu import bleu_tokenizer
from keras_attention.evaluation.report import runs_report

tokenized_bleu = functools.partial(moses_bleu.tokenized_bleu, language="de")
corpus_scores = functools.partial(scores_of_language, language="de")
pytestmark = pytest.mark.backends("tensorflow")

HYPOTHESES = ["the cat sat on the mat", "a small dog barked"]
REFERENCES = ["the cat sat on the red mat", "a small dog barked loudly"]


@pytest.mark.parametrize("tokenize", ["13a", "none"])
def test_bleu_of_the_facts(tokenize):
    score = corpus_bleu(HYPOTHESES, REFERENCES, tokenize=tokenize)
    assert score.score == pytest.approx(70.4065592875, abs=1e-8)
    precisions = (10 / 10 * 7 / 8 * 5 / 6 * 3 / 4) ** 0.25
    assert score.score == pytest.approx(100 * math.exp(1 - 12 / 10) * precisions)
    assert "100.0/87.5/83.3/75.0" in score.details and "BP = 0.819" in score.details


@pytest.mark.parametrize("smoothing, expected", [("none", 0.0), ("exp", 59.4603557501)])
def test_smoothing_of_the_facts(smoothing, expected):
    score = corpus_bleu(["a b c x"], ["a b c d"], smoothing=smoothing)
    assert score.score == pytest.approx(expected, abs=1e-8)


def test_signature_says_how():
    score = corpus_bleu(HYPOTHESES, REFERENCES)
    assert score.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert str(score) == f"BLEU 70.41 ({score.signature})"
    other = corpus_bleu(
        HYPOTHESES, REFERENCES, tokenize="intl", lowercase=True, smoothing="none"
    ).signature
    assert other.startswith("nrefs:1|case:lc|eff:no|tok:intl|smooth:none|version:")


def test_case_and_tokenisation_count():
    hypotheses, references = ["The old dog barked twice."], ["the old dog barked twice ."]
    assert corpus_bleu(hypotheses, references).score < 99
    assert corpus_bleu(hypotheses, references, lowercase=True).score == pytest.approx(100)
    without = corpus_bleu(hypotheses, references, lowercase=True, tokenize="none")
    assert without.score < 99


def test_hypotheses_and_references_are_not_exchanged():
    """Brevity is punished, length is not: 3 of 3 words, but 3 of 6 the other way round."""
    assert corpus_bleu(["a b c d"], ["a b c d e f g h"]).score == pytest.approx(100 * math.exp(-1))


def test_chrf_by_hand():
    """ "abc" against "abd": 2 of 3 letters, 1 of 2 pairs, 0 of 1 triples."""
    score = corpus_chrf(["abc"], ["abd"])
    mean = (2 / 3 + 1 / 2 + 0) / 3
    assert score.score == pytest.approx(100 * mean, abs=1e-4)
    assert score.metric == "chrF2" and "nc:6|nw:0" in score.signature
    assert corpus_chrf(["ABC"], ["abc"]).score < 1
    assert corpus_chrf(["ABC"], ["abc"], lowercase=True).score == pytest.approx(100)
    assert "nw:2" in corpus_chrf(["a b"], ["a b"], word_order=2).signature


@pytest.mark.parametrize(
    ("hypothesis", "reference", "errors"),
    [
        ("a b c d e", "a b c d e", 0),
        ("c d a b e", "a b c d e", 1),  # one phrase moved: two words, one edit
        ("a x c d", "a b c d e", 2),  # one replaced, one inserted
        ("A b c d e f", "a b c d e", 1),  # case is ignored, one deleted
    ],
)
def test_ter_by_hand(hypothesis, reference, errors):
    """Errors and words are summed over the corpus: here with a pair of 3 words, of which 1 is wrong."""
    assert corpus_ter([hypothesis], [reference]).score == pytest.approx(100 * errors / 5)
    score = corpus_ter([hypothesis, "x b c"], [reference, "a b c"])
    assert score.score == pytest.approx(100 * (errors + 1) / 8)
    assert score.metric == "TER" and "tok:tercom" in score.signature


@pytest.mark.parametrize(
    ("language", "hypothesis", "reference", "errors", "words"),
    [
        ("zh-TW", "他昨天去了学校。", "他今天去了学校。", 1, 8),
        ("ja", "彼は昨日学校へ行った。", "彼は今日学校へ行った。", 1, 10),
        ("de+zh", "他昨天去了学校。", "他今天去了学校。", 1, 8),
        ("de", "er ging heim.", "er geht heim.", 1, 3),
        (None, "他昨天去了学校。", "他今天去了学校。", 1, 1),
    ],
)
def test_ter_counts_characters_where_there_are_no_spaces(
    language, hypothesis, reference, errors, words
):
    score = corpus_ter([hypothesis], [reference], language=language)
    assert score.score == pytest.approx(100 * errors / words)
    assert f"asian:{'yes' if words > 7 else 'no'}" in score.signature
    report = runs_report({"one": [hypothesis]}, Sentences((), [reference], "x", language, True))
    assert report["systems"]["one"]["scores"]["ter"]["score"] == score.score


def test_ter_is_a_row_of_a_report():
    text = Sentences(["eins", "zwei"], REFERENCES, ter=True)
    report = runs_report({"one": HYPOTHESES, "other": REFERENCES}, text, samples=3)
    for name, lines in {"one": HYPOTHESES, "other": REFERENCES}.items():
        scores = report["systems"][name]["scores"]
        assert scores["ter"]["score"] == corpus_ter(lines, REFERENCES).score
    printed = [line.split() for line in report_text(report).splitlines()]
    assert ["TER", f"{corpus_ter(HYPOTHESES, REFERENCES).score:.2f}", "0.00"] in printed


def bootstrapped(hypotheses, references):
    reversed_words = [" ".join(line.split()[::-1]) for line in HYPOTHESES]
    return paired_tests(
        {"a": hypotheses, "b": iter(reversed_words)}, references, samples=20, language="de"
    )


@pytest.mark.parametrize(
    "score", [corpus_bleu, corpus_chrf, corpus_ter, tokenized_bleu, corpus_scores, bootstrapped]
)
@pytest.mark.parametrize("kind", [iter, np.array])
def test_whatever_holds_lines_is_scored_as_a_list_is(score, kind):
    assert score(kind(HYPOTHESES), kind(REFERENCES)) == score(HYPOTHESES, REFERENCES)


@pytest.mark.parametrize("score", [corpus_bleu, corpus_chrf, corpus_ter, tokenized_bleu])
def test_each_line_has_its_reference(score):
    with pytest.raises(ValueError, match="nothing to score"):
        score([], [])
    with pytest.raises(ValueError, match="2 hypotheses and 1 references"):
        score(["a", "b"], ["a"])


FORMS = {
    "nfd": lambda line: unicodedata.normalize("NFD", line),
    "soft hyphens": lambda line: line.replace("nd", "n\u00add").replace("ein", "ei\u200bn"),
    "byte order mark": lambda line: f"\ufeff{line}",
    "direction": lambda line: f"\u200e{line}\u200f",
}


@pytest.mark.parametrize("changed", [0, 1], ids=["hypotheses", "references"])
@pytest.mark.parametrize(
    "score", [corpus_bleu, corpus_chrf, corpus_ter, tokenized_bleu, corpus_scores, bootstrapped]
)
def test_both_sides_are_compared_in_one_form(score, changed):
    """What nobody sees is no error. Each side alone is in another form, each line in two at once."""
    sides = [
        ["Dreißig Männer und Kinder über dem Fluß", "ein Mädchen träumt und schläft nun"],
        ["Dreißig Männer und Kinder über dem See", "ein Mädchen träumt und schläft ein"],
    ]
    first, second = sides[changed]
    other = [*sides]
    other[changed] = [
        FORMS["byte order mark"](FORMS["nfd"](first)),
        FORMS["direction"](FORMS["soft hyphens"](second)),
    ]
    assert not {*other[changed]} & {*sides[changed]}
    assert score(*other) == score(*sides)


@pytest.mark.parametrize("form", ["nfc", *FORMS])
def test_a_tokenizer_restores_its_references(form):
    plain = ["Dreißig Männer und Kinder warten.", "Zwei Mädchen träumen und eine schläft ein."]
    references = list(map(FORMS.get(form, str), plain))
    tokenizer = Tokenizer.train(references, 320)
    found = tokenizer.decode(tokenizer.encode(references))
    for name, score in corpus_scores(found, references).items():
        assert score.score == pytest.approx(100), name


TEXTS = {
    "zh": "一只狗在花园里大声地叫。",
    "zho_Hant": "一隻狗在花園裡大聲地叫。",
    "ja": "犬が庭で大きな声で吠えています。",
    "tha_Thai": "สุนัขกำลังเห่าเสียงดังอยู่ในสวน",
    "pt-BR": "O cachorro está latindo alto no jardim.",
    "tlh": "loD yaS qaStaHvIS wa' ram loS SaD Hugh",
}


@pytest.mark.parametrize("language", TEXTS)
def test_a_report_repeats_what_sacrebleu_says_of_a_language(language, tmp_path):
    references = [f"{TEXTS[language]} {i}" for i in range(6)]
    found = [references[0].replace(TEXTS[language][5], "X"), *references[1:]]
    text = Sentences((), references, language=language)
    report = runs_report({"one": found, "other": references}, text, samples=9)
    score = report["systems"]["one"]["scores"]["bleu"]
    assert 75 < score["score"] < 100
    assert score["signature"] in report_text(report)
    assert report["significance"][0]["baseline_score"] == pytest.approx(score["score"])
    for name, lines in {"found": found, "references": references}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    tokenizer = re.search(r"tok:(zh|ja-mecab|char|13a)", score["signature"])[1]
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", "found", "-b", "-w", "9"]
    command += ["--tokenize", tokenizer]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert float(said.stdout) == pytest.approx(score["score"], abs=1e-8)
    # Moses' tokenizer is there for the languages that it knows, under their name.
    moses = report["systems"]["one"]["scores"].get("tokenized_bleu", {})
    assert ("|tok:moses-pt|" in moses.get("signature", "")) == (language == "pt-BR") == bool(moses)


@pytest.mark.parametrize("language", ["ja", "ko_Hang"])
def test_without_mecab_characters_are_compared(language, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert bleu_tokenizer(language) == "char"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert bleu_tokenizer(language) == f"{language[:2]}-mecab"
