"""A student and its teacher: what is chosen, what is trained on, what a stopped command goes on with."""

import dataclasses
import json
import shutil
import sys

import pytest
import sacrebleu

from keras_attention import Tokenizer, Translator
from keras_attention.cli.main import main
from keras_attention.data.corpora import corpus_from_files
from keras_attention.data.normalization import normalize
from keras_attention.recipes import bulk, distill, distillation
from keras_attention.recipes.distillation import DistilledRun, closest
from keras_attention.utils.files import read_json, write_json
from tests.recipes.small_runs import SMALL, small_corpus, untrained_run

pytestmark = pytest.mark.backends("torch")

STUDENT = dataclasses.replace(
    SMALL,
    model_arguments={**SMALL.model_arguments, "num_layers": (2, 1)},
    vocabulary_size=999,
    batch_tokens=1500,
    steps=4,
    bleu_every=99,
    attention_log=False,
)


def long_winded(folder, taught):
    """A teacher whose sources had up to 300 tokens, so that its translations may not fit into a batch."""
    teacher = folder / "teacher"
    shutil.copytree(taught / "teacher", teacher)
    write_json(
        teacher / "report.json",
        {**read_json(teacher / "report.json"), "batches": {"longest_source": 300}},
    )
    return {"teacher": teacher}


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A teacher that babbles, with a prefix before its sources; its text; and a student of it."""
    folder = tmp_path_factory.mktemp("taught")
    teacher = folder / "teacher"
    teacher.mkdir()
    untrained_run(teacher)
    files = {
        name: tuple(teacher / f"{file}.{language}" for language in ("en", "de"))
        for name, file in {"train": "train", "validation": "dev"}.items()
    }
    corpus = corpus_from_files(**files, name="twelve")
    settings = read_json(teacher / "config.json")
    settings |= {f"{name}_fingerprint": text.fingerprint() for name, text in corpus.splits.items()}
    settings |= {"source_prefix": "To German:", "vocabulary_size": 320}
    write_json(teacher / "config.json", settings)
    tokenizer = Tokenizer.load(teacher / "tokenizer")
    tokenizer.source_prefix = "To German:"
    shutil.rmtree(teacher / "tokenizer")
    tokenizer.save(teacher / "tokenizer")
    found = Translator.from_run(teacher)(list(corpus.test.sources()))
    for name, lines in {"translations": found, "references": corpus.test.targets()}.items():
        text = "".join(f"{' '.join(line.splitlines())}\n" for line in lines)
        (teacher / f"{name}.txt").write_text(text, "utf-8")
    report = distill(teacher, corpus, STUDENT, folder / "student", n_best=3)
    return folder, corpus, report


def lines_of(path):
    return path.read_text("utf-8").splitlines()


def oracle(hypotheses, reference):
    """The best by the library's own function, in the form in which text is compared."""
    scores = [
        sacrebleu.sentence_bleu(normalize(one), [normalize(reference)]).score for one in hypotheses
    ]
    return max(range(len(scores)), key=scores.__getitem__)


@pytest.mark.parametrize(
    ("hypotheses", "reference", "best"),
    [
        (["a b c", "the small dog ran home", "the small dog runs"], "the small dog runs home", 2),
        (["x", "y"], "the dog", 0),  # equally bad: the likeliest
        (["Ma\u0308nner gehen heute weg", "eins"], "M\u00e4nner gehen heute weg", 0),
        (["eins", "Männer gehen heute weg"], "Ma\u0308nner gehen heute weg", 1),
        (["", "the"], "the dog", 1),
    ],
)
def test_the_translation_closest_to_the_reference_is_chosen(hypotheses, reference, best):
    assert closest(hypotheses, reference) == best == oracle(hypotheses, reference)


def test_the_student_learns_the_best_of_its_teachers_translations(taught):
    folder, corpus, report = taught
    distilled = folder / "student" / "distilled"
    translator = Translator.from_run(folder / "teacher", beam_size=3)
    found = translator.translate(list(corpus.train.sources()), n_best=3)
    expected = []
    for best, reference in zip(found, corpus.train.targets(), strict=True):
        texts = [" ".join(one.text.splitlines()) for one in best]
        expected.append(texts[oracle(texts, reference)])
    assert lines_of(distilled / "source.txt") == list(corpus.train.sources())
    target = lines_of(distilled / "target.txt")
    assert sum(a == b for a, b in zip(target, expected, strict=True)) >= len(target) - 1
    assert target != list(corpus.train.targets())
    config = read_json(folder / "student" / "config.json")
    teacher = read_json(folder / "teacher" / "config.json")
    assert config["train_fingerprint"] != teacher["train_fingerprint"]
    for split in ("validation", "test"):
        assert config[f"{split}_fingerprint"] == teacher[f"{split}_fingerprint"]
    assert report["description"].endswith(f"by the model '{folder / 'teacher'}'")


def test_the_student_has_its_teachers_tokenizer(taught):
    folder, _, report = taught
    tokenizers = [
        Tokenizer.load(folder / name / "tokenizer").fingerprint() for name in ("teacher", "student")
    ]
    assert tokenizers[0] == tokenizers[1]
    assert report["config"]["vocabulary_size"] == 320
    assert report["config"]["source_prefix"] == "To German:"
    assert report["config"]["model_arguments"]["num_layers"] == [2, 1]
    translator = Translator.from_run(folder / "student")
    assert len(translator.model.encoder_blocks) == 2 and len(translator.model.decoder_blocks) == 1


