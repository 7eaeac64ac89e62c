"""The command line of the examples: what it understands, refuses, and does with a user's files."""

import contextlib
import dataclasses
import gzip
import importlib
import json
import lzma
import os
import re
import runpy
import sys
import types
from pathlib import Path

import pytest

from keras_attention.cli.train import run
from keras_attention.recipes import RECIPES as RECIPES_OF_ALL
from keras_attention.recipes import TranslationConfig
from keras_attention.recipes import order as recipe
from keras_attention.recipes import plan as planning
from keras_attention.recipes.run import Run
from keras_attention.utils.run_folder import RunFolder
from tests.helpers import ROOT
from tests.recipes.small_runs import SMALL, write_files

pytestmark = pytest.mark.backends("torch")

RECIPES = {"demo": TranslationConfig(steps=3, minutes=2.0), "files": SMALL}


def start(*arguments, recipes=RECIPES):
    return run("Trains.", arguments=list(map(str, arguments)), recipes=recipes)


@pytest.fixture
def asked(monkeypatch):
    """Starts a run; returns what `train_translation` is called with, instead of training."""
    calls = []

    def record(corpus, config, output_dir, finish=False):
        calls.append((corpus, config, output_dir))
        return {"bleu": 1.5}

    def ask(*arguments, recipes=RECIPES):
        assert start(*arguments, recipes=recipes) == {"bleu": 1.5}
        return calls.pop()

    monkeypatch.setattr(recipe, "train_translation", record)
    return ask


def text_of(files):
    """The options that name a text of one's own."""
    return ["--source-file", files[0], "--target-file", files[1]]


def pairs_of(folder, count, *more):
    """The options that name a file with as many pairs, and more."""
    rows = [*(f"line {i}\tZeile {i}" for i in range(count)), *more]
    (folder / "pairs.tsv").write_text("".join(f"{row}\n" for row in rows))
    return ["--tsv", folder / "pairs.tsv", "--target-language", "de"]


def test_without_arguments_the_recipe_runs(asked, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    corpus, config, output_dir = asked()
    assert corpus.name == "demo"
    assert (corpus.source_language, corpus.target_language) == ("en", "de")
    assert config == RECIPES["demo"]
    assert output_dir.parts[0] == "runs" and output_dir.name.startswith("demo-tiny-20")


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), ValueError("too small")])
def test_a_folder_that_nobody_named_is_named_at_the_end(monkeypatch, tmp_path, capsys, error):
    """Else "the same command continues this run" would be wrong: it makes another folder."""

    def trains(corpus, config, output_dir, finish=False):
        folders.append(str(output_dir))
        if not isinstance(error, ValueError):  # a start that is refused leaves none
            output_dir.mkdir(parents=True)
        if error is not None:
            raise error
        return {}

    folders = []
    monkeypatch.setattr(recipe, "train_translation", trains)
    monkeypatch.chdir(tmp_path)
    for given in ([], ["--output-dir", "named"]):
        with contextlib.suppress(SystemExit):
            start(*given)
    told = capsys.readouterr().err
    named = f"To go on with this run, add --output-dir {folders[0]}\n"
    assert told.count("To go on") == told.count(named) == (not isinstance(error, ValueError))


def test_arguments_replace_settings(asked, tmp_path):
    _, config, output_dir = asked(
        "--preset", "small", "--vocabulary-size", 700, "--steps", 11, "--seed", 4,
        "--batch-tokens", 512, "--dtype", "mixed_bfloat16", "--output-dir", tmp_path,
        "--tokenizer", "wordpiece", "--warmup-steps", 7, "--label-smoothing", 0.2,
        "--checkpoint-minutes", 2.5, "--average", 3, "--strategy", "mirrored",
        "--replicas", 2, "--accumulation-steps", 4, "--recompute", "--jit-compile",
    )  # fmt: skip
    expected = TranslationConfig(
        preset="small", vocabulary_size=700, steps=11, minutes=None, seed=4, batch_tokens=512,
        dtype="mixed_bfloat16", tokenizer_algorithm="wordpiece", warmup_steps=7,
        label_smoothing=0.2, checkpoint_minutes=2.5, averaged_checkpoints=3, strategy="mirrored",
        replicas=2, accumulation_steps=4, recompute=True, jit_compile=True,
    )  # fmt: skip
    assert config == expected and output_dir == tmp_path
    assert asked("--strategy", "none")[1] == RECIPES["demo"]
    _, config, _ = asked("--minutes", 0.5)  # They alone end the run, too.
    assert (config.steps, config.minutes) == (None, 0.5)


