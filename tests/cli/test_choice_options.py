"""Options of `translate` beside those of the search: what `Translator` says with the same arguments."""

import dataclasses
import json
import re
import shlex
import shutil
import sys
import types

import pytest

from keras_attention import Restrictions, Sampling, Tokenizer, Transformer, Translator
from tests.cli.conftest import as_lines
from tests.recipes.small_runs import untrained_run

pytestmark = pytest.mark.backends("torch")

LINES = ["The dog sleeps.", "", "A woman sees the small house."]


@pytest.fixture
def translated(run, command):
    """Runs the command on the lines; returns those that it writes."""
    return lambda *options: command("translate", run, *options, typed=LINES).out.splitlines()


@pytest.fixture
def untranslated(run, refused):
    """Runs the command on the lines, which it refuses to translate; returns why."""
    return lambda *options: refused("translate", run, *options, typed=LINES)


@pytest.fixture
def split(monkeypatch):
    """A package that splits behind full stops, and keeps the language."""
    fake = types.ModuleType("sentencex")
    fake.languages = []

    def segment(language, text):
        fake.languages.append(language)
        return re.findall(r"[^.]*(?:\.\s*|$)", text)

    fake.segment = segment
    monkeypatch.setitem(sys.modules, "sentencex", fake)
    return fake


def test_samples(translated, translator):
    options = ["--sample", "--temperature", "0.9", "--top-k", "30", "--top-p", "0.9", "--seed", "5"]
    drawn = dataclasses.replace(translator, sampling=Sampling(0.9, 30, 0.9, 5))
    wanted = drawn.translate(LINES, n_best=3)
    rows = [line.split(" ||| ")[:2] for line in translated(*options, "--n-best", "3")]
    assert rows == [
        [str(line), text]
        for line, best in enumerate(wanted)
        for text in as_lines(one.text for one in best)
    ]
    best = drawn.translate_mbr(LINES, 4)
    assert translated(*options, "--mbr", "4") == as_lines(one.text for one in best)


def test_restrictions_and_prefixes(translated, translator, tmp_path):
    (tmp_path / "prefixes").write_text("Der\n\nEine Frau\n")
    restricted = dataclasses.replace(
        translator, restrictions=Restrictions(2, ["Hund", "der"], 4, 23)
    )
    wanted = restricted.translate(LINES, prefixes=["Der", "", "Eine Frau"])
    found = translated(
        *("--no-repeat-ngram", "2", "--ban", "Hund", "der", "--min-length", "4"),
        *("--max-length", "23", "--prefix-file", tmp_path / "prefixes"),
    )
    assert found == as_lines(best[0].text for best in wanted)
    assert found[0].startswith("Der") and found[2].startswith("Eine Frau")


def test_the_greatest_length_beside_the_source(translated, translator):
    short = dataclasses.replace(translator, max_extra_length=0).translate(LINES)
    found = translated("--max-extra-length", "0")
    assert found == as_lines(best[0].text for best in short) != translated()


def test_phrases(translated, tmp_path):
    (tmp_path / "phrases").write_text("Hund\tschl\n\n\n")
    found = translated("--phrases-file", tmp_path / "phrases", "--beam-size", "4")
    assert "Hund" in found[0] and "schl" in found[0] and found[1] == ""


def test_a_glossary(translated, translator, untranslated, tmp_path):
    (tmp_path / "terms").write_text("dog\tHund schl\nHouse\tx\nSmall House\ty\n")
    asked = ("--glossary", tmp_path / "terms", "--beam-size", "3")
    glossed = dataclasses.replace(translator, glossary={"dog": "Hund schl"}, beam_size=3)
    found = translated(*asked)
    assert found == as_lines(glossed(LINES)) and "Hund schl" in found[0]
    assert found[1:] == translated("--beam-size", "3")[1:]
    assert "`glossary` needs a beam" in untranslated(*asked[:2], "--beam-size", "1")
    chunks = ("--output-dir", tmp_path / "new", "--input", tmp_path / "terms")
    assert "--glossary cannot be combined with --output-dir" in untranslated(*asked, *chunks)
    (tmp_path / "terms").write_text("dog\tHund\n\ndog\n")
    assert f"line 3 of '{tmp_path / 'terms'}' with 0 tabs" in untranslated(*asked)


