"""The report on a run's folder, made after the fact by the command."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest

from keras_attention import Translator
from keras_attention.cli import evaluate
from keras_attention.evaluation import corpus_bleu, paired_tests, report_text
from keras_attention.recipes import run as recipe
from keras_attention.utils.files import read_json, write_json
from tests.helpers import contents
from tests.interop.conftest import SOURCES, TARGETS

pytestmark = pytest.mark.backends("torch")


def pair(folder, name="dev", suffix=""):
    """The options for two files."""
    files = [folder / f"{name}.{language}{suffix}" for language in ("en", "de")]
    return ["--source-file", files[0], "--reference-file", files[1]]


def test_report_of_a_folder(run, tmp_path, command, monkeypatch):
    def translator(model, tokenizer, **decoding):
        assert decoding == {"beam_size": 3, "length_penalty": 0.6}
        return lambda sources: [f"Ein {source}" for source in sources]  # a search takes its time

    monkeypatch.setattr(recipe, "Translator", translator)
    (run / "report.txt").write_text("of the training")
    before = contents(run)
    output = ["--output", tmp_path / "new.json", "--samples", 5]
    output += ["--beam-size", 3]
    printed = command("evaluate", run, *pair(run), "--name", "five", *output).out
    assert contents(run) == before  # among them the report of the training
    evaluation = read_json(tmp_path / "new.json")
    assert "translations" not in evaluation
    assert printed == report_text(evaluation, title=run.name)
    assert evaluation["sentences"] == 5 and evaluation["test_set"] == "five"
    assert evaluation["decoding"] == {"beam_size": 3, "length_penalty": 0.6}
    names = ["update-00000004", "update-00000006"]
    assert list(evaluation["systems"]) == [
        f"first averaged ({names[0]})",
        f"last checkpoint ({names[1]})",
        "average of 2",
    ]
    assert evaluation["averaging"]["checkpoints"] == names
    perplexities = [system["perplexity"] for system in evaluation["systems"].values()]
    assert len(set(perplexities)) == 3 and min(perplexities) > 1
    cost = evaluation["training_cost"]
    assert cost["updates"] == 6 and cost["seconds"] == 60.0
    assert 0 < cost["flops_of_tokens"] < cost["flops"]


def test_the_share_of_the_peak_is_of_the_runs_own_peak(run, tmp_path, command, monkeypatch):
    report = read_json(run / "report.json")
    write_json(run / "report.json", {**report, "evaluation": {"training_cost": {"peak": 3e9}}})
    monkeypatch.setattr(recipe, "Translator", lambda *_, **__: list)
    monkeypatch.setattr(recipe, "matmul_peak", pytest.fail)
    command("evaluate", run, *pair(run), "--output", tmp_path / "new.json", "--samples", 5)
    cost = read_json(tmp_path / "new.json")["training_cost"]
    assert cost["peak"] == 3e9
    assert cost["mfu"] == pytest.approx(cost["flops"] / 60 / 3e9)


@pytest.fixture
def two_runs(run, tmp_path):
    """A run, and one that translates the same test set better: 3 of its 5 lines are right."""
    references = (run / "dev.de").read_text("utf-8").splitlines()
    for name, right in {"one": 1, "other": 3}.items():
        folder = shutil.copytree(run, tmp_path / name)
        lines = [*references[:right], *("Das Haus steht im Wald ." for _ in references[right:])]
        (folder / "translations.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        shutil.copy(run / "dev.de", folder / "references.txt")
    return tmp_path / "one", tmp_path / "other"


def test_a_file_that_came_meanwhile_is_not_replaced_and_the_report_not_lost(
    two_runs, tmp_path, monkeypatch, command, capsys
):
    output = tmp_path / "compared.json"
    monkeypatch.setattr(evaluate, "start_backend", lambda: output.write_text("theirs"))
    with pytest.raises(SystemExit, match="2"):
        command("evaluate", *two_runs, "--samples", 5, "--output", output)
    shown = capsys.readouterr()
    assert "exists" in shown.err and "other" in shown.out and output.read_text() == "theirs"


def test_two_runs_are_compared_on_the_test_set_that_they_share(two_runs, tmp_path, command):
    before = contents(tmp_path)
    output = tmp_path / "compared.json"
    printed = command("evaluate", *two_runs, "--samples", 50, "--output", output).out
    report = read_json(output)
    assert contents(tmp_path) == before | {output.name: output.read_bytes()}
    lines = {
        run.name: (run / "translations.txt").read_text("utf-8").splitlines() for run in two_runs
    }
    references = (two_runs[0] / "references.txt").read_text("utf-8").splitlines()
    for name, translations in lines.items():
        score = corpus_bleu(translations, references).score
        assert report["systems"][name]["scores"]["bleu"]["score"] == pytest.approx(score)
        assert f"{score:.2f}" in printed
    expected = paired_tests(lines, references, samples=50, language="de")
    assert report["significance"] == [dataclasses.asdict(one) for one in expected]
    assert expected[0].system == "other" and expected[0].difference > 10
    assert f"{expected[0].p_value:.4f}" in printed and "compared as" in printed
    assert "Averaging" not in printed and "Training cost" not in printed


def test_two_runs_translate_the_same_file(two_runs, run, command, monkeypatch):
    asked = []

    def of_run(folder, **options):
        name = Path(folder).name
        asked.append((name, options))
        words = {"one": "Ein", "other": "Der"}[name]
        return lambda sources: [f"{words} {source}" for source in sources]

    monkeypatch.setattr(Translator, "from_run", of_run)
    config = json.loads((two_runs[1] / "config.json").read_text())
    (two_runs[1] / "config.json").write_text(json.dumps({**config, "languages": ["eng", "deu"]}))
    words = ["--samples", 5, "--length-penalty", 0.3, "--engine", "plain"]
    words += ["--target-language", "deu_Latn"]
    printed = command("evaluate", *two_runs, *pair(run), *words).out
    options = {"length_penalty": 0.3, "engine": "plain"}
    assert asked == [("one", options), ("other", options)] and "dev.en, 5 sentences" in printed
    assert "one: beam_size 2 length_penalty 0.3 engine plain" in printed


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("references.txt", "Ein anderer Satz.\n", "'one' and 'other' have different test sets"),
        ("config.json", {"validation_fingerprint": "ab"}, "'one' and 'other' have different test"),
        ("config.json", {"languages": ["en", "fr"]}, "'one' translates en to de, 'other' en to fr"),
        ("references.txt", None, "'other' has no references.txt.*--source-file"),
        ("report.json", None, "'other' has no report.json: it is not finished"),
    ],
)
def test_runs_that_cannot_be_compared(two_runs, refused, name, content, message):
    file = two_runs[1] / name
    if content is None:
        file.unlink()
    elif isinstance(content, dict):
        file.write_text(json.dumps(json.loads(file.read_text()) | content))
    else:
        file.write_text(content)
    assert re.search(message, refused("evaluate", *two_runs))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["{one}", "{one}"], "same model is given twice"),
        (["{one}"], "needs --source-file and --reference-file"),
        (["{one}", "{other}", "--source-file", "{one}/dev.en"], "belong together"),
        (["{one}", "{other}", "--beam-size", "3"], "--beam-size needs --source-file"),
        (["{one}", "{other}", "--output", "{one}/report.json"], "exists"),
    ],
)
def test_bad_use_of_runs(two_runs, refused, options, message):
    before = contents(two_runs[0])
    places = {run.name: str(run) for run in two_runs}
    assert message in refused("evaluate", *(option.format(**places) for option in options))
    assert contents(two_runs[0]) == before


def test_a_folder_without_a_run_is_refused(tmp_path, run, refused):
    assert "holds no model that is known" in refused("evaluate", tmp_path, *pair(run))
    assert not list(tmp_path.iterdir())


def test_models_of_other_programs(foreign, run, tmp_path, command):
    files = pair(foreign, "new")
    models = {name: str(foreign / name) for name in ("separate", "shared")} | {"own": str(run)}
    scores = {}
    for name, model in models.items():
        load = Translator.from_run if name == "own" else Translator.from_preset
        translations = load(model)(SOURCES)
        scores[name] = corpus_bleu(translations, TARGETS).score
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    language = ["--target-language", "de"]
    printed = command("evaluate", models["separate"], *files, *language, "--output", one).out
    report = read_json(one)
    [system] = report["systems"].values()
    assert system["scores"]["bleu"]["score"] == pytest.approx(scores["separate"])
    assert report["significance"] == [] and "nothing was compared" in printed
    both = [models["shared"], models["own"], *files, "--samples", 5]  # The run knows the language.
    printed = command("evaluate", *both, "--output", two).out
    systems = read_json(two)["systems"]
    found = {name: one["scores"]["bleu"]["score"] for name, one in systems.items()}
    assert found == pytest.approx({"shared": scores["shared"], run.name: scores["own"]})
    assert "shared: beam_size 3 length_penalty 0.6" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "One model needs --source-file"),
        (["{unnamed}"], "give --target-language, such as de"),
        (["{run}"], "'{model}' is no run, so it has kept no translations"),
        (["{run}", "{files}", "--target-language", "fra_Latn"], "translates into de"),
    ],
)
def test_bad_use_of_models_of_other_programs(foreign, run, tmp_path, refused, options, message):
    model, unnamed = foreign / "shared", pair(tmp_path, "new", ".txt")
    given = {"{files}": pair(foreign, "new"), "{unnamed}": unnamed, "{run}": [run]}
    if options == ["{unnamed}"]:  # Neither the model nor an ending says the language.
        model = shutil.copytree(model, tmp_path / "model")
        settings = read_json(model / "tokenizer_config.json")
        said = {"source_lang": None, "target_lang": None}
        (model / "tokenizer_config.json").write_text(json.dumps(settings | said))
        for file in ("new.en", "new.de"):
            shutil.copy(foreign / file, tmp_path / f"{file}.txt")
    words = [word for option in options for word in given.get(option, [option])]
    told = refused("evaluate", model, *words)
    assert message.format(model=model) in told


def test_files_that_do_not_fit(run, refused):
    before = (run / "report.json").read_text()
    files = ["--source-file", run / "dev.en", "--reference-file", run / "train.de"]
    assert "Line i of one must belong to line i of the other" in refused("evaluate", run, *files)
    assert (run / "report.json").read_text() == before