def test_another_preset_drops_what_the_recipe_changed_in_its_own(asked, tmp_path):
    own = text_of(write_files(tmp_path, "mine", 0, 60))
    corpus, config, output_dir = asked(*own)
    assert config.model_arguments == SMALL.model_arguments
    assert corpus.name == "mine"
    assert output_dir.parent == Path("runs") and output_dir.name.startswith("mine-tiny-20")
    _, config, _ = asked(*own, "--preset", "small")
    assert config.model_arguments == {}  # All that it has are sizes.


def test_the_languages_come_from_files_and_tags_or_are_asked_for(asked, refused, tmp_path):
    files = [tmp_path / name for name in ("own.en.gz", "own.pt")]
    for file in files:
        lines = "".join(f"linha {i}\n" for i in range(60)).encode()
        file.write_bytes(gzip.compress(lines) if file.suffix == ".gz" else lines)
    corpus, *_ = asked(*text_of(files))
    assert (corpus.source_language, corpus.target_language) == ("en", "pt")
    tagged = tmp_path / "own.tsv"
    tagged.write_text("".join(f"line {i}\t{i}\t{('zh', 'de')[i % 2]}\n" for i in range(60)))
    corpus, *_ = asked("--tsv", tagged, "--tsv-languages")
    assert (corpus.source_language, corpus.target_language) == ("source", "de+zh")
    assert "own.txt' does not end with a code" in refused(
        "train", *text_of([files[0], files[1].rename(tmp_path / "own.txt")])
    )


def test_tab_separated_pairs(asked, tmp_path):
    corpus, *_ = asked(*pairs_of(tmp_path, 80), "--target-language", "fr")
    assert corpus.name == "pairs" and corpus.target_language == "fr"
    assert ("line 7", "Zeile 7") in [pair for part in corpus.splits.values() for pair in part]


def test_text_from_pipes(asked, tmp_path):
    """As a shell's `--source-file <(zcat train.en.gz)` gives it."""
    opened = []
    files = write_files(tmp_path, "mine", 0, 60)
    for file in files:
        reader, writer = os.pipe()
        os.write(writer, gzip.compress(file.read_bytes()))
        os.close(writer)
        opened.append(reader)
    corpora = [
        asked(*text_of([f"/dev/fd/{reader}" for reader in opened]), "--target-language", "de")[0]
    ]
    for reader in opened:
        os.close(reader)
    corpora.append(asked(*text_of(files))[0])
    piped, expected = (
        {name: list(text) for name, text in corpus.splits.items()} for corpus in corpora
    )
    assert piped == expected and sum(map(len, piped.values())) == 60


def test_a_packed_text_is_the_same_run(asked, tmp_path):
    """What a text is, is its content: a run is continued under another name, and with another packing."""
    files = write_files(tmp_path, "train", 0, 60)
    packed = [tmp_path / f"{name}.packed" for name in ("one", "other")]
    for file, other in zip(files, packed, strict=True):
        other.write_bytes(lzma.compress(file.read_bytes()))
    languages = ["--source-language", "en", "--target-language", "de"]
    first, config, _ = asked(*text_of(files), recipes=RECIPES_OF_ALL)
    second, *_ = asked(*text_of(packed), *languages, recipes=RECIPES_OF_ALL)
    assert (first.name, second.name) == ("train", "one")
    folder = RunFolder(tmp_path / "run")
    folder.claim(Run(first, config, folder.path).settings, config.changeable)
    (folder.checkpoints / "update-00000001").mkdir(parents=True)
    folder.check(Run(second, config, folder.path).settings, config.changeable)
    packed[0].write_bytes(lzma.compress(files[0].read_bytes() + b"one more\n"))
    packed[1].write_bytes(lzma.compress(files[1].read_bytes() + b"noch eins\n"))
    longer, *_ = asked(*text_of(packed), *languages, recipes=RECIPES_OF_ALL)
    with pytest.raises(ValueError, match="another configuration .*train text differs"):
        folder.check(Run(longer, config, folder.path).settings, config.changeable)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--corpus", ""], "an argument is empty, after '--corpus'"),
        (["--corpus="], "an argument is empty, after '--corpus='"),
        (["--tsv", ""], "an argument is empty, after '--tsv'"),
        (["--output-dir", " "], "an argument is empty, after '--output-dir'"),
        (["--tsv", "none"], "--tsv none: leave it out"),
        (["--corpus", "none"], "--corpus none: leave it out"),
        (["--source-file", "none", "--target-file", "none"], "--source-file none: leave it out"),
    ],
)
def test_an_empty_or_absent_text_is_not_the_demo(
    tmp_path, monkeypatch, refused, arguments, message
):
    monkeypatch.chdir(tmp_path)
    assert message in refused("train", *arguments)
    name = arguments[0].strip("-=").replace("-", "_")
    (tmp_path / "empty.toml").write_text(f"{name} = {arguments[-1]!r}")
    if len(arguments) == 2 and "--output-dir" not in arguments:
        refused("train", "--config", "empty.toml")