def test_phrases_and_a_glossary_of_an_onnx_model(translator, command, tmp_path):
    """Which has no weights by name, so no Keras model can be made of it."""
    pytest.importorskip("onnxruntime", reason="not installed: pip install onnx onnxruntime")
    folder = translator.export(tmp_path / "onnx", "onnx")
    (tmp_path / "phrases").write_text("Hund\n\n\n")
    (tmp_path / "terms").write_text("woman\tKatze\n")
    glossed = dataclasses.replace(translator, glossary={"woman": "Katze"})
    wanted = glossed.translate(LINES, phrases=[["Hund"], [], []])
    asked = ("--phrases-file", tmp_path / "phrases", "--glossary", tmp_path / "terms")
    search = ("--beam-size", "2", "--length-penalty", "0.6")
    found = command("translate", folder, *asked, *search, typed=LINES).out.splitlines()
    assert found == as_lines(best[0].text for best in wanted)
    assert "Hund" in found[0] and "Katze" in found[2]


def test_another_model_translates_the_translations(
    run, translator, foreign, translated, untranslated, tmp_path
):
    """What is said of contents and n best is the other's; a prefix of the source is the first one's."""
    model, languages = tmp_path / "other", {"languages": ["de", "nl"]}
    Translator.from_preset(foreign / "separate").save_to_preset(model, card=languages)
    tokenizer = Tokenizer.load(run / "tokenizer")
    tokenizer.source_prefix = "der"
    first = dataclasses.replace(translator, tokenizer=tokenizer, beam_size=3)
    rules = Restrictions(no_repeat_ngram_size=2, max_length=5)
    second = Translator.from_preset(model, beam_size=3, restrictions=rules)
    pivot = first.then(second)
    options = ("--beam-size", "3", "--no-repeat-ngram", "2", "--max-length", "5")
    options = ("--then", model, "--source-prefix", "der", *options)
    assert translated(*options) == as_lines(pivot(LINES))
    rows = [line.split(" ||| ") for line in translated(*options, "--n-best", "3")]
    wanted = [one for best in pivot.translate(LINES, n_best=3) for one in best]
    assert [row[1] for row in rows] == as_lines(one.text for one in wanted)
    assert [float(row[2]) for row in rows] == pytest.approx([one.score for one in wanted], abs=1e-4)
    assert "--n-best must be at most the beam size" in untranslated(*options, "--n-best", "4")
    for other in ("--markup", "--alignment", "--mbr=2", "--split-sentences=en", "--with=x"):
        assert "cannot be combined with --then" in untranslated(*options[:2], other)
    assert "into 'de', but the second one from 'en'" in untranslated("--then", run)
    assert "There is no folder 'nowhere'" in untranslated("--then", "nowhere")


def test_models_of_an_ensemble_with_other_prefixes(
    run, translated, translator, tmp_path, untranslated
):
    other = shutil.copytree(run, tmp_path / "other")
    tokenizer = Tokenizer.load(run / "tokenizer")
    tokenizer.source_prefix = "der"
    shutil.rmtree(other / "tokenizer")
    tokenizer.save(other / "tokenizer")
    expected = dataclasses.replace(translator, tokenizer=tokenizer)(LINES)
    assert translated("--with", other, "--source-prefix", "der") == as_lines(expected)
    assert translated("--with", other, "--source-prefix", "none") == as_lines(translator(LINES))
    assert "'none' before every line" in (told := untranslated("--with", other))
    assert "puts 'der'. Say which with --source-prefix" in told


