"""The parser's command line: what it hands over, and how it says what is wrong."""

import pytest

from keras_attention.cli import parse
from keras_attention.experiments import parsing
from keras_attention.experiments.parsing import PARSING_LEAVES, PARSING_RECIPES

pytestmark = pytest.mark.backends("tensorflow")


@pytest.fixture
def received(monkeypatch):
    """What would be trained."""
    calls = []

    def train_parser(treebank, config, output_dir, **options):
        calls.append((treebank, config, output_dir, options))
        return {}

    monkeypatch.setattr(parsing, "train_parser", train_parser)
    return calls


@pytest.fixture
def trees(tmp_path):
    file = tmp_path / "trees.mrg"
    file.write_text("( (S (NN a)) )\n")
    return str(file)


def test_options_replace_what_the_recipe_says(received, trees, tmp_path):
    own = ["--train", trees, "--validation", trees, "--test", trees, trees]
    parse.run("", [*own, "--minutes", "2", "--beam-size", "7", "--leaves", "XX", "--pcfg", "--seed", "4",
                   "--output-dir", str(tmp_path / "run"), "--test-sentences", "3",
                   "--dropout", "0.25", "--max-length", "77"])  # fmt: skip
    [(treebank, config, output_dir, options)] = received
    assert {part: len(list(files)) for part, files in treebank.parts.items()} == {
        "train": 1, "validation": 1, "test": 2,
    }  # fmt: skip
    recipe = PARSING_RECIPES["files"]
    assert (config.minutes, config.steps, config.beam_size) == (2.0, None, 7)
    assert (config.preset, config.length_penalty, config.seed) == (recipe.preset, 0.3, 4)
    assert output_dir == tmp_path / "run"
    assert config.max_length == 77
    assert config.model_arguments == {**recipe.model_arguments, "dropout": 0.25}
    assert (options["leaves"], options["test_sentences"]) == ("XX", 3)
    assert options["systems"] == ["constrained", "repaired", "right_branching", "pcfg"]


def test_another_preset_brings_its_own_sizes(received, trees, tmp_path):
    own = ["--train", trees, "--validation", trees, "--test", trees]
    parse.run("", [*own, "--preset", "parsing", "--steps", "9"])
    [(_, config, _, options)] = received
    kept = {"normalize_first": True}  # no matter of size
    assert (config.preset, config.model_arguments, config.steps) == ("parsing", kept, 9)
    assert options["leaves"] == "words"
    assert (config.peak_learning_rate, config.minutes) == (0.002, None)


def test_the_papers_setting_is_a_recipe():
    paper = PARSING_RECIPES["penn"]
    assert PARSING_LEAVES == {**dict.fromkeys(PARSING_RECIPES, "words"), "penn": "tags"}
    assert (paper.preset, paper.vocabulary_size) == ("parsing", 16_000)
    assert (paper.beam_size, paper.length_penalty) == (21, 0.3)


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["--treebank", "penn"], "LDC"),
        (["--treebank", "craft", "--data-dir", "absent"], "files of CRAFT are missing"),
        (["--train", "absent.mrg"], "need --train, --validation and --test"),
        (["--treebank", "wsj_sample", "--data-dir", "absent"], "wsj_0001.mrg"),
    ],
)
def test_bad_input_is_said_in_a_line(received, arguments, reason, capsys):
    with pytest.raises(SystemExit) as stop:
        parse.run("", arguments)
    assert stop.value.code == 2
    assert reason in capsys.readouterr().err
    assert not received
