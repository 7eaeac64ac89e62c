"""A run that starts from a pretrained model: its weights, its tokenizer, and an optimizer of its own."""

import contextlib
import io
import itertools
import shutil

import keras
import numpy as np
import pytest

from keras_attention import Transformer, Translator, corpus_bleu, corpus_from_files, paired_tests
from keras_attention.cli.main import main
from keras_attention.evaluation.perplexity import PerplexityMeter
from keras_attention.evaluation.report import Sentences
from keras_attention.recipes import (
    TranslationConfig,
    checkpoint_translator,
    loop,
    train_translation,
)
from keras_attention.recipes.catalog import fine_tuning_recipe
from keras_attention.recipes.finished_run import FinishedRun
from keras_attention.recipes.loop import WorkBeside
from keras_attention.recipes.order import save_model
from keras_attention.recipes.run import Run
from keras_attention.recipes.start import start_of
from keras_attention.utils.run_folder import RunFolder
from tests.interop.conftest import SOURCES, TARGETS, sentence_pieces, write_marian_mt
from tests.recipes.small_runs import training_alone, write_files
from tests.visualization.event_files import read_values

# Of each backend: what LoRA leaves frozen (test_lora_runs.py), and the loops of test_run.py.
pytestmark = pytest.mark.backends("torch")

SETTINGS = {
    "model_arguments": {"dropout": 0.2},
    "batch_tokens": 600,
    "max_shapes": 2,
    "warmup_steps": 5,
    "learning_rate_factor": 0.5,
    "averaged_checkpoints": 1,
    "attention_log": False,
    "beam_size": 2,
}


# As no one would train: the weights move by their own size.
HARMFUL = {"model_arguments": {}, "peak_learning_rate": 0.1, "cooldown": 0.5, "warmup_steps": 1}


def config(start, **changes):
    return TranslationConfig(start_from=str(start), **{**SETTINGS, "steps": 6, **changes})


def weights(model):
    return {
        path: np.array(keras.ops.convert_to_numpy(weight))
        for path, weight in model.spec().weights().items()
    }


