"""The command line of the examples: what it understands, refuses, and does with a user's files."""

import bz2
import contextlib
import dataclasses
import gzip
import importlib
import inspect
import json
import lzma
import os
import re
import tomllib
import types
import typing
from pathlib import Path

import pytest

from keras_attention import PRESETS, Transformer
from keras_attention.cli.options import read_toml
from keras_attention.cli.train import SETTINGS, run
from keras_attention.recipes import RECIPES as RECIPES_OF_ALL
from keras_attention.recipes import TranslationConfig
from keras_attention.recipes import plan as planning
from keras_attention.recipes import run as recipe
from keras_attention.recipes.config import MOST, ModelArguments
from keras_attention.recipes.start import Start
from keras_attention.utils.run_folder import RunFolder
from tests.recipes.small_runs import SMALL, write_files

pytestmark = pytest.mark.backends("torch")

RECIPES = {"demo": TranslationConfig(steps=3, minutes=2.0), "files": SMALL}


@pytest.fixture
def asked(monkeypatch):
    """What `train_translation` is called with, instead of training."""
    calls = []

    def record(corpus, config, output_dir, finish=False):
        calls.append((corpus, config, output_dir))
        return {"bleu": 1.5}

    monkeypatch.setattr(recipe, "train_translation", record)
    return calls


def refused(arguments, capsys):
    """What is told by a start that ends with 2."""
    with pytest.raises(SystemExit) as left:
        run("Trains.", arguments=arguments, recipes=RECIPES)
    assert left.value.code == 2
    return capsys.readouterr().err


def text_of(files):
    """The options that name a text of one's own."""
    return ["--source-file", str(files[0]), "--target-file", str(files[1])]


def test_without_arguments_the_recipe_runs(asked, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert run("Trains.", arguments=[], recipes=RECIPES) == {"bleu": 1.5}
    ((corpus, config, output_dir),) = asked
    assert corpus.name == "demo" and (corpus.source_language, corpus.target_language) == (
        "en",
        "de",
    )
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
            run("Trains.", arguments=given, recipes=RECIPES)
    told = capsys.readouterr().err
    named = f"To go on with this run, add --output-dir {folders[0]}\n"
    assert told.count("To go on") == told.count(named) == (not isinstance(error, ValueError))


def test_arguments_replace_settings(asked, tmp_path):
    arguments = ["--preset", "small", "--vocabulary-size", "700", "--steps", "11", "--seed", "4",
                 "--batch-tokens", "512", "--dtype", "mixed_bfloat16",
                 "--output-dir", str(tmp_path)]  # fmt: skip
    run("Trains.", arguments=arguments, recipes=RECIPES)
    ((_, config, output_dir),) = asked
    expected = TranslationConfig(
        preset="small", vocabulary_size=700, steps=11, minutes=None, seed=4, batch_tokens=512,
        dtype="mixed_bfloat16",
    )  # fmt: skip
    assert config == expected and output_dir == tmp_path


def test_minutes_alone_end_the_run_too(asked):
    run("Trains.", arguments=["--minutes", "0.5"], recipes=RECIPES)
    assert (asked[0][1].steps, asked[0][1].minutes) == (None, 0.5)


def test_another_preset_drops_what_the_recipe_changed_in_its_own(asked, tmp_path):
    files = write_files(tmp_path, "mine", 0, 60)
    own = text_of(files)
    run("Trains.", arguments=own, recipes=RECIPES)
    run("Trains.", arguments=[*own, "--preset", "small"], recipes=RECIPES)
    assert asked[0][1].model_arguments == SMALL.model_arguments
    assert asked[1][1].model_arguments == {}  # All that it has are sizes.
    assert asked[0][0].name == "mine"
    assert asked[0][2].parent == Path("runs") and asked[0][2].name.startswith("mine-tiny-20")


def test_tab_separated_pairs(asked, tmp_path):
    (tmp_path / "pairs.tsv").write_text("".join(f"line {i}\tZeile {i}\n" for i in range(80)))
    arguments = ["--tsv", str(tmp_path / "pairs.tsv"), "--target-language", "fr"]
    run("Trains.", arguments=arguments, recipes=RECIPES)
    corpus = asked[0][0]
    assert corpus.name == "pairs" and corpus.target_language == "fr"
    assert ("line 7", "Zeile 7") in [pair for part in corpus.splits.values() for pair in part]


def test_text_from_pipes(asked, tmp_path):
    """As a shell's `--source-file <(zcat train.en.gz)` gives it."""
    opened, arguments = [], []
    files = write_files(tmp_path, "mine", 0, 60)
    for option, file in zip(("--source-file", "--target-file"), files, strict=True):
        reader, writer = os.pipe()
        os.write(writer, gzip.compress(file.read_bytes()))
        os.close(writer)
        opened.append(reader)
        arguments += [option, f"/dev/fd/{reader}"]
    run("Trains.", arguments=arguments, recipes=RECIPES)
    for reader in opened:
        os.close(reader)
    plain = text_of(files)
    run("Trains.", arguments=plain, recipes=RECIPES)
    piped, expected = (
        {name: list(text) for name, text in corpus.splits.items()} for corpus, *_ in asked
    )
    assert piped == expected and sum(map(len, piped.values())) == 60


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_text_is_the_same_run(asked, tmp_path, pack):
    """What a text is, is its content: a run is continued under another name, and with another packing."""
    files = write_files(tmp_path, "train", 0, 60)
    packed = [tmp_path / f"{name}.packed" for name in ("one", "other")]
    for file, other in zip(files, packed, strict=True):
        other.write_bytes(pack(file.read_bytes()))
    for source, target in (files, packed):
        run("Trains.", arguments=text_of((source, target)))
    (first, config, _), (second, *_) = asked
    assert (first.name, second.name) == ("train", "one")
    folder = RunFolder(tmp_path / "run")
    folder.claim(Start(first, config, folder).settings, config.changeable)
    (folder.checkpoints / "update-00000001").mkdir(parents=True)
    folder.check(Start(second, config, folder).settings, config.changeable)
    packed[0].write_bytes(pack(files[0].read_bytes() + b"one more\n"))
    packed[1].write_bytes(pack(files[1].read_bytes() + b"noch eins\n"))
    run("Trains.", arguments=text_of(packed))
    with pytest.raises(ValueError, match="another configuration .*train text differs"):
        folder.check(Start(asked[2][0], config, folder).settings, config.changeable)


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
    asked, tmp_path, monkeypatch, capsys, arguments, message
):
    monkeypatch.chdir(tmp_path)
    assert message in refused(arguments, capsys)
    (tmp_path / "empty.toml").write_text(
        f"{arguments[0].strip('-=').replace('-', '_')} = {arguments[-1]!r}"
    )
    if len(arguments) == 2 and "--output-dir" not in arguments:
        refused(["--config", "empty.toml"], capsys)
    assert asked == []