@pytest.mark.parametrize(
    ("lines", "message"),
    [("a\n\n", "has fewer lines than the input: 2"), ("a\n\n\nb\n", "has more")],
)
def test_a_file_of_prefixes_has_the_lines_of_the_input(tmp_path, lines, message, untranslated):
    (tmp_path / "prefixes").write_text(lines)
    assert f"--prefix-file {message}" in untranslated("--prefix-file", tmp_path / "prefixes")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--top-k 3", "--top-k needs --sample"),
        ("--sample --temperature 0", "temperature"),
        ("--mbr 3", "--mbr must be at most the beam size, which is 2"),
        ("--mbr 2 --n-best 2", "cannot be combined with --n-best"),
        ("--sample --n-best 999999999", "an int from 1 to 100,000. Received"),
        ("--sample --mbr 99999", "an int from 1 to 1,000. Received"),
        ("--mbr 2 --output-dir new --input FILE", "--mbr cannot be combined"),
        ("--markup --alignment", "--alignment cannot be combined with --markup"),
        ("--markup --mbr 2", "--mbr cannot be combined with --markup"),
        ("--alignment-head 0 1", "--alignment-head needs --alignment or --markup"),
        ("--markup --alignment-head 0 9", "a head from 0 to"),
        (
            "--output-dir new --input FILE FILE --prefix-file FILE",
            "--prefix-file needs one file of --input. Received: 2 files",
        ),
        ("--ban x --engine ctranslate2", "has no restrictions"),
        ("--min-length 9 --max-length 8", "--max-length must be at least --min-length, which is 9"),
        ("--split-sentences 'no such thing'", "must be the language code"),
        ("--split-sentences xx", "`--split-sentences` must be the language code"),
        ("--split-sentences en --n-best 2", "--n-best cannot be combined with --split-sentences"),
        ("--split-sentences en --max-line 9", "--max-line cannot be combined"),
        ("--split-sentences en --json", "--json cannot be combined with --split-sentences"),
        ("--split-sentences en --mbr 2", "--mbr cannot be combined with --split-sentences"),
        ("--split-sentences en --markup", "--markup cannot be combined with --split-sentences"),
        ("--split-sentences en --alignment", "--alignment cannot be combined with --split"),
        ("--split-sentences en --prefix-file FILE", "--prefix-file cannot be combined"),
        (
            "--split-sentences en --output-dir new --input FILE",
            "--split-sentences cannot be combined with --output-dir",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(split, options, message, untranslated):
    if "ctranslate2" in options:
        pytest.importorskip("ctranslate2")
    words = shlex.split(options)
    assert message in untranslated(*(__file__ if word == "FILE" else word for word in words))


def test_an_ensemble_with_another_vocabulary_is_refused(tmp_path, untranslated):
    other = untrained_run(tmp_path, first=20)
    assert "has another vocabulary than" in untranslated("--with", other)


def test_paragraphs_are_translated_sentence_by_sentence(translated, translator, split, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "LINES", [*LINES, "The dog sleeps. A woman  runs."])
    first, second = as_lines(translator(["The dog sleeps.", "A woman  runs."]))
    assert first and second
    whole = as_lines(translator(LINES[:-1]))
    assert translated("--split-sentences", "de") == [*whole, f"{first} {second}"]
    assert set(split.languages) == {"de"}


def test_a_line_is_named_of_whose_sentences_one_cannot_be_translated(
    untranslated, split, monkeypatch
):
    monkeypatch.setattr(sys.modules[__name__], "LINES", ["", " ", "The dog sleeps. A woman runs."])
    assert "Line 3 needs" in untranslated("--split-sentences", "de", "--min-length", "200")


def test_loops(translated, translator):
    """Of an untrained model, which says the same again and again."""
    breaking = dataclasses.replace(translator, break_loops=True, engine="torch")
    wanted = [best for [best] in breaking.translate(LINES)]
    assert any(one.had_loop for one in wanted)
    asked = ["--break-loops", "--json", "--engine", "torch"]
    rows = [json.loads(line)["translations"][0] for line in translated(*asked)]
    assert [row.get("had_loop", False) for row in rows] == [one.had_loop for one in wanted]
    assert [row["text"] for row in rows] == as_lines(one.text for one in wanted)


def test_a_prefix_beside_the_tag_of_a_language_is_refused(command, refused, tmp_path):
    tokenizer = Tokenizer.train(LINES, vocabulary_size=290, symbols=["<2de>", "<2fr>"])
    model = Transformer(tokenizer.vocabulary_size, 1, 8, 12, 2, seed=3)
    Translator(model, tokenizer, max_extra_length=2).save_to_preset(tmp_path / "preset")
    asked = ("translate", tmp_path / "preset", "--target-language", "fr")
    assert command(*asked, typed=LINES[:1]).err.count("Each line gets the prefix '<2fr>'") == 1
    told = refused(*asked, "--source-prefix", "<2de>", typed=LINES[:1])
    assert "--target-language puts '<2fr>' before each line" in told