@pytest.fixture(scope="module")
def trained(start, corpus, tmp_path_factory):
    """The folder and the report of a run, and what was said meanwhile."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    with contextlib.redirect_stderr(io.StringIO()) as said:
        report = train_translation(corpus, config(start), folder)
    return folder, report, said.getvalue()


def test_it_begins_as_the_pretrained_model(start, corpus, trained, tmp_path):
    run, original = Run(corpus, config(start), tmp_path / "run"), Translator.from_run(start)
    with run.started():
        expected = PerplexityMeter(original.model)(run.validation)
        assert PerplexityMeter(run.model)(run.validation) == pytest.approx(expected, rel=1e-5)
        assert run.tokenizer.fingerprint() == original.tokenizer.fingerprint()
        assert run.model.dropout == 0.2
    assert f"Before the first update the validation perplexity is {expected:.3f}." in trained[2]


def test_the_report_compares_with_the_start(start, corpus, trained):
    folder, report, _ = trained
    sources, references = list(corpus.test.sources()), list(corpus.references("test"))
    original = Translator.from_run(start, beam_size=2)
    systems = report["evaluation"]["systems"]
    before, *after = systems
    assert before == "before training" and len(after) == 1
    expected = corpus_bleu(original(sources), references).score
    assert systems[before]["scores"]["bleu"]["score"] == pytest.approx(expected)
    translations = Translator.from_run(folder)(sources)
    found = systems[after[0]]["scores"]["bleu"]["score"]
    assert found == pytest.approx(corpus_bleu(translations, references).score)
    assert report["test"]["bleu"] == found
    assert {one["baseline"] for one in report["evaluation"]["significance"]} == {before}
    assert report["evaluation"]["averaging"] is None
    assert report["validation_perplexity"] < systems[before]["perplexity"]
    assert "Baseline: before training." in (folder / "report.txt").read_text()


def test_the_old_domain_is_scored_before_and_after(
    start, tmp_path, capsys, monkeypatch, refused_by
):
    folder = tmp_path / "text"
    folder.mkdir()
    files = {
        name: write_files(folder, name, *part)
        for name, part in {
            "train": (0, 60),
            "dev": (60, 9),
            "test": (69, 8),
            "old": (80, 7),
        }.items()
    }
    given = ["--source-file", files["train"][0], "--target-file", files["train"][1]]
    for option, name in (("validation", "dev"), ("test", "test"), ("old-domain", "old")):
        given += [f"--{option}-files", *files[name]]
    given += ["--output-dir", tmp_path / "run", "--no-attention-log", "--beam-size", "2"]
    assert "--old-domain-files needs --from" in refused_by(
        main, ["train", *map(str, given), "--steps", "6"]
    )
    work = []
    monkeypatch.setattr(loop, "WorkBeside", lambda *own: work.append(WorkBeside(*own)) or work[-1])
    main(["train", *map(str, given), "--steps", "6", "--from", str(start)])
    report = RunFolder(tmp_path / "run").finished_report()
    old = report["evaluation"]["old_domain"]
    # What was foreseen for the end: both texts, and as many systems or, as none is scored twice, more.
    assert work[0].sentences == 8 + 7 and work[0].systems >= len(old["systems"]) >= 3
    sources, references = (file.read_text("utf-8").splitlines() for file in files["old"])
    systems = {
        "before training": Translator.from_run(start, beam_size=2)(sources),
        "after": Translator.from_run(tmp_path / "run")(sources),
    }
    scores = [corpus_bleu(lines, references).score for lines in systems.values()]
    first, *_, last = old["systems"]  # between them the last checkpoint, if another is the best
    found = [old["systems"][title]["scores"]["bleu"]["score"] for title in (first, last)]
    assert found == pytest.approx(scores)
    [chance, *_] = paired_tests(systems, references, language="de")
    [own] = [d for d in old["significance"] if (d["metric"], d["system"]) == ("BLEU", last)]
    assert own["p_value"] == pytest.approx(chance.p_value)
    assert [report["old_domain"][name] for name in ("sentences", "bleu", "p_value")] == (
        pytest.approx([7, scores[1], chance.p_value])
    )
    assert report["old_domain"]["before"]["bleu"] == pytest.approx(scores[0])
    assert report["test"]["before"]["bleu"] == pytest.approx(
        report["evaluation"]["systems"]["before training"]["scores"]["bleu"]["score"]
    )
    assert report["config"]["old_domain_fingerprint"] and "translations" not in old
    text = (tmp_path / "run/report.txt").read_text()
    assert "Old domain: what was forgotten" in text and "7 sentences." in text
    said = capsys.readouterr().out
    assert f"BLEU on the old domain was {scores[0]:.2f}; it is {scores[1]:.2f} now" in said


def test_a_model_with_two_vocabularies(tmp_path):
    """Each side is cut and counted by its own: ids of one would be wrong in the other."""
    pytest.importorskip("transformers", reason="not installed: pip install transformers")
    spm = sentence_pieces(SOURCES, 40), sentence_pieces(TARGETS, 44)
    write_marian_mt(tmp_path / "start", spm, separate=True, decoder_vocab_size=61)
    pairs = list(itertools.product(zip(SOURCES, TARGETS, strict=True), repeat=2))
    files = []
    for name, part in (("train", pairs[:11]), ("dev", pairs[11:14]), ("test", pairs[14:])):
        for side in (0, 1):
            files.append(tmp_path / f"{name}{side}")
            text = "".join(f"{one[side]} {other[side]}\n" for one, other in part)
            files[-1].write_text(text, "utf-8")
    corpus = corpus_from_files(files[:2], files[2:4], files[4:])
    settings = config(tmp_path / "start", steps=2, attention_log=True, batch_tokens=300)
    report = train_translation(corpus, settings, tmp_path / "run")
    trained, original = (
        Translator.from_run(tmp_path / "run"),
        Translator.from_preset(tmp_path / "start"),
    )
    assert (trained.model.vocabulary_size, trained.model.target_vocabulary_size) == (
        original.model.vocabulary_size,
        61,
    )
    assert trained.tokenizer.fingerprint() == original.tokenizer.fingerprint()
    before = report["evaluation"]["systems"]["before training"]["perplexity"]
    assert report["validation_perplexity"] < before
    [(_, entry), *_] = read_values(tmp_path / "run/logs")["attention/0/reference"]
    for name, side in (("source", "source"), ("decoder_output", "target")):
        pieces = [token["text"] for token in entry.header["tokens"][name][:-1]]
        assert pieces == trained.tokenizer.tokens(entry.header[f"{side}_text"], side)


def test_stopped_and_continued_it_ends_as_at_once(start, corpus, trained, tmp_path):
    with training_alone():
        for steps in (2, 6):
            train_translation(corpus, config(start, steps=steps), tmp_path / "run")
    found = weights(checkpoint_translator(tmp_path / "run").model)
    for path, value in weights(Translator.from_run(trained[0]).model).items():
        np.testing.assert_array_equal(found[path], value, err_msg=path)


@pytest.mark.parametrize("best_by, ema", [("bleu", None), ("perplexity", 0.5)])
def test_a_training_that_harms_ends_with_the_pretrained_model(
    corpus, tmp_path, capsys, best_by, ema
):
    """The same if it was stopped meanwhile. A moving average begins with the first update."""
    settings = {**HARMFUL, "best_by": best_by, "final_model": "best", "ema": ema}
    settings["bleu_every"] = 1 if best_by == "bleu" else 99
    with training_alone():
        train_translation(corpus, config("demo_en_de", steps=2, **settings), tmp_path / "run")
    report = train_translation(corpus, config("demo_en_de", steps=4, **settings), tmp_path / "run")
    best = report["training"]["best_checkpoint"]
    assert (best["name"], best["is_final"]) == ("update-00000000", True)
    before = report["evaluation"]["systems"]["before training"]
    after = report["evaluation"]["systems"][f"best by {best_by} (update-00000000)"]
    assert after["perplexity"] == before["perplexity"] == report["validation_perplexity"]
    assert report["last_validation_perplexity"] > 1.1 * before["perplexity"]
    said = capsys.readouterr()
    measure = {"perplexity": "perplexity", "bleu": "BLEU"}[best_by]
    assert f"Before the first update the validation {measure} is {best['value']:.3f}." in said.err
    assert f"no checkpoint has a better validation {measure} than the pretrained" in said.out
    original = Translator.from_preset("demo_en_de", beam_size=2)
    sources = list(corpus.test.sources())
    for found in (
        Translator.from_run(tmp_path / "run"),
        checkpoint_translator(tmp_path / "run", "best"),
    ):
        assert found(sources) == original(sources)
        for path, value in original.model.weights().items():
            np.testing.assert_array_equal(weights(found.model)[path], value, err_msg=path)


def test_dropout_is_that_of_the_pretrained_model(start, corpus, tmp_path):
    """A model that was trained without it cannot bear it."""
    tokenizer, found = Translator.from_run(start).tokenizer, []
    for rate in (0.3, 0.0):
        model = Transformer.from_preset(start, dropout=rate, attention_dropout=0.05)
        preset = Translator(model, tokenizer).save_to_preset(tmp_path / f"preset-{rate}")
        run = Run(
            corpus,
            config(preset, model_arguments={"activation_dropout": 0.15}),
            tmp_path / f"run-{rate}",
        )
        made, rates = run.model.get_config(), (rate, 0.05, 0.15)
        names = ("dropout", "attention_dropout", "activation_dropout")
        assert tuple(made[name] for name in names) == rates
        assert run.settings["model_arguments"] == dict(zip(names, rates, strict=True))
        found.append({k: v for k, v in run.settings.items() if k != "start_from"})
    assert {k for k, v in found[0].items() if found[1][k] != v} == {"model_arguments"}
    recipe = fine_tuning_recipe(60, str(start))
    assert Run(corpus, recipe, tmp_path / "run").settings["model_arguments"] == {"dropout": 0.1}


def assert_frozen(part, start, run):
    """Of all weights, those of the part alone are as they were."""
    before = weights(Translator.from_run(start).model)
    after = weights(checkpoint_translator(run).model)
    for path, value in before.items():
        assert np.array_equal(after[path], value) == path.startswith(f"{part}."), path


def test_a_checkpoint_translates(start, corpus, tmp_path):
    moved, run = tmp_path / "start", tmp_path / "run"
    shutil.copytree(start, moved)
    train_translation(corpus, config(moved, steps=3, freeze="encoder"), run)
    assert_frozen("encoder", start, run)
    sources = list(corpus.test.sources())
    expected = Translator.from_run(run).translate(sources)
    assert checkpoint_translator(run, "last").translate(sources) == expected
    shutil.rmtree(moved)
    start_of.cache_clear()  # as in a new process
    assert checkpoint_translator(run, "last").translate(sources) == expected
    (run / "model.keras").unlink()  # as in a run that is not finished
    with pytest.raises(FileNotFoundError, match="start"):
        checkpoint_translator(run, "last")


@pytest.mark.parametrize("part", ["embeddings", "decoder"])
def test_a_frozen_part_stays_as_it_was(start, corpus, tmp_path, part):
    with training_alone():
        train_translation(corpus, config(start, steps=3, freeze=part), tmp_path / "run")
    assert_frozen({"embeddings": "embedding"}.get(part, part), start, tmp_path / "run")


@pytest.mark.parametrize("settings", [{}, {"best_by": "perplexity", "final_model": "best"}])
def test_a_share_of_the_pretrained_weights_is_kept(start, corpus, tmp_path, settings):
    """The formula of Wortsman et al. 2022 in NumPy; of frozen weights the mean is what they are."""
    moved, run = tmp_path / "start", tmp_path / "run"
    shutil.copytree(start, moved)
    settings = {**settings, "start_share": 0.3, "freeze": "encoder"}
    report = train_translation(corpus, config(moved, **settings), run)
    before = weights(Translator.from_run(start).model)
    trained = weights(checkpoint_translator(run, "last").model)
    found = Translator.from_run(run)
    for path, value in weights(found.model).items():
        mean = 0.3 * before[path].astype("float64") + 0.7 * trained[path].astype("float64")
        np.testing.assert_allclose(value, mean, rtol=1e-6, atol=1e-9, err_msg=path)
        assert np.array_equal(value, before[path]) == path.startswith("encoder."), path
    systems = report["evaluation"]["systems"]
    assert [*systems][-1] == "with 30% of the weights before training" and len(systems) == 3
    sources, references = list(corpus.test.sources()), list(corpus.references("test"))
    translations = found(sources)
    assert report["test"]["bleu"] == pytest.approx(corpus_bleu(translations, references).score)
    assert (run / "translations.txt").read_text().splitlines() == translations
    # A finished run is scored anew where its start is gone.
    shutil.rmtree(moved)
    start_of.cache_clear()
    again = FinishedRun(run).evaluation(Sentences(sources, references))
    assert again["translations"] == translations
    last = [*systems][-1]
    assert again["systems"][last]["perplexity"] == pytest.approx(systems[last]["perplexity"])


def test_another_start_is_another_run(start, corpus, tmp_path):
    moved, changed = tmp_path / "moved", tmp_path / "changed"
    with training_alone():
        train_translation(corpus, config(start, steps=2), tmp_path / "run")
        shutil.copytree(start, moved)
        assert train_translation(corpus, config(moved, steps=2), tmp_path / "run")  # the same model
    shutil.copytree(start, changed)
    model = Translator.from_run(start).model
    kernel = model.encoder_blocks[0].feed_forward.inner.kernel
    kernel.assign(kernel + 1e-3)
    save_model(model, RunFolder(changed))
    with pytest.raises(ValueError, match="the pretrained model that it starts from differs"):
        train_translation(corpus, config(changed, steps=2), tmp_path / "run")


def test_the_command(start, tmp_path, capsys, refused_by):
    files = dict(zip(("source", "target"), write_files(tmp_path, "train", 0, 60), strict=True))
    given = [word for side, file in files.items() for word in (f"--{side}-file", str(file))]
    given += ["--from", str(start), "--no-attention-log"]
    for option in (["--preset", "small"], ["--hidden-dim", "32"], ["--vocabulary-size", "500"]):
        assert f"{option[0]} cannot be combined with --from" in refused_by(
            main, ["train", *given, *option]
        )
    assert "There is no folder" in refused_by(
        main, ["train", *given[:4], "--from", str(tmp_path / "absent")]
    )
    main(["train", *given, "--plan", "--plan-no-try"])
    assert "Plan: pretrained model" in capsys.readouterr().out
    run = tmp_path / "run"
    with training_alone():
        main(["train", *given, "--steps", "4", "--freeze", "encoder", "--output-dir", str(run)])
    said = capsys.readouterr().err
    assert f"Model of '{start}', encoder frozen" in said and "Before the first update" in said
    assert RunFolder(run).settings()["freeze"] == "encoder"