@pytest.mark.parametrize("mode", ["--plan", "--dump-config"])
def test_what_a_plan_does_not_use_is_named(asked, tmp_path, monkeypatch, capsys, mode):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(planning, "plan_training", lambda *_, **__: Plan())
    (tmp_path / "new.en").write_text("A dog.\n")
    run("Trains.", arguments=[mode, "--translate", "new.en", "new.de", "--output-dir", "mine"],
        recipes=RECIPES)  # fmt: skip
    assert "--output-dir and --translate will not be used" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.en"]


class Plan:
    """Stands for a plan."""

    def as_dict(self):
        return {}


def test_every_setting_has_an_option(asked):
    arguments = ["--tokenizer", "wordpiece", "--warmup-steps", "7", "--label-smoothing", "0.2",
                 "--checkpoint-minutes", "2.5", "--average", "3", "--strategy", "mirrored",
                 "--replicas", "2", "--accumulation-steps", "4", "--recompute"]  # fmt: skip
    run("Trains.", arguments=arguments, recipes=RECIPES)
    run("Trains.", arguments=["--strategy", "none"], recipes=RECIPES)
    expected = dataclasses.replace(
        RECIPES["demo"], tokenizer_algorithm="wordpiece", warmup_steps=7, label_smoothing=0.2,
        checkpoint_minutes=2.5, averaged_checkpoints=3, strategy="mirrored", replicas=2,
        accumulation_steps=4, recompute=True,
    )  # fmt: skip
    assert [config for _, config, _ in asked] == [expected, RECIPES["demo"]]