@pytest.mark.parametrize("mode", ["--plan", "--dump-config"])
def test_what_a_plan_does_not_use_is_named(tmp_path, monkeypatch, command, mode):
    monkeypatch.chdir(tmp_path)
    plan = types.SimpleNamespace(as_dict=dict)
    monkeypatch.setattr(planning, "plan_training", lambda *_, **__: plan)
    (tmp_path / "new.en").write_text("A dog.\n")
    unused = ["--translate", "new.en", "new.de", "--output-dir", "mine"]
    told = command("train", mode, *unused).err
    assert "--output-dir and --translate will not be used" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.en"]
    told = command("train", "--dump-config", "--plan-json", "plan.json").err
    assert "--plan-json will not be used" in told


@pytest.mark.parametrize(
    ("of_recipe", "arguments", "expected"),
    [
        # The interval of checkpoints that is asked for replaces the recipe's.
        ({"checkpoint_updates": 5}, ["--checkpoint-minutes", "0.5"],
         {"checkpoint_minutes": 0.5, "checkpoint_updates": None}),
        ({"checkpoint_minutes": 2.0}, ["--checkpoint-updates", "9"],
         {"checkpoint_minutes": None, "checkpoint_updates": 9}),
        # Word pieces switch BPE dropout off.
        ({"bpe_dropout": 0.1}, [], {}),
        ({"bpe_dropout": 0.1}, ["--tokenizer", "wordpiece"],
         {"bpe_dropout": 0.0, "tokenizer_algorithm": "wordpiece"}),
        ({"bpe_dropout": 0.1}, ["--bpe-dropout", "0.2"], {"bpe_dropout": 0.2}),
    ],
)  # fmt: skip
def test_what_gives_way_in_a_recipe(asked, of_recipe, arguments, expected):
    recipe = dataclasses.replace(SMALL, **of_recipe)
    _, config, _ = asked(*arguments, recipes={"demo": recipe})
    assert config == dataclasses.replace(recipe, **expected)


def test_no_clock_ends_the_demo_or_decides_what_it_averages(asked):
    """A slow machine learns as much as a fast one."""
    _, config, _ = asked("--corpus", "demo", recipes=RECIPES_OF_ALL)
    assert config.minutes is None and config.checkpoint_minutes is None
    assert config.steps == 1350 and config.averaged_checkpoints * config.checkpoint_updates < 1350


def test_another_size_changes_nothing_else(asked, tmp_path, capsys):
    """Size and recipe are separate: so it is said, and so it is for every size of text."""
    own = pairs_of(tmp_path, 1500)
    recipe, small, base = (
        asked(*own, *arguments, recipes=RECIPES_OF_ALL)[1]
        for arguments in ([], ["--preset", "small"], ["--preset", "base", "--minutes", 5])
    )
    assert recipe.model_arguments == {"normalize_first": True} and recipe.cooldown
    assert small == dataclasses.replace(recipe, preset="small")
    assert base == dataclasses.replace(recipe, preset="base", minutes=5.0, steps=None)
    said = capsys.readouterr().err
    rate = recipe.peak_learning_rate
    for preset in ("small", "base"):
        assert f"--preset {preset} changes the size of the model alone." in said
    assert said.count(f"with tiny, such as normalize_first True, peak_learning_rate {rate}.") == 2
    # Of a recipe for one size of model, what is no size is kept.
    _, config, _ = asked("--corpus", "demo", "--preset", "medium", recipes=RECIPES_OF_ALL)
    assert config == dataclasses.replace(RECIPES_OF_ALL["demo"], preset="medium")