def test_the_report_compares_both(taught):
    folder, corpus, report = taught
    both = report["evaluation"]["teacher"]
    references = list(corpus.test.targets())
    for name in ("teacher", "student"):
        lines = lines_of(folder / name / "translations.txt")
        bleu = sacrebleu.corpus_bleu([*map(normalize, lines)], [[*map(normalize, references)]])
        assert both["systems"][name]["scores"]["bleu"]["score"] == pytest.approx(bleu.score)
        model = Translator.from_run(folder / name).model
        expected = {
            "teacher": 5,
            "student": model.count_params(),
        }  # of the report of `untrained_run`
        assert both["parameters"][name] == expected[name]
    assert {one["baseline"] for one in both["significance"]} == {"teacher"}
    text = (folder / "student" / "report.txt").read_text("utf-8")
    assert "Teacher and student" in text and f"student {both['parameters']['student']:,}" in text


def test_the_command_does_the_same_and_goes_on(taught, tmp_path, capsys, monkeypatch):
    """It is stopped among the translations, and again before the training."""
    folder, *_ = taught
    student = tmp_path / "student"
    arguments = ["distill", str(folder / "teacher"), "--output-dir", str(student), "--n-best", "3"]
    for option, name in (("source", "train.en"), ("target", "train.de")):
        arguments += [f"--{option}-file", str(folder / "teacher" / name)]
    files = [str(folder / "teacher" / f"dev.{language}") for language in ("en", "de")]
    arguments += ["--validation-files", *files]
    arguments += ["--preset", "tiny", "--num-layers", "2", "1", "--hidden-dim", "16"]
    arguments += ["--intermediate-dim", "24", "--num-heads", "2", "--steps", "4"]
    arguments += ["--batch-tokens", "1500", "--max-shapes", "2", "--no-attention-log"]
    arguments += ["--bleu-every", "99"]

    translate, calls = bulk.result_lines, []

    def stopping(translator, lines, first, *rest, **details):
        calls.append(first)
        if calls == [0, 5]:
            raise KeyboardInterrupt
        return translate(translator, lines, first, *rest, **details)

    monkeypatch.setattr(distillation, "CHUNK_LINES", 5)
    monkeypatch.setattr(bulk, "result_lines", stopping)
    with pytest.raises(SystemExit):
        main(arguments)
    assert calls == [0, 5] and not (student / "distilled" / "target.txt").exists()
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(
            DistilledRun, "complete", lambda run: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        main(arguments)
    assert calls == [0, 5, 5, 10]  # What was done is not done again.
    target = lines_of(student / "distilled" / "target.txt")
    other = lines_of(folder / "student" / "distilled" / "target.txt")
    assert sum(a == b for a, b in zip(target, other, strict=True)) >= len(target) - 1
    capsys.readouterr()
    main(arguments)
    assert calls == [0, 5, 5, 10]
    printed = capsys.readouterr().out
    assert "Parameters: teacher" in printed and "student" in printed
    report = read_json(student / "report.json")
    assert report["corpus"] == "train-distilled" and report["training"]["updates"] == 4
    with pytest.raises(SystemExit) as left:
        main([*arguments[:4], "--n-best", "2", *arguments[6:]])
    assert left.value.code == 2 and "n_best: 3 there, 2 asked for" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder, _: {"corpus": small_corpus(folder, 100)}, "The train text is not the one"),
        (lambda folder, _: {"teacher": folder}, "is not the folder of a run"),
        (lambda folder, _: {"n_best": 0}, "n_best"),
        (
            lambda folder, _: {"config": dataclasses.replace(STUDENT, preset="no such")},
            "preset must be one of|Unknown preset|no such",
        ),
        (
            lambda folder, _: {
                "config": dataclasses.replace(STUDENT, model_arguments={"num_heads": 5})
            },
            "num_heads|divi",
        ),
        (
            lambda folder, _: {"config": dataclasses.replace(STUDENT, guided_alignment="gold")},
            "leave out `guided_alignment`",
        ),
        (lambda folder, taught: {"output_dir": taught / "teacher"}, "not the folder of a distill"),
        (lambda folder, _: {"finish": True}, "has no checkpoint yet"),
        (long_winded, "translations may have 256 tokens.* Raise it to 2048"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_translated(
    taught, tmp_path, monkeypatch, change, message
):
    folder, corpus, _ = taught
    monkeypatch.setattr(distillation, "translate_corpus", lambda *_, **__: pytest.fail("too late"))
    (tmp_path / "other").mkdir()
    given = {
        "teacher": folder / "teacher",
        "corpus": corpus,
        "config": STUDENT,
        "output_dir": tmp_path / "new",
        **change(tmp_path / "other", folder),
    }
    with pytest.raises(ValueError, match=message):
        distill(**given)
    assert not (tmp_path / "new").exists()


def test_a_package_of_the_report_is_asked_for_before_anything_is_translated(
    taught, tmp_path, monkeypatch
):
    folder, corpus, _ = taught
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(ImportError, match="pip install sacremoses"):
        distill(folder / "teacher", corpus, STUDENT, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_choices_are_read_line_by_line(taught, tmp_path):
    """The n best of a line go with its own reference, and the number of lines must agree."""
    _, corpus, _ = taught
    references = list(corpus.train.targets())
    rows = [
        {"translations": [{"text": text} for text in ("nichts", reference, "gar nichts")]}
        for reference in references
    ]
    file = tmp_path / "n_best"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    assert list(distillation._chosen(file, corpus)) == references
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows[:-1]), "utf-8")
    with pytest.raises(ValueError):
        list(distillation._chosen(file, corpus))