def test_the_interval_of_checkpoints_asked_for_replaces_the_recipes(asked):
    by_updates = dataclasses.replace(SMALL, checkpoint_updates=5)
    by_minutes = dataclasses.replace(SMALL, checkpoint_minutes=2.0)
    run("Trains.", arguments=["--checkpoint-minutes", "0.5"], recipes={"demo": by_updates})
    run("Trains.", arguments=["--checkpoint-updates", "9"], recipes={"demo": by_minutes})
    intervals = [(c.checkpoint_minutes, c.checkpoint_updates) for _, c, _ in asked]
    assert intervals == [(0.5, None), (None, 9)]


def test_no_clock_ends_the_demo_or_decides_what_it_averages(asked):
    """A slow machine learns as much as a fast one."""
    run("Trains.", arguments=["--corpus", "demo"])
    ((_, config, _),) = asked
    assert config.minutes is None and config.checkpoint_minutes is None
    assert config.steps == 1350 and config.averaged_checkpoints * config.checkpoint_updates < 1350


def test_another_size_changes_nothing_else(asked, tmp_path, capsys):
    """Size and recipe are separate: so it is said, and so it is for every size of text."""
    lines = "".join(f"line {i}\tZeile {i}\n" for i in range(1500))
    (tmp_path / "pairs.tsv").write_text(lines)
    own = ["--tsv", str(tmp_path / "pairs.tsv")]
    for arguments in ([], ["--preset", "small"], ["--preset", "base", "--minutes", "5"]):
        run("Trains.", arguments=[*own, *arguments])
    recipe, small, base = (config for _, config, _ in asked)
    assert recipe.model_arguments == {"normalize_first": True} and recipe.cooldown
    assert small == dataclasses.replace(recipe, preset="small")
    assert base == dataclasses.replace(recipe, preset="base", minutes=5.0, steps=None)
    said = capsys.readouterr().err
    rate = recipe.peak_learning_rate
    for preset in ("small", "base"):
        assert f"--preset {preset} changes the size of the model alone." in said
    assert said.count(f"with tiny, such as normalize_first True, peak_learning_rate {rate}.") == 2
    # Of a recipe for one size of model, what is no size is kept.
    run("Trains.", arguments=["--corpus", "demo", "--preset", "medium"])
    assert asked[-1][1] == dataclasses.replace(RECIPES_OF_ALL["demo"], preset="medium")


def test_without_a_peak_there_is_no_cooldown(asked, tmp_path):
    (tmp_path / "pairs.tsv").write_text("".join(f"line {i}\tZeile {i}\n" for i in range(60)))
    own = ["--tsv", str(tmp_path / "pairs.tsv")]
    run("Trains.", arguments=[*own, "--peak-learning-rate", "none"])
    run("Trains.", arguments=[*own, "--cooldown", "none"])
    rates = [(config.peak_learning_rate is None, config.cooldown) for _, config, _ in asked]
    assert rates == [(True, None), (False, None)]


def test_word_pieces_switch_bpe_dropout_off(asked):
    recipe = dataclasses.replace(SMALL, bpe_dropout=0.1)
    for arguments in ([], ["--tokenizer", "wordpiece"], ["--bpe-dropout", "0.2"]):
        run("Trains.", arguments=arguments, recipes={"demo": recipe})
    assert [(c.bpe_dropout, c.tokenizer_algorithm) for _, c, _ in asked] == [
        (0.1, "bpe"), (0.0, "wordpiece"), (0.2, "bpe")]  # fmt: skip


def test_filters_are_for_training_alone(asked, tmp_path):
    lines = [*(f"line {i}\tZeile {i}\n" for i in range(80)), "a b c\td\n", "line 3\tZeile 3\n"]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    own = ["--tsv", str(tmp_path / "pairs.tsv"), "--max-ratio", "2.5", "--drop-duplicates"]
    run("Trains.", arguments=own, recipes=RECIPES)
    run("Trains.", arguments=[*own[:2], "--max-words", "2"], recipes=RECIPES)
    first, second = (corpus.train for corpus, _, _ in asked)
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
    run("Trains.", arguments=["--corpus", "wmt14", "--data-dir", str(tmp_path), *arguments])
    ((corpus, config, _),) = asked
    assert [len(text) for text in corpus.splits.values()] == [4, 2, 3]
    figures = (config.preset, config.vocabulary_size, config.tokenizer_algorithm, config.steps,
               config.averaged_checkpoints)  # fmt: skip
    assert figures == expected
    assert (config.warmup_steps, config.checkpoint_minutes, config.label_smoothing) == (
        4000,
        10,
        0.1,
    )


