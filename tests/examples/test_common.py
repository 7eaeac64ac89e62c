"""What the scripts share: folders that keep results, rows x seeds, tables, intervals."""

import argparse
import dataclasses
import json
import math

import common
import numpy as np
import pytest
import table3_positions
import table3_variations
import weighted_transformer
from common import Paired, Results, Table, half_width

from tests.recipes.small_runs import SMALL, small_corpus

pytestmark = pytest.mark.backends("torch")


def test_a_folder_goes_on_and_refuses_other_settings(tmp_path):
    calls = []
    for _ in range(2):
        kept = Results(tmp_path / "a", {"sizes": (1, 2)})
        with kept.claimed():
            assert kept.get("x", lambda: calls.append(1) or {"seconds": (0.5, 0.25)}) == {
                "seconds": [0.5, 0.25]
            }
    assert calls == [1]
    with pytest.raises(ValueError, match=r"sizes: \[1, 2\] there, \[3\] asked for"):
        Results(tmp_path / "a", {"sizes": [3]})


def test_what_follows_quick_wins():
    parse = table3_variations.parser().parse_args
    small, more = parse(["--quick"]), parse(["--steps", "5", "--quick", "--seeds", "2", "3"])
    assert (small.rows, small.seeds, small.steps) == (["d_smoothing_0"], [1], 30)
    assert (more.rows, more.seeds, more.steps) == (["d_smoothing_0"], [2, 3], 30)


def test_a_setting_that_was_none_yet_was_at_its_default(tmp_path):
    with Results(tmp_path / "a", {"width": 4}).claimed():
        pass
    Results(tmp_path / "a", {"width": 4, "seed": 1, "symbols": ()})
    with pytest.raises(ValueError, match=r"\(seed: 1 there, 2 asked for\)"):
        Results(tmp_path / "a", {"width": 4, "seed": 2, "symbols": ()})


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds no results"):
        Results(tmp_path, {})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    "error, measured, left",
    [(ValueError, False, []), (ValueError, True, ["out"]), (KeyboardInterrupt, False, ["out"])],
)
def test_a_refusal_before_any_result_leaves_nothing(error, measured, left, tmp_path):
    kept = Results(tmp_path / "out", {"steps": 256})
    with pytest.raises(error), kept.claimed():
        (kept.folder / "runs" / "base-1" / "tokenizer").mkdir(parents=True)
        if measured:
            kept.get("x", lambda: 1)
        raise error
    assert [path.name for path in tmp_path.iterdir()] == left
    if not left:
        Results(tmp_path / "out", {"steps": 400})


def test_all_rows_are_checked_before_the_folder_is_claimed(tmp_path):
    corpus, calls = small_corpus(tmp_path), []

    def measure(*arguments):
        calls.append(arguments)
        return len(calls)

    def train(tokens):
        configs = common.configs_of(
            ["a", "b"],
            [5, 3],
            {"a": SMALL, "b": dataclasses.replace(SMALL, batch_tokens=tokens)}.get,
        )
        results = Results(tmp_path / "out", {"tokens": tokens})
        with common.trained(results, corpus, configs, measure) as found:
            return found

    with pytest.raises(ValueError, match="`batch_tokens` .40. is too small"):
        train(40)
    assert not calls and not (tmp_path / "out").exists()
    # Seed by seed; the mended command works in the same folder.
    assert train(600) == {"a": {5: 1, 3: 3}, "b": {5: 2, 3: 4}}
    order = [(row, config.seed, folder.name) for row, _, config, folder in calls]
    assert order == [("a", 5, "a-5"), ("b", 5, "b-5"), ("a", 3, "a-3"), ("b", 3, "b-3")]


@pytest.mark.parametrize("script", [table3_positions, table3_variations, weighted_transformer])
def test_a_refused_option_leaves_no_folder(script, tmp_path, refused_by):
    arguments = ["--batch-tokens", "64", "--pairs", "600", "--output-dir", str(tmp_path / "out")]
    if script is table3_positions:
        arguments += ["--trained-length", "200"]
    assert "`batch_tokens` (64) is too small" in refused_by(
        common.run, script.main, script.parser(), arguments=arguments
    )
    assert list(tmp_path.iterdir()) == []


def test_the_corpus_is_cut_as_asked_for():
    parser = common.new_parser("", "script.py")
    common.add_training(parser, seeds=[1])
    options = parser.parse_args(
        ["--pairs", "7", "--test-sentences", "100000", "--dtype", "float32"]
    )
    corpus = common.corpus_of(options)
    assert (len(corpus.train), len(corpus.test)) == (7, 500)
    assert isinstance(options, argparse.Namespace) and not hasattr(options, "steps")


def test_results_in_three_forms(tmp_path, capsys):
    rows = [["LSTM", "1.5"], ["attention", None], ["short"]]
    table = Table("T", ["layer", "ms"], rows, ["A note."])
    common.write(tmp_path, "table", [table], {}, {"figure": (3,)})
    lines = ["T", "", "layer       ms", "LSTM       1.5", "attention", "short", "", "A note.", ""]
    assert (tmp_path / "table.txt").read_text() == "\n".join(lines)
    assert "| layer | ms |\n|---|---|\n| LSTM | 1.5 |\n" in (tmp_path / "table.md").read_text()
    saved = json.loads((tmp_path / "table.json").read_text())
    assert saved["figure"] == [3] and "keras" in saved["environment"]
    assert "layer       ms" in capsys.readouterr().out


@pytest.mark.parametrize(
    "freedom, point", [(1, 12.706), (2, 4.303), (10, 2.228), (11, 2.201), (30, 2.042), (99, 1.984)]
)
def test_half_the_interval_of_a_mean(freedom, point):
    """Against points of Student's t as tables print them."""
    number = freedom + 1
    values = [7.0 if index % 2 else 3.0 for index in range(number)]
    mean = sum(values) / number
    variance = sum((value - mean) ** 2 for value in values) / freedom
    assert half_width(values) == pytest.approx(point * math.sqrt(variance / number), rel=5e-4)


@pytest.mark.parametrize("values", [[], [2.5]])
def test_less_than_two_values_have_no_interval(values):
    assert half_width(values) == math.inf


def test_paired_differences():
    # +2 in both seeds: no noise at all. +4 and -4: nothing but noise. One seed resolves nothing.
    assert Paired.of([7.0, 9.0], [5.0, 7.0]) == (2.0, 0.0)
    assert Paired.of([7.0, 9.0], [5.0, 7.0]).is_resolved
    assert not Paired.of([9.0, 3.0], [5.0, 7.0]).is_resolved
    one = Paired.of_logs([6.0], [2.0])
    assert one.mean == pytest.approx(np.log(3)) and one.interval is None
    assert one.verdict == "not resolved"
