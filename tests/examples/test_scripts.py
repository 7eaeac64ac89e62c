"""The scripts as commands: what they need, what they answer before Keras starts, what they hand over."""

import json
import os
import subprocess
import sys

import common
import constituency_parsing
import pytest
import table1_layer_complexity
from constituency_parsing import RECIPES

from tests.helpers import ROOT, python

pytestmark = pytest.mark.backends("torch")

EXAMPLES, SCRIPTS = (
    sorted(path for path in folder.glob("*.py") if "__main__" in path.read_text())
    for folder in (ROOT / "examples", ROOT / "examples" / "paper")
)
# What all scripts do in two minutes each; without it those that take seconds.
ALL_SMALL_PARTS = "KERAS_ATTENTION_SMALL_PARTS" in os.environ


def answer(path, *arguments, folder, flags=(), library=ROOT, input=None):
    """Runs a script in a folder in which Keras cannot be imported."""
    (folder / "stubs").mkdir(exist_ok=True)
    (folder / "stubs" / "keras.py").write_text("raise RuntimeError('Keras starts')\n")
    paths = os.pathsep.join(map(str, [folder / "stubs", library]))
    return subprocess.run(
        [sys.executable, *flags, path, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=100,
        input=input,
    )


# Runs scripts one after the other in one process; for each its exit code and what it printed.
MANY = """
import contextlib, io, json, os, runpy, sys
told = []
for words in json.load(sys.stdin):
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv, sys.path[0] = words, os.path.dirname(words[0])
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_path(words[0], run_name="__main__")
        except SystemExit as left:
            code = left.code or 0
    told.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(told))
"""


def answers(commands, folder):
    """What `answer` would return of each command, as (exit code, output, errors)."""
    (folder / "many.py").write_text(MANY)
    words = json.dumps([list(map(str, command)) for command in commands])
    done = answer("many.py", folder=folder, input=words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_help_comes_before_keras(tmp_path):
    paths = [*EXAMPLES, *SCRIPTS]
    for path, (code, out, err) in zip(
        paths, answers([(path, "--help") for path in paths], tmp_path), strict=True
    ):
        assert code == 0, err
        assert out.startswith(f"usage: {path.name}") and "--output" in out
        assert ("--quick" in out) == (path in SCRIPTS)
    assert {entry.name for entry in tmp_path.iterdir()} == {"many.py", "stubs"}


def test_wrong_options_are_refused_before_keras_starts(tmp_path):
    wrong = [
        ("table3_variations --seeds 1 1", "--seeds must be one or more different numbers"),
        ("table3_positions --seeds 2 2", "--seeds must be one or more different numbers"),
        ("weighted_transformer --seeds 3 3", "--seeds must be one or more different numbers"),
        ("weighted_transformer --seeds -1", "`seed`"),
        ("weighted_transformer --updates 99", "--updates must be at least 100"),
        ("table3_variations --rows D f_rows", "no row 'f_rows'"),
        ("table3_variations --rows C --depth 3", "c_layers_2 and c_layers_4 are the same model"),
        ("table3_variations --corpus wmt", "--corpus: invalid choice: 'wmt'"),
        ("table3_positions --trained-length 1", "--trained-length: must be at least 2"),
        ("table1_layer_complexity --longest 1023", "--longest: must be at least 1,024"),
        ("table2_training_cost --run absent", "'absent' is not the folder of a run"),
        ("attention_figures --run absent", "'absent' is not the folder of a run"),
        ("attention_figures --quick --run absent", "--steps, which --quick sets, is for a run"),
        ("attention_figures --layer 0", "`--layer` must be an int from 1 to"),
        ("attention_figures --heads 2 3 2 4", "--heads must be 4 different heads"),
        ("attention_figures --sentence \u200b", "--sentence has no words"),
        ("section7_drafts --lookahead 0", "--lookahead: must be at least 1"),
        ("section7_drafts --model absent", "needs --source-file and --pairs"),
        ("constituency_parsing --treebank penn", "LDC"),
        ("constituency_parsing --beam-size 0", "`beam_size`"),
        ("constituency_parsing --keep 0", "--keep: must be above 0 and at most 1. Received: 0"),
        ("constituency_parsing --test-sentences 0", "--test-sentences: must be at least 1"),
    ]
    commands = []
    for command, _ in wrong:
        name, *options = command.split(" ")
        path = ROOT / "examples" / "paper" / f"{name}.py"
        commands.append([path, *options, "--output-dir", "out"])
    for (command, message), (code, _, err) in zip(wrong, answers(commands, tmp_path), strict=True):
        assert code == 2 and message in err, (command, err)
        assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_small_part_of_a_script_runs(path, tmp_path):
    if path.stem != "table2_training_cost" and not ALL_SMALL_PARTS:
        pytest.skip("set KERAS_ATTENTION_SMALL_PARTS=1: three minutes")
    folder = tmp_path / "out"
    python(path, "--quick", "--output-dir", folder, cwd=tmp_path, timeout=900)
    assert {".txt", ".md", ".json"} <= {written.suffix for written in folder.rglob("*")}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_without_the_package_a_script_says_what_to_install(path, tmp_path):
    done = answer(path, "--help", folder=tmp_path, flags=["-S"], library=tmp_path)
    assert done.returncode == 1
    assert "pip install -e '.[tensorflow]'" in done.stderr and "Traceback" not in done.stderr


def test_without_a_package_that_it_needs_a_script_names_it(refused_by):
    assert "script.py: This script needs no_such_package: pip install" in refused_by(
        common.run, None, common.new_parser("", "script.py"), ["no_such_package"], []
    )


@pytest.fixture
def kept_to(monkeypatch):
    """The cores that this process was kept to, while a measurement of layers does nothing."""
    sets = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {5, 2, 7}, raising=False)
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda process, cores: sets.append(cores), raising=False
    )
    monkeypatch.setattr(
        table1_layer_complexity, "measure", lambda *arguments, rounds: (*arguments, rounds)
    )
    return sets