def test_without_a_peak_there_is_no_cooldown(asked, tmp_path):
    own = pairs_of(tmp_path, 60)
    _, config, _ = asked(*own, "--peak-learning-rate", "none", recipes=RECIPES_OF_ALL)
    assert config.peak_learning_rate is config.cooldown is None
    _, config, _ = asked(*own, "--cooldown", "none", recipes=RECIPES_OF_ALL)
    assert config.peak_learning_rate is not None and config.cooldown is None


def test_filters_are_for_training_alone(asked, tmp_path):
    own = pairs_of(tmp_path, 80, "a b c\td", "line 3\tZeile 3")
    first = asked(*own, "--max-ratio", 2.5, "--drop-duplicates")[0].train
    second = asked(*own, "--max-words", 2)[0].train
    report = first.report()
    assert (report["length_ratio"], report["duplicate"], report["over_long"]) == (1, 1, 0)
    assert second.report()["over_long"] == 1 and second.report()["duplicate"] == 0
    assert first.fingerprint() != second.fingerprint()


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ([], ("base", 37_000, "bpe", 100_000, 5)),
        (["--preset", "big"], ("big", 37_000, "bpe", 300_000, 20)),
        (["--target-language", "fr"], ("base", 32_000, "wordpiece", 100_000, 5)),
        (["--target-language", "fr", "--preset", "big_en_fr"],
         ("big_en_fr", 32_000, "wordpiece", 300_000, 20)),
        (["--preset", "small", "--steps", "9"], ("small", 37_000, "bpe", 9, 5)),
    ],
)  # fmt: skip
def test_the_papers_recipes(asked, tmp_path, arguments, expected):
    """Sections 5 and 6.1: vocabularies, updates, checkpoints; by direction and size of the model."""
    for name, lines in (("train", 4), ("valid", 2), ("test", 3)):
        for language in ("en", "de", "fr"):
            (tmp_path / f"{name}.{language}").write_text(f"{language} {name}\n" * lines)
    wmt14 = ["--corpus", "wmt14", "--data-dir", tmp_path]
    corpus, config, _ = asked(*wmt14, *arguments, recipes=RECIPES_OF_ALL)
    assert [len(text) for text in corpus.splits.values()] == [4, 2, 3]
    figures = (config.preset, config.vocabulary_size, config.tokenizer_algorithm, config.steps,
               config.averaged_checkpoints)  # fmt: skip
    assert figures == expected
    assert (config.warmup_steps, config.label_smoothing) == (4000, 0.1)
    assert config.checkpoint_minutes == 10


