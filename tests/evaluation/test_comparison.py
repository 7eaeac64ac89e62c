"""Paired bootstrap against a resampling of our own, from counts by hand."""

import math
import os
import unicodedata

import numpy as np
import pytest

from keras_attention.evaluation.comparison import corpus_scores, paired_bootstrap

pytestmark = pytest.mark.backends("tensorflow")

REFERENCES = [
    "Der Hund läuft schnell durch den Park.",
    "Eine Frau liest die E-Mail am Fenster.",
    "Drei Kinder spielen heute im Garten.",
    "Ein Mann fährt mit dem Rad nach Hause.",
    "Die Katze schläft auf dem alten Sofa.",
    "Viele Leute warten vor dem Bahnhof.",
    "Der Koch schneidet frisches Gemüse klein.",
    "Sie tanzen zusammen auf der Straße.",
]
GOOD = [REFERENCES[0].replace("schnell", "rasch"), *REFERENCES[1:]]
BAD = [line.replace("den", "das").replace("dem", "das").replace("im", "am") for line in REFERENCES]


def statistics(hypotheses, references):
    """Matches and totals of 1- to 4-grams and the lengths of each sentence, tokens by spaces."""
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        words, wanted = ((s.replace(".", " .")).split() for s in (hypothesis, reference))
        row = [len(words), len(wanted)]
        for n in range(1, 5):
            grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
            left = [tuple(wanted[i : i + n]) for i in range(len(wanted) - n + 1)]
            matches = 0
            for gram in grams:
                if gram in left:
                    left.remove(gram)
                    matches += 1
            row += [matches, len(grams)]
        rows.append(row)
    return np.array(rows, float)


def bleu(row):
    precisions = row[2::2] / row[3::2]
    penalty = math.exp(min(0.0, 1 - row[1] / row[0]))
    return 100 * penalty * math.exp(np.log(precisions).mean())


def test_bootstrap_agrees_with_a_resampling_of_our_own():
    samples, seed = 200, 7
    differences = paired_bootstrap(
        {"good": GOOD, "bad": BAD}, REFERENCES, samples=samples, seed=seed
    )
    found = next(d for d in differences if d.metric == "BLEU")
    ours = statistics(GOOD, REFERENCES), statistics(BAD, REFERENCES)
    real = bleu(ours[1].sum(0)) - bleu(ours[0].sum(0))
    assert found.difference == pytest.approx(real, abs=1e-6)
    assert found.baseline == "good" and found.system == "bad"

    draws = np.random.default_rng(seed).choice(len(GOOD), (samples, len(GOOD)), replace=True)
    scores = np.array([[bleu(side[draw].sum(0)) for draw in draws] for side in ours])
    changes = np.abs(scores[1] - scores[0])
    p_value = (np.sum(changes - changes.mean() > abs(real)) + 1) / (samples + 1)
    assert found.p_value == pytest.approx(p_value, abs=1e-9)
    # Half of the span that holds 95 % of the resamples.
    ordered = np.sort(scores[1])
    span = (ordered[int(samples * 0.975)] - ordered[int(samples * 0.025)]) / 2
    assert found.interval == pytest.approx(span, rel=0.1)


def test_all_metrics_and_systems_are_compared():
    systems = {"one": GOOD, "base": REFERENCES, "two": BAD}
    differences = paired_bootstrap(systems, REFERENCES, baseline="base", samples=20, language="de")
    assert [(d.metric.split(" ")[0], d.system) for d in differences] == [
        (metric, system) for metric in ("BLEU", "chrF2", "tokenised,") for system in ("one", "two")
    ]
    assert all(d.baseline_score == pytest.approx(100) and d.difference < 0 for d in differences)
    scores = corpus_scores(BAD, REFERENCES, "de")
    for metric, key in (("BLEU", "bleu"), ("chrF2", "chrf"), ("tokenised,", "tokenized_bleu")):
        found = next(d for d in differences if d.metric.startswith(metric) and d.system == "two")
        assert found.score == pytest.approx(scores[key].score)


def test_seeds_decide_and_the_environment_is_left_alone(monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "99")
    systems = {"good": GOOD, "bad": BAD}
    first, again, other = (
        paired_bootstrap(systems, REFERENCES, samples=30, seed=seed) for seed in (3, 3, 4)
    )
    assert first == again
    zero = [paired_bootstrap(systems, REFERENCES, samples=30, seed=0) for _ in range(2)]
    assert zero[0] == zero[1]
    assert [d.interval for d in first] != [d.interval for d in other]
    assert os.environ["SACREBLEU_SEED"] == "99"
    monkeypatch.delenv("SACREBLEU_SEED")
    assert paired_bootstrap(systems, REFERENCES, samples=30, seed=3) == first
    assert "SACREBLEU_SEED" not in os.environ


@pytest.mark.parametrize(
    "systems",
    [
        {"one": GOOD, "same": list(GOOD)},
        {"one": GOOD, "in NFD": [unicodedata.normalize("NFD", line) for line in GOOD]},
        {"one": ["Haus"] * 8, "other": ["Wald"] * 8},  # no score at all
    ],
)
def test_equal_systems_do_not_differ(systems):
    """A difference of 0 or more is certain; sacreBLEU asks for more than 0."""
    for found in paired_bootstrap(systems, REFERENCES, samples=19):
        if found.metric != "chrF2" or "other" not in systems:
            assert (found.difference, found.p_value) == (0.0, 1.0), found


def test_one_sentence_proves_no_difference():
    """All its resamples are the same, and none differs from their mean; of two sentences, some do."""
    for found in paired_bootstrap({"one": GOOD[:1], "other": BAD[:1]}, REFERENCES[:1], samples=19):
        assert found.difference != 0 and found.p_value == 1.0, found
    two = paired_bootstrap({"one": GOOD[:2], "other": BAD[:2]}, REFERENCES[:2], samples=19)
    assert two[0].p_value < 1