@pytest.mark.parametrize("arguments, cores", [([], [2]), (["--cores", "2"], [2, 5])])
def test_table_1_is_measured_on_one_core_or_as_many_as_asked_for(
    arguments, cores, kept_to, tmp_path
):
    script = table1_layer_complexity
    arguments = [*arguments, "--rounds", "2", "--output-dir", str(tmp_path / "out")]
    folder, series, repeats, sizes, rounds = common.run(
        script.main, script.parser(), arguments=arguments
    )
    assert kept_to == [cores]
    assert (folder, repeats, sizes, rounds) == (tmp_path / "out", 5, [4096, 8192, 16_384], 2)
    assert series == script.all_series(16_384)


@pytest.mark.parametrize("number", ["0", "4"])
def test_cores_that_are_not_there_are_refused(number, kept_to, tmp_path, refused_by):
    script = table1_layer_complexity
    arguments = ["--cores", number, "--output-dir", str(tmp_path / "out")]
    assert "--cores" in refused_by(common.run, script.main, script.parser(), arguments=arguments)
    assert not kept_to and not (tmp_path / "out").exists()


@pytest.fixture
def received(monkeypatch):
    """What would be parsed."""
    calls = []
    monkeypatch.setattr(constituency_parsing, "train_and_parse", lambda *args: calls.append(args))
    return calls


@pytest.fixture
def trees(tmp_path):
    file = tmp_path / "trees.mrg"
    file.write_text("( (S (NN a)) )\n")
    return str(file)


# A file of trees, made by `trees`, is all parts.
OWN = [word for part in ("train", "validation", "test") for word in (f"--{part}", "trees.mrg")]


def parse(*arguments):
    common.run(
        constituency_parsing.main, constituency_parsing.parser(), arguments=[*map(str, arguments)]
    )


def test_options_replace_what_the_recipe_says(received, trees, tmp_path):
    own = ["--train", trees, "--validation", trees, "--test", trees, trees]
    parse(*own, "--minutes", 2, "--beam-size", 7, "--leaves", "XX", "--pcfg", "--seed", 4,
          "--output-dir", tmp_path / "run", "--test-sentences", 3,
          "--dropout", 0.25, "--max-length", 77)  # fmt: skip
    [(treebank, config, output_dir, leaves, systems, number)] = received
    assert {part: len(list(files)) for part, files in treebank.parts.items()} == {
        "train": 1, "validation": 1, "test": 2,
    }  # fmt: skip
    recipe, _ = RECIPES["files"]
    assert (config.minutes, config.steps, config.beam_size) == (2.0, None, 7)
    assert (config.preset, config.length_penalty, config.seed) == (recipe.preset, 0.3, 4)
    assert output_dir == tmp_path / "run"
    assert config.max_length == 77
    assert config.model_arguments == {**recipe.model_arguments, "dropout": 0.25}
    assert (leaves, number) == ("XX", 3)
    assert systems == ["constrained", "repaired", "right_branching", "pcfg"]


def test_another_preset_brings_its_own_sizes(received, trees, tmp_path):
    own = ["--train", trees, "--validation", trees, "--test", trees]
    parse(*own, "--preset", "parsing", "--steps", 9)
    [(_, config, _, leaves, _, _)] = received
    kept = {"normalize_first": True}  # no matter of size
    assert (config.preset, config.model_arguments, config.steps) == ("parsing", kept, 9)
    assert leaves == "words"
    assert (config.peak_learning_rate, config.minutes) == (0.002, None)


def test_the_papers_setting_is_a_recipe():
    paper, leaves = RECIPES["penn"]
    assert leaves == "tags" and {RECIPES[name][1] for name in {*RECIPES} - {"penn"}} == {"words"}
    assert (paper.preset, paper.vocabulary_size) == ("parsing", 16_000)
    assert (paper.beam_size, paper.length_penalty) == (21, 0.3)


def test_silver_trees_come_with_the_papers_larger_vocabulary(received, trees, monkeypatch):
    monkeypatch.setitem(RECIPES, "files", RECIPES["penn"])
    own = ["--train", trees, "--validation", trees, "--test", trees]
    parse(*own)
    parse(*own, "--silver", trees, "--mixture", "gold:1", "silver:3")
    parse(*own, "--silver", trees, "--vocabulary-size", 9000)
    assert [call[1].vocabulary_size for call in received] == [16_000, 32_000, 9000]
    assert [call[0].silver is None for call in received] == [True, False, False]
    assert received[1][1].mixture == ("gold:1", "silver:3")


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["--treebank", "craft", "--data-dir", "absent"], "files of CRAFT are missing"),
        (["--train", "absent.mrg"], "need --train, --validation and --test"),
        (["--treebank", "wsj_sample", "--data-dir", "absent"], "wsj_0001.mrg"),
        ([*OWN, "--parse", "absent.txt"], "absent.txt"),
        ([*OWN, "--silver", "absent.mrg"], "`silver` must hold files"),
        ([*OWN, "--mixture", "silver:1"], "names 'silver', which is none of the corpora (none)"),
    ],
)
def test_bad_input_is_said_in_a_line(
    received, arguments, reason, refused_by, trees, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert reason in refused_by(parse, *arguments)
    assert not received