def test_plan_prints_and_trains_nothing(monkeypatch, tmp_path, capsys, command, refused):
    monkeypatch.setenv("KERAS_ATTENTION_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    own = [*text_of(write_files(tmp_path, "mine", 0, 60)), "--vocabulary-size", 360, "--steps", 45]
    own += ["--plan", "--plan-no-try"]
    output = ["--plan-json", "plan.json"]
    figures = start(*own, *output, recipes=RECIPES_OF_ALL)
    shown = capsys.readouterr()
    assert {path.name for path in tmp_path.iterdir()} == {
        *"cache mine.en mine.de plan.json".split()
    }
    written = (tmp_path / "plan.json").read_bytes()
    assert json.loads(written) == json.loads(json.dumps(figures))
    assert figures["pairs"] == 54 and figures["forecast"]["steps"] == 45
    assert "Pairs: 54 an epoch" in shown.out and "Tokenizer: byte-pair encoding" in shown.err
    # It is there, and may be dear.
    assert "exists" in refused("train", *own, *output)
    assert (tmp_path / "plan.json").read_bytes() == written
    # The tokenizer and the store are found again.
    assert "Tokenizer:" not in command("train", *own).err


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["--replicas", "2"], "`replicas` (2) needs a `strategy`"),
        (["--source-file", "a.en"], "--source-file and --target-file belong together"),
        (["--source-file", "a", "--target-file", "b", "--tsv", "c"], "only one"),
        (["--source-file", "no.en", "--target-file", "no.de"], "no.en"),
        (["--tsv", "no.tsv"], "no.tsv"),
        (["--translate", "no.txt", "out.txt"], "there is no file 'no.txt'"),
        (["--translate", __file__, "no/out.txt"], "There is no folder 'no'"),
        (["--corpus", "demo", "--tsv", __file__], "Give --corpus or your own files"),
        (["--data-dir", ".", "--tsv", __file__], "Give --data-dir or your own files"),
        (["--source-file", __file__, "--target-file", __file__], "is given twice"),
        (["--parts", "a", __file__, "no.de"], "'no.de' does not exist; a text file"),
        (["--parts", "a", __file__, "."], "'.' is a folder; a text file"),
        (["--plan-try"], "need --plan"),
        (["--finish"], "--finish needs --output-dir"),
        (
            ["--finish", "--output-dir", "run", "--steps", "9"],
            "Give --finish or a budget, not both",
        ),
        (["--finish", "--output-dir", "run"], "has no checkpoint yet"),
        (["--cooldown", "0.2"], "`cooldown` (0.2) needs a `peak_learning_rate`"),
        (["--translate", __file__, __file__], "is both a file to read and the file to write"),
        (["--translate", __file__, pytest.__file__], "__init__.py' exists"),
        (["--translate", __file__, "new.de", "--output-dir", "."], "is inside the run's folder"),
    ],
)
def test_errors_end_with_2_and_a_message(arguments, message, refused, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert message in refused("train", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_file_to_translate_that_is_no_text_is_refused_before_training(
    refused, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.en").write_bytes(b"good\n\xff\n")
    told = refused("train", "--translate", "new.en", "new.de")
    assert "'new.en', line 2, byte 1 of the line: 0xFF is not UTF-8" in told
    assert [path.name for path in tmp_path.iterdir()] == ["new.en"]


@pytest.mark.parametrize(
    "text, warmup",
    [
        ([], "depends on your text"),
        (["--corpus", "demo"], "400"),
        (["--corpus", "multi30k"], "2000"),
        (["--tsv", "mine.tsv"], "depends on your text"),
    ],
)
def test_help_shows_what_the_recipe_takes(text, warmup, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as left:
        start(*text, "--help", recipes=RECIPES_OF_ALL)
    assert left.value.code == 0
    shown = capsys.readouterr().out
    assert "\nTrains.\n" in shown and "training (defaults in brackets):" in shown
    assert re.search(rf"--warmup-steps N +updates [^()\n]*peak \({warmup}\)\n", shown)
    smoothing = "0.1; with --from 0.0" if warmup.startswith("depends") else "0.1"
    assert re.search(rf"--label-smoothing X +the paper's epsilon_ls \({smoothing}\)\n", shown)
    for told in (
        "0.0; with --from 0.3",
        "none; with --from perplexity",
        "average; with --from best",
    ):
        assert (f" ({told})\n" in shown) == warmup.startswith("depends")
    for word in ("--minutes", "--translate", "tiny", "table3_a_heads_1"):
        assert word in shown


def test_from_two_text_files_to_translations(tmp_path, monkeypatch, capsys):
    """By the example of the README."""
    files = write_files(tmp_path, "mine", 0, 60)
    new = tmp_path / "new.en"
    lines = files[0].read_text("utf-8").splitlines(keepends=True)[:3]
    new.write_text("".join([*lines, "\n"]), "utf-8")
    given = ["--translate", new, tmp_path / "new.de", "--output-dir", tmp_path / "run"]
    small = (
        "--vocabulary-size 360 --num-layers 1 --hidden-dim 8 --intermediate-dim 12 --num-heads 2"
    )
    words = [*text_of(files), *small.split(), "--max-shapes", 2, "--steps", 2, *given]
    monkeypatch.setattr(sys, "argv", ["wmt14_en_de.py", *map(str, words)])
    runpy.run_path(ROOT / "examples" / "wmt14_en_de.py", run_name="__main__")
    assert (tmp_path / "run" / "report.json").exists()
    lines = (tmp_path / "new.de").read_text("utf-8").split("\n")
    assert len(lines) == 5 and lines[3:] == ["", ""]  # Four lines, the last of them empty.
    assert "BLEU" in capsys.readouterr().out


def test_settings_from_a_file_and_back(asked, tmp_path, capsys):
    arguments = ["--steps", 7, "--num-layers", 3, "--max-ratio", 2.5, "--dump-config"]
    start(*arguments, recipes={"demo": SMALL})
    # With the mark that editors on Windows put first.
    (tmp_path / "run.toml").write_text(capsys.readouterr().out, "utf-8-sig")
    corpus, config, _ = asked("--config", tmp_path / "run.toml", "--seed", 5)
    sizes = {**SMALL.model_arguments, "num_layers": 3}
    assert config == dataclasses.replace(SMALL, steps=7, model_arguments=sizes, seed=5)
    assert corpus.train.filters.max_ratio == 2.5


@pytest.mark.parametrize(
    ("given", "wanted"), [(["4"], 4), (["6", "2"], (6, 2)), (["6,2"], (6, 2)), (["3,3"], 3)]
)
def test_depths_of_encoder_and_decoder(asked, tmp_path, capsys, given, wanted):
    """Two numbers, with a space or a comma between them, from the command line and from a file."""
    recipe = dataclasses.replace(SMALL, model_arguments={**SMALL.model_arguments, "num_layers": 2})
    arguments = ["--num-layers", *given]
    _, typed, _ = asked(*arguments, recipes={"demo": recipe})
    start(*arguments, "--dump-config", recipes={"demo": recipe})
    (tmp_path / "run.toml").write_text(capsys.readouterr().out)
    _, read, _ = asked("--config", tmp_path / "run.toml", recipes={"demo": SMALL})
    assert typed.model_arguments["num_layers"] == read.model_arguments["num_layers"] == wanted


@pytest.mark.parametrize("given", [["6", "2", "1"], ["6,2", "1"], ["6;2"], ["0"], ["6", "0"]])
def test_other_depths_are_refused(refused, given):
    told = refused("train", "--num-layers", *given)
    assert "num-layers" in told or "num_layers" in told


def test_text_of_ones_own_from_a_settings_file(asked, tmp_path, capsys):
    own = text_of(write_files(tmp_path, "train", 0, 60))
    for option, first, count in (("validation", 60, 9), ("test", 69, 8)):
        own += [f"--{option}-files", *write_files(tmp_path, option, first, count)]
    own.append("--drop-duplicates")
    corpus, config, _ = asked(*own)
    assert [len(text) for text in corpus.splits.values()] == [60, 9, 8]
    start(*own, "--dump-config")
    (tmp_path / "run.toml").write_text(capsys.readouterr().out)
    corpus_again, config_again, _ = asked("--config", tmp_path / "run.toml")
    assert config_again == config
    for split, text in corpus.splits.items():
        assert list(corpus_again.splits[split]) == list(text)
    tuned = [*own, "--from", "demo_en_de", "--lora", 4]  # whose sizes and words no file says
    start(*tuned, "--dump-config")
    (tmp_path / "tuned.toml").write_text(capsys.readouterr().out)
    assert asked("--config", tmp_path / "tuned.toml")[1] == asked(*tuned)[1]


def test_a_wrong_file_ends_the_command_before_anything(tmp_path, monkeypatch, refused):
    starts = importlib.import_module("keras_attention.cli.train")
    monkeypatch.setattr(starts, "start_backend", lambda: pytest.fail("the backend was started"))
    (tmp_path / "run.toml").write_text("stepz = 3\n")
    told = refused("train", "--config", tmp_path / "run.toml")
    assert "unknown setting: stepz. Did you mean 'steps'?" in told


@pytest.mark.parametrize("twice", [["--test-files", 0, 1], ["--validation-files", 2, 2]])
def test_a_file_that_is_given_twice_is_refused(refused, tmp_path, twice):
    files = [*write_files(tmp_path, "train", 0, 60), *write_files(tmp_path, "dev", 60, 9)]
    error = refused("train", *text_of(files), twice[0], *(files[index] for index in twice[1:]))
    assert f"{files[twice[1]]}' is given twice" in error, error


@pytest.mark.parametrize(
    "pairs,preset,steps", [(60, "tiny", 600), (1500, "tiny", 2000), (22_500, "small", 12_000)]
)
def test_the_size_of_the_text_decides(asked, tmp_path, pairs, preset, steps):
    _, config, _ = asked(*pairs_of(tmp_path, pairs), "--beam-size", 3, recipes=RECIPES_OF_ALL)
    assert (config.preset, config.steps, config.beam_size) == (preset, steps, 3)
    assert config.warmup_steps * 5 < steps and config.patience is not None
