"""Paired tests against sacreBLEU's own command."""

import os
import re
import subprocess
import sys
import unicodedata

import pytest

from keras_attention import paired_tests
from keras_attention.evaluation import corpus_scores

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


@pytest.mark.parametrize("seed", [None, "7"])
def test_the_numbers_are_those_of_sacrebleus_command(seed, tmp_path, monkeypatch):
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    if seed is not None:
        monkeypatch.setenv("SACREBLEU_SEED", seed)
    systems = {"one": GOOD, "base": [*REFERENCES[:7], GOOD[0]], "two": BAD}
    differences = paired_tests(systems, REFERENCES, baseline="base", samples=40, language="de")
    assert [(d.metric, d.baseline, d.system) for d in differences] == [
        (metric, "base", system) for metric in ("BLEU", "chrF2") for system in ("one", "two")
    ]
    for name, lines in {**systems, "references": REFERENCES}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", "base", "one", "two"]
    command += ["-m", "bleu", "chrf", "-w", "6", "-f", "text"]
    for test in ("bs", "ar"):
        said = subprocess.run(
            [*command, f"--paired-{test}", f"--paired-{test}-n", "40"],
            cwd=tmp_path, capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONUTF8": "1"},
        ).stdout  # fmt: skip
        scores = re.findall(r"([\d.]{6,})(?: \([\d.]+ ± ([\d.]+)\))? +│", said)
        values = re.findall(r"\(p = ([\d.]+)\)", said)
        for index, found in enumerate(differences):
            metric, system = divmod(index, 2)
            cells = [(found.baseline_score, found.baseline_interval), (found.score, found.interval)]
            for cell, row in zip(cells, (0, 1 + system), strict=True):
                score, interval = scores[2 * row + metric]
                assert cell[0] == pytest.approx(float(score), abs=1e-5)
                assert test == "ar" or cell[1] == pytest.approx(float(interval), abs=1e-5)
            p_value = found.p_value if test == "bs" else found.randomization_p_value
            assert f"{p_value:.4f}" == values[2 * system + metric]
            assert test == "ar" or found.signature in said
    bleu = corpus_scores(BAD, REFERENCES, "de")["bleu"].score
    assert differences[1].score == pytest.approx(bleu)
    assert differences[1].difference == pytest.approx(bleu - differences[1].baseline_score)


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
    for found in paired_tests(systems, REFERENCES, samples=19):
        if found.metric != "chrF2" or "other" not in systems:
            values = found.difference, found.p_value, found.randomization_p_value
            assert values == (0.0, 1.0, 1.0), found


def test_one_sentence_proves_no_difference():
    """All its resamples are the same, and none differs from their mean; of two sentences, some do."""
    for found in paired_tests({"one": GOOD[:1], "other": BAD[:1]}, REFERENCES[:1], samples=19):
        assert found.difference != 0, found
        assert found.p_value == found.randomization_p_value == 1.0, found
    two = paired_tests({"one": GOOD[:2], "other": BAD[:2]}, REFERENCES[:2], samples=19)
    assert two[0].p_value < 1