def test_plan_prints_and_trains_nothing(asked, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KERAS_ATTENTION_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    files = write_files(tmp_path, "mine", 0, 60)
    arguments = [*text_of(files), "--plan",
                 "--plan-no-try", "--plan-json", "plan.json"]  # fmt: skip
    figures = run("Trains.", arguments=arguments, recipes=RECIPES)
    assert asked == [] and {path.name for path in tmp_path.iterdir()} == {
        "cache", "mine.en", "mine.de", "plan.json",
    }  # fmt: skip
    assert json.loads((tmp_path / "plan.json").read_text()) == json.loads(json.dumps(figures))
    assert figures["pairs"] == 54 and figures["steps"] == SMALL.steps
    shown = capsys.readouterr()
    assert "Pairs: 54 an epoch" in shown.out and "Tokenizer: byte-pair encoding" in shown.err
    before = (tmp_path / "plan.json").read_bytes()
    assert "exists" in refused(arguments, capsys)  # it is there, and may be dear
    assert (tmp_path / "plan.json").read_bytes() == before
    run(
        "Trains.", arguments=arguments[:-2], recipes=RECIPES
    )  # The tokenizer and the store are found again.
    assert "Tokenizer:" not in capsys.readouterr().err


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
        (["--plan-try"], "need --plan"),
        (["--finish"], "--finish needs --output-dir"),
        (
            ["--finish", "--output-dir", "run", "--steps", "9"],
            "Give --finish or a budget, not both",
        ),
        (["--finish", "--output-dir", "run"], "has no checkpoint yet"),
        (["--cooldown", "0.2"], "`cooldown` (0.2) needs a `peak_learning_rate`"),
        (["--cooldown", "0.7", "--peak-learning-rate", "0.1"], "`cooldown` must be"),
        (["--translate", __file__, __file__], "is both a file to read and the file to write"),
        (["--translate", __file__, pytest.__file__], "__init__.py' exists"),
        (["--translate", __file__, "new.de", "--output-dir", "."], "is inside the run's folder"),
        (["--vocabulary-size", "10000000"], "must be an int from 8 to 1,000,000"),
    ],
)
def test_errors_end_with_2_and_a_message(asked, arguments, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert message in refused(arguments, capsys) and asked == []
    assert list(tmp_path.iterdir()) == []


def test_a_file_to_translate_that_is_no_text_is_refused_before_training(
    asked, capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.en").write_bytes(b"good\n\xff\n")
    told = refused(["--translate", "new.en", "new.de"], capsys)
    assert "'new.en', line 2, byte 1 of the line: 0xFF is not UTF-8" in told and asked == []
    assert [path.name for path in tmp_path.iterdir()] == ["new.en"]


def test_files_of_unequal_length_are_named(asked, tmp_path, capsys):
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.de").write_text("eins\n")
    assert "a.de" in refused(text_of([tmp_path / "a.en", tmp_path / "a.de"]), capsys)


def test_help_names_the_choices(capsys):
    with pytest.raises(SystemExit) as error:
        run("Trains a Transformer.", arguments=["--help"], recipes=RECIPES)
    assert error.value.code == 0
    shown = capsys.readouterr().out
    for word in (
        "Trains a Transformer.",
        "--minutes",
        "--translate",
        "tiny",
        "table3_a_heads_1",
    ):
        assert word in shown


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
    with pytest.raises(SystemExit):
        run("Trains.", arguments=[*text, "--help"])
    shown = capsys.readouterr().out
    assert "training (defaults in brackets):" in shown
    assert re.search(rf"--warmup-steps N +updates [^()\n]*peak \({warmup}\)\n", shown)
    assert re.search(r"--label-smoothing X +the paper's epsilon_ls \(0.1\)\n", shown)  # of all


def test_from_two_text_files_to_translations(tmp_path, capsys):
    files = write_files(tmp_path, "mine", 0, 60)
    new = tmp_path / "new.en"
    new.write_text(
        "".join(files[0].read_text("utf-8").splitlines(keepends=True)[:3]) + "\n", "utf-8"
    )
    run(
        "Trains.",
        arguments=[
            *text_of(files), "--steps", "2",
            "--translate", str(new), str(tmp_path / "new.de"), "--output-dir", str(tmp_path / "run"),
        ],
        recipes=RECIPES,
    )  # fmt: skip
    assert (tmp_path / "run" / "report.json").exists()
    lines = (tmp_path / "new.de").read_text("utf-8").split("\n")
    assert len(lines) == 5 and lines[3:] == ["", ""]  # Four lines, the last of them empty.
    assert "BLEU" in capsys.readouterr().out


def test_a_training_that_diverges_ends_with_1(tmp_path, capsys, monkeypatch):
    monkeypatch.delitem(MOST, "peak_learning_rate")  # The door refuses such a rate.
    files = write_files(tmp_path, "mine", 0, 60)
    arguments = [*text_of(files), "--steps", "8",
                 "--peak-learning-rate", "1e30", "--output-dir", str(tmp_path / "run")]  # fmt: skip
    with pytest.raises(SystemExit) as error:
        run("Trains.", arguments=arguments, recipes=RECIPES)
    assert error.value.code == 1
    assert "Training met a gradient that is not finite in update" in capsys.readouterr().err


def test_settings_from_a_file_and_back(asked, tmp_path, capsys):
    file = tmp_path / "run.toml"
    arguments = ["--steps", "7", "--num-layers", "3", "--max-ratio", "2.5", "--dump-config"]
    run("Trains.", arguments=arguments, recipes={"demo": SMALL})
    file.write_text(capsys.readouterr().out)
    run("Trains.", arguments=["--config", str(file), "--seed", "5"], recipes=RECIPES)
    ((corpus, config, _),) = asked
    sizes = {**SMALL.model_arguments, "num_layers": 3}
    assert config == dataclasses.replace(SMALL, steps=7, model_arguments=sizes, seed=5)
    assert corpus.train.filters.max_ratio == 2.5
    file.write_text("stepz = 3\n")
    told = refused(["--config", str(file)], capsys)
    assert "unknown setting: stepz. Did you mean 'steps'?" in told


@pytest.mark.parametrize(
    ("given", "wanted"),
    [(["4"], 4), (["6", "2"], (6, 2)), (["6,2"], (6, 2)), (["3,3"], (3, 3)), (["none"], 2)],
)
def test_depths_of_encoder_and_decoder(asked, tmp_path, capsys, given, wanted):
    """Two numbers, with a space or a comma between them, from the command line and from a file."""
    recipe = dataclasses.replace(SMALL, model_arguments={**SMALL.model_arguments, "num_layers": 2})
    arguments = ["--num-layers", *given]
    run("Trains.", arguments=arguments, recipes={"demo": recipe})
    run("Trains.", arguments=[*arguments, "--dump-config"], recipes={"demo": recipe})
    file = tmp_path / "run.toml"
    file.write_text(capsys.readouterr().out)
    run("Trains.", arguments=["--config", str(file)], recipes={"demo": SMALL})
    assert [config.model_arguments["num_layers"] for _, config, _ in asked] == [wanted, wanted]


@pytest.mark.parametrize("given", [["6", "2", "1"], ["6,2", "1"], ["6;2"], ["0"], ["6", "0"]])
def test_other_depths_are_refused(asked, capsys, given):
    told = refused(["--num-layers", *given], capsys)
    assert "num-layers" in told or "num_layers" in told
    assert asked == []


def test_text_of_ones_own_from_a_settings_file(asked, tmp_path, capsys):
    dev = write_files(tmp_path, "dev", 60, 9)
    own = text_of(write_files(tmp_path, "train", 0, 60))
    own += ["--validation-files", *map(str, dev), "--drop-duplicates"]
    run("Trains.", arguments=[*own, "--dump-config"], recipes=RECIPES)
    file = tmp_path / "run.toml"
    file.write_text(capsys.readouterr().out)
    for arguments in (own, ["--config", str(file)]):
        run("Trains.", arguments=arguments, recipes=RECIPES)
    (corpus, config, _), (corpus_again, config_again, _) = asked
    assert config_again == config
    for split, text in corpus.splits.items():
        assert list(corpus_again.splits[split]) == list(text)


# What a TOML file may hold, and the types of settings that it is right for.
TOML = {
    "3": (int, float),
    "2.5": (float,),
    "true": (bool,),
    "'some text'": (str, Path),
    "''": (),
    "[1]": (),
    "[6, 2]": (tuple[int, int],),
    "[6, 2.5]": (),
    "['a', 'b']": (tuple[Path, Path], tuple[str, ...]),
    "['a', 1]": (),
    "['a', 'b', 'c']": (tuple[str, ...],),
    "{a = 1}": (),
    "2020-01-01": (),
}


def settings():
    for cls in (*SETTINGS, ModelArguments):
        for name, kind in typing.get_type_hints(cls).items():
            is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
            parts = typing.get_args(kind) if is_union else (kind,)
            kinds = {typing.get_origin(part) or part for part in parts} - {typing.Literal, tuple}
            kinds |= {part for part in parts if typing.get_origin(part) is tuple}
            yield name, kinds, "model_arguments = {%s}" if cls is ModelArguments else "%s"


@pytest.mark.parametrize(("name", "kinds", "outer"), list(settings()))
def test_a_setting_of_another_type_is_refused(tmp_path, name, kinds, outer):
    file = tmp_path / "run.toml"
    for text, right_for in TOML.items():
        file.write_text(outer % f"{name} = {text}")
        if {*right_for} & {*kinds}:
            read_toml(file, *SETTINGS)
            continue
        received = tomllib.loads(f"x = {text}")["x"]
        with pytest.raises(ValueError, match=f"run.toml'.*({name} must|unknown)") as error:
            read_toml(file, *SETTINGS)
            pytest.fail(f"{name} = {text} was accepted")
        assert f"Received: {name} = {received!r}" in str(error.value) or "unknown" in str(
            error.value
        )


def test_a_wrong_type_ends_the_command_before_anything(asked, tmp_path, monkeypatch, capsys):
    starts = importlib.import_module("keras_attention.cli.train")
    monkeypatch.setattr(starts, "start_backend", lambda: pytest.fail("the backend was started"))
    (tmp_path / "run.toml").write_text("preset = 3")
    with pytest.raises(SystemExit) as left:
        run("Trains.", arguments=["--config", str(tmp_path / "run.toml")], recipes=RECIPES)
    said = capsys.readouterr().err
    assert left.value.code == 2 and "run.toml': preset must be a text" in said
    assert "Received: preset = 3" in said and asked == []


def test_model_arguments_are_those_of_the_model():
    """But for the settings of a run of their own."""
    ours = typing.get_type_hints(ModelArguments).keys()
    own = {"vocabulary_size", "target_vocabulary_size", "recompute", "seed", "pad_token_id"}
    own |= {"end_token_id", "start_token_id", "suppressed_token_ids"}
    assert ours | own | {"self", "kwargs"} == {*inspect.signature(Transformer.__init__).parameters}
    assert not ours & own
    assert ours >= {name for preset in PRESETS.values() for name in preset}


def test_own_validation_and_test_files(asked, tmp_path, capsys):
    parts = {"train": (0, 60), "dev": (60, 9), "test": (69, 8)}
    files = {name: list(map(str, write_files(tmp_path, name, *p))) for name, p in parts.items()}
    own = text_of(files["train"])
    more = ["--validation-files", *files["dev"], "--test-files", *files["test"]]
    run("Trains.", arguments=[*own, *more], recipes=RECIPES)
    ((corpus, _, _),) = asked
    assert [len(text) for text in corpus.splits.values()] == [60, 9, 8]
    for twice in (
        ["--test-files", *files["train"]],
        ["--validation-files", files["dev"][0]] * 1 + [files["dev"][0]],
    ):
        refused([*own, *twice], capsys)
    assert len(asked) == 1


@pytest.mark.parametrize(
    "pairs,preset,steps", [(60, "tiny", 600), (1500, "tiny", 2000), (22_500, "small", 12_000)]
)
def test_the_size_of_the_text_decides(asked, tmp_path, pairs, preset, steps):
    lines = "".join(f"line {i}\tZeile {i}\n" for i in range(pairs))
    (tmp_path / "pairs.tsv").write_text(lines)
    run("Trains.", arguments=["--tsv", str(tmp_path / "pairs.tsv"), "--beam-size", "3"])
    ((_, config, _),) = asked
    assert (config.preset, config.steps, config.beam_size) == (preset, steps, 3)
    assert config.warmup_steps * 5 < steps and config.patience is not None
