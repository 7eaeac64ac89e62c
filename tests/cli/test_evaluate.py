"""The report on a run's folder, made after the fact by the command."""

import gzip
import json

import pytest

from keras_attention.cli.main import main
from keras_attention.recipes import compare
from keras_attention.recipes import evaluate as recipe
from keras_attention.utils.files import read_json, write_json


def command(run, *more, suffix=""):
    files = [str(run / f"dev.{language}{suffix}") for language in ("en", "de")]
    pair = ["--source-file", files[0], "--reference-file", files[1]]
    main(["evaluate", str(run), *pair, "--samples", "5", *more])


def test_report_of_a_folder(run, capsys, monkeypatch):
    def translator(model, tokenizer, **decoding):
        assert decoding == {"beam_size": 2, "length_penalty": 0.6}
        return lambda sources: [f"Ein {source}" for source in sources]  # a search takes its time

    monkeypatch.setattr(recipe, "Translator", translator)
    command(run, "--device", "P100", "--devices", "8", "--name", "five")
    printed = capsys.readouterr().out
    assert printed == (run / "report.txt").read_text("utf-8")
    report = json.loads((run / "report.json").read_text("utf-8"))
    assert report["parameters"] == 5
    evaluation = report["evaluation"]
    assert evaluation["sentences"] == 5 and evaluation["test_set"] == "five"
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
    assert cost["paper_flops"] == pytest.approx(60 * 8 * 9.5e12)
    assert 0 < cost["flops_of_tokens"] < cost["flops"]


def test_the_share_of_the_peak_is_of_the_runs_own_peak(run, monkeypatch):
    report = read_json(run / "report.json", unsigned=True)
    write_json(run / "report.json", {**report, "training": {"device_peak": 3e9}})
    monkeypatch.setattr(recipe, "Translator", lambda *_, **__: list)
    monkeypatch.setattr(recipe, "matmul_peak", pytest.fail)
    command(run)
    cost = json.loads((run / "report.json").read_text("utf-8"))["evaluation"]["training_cost"]
    assert cost["paper_flops"] == pytest.approx(60 * 3e9)
    assert cost["mfu"] == pytest.approx(cost["flops"] / 60 / 3e9)


def test_settings_of_the_search_are_compared(run, capsys, monkeypatch):
    before = (run / "report.json").read_text()
    asked = []

    def translator(model, tokenizer, **decoding):
        asked.append((decoding["beam_size"], decoding["length_penalty"]))
        last = None if decoding["length_penalty"] == 1.5 else -1  # a word too few
        sides = ((run / f"dev.{language}").read_text().splitlines() for language in ("en", "de"))
        references = dict(zip(*sides, strict=True))
        return lambda lines: [" ".join(references[line].split()[:last]) for line in lines]

    monkeypatch.setattr(compare, "Translator", translator)
    command(run, "--length-penalty", "0.5", "--length-penalty", "1.5", "--beam-size", "3")
    assert asked == [(3, 0.5), (3, 1.5)]
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[:2] for row in rows] == [["3", "0.5"], ["3", "1.5"]]
    assert float(rows[0][2]) < float(rows[1][2]) == 100.0
    assert "best;" not in rows[0] and "best;" in rows[1]
    for language in ("en", "de"):
        file = run / f"dev.{language}"
        (run / f"dev.{language}.gz").write_bytes(gzip.compress(file.read_bytes()))
    command(run, "--length-penalty", "1.5", suffix=".gz")
    assert asked[2:] == [(2, 1.5)]  # the run's own beam
    assert "100.0" in capsys.readouterr().out
    assert (run / "report.json").read_text() == before
    with pytest.raises(SystemExit):
        command(run, "--length-penalty", "1.5", "--precision", "float32")
    assert "not both" in capsys.readouterr().err


def test_a_folder_without_a_run_is_refused(tmp_path, run, capsys):
    files = ["--source-file", str(run / "dev.en"), "--reference-file", str(run / "dev.de")]
    with pytest.raises(SystemExit) as end:
        main(["evaluate", str(tmp_path), *files])
    assert end.value.code == 2
    assert "is not the folder of a run" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_files_that_do_not_fit(run, capsys):
    before = (run / "report.json").read_text()
    with pytest.raises(SystemExit):
        files = ["--source-file", str(run / "dev.en"), "--reference-file", str(run / "train.de")]
        main(["evaluate", str(run), *files, "--device", "K80"])
    assert "needs its reference" in capsys.readouterr().err
    assert (run / "report.json").read_text() == before
