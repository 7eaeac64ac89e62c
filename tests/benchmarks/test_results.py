"""The tables of the docs are those that the records give."""

import doctest
import importlib
import json

import make_results
import pytest
from harness.records import record_path, write_record
from make_results import read_records, times_as_long

pytestmark = pytest.mark.backends("tensorflow")


def test_the_docs_are_up_to_date():
    for path, text in make_results.made_files(read_records()).items():
        assert path.read_text("utf-8") == text, "run python benchmarks/make_results.py"


def test_the_results_and_the_readme_are_short():
    lines = {
        name: len((make_results.ROOT / name).read_text("utf-8").splitlines())
        for name in ("docs/results.md", "README.md")
    }
    assert lines["docs/results.md"] <= 180 and lines["README.md"] <= 150


def test_the_readme_shows_six_rows_that_are_no_rosier_than_all():
    records = read_records()
    every = make_results.ratios(records)
    few = [row for row in every if tuple(row[:2]) in make_results.README_ROWS]
    assert len(few) == 6 < len(every)
    assert {*make_results.readme_table(records).splitlines()} == {
        *make_results.ratio_table(few).splitlines()
    }

    def numbers(rows):
        return [float(n) for row in rows for cell in row[2:] if cell for n in cell.split(", ")]

    def share_lost(rows):
        return sum(number < 1 for number in numbers(rows)) / len(numbers(rows))

    assert min(numbers(few)) == min(numbers(every))
    assert share_lost(few) >= share_lost(every) > 0


def written(folder, name, **fields):
    record = {
        "benchmark": "decode",
        "case": {"model": "base", "vocabulary_size": 16_000, "batch_size": 8, "beam_size": 4},
        "started": "2026-01-02",
        "commit": None,
        "command": None,
        "source": "measured",
        "cpu": {"flags": ["avx2", "avx512f"]},
        "versions": {},
        **fields,
    }
    (folder / f"{name}.json").write_text(json.dumps(record))


def rates(**by_name):
    return [
        {"spec": {"name": name.replace("_", " ", 1)}, "rates": {"sentences": rate}, "failure": None}
        for name, rate in by_name.items()
    ]


def test_the_newest_run_is_shown(tmp_path):
    old = {"subjects": rates(CTranslate2_float32=7.0), "started": "2026-01-01T23:59:59+00:00"}
    written(tmp_path, "b", **old)
    ours = [{**part, "spec": {"name": "keras_attention torch float32"}} for part in rates(x=9.0)]
    written(tmp_path, "a", subjects=rates(CTranslate2_float32=6.0) + ours)
    case = {"model": "base", "vocabulary_size": 16_000, "batch_size": 32, "beam_size": 4}
    written(tmp_path, "c", case=case, subjects=[{**ours[0], "rates": {"sentences": 20.0}}])
    text = make_results.decoding(read_records(tmp_path))
    links = "[8](../benchmarks/results/a.json) / [32](../benchmarks/results/c.json)"
    row = f"| base, V 16,000 | AVX-512 | 2026-01-02 | {links} | 9 / 20 |  |  | 6 / - |  | 1.50 / - |  |"
    assert row in text and "2026-01-01" not in text


def test_a_record_that_lacks_a_field_is_named(tmp_path):
    (tmp_path / "half.json").write_text('{"benchmark": "decode", "case": {}}')
    with pytest.raises(ValueError, match=r"half\.json lacks started, commit"):
        read_records(tmp_path)


def test_a_program_that_failed_has_no_ratio():
    one, other = rates(a=2.0, b=3.0)
    assert times_as_long({"subjects": [one, other]}, "a", "b")["median"] == 1.5
    other["failure"] = "it died"
    assert times_as_long({"subjects": [one, other]}, "a", "b") is None


def test_a_text_without_the_marks_is_refused():
    with pytest.raises(ValueError, match="Received: 0"):
        make_results.replaced("text", ["| a |"])


def test_records_of_two_processors_do_not_share_a_file():
    facts = {"started": "2026-01-02T03:04:05+00:00", "cpu": {"flags": ["avx2"]}, "gpus": []}
    one = record_path("train_update", {"workload": "base"}, facts)
    other = record_path("train_update", {"workload": "base"}, {**facts, "gpus": ["NVIDIA T4, 1"]})
    assert one.name == "2026-01-02T030405-train_update-base-avx2.json"
    assert other.name == "2026-01-02T030405-train_update-base-nvidia-t4.json"


def test_figures_are_written_and_read(tmp_path):
    facts = {"started": "2026-01-02", "commit": None, "command": ["x"], "cpu": {"flags": []}}
    write_record(tmp_path, {**facts, "versions": {}}, "start", {"a": 1}, figures={"b": 2.5})
    (record,) = read_records(tmp_path)
    assert record["figures"] == {"b": 2.5} and record["source"] == "measured"
    assert record["file"] == "2026-01-02-start-1-other.json"


DOCUMENTED = "make_results decode harness.compare harness.records".split()
DOCUMENTED += "peers.decoding.make_job peers.training.programs peers.weights".split()


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_examples_in_docstrings(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0 and found.failed == 0
