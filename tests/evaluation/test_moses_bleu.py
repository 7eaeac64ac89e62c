"""The paper's BLEU against lines that tokenizer.perl made, and against counts by hand."""

import functools
import math
import sys

import pytest

from keras_attention.evaluation import moses_bleu
from keras_attention.evaluation.moses_bleu import moses_tokenizer, split_hyphens

tokenized_bleu = functools.partial(moses_bleu.tokenized_bleu, language="de")
pytestmark = pytest.mark.backends("tensorflow")

# Made by Perl 5 with the rules of tokenizer.perl -l de as of 2017 on these lines.
PERL = {
    "„Nein“, sagte er.'": "„ Nein “ , sagte er . &apos;",
    "Das ist z. B. gut...": "Das ist z. B. gut ...",
    "Er kam um 5. Sie ging usw.": "Er kam um 5. Sie ging usw.",
    "5,300 und 3,": "5,300 und 3 ,",
    "Abb. 3 zeigt.. was": "Abb . 3 zeigt .. was",
    "x... y....": "x ... y ....",
    "Am 3. Mai, a,b,c,d": "Am 3. Mai , a , b , c , d",
    "T&C <b> [x] | y 'er' `so`": (
        "T &amp; C &lt; b &gt; &#91; x &#93; &#124; y &apos; er &apos; `so`"
    ),
    "Nr. 5 Art. V ⅓ ² m² –5°": "Nr. 5 Art. V ⅓ ² m ² – 5 °",
}


@pytest.mark.parametrize("line", PERL)
def test_tokens_are_those_of_the_perl_script(line):
    # `“` becomes a plain quotation mark in replace-unicode-punctuation.perl, which comes first.
    assert moses_tokenizer("de")(line) == PERL[line].replace("“", "&quot;")


def test_unicode_punctuation_is_replaced_first():
    assert moses_tokenizer("de")("“Ja”，so…（２）") == "&quot; Ja &quot; , so ... ( 2 )"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("state-of-the-art", "state ##AT##-##AT## of ##AT##-##AT## the ##AT##-##AT## art"),
        ("-5", "-5"),
        ("end-", "end-"),
        ("a - b", "a - b"),
        ("ä-ö x--y", "ä ##AT##-##AT## ö x ##AT##-##AT## -y"),
    ],
)
def test_hyphens(text, expected):
    assert split_hyphens(text) == expected


def test_score_of_the_facts():
    score = tokenized_bleu(
        ["the cat sat on the mat", "a small dog barked"],
        ["the cat sat on the red mat", "a small dog barked loudly"],
    )
    assert score.score == pytest.approx(70.4065592875, rel=1e-9)
    assert tokenized_bleu(["a b c x"], ["a b c d"]).score == 0.0


def test_hyphens_and_punctuation_count_as_tokens():
    score = tokenized_bleu(["Die E-Mail ist da!"], ["Die E-Post ist da!"])
    # Die E ##AT##-##AT## Mail ist da ! against ... Post ...: 6/7, 4/6, 2/5, 0/4 match.
    assert score.score == 0.0
    score = tokenized_bleu(["Die E-Mail ist da, ja!"], ["Die E-Mail ist da, nein!"])
    # 9 tokens; only the last but one differs, so the n-grams that hold it do.
    expected = math.exp(sum(map(math.log, (8 / 9, 6 / 8, 5 / 7, 4 / 6))) / 4)
    assert score.score == pytest.approx(100 * expected, rel=1e-9)


def test_case_counts():
    assert tokenized_bleu(["ein mann und eine frau"], ["Ein Mann Und Eine Frau"]).score == 0.0


def test_references_that_are_tokenised_already():
    hypotheses, tokenised = ["Er sagt „ja“ zur E-Mail."], ["Er sagt „ ja &quot; zur E-Mail ."]
    score = tokenized_bleu(hypotheses, tokenised, references_are_tokenized=True)
    assert score.score == pytest.approx(100)
    assert tokenized_bleu(hypotheses, tokenised).score < 60  # escapes would be escaped again


def test_the_score_names_its_metric():
    score = tokenized_bleu(["eins zwei drei vier"], ["eins zwei drei vier"])
    assert score.metric == "tokenised, hyphen-split BLEU (get_ende_bleu.sh)"
    for part in ("tok:moses-de", "hyphens:split", "smooth:none", "case:mixed", "sacremoses:"):
        assert part in score.signature


def test_without_sacremoses(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    moses_bleu._moses.cache_clear()
    with pytest.raises(ImportError, match=r"pip install sacremoses"):
        tokenized_bleu(["a"], ["a"])
