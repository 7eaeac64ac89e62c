"""A student and its teacher: what is chosen, what is trained on, whose tokenizer it has."""

import sys

import distill
import pytest
import sacrebleu

from keras_attention import Tokenizer, Translator, corpus_from_files
from keras_attention.utils.files import read_json, write_json
from tests.recipes.small_runs import untrained_run, write_files

pytestmark = pytest.mark.backends("torch")


def lines_of(path):
    return path.read_text("utf-8").splitlines()


@pytest.mark.parametrize(
    ("hypotheses", "reference", "best"),
    [
        (["a b c", "the small dog ran home", "the small dog runs"], "the small dog runs home", 2),
        (["x", "y"], "the dog", 0),  # equally bad: the likeliest
        (["eins", "M\u00e4nner gehen heute weg"], "Ma\u0308nner gehen heute weg", 1),
    ],
)
def test_the_translation_closest_to_the_reference_is_chosen(hypotheses, reference, best):
    assert distill.closest(hypotheses, reference) == best


def test_a_student_learns_the_best_of_its_teachers_translations(tmp_path, monkeypatch):
    teacher, student = tmp_path / "teacher", tmp_path / "student"
    teacher.mkdir()
    files = write_files(tmp_path, "text", 0, 20)
    untrained_run(teacher)
    corpus = corpus_from_files(files)
    settings = read_json(teacher / "config.json")
    there = {f"{name}_fingerprint": text.fingerprint() for name, text in corpus.splits.items()}
    write_json(teacher / "config.json", {**settings, **there, "vocabulary_size": 320})
    words = [teacher, *files, "--output-dir", student, "--steps", 2, "--n-best", 3]
    words += ["--preset", "tiny", "--num-layers", 2, 1]
    monkeypatch.setattr(sys, "argv", ["distill.py", *map(str, words)])
    distill.main()

    sources = list(corpus.train.sources())
    found = Translator.from_run(teacher, beam_size=3).translate(sources, n_best=3)
    written = lines_of(tmp_path / "student-text" / "target.txt")
    differ = 0
    for best, reference, line in zip(found, corpus.train.targets(), written, strict=True):
        texts = [one.text for one in best]
        scores = [sacrebleu.sentence_bleu(text, [reference]).score for text in texts]
        differ += line != " ".join(texts[scores.index(max(scores))].splitlines())
    assert differ <= 1  # the batches differ, and with them the last digit of a score
    report, config = (read_json(student / f"{name}.json") for name in ("report", "config"))
    assert report["config"]["model_arguments"]["num_layers"] == [2, 1]
    assert config["train_fingerprint"] != there["train_fingerprint"]
    assert config["test_fingerprint"] == there["test_fingerprint"]
    tokenizers = [Tokenizer.load(one / "tokenizer").fingerprint() for one in (teacher, student)]
    assert tokenizers[0] == tokenizers[1]

    write_json(teacher / "config.json", {**settings, **there, "test_fingerprint": "another"})
    with pytest.raises(SystemExit, match="trained on another text"):
        distill.main()
