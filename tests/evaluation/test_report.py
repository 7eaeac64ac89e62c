"""The report of a run whose translations are made up, so that every figure is known."""

import json
import os
import re
import unicodedata

import pytest

from keras_attention import corpus_bleu, evaluation_report, write_report
from keras_attention.evaluation import Sentences, System, report_text
from keras_attention.utils.files import read_json, write_json
from tests.evaluation.test_comparison import REFERENCES as LINES

pytestmark = pytest.mark.backends("tensorflow")

SOURCES = [f"sentence {i}" for i in range(6)]
REFERENCES = LINES[:6]
CONFIG = {"preset": "toy", "train_fingerprint": "abc"}


class Model:
    """Its weight is the number of references that its translator gets right."""

    weight = 0.0


def set_mean(model, paths):
    model.weight = sum(int(path[-1]) for path in paths) / len(paths)


def make_report(
    paths=("run/update-1", "run/update-3", "run/update-5"), references=REFERENCES, **options
):
    model = Model()

    def translate(texts):
        assert texts == SOURCES
        right = round(model.weight)
        return [*REFERENCES[:right], *("Ein Haus steht im Wald." for _ in REFERENCES[right:])]

    def system(*of):
        return System(lambda: set_mean(model, of), of)

    systems = {}
    if len(paths) > 1:
        systems[f"first averaged ({paths[0][4:]})"] = system(paths[0])
    if paths:
        systems[f"last checkpoint ({paths[-1][4:]})"] = system(paths[-1])
    if len(paths) > 1:
        systems[f"average of {len(paths)}"] = system(*paths)
    options = {
        "measure_perplexity": lambda: 10 - model.weight,
        "samples": 20,
        "decoding": {"beam_size": 4},
        "cost": {
            "updates": 1234,
            "flops_per_update": 2e9,
            "flops": 2.468e12,
            "flops_of_tokens": 2e12,
            "padding": 0.125,
            "seconds": 60.0,
            "peak": 9.2e10,
            "mfu": 0.449,
        },
        **options,
    }
    return model, evaluation_report(
        systems, translate, Sentences(SOURCES, references, language="de"), **options
    )


def expected_bleu(right):
    wrong = ["Ein Haus steht im Wald."] * (6 - right)
    return corpus_bleu([*REFERENCES[:right], *wrong], REFERENCES).score


def test_scores_before_and_after_averaging():
    model, report = make_report()
    titles = list(report["systems"])
    assert titles == ["first averaged (update-1)", "last checkpoint (update-5)", "average of 3"]
    assert model.weight == 3.0  # the average stays in the model
    for title, right in zip(titles, (1, 5, 3), strict=True):
        system = report["systems"][title]
        assert system["scores"]["bleu"]["score"] == pytest.approx(expected_bleu(right))
        assert system["perplexity"] == 10 - right
        assert set(system["scores"]) == {"bleu", "tokenized_bleu", "chrf"}
        assert all(score["signature"] for score in system["scores"].values())
    assert report["averaging"]["checkpoints"] == ["update-1", "update-3", "update-5"]
    change = report["averaging"]["bleu"]
    assert change["before"] == pytest.approx(expected_bleu(5))
    assert change["after"] == pytest.approx(expected_bleu(3))
    assert change["gain"] == pytest.approx(expected_bleu(3) - expected_bleu(5))
    compared = [(d["baseline"], d["system"]) for d in report["significance"]]
    assert compared == [(titles[1], titles[0]), (titles[1], titles[2])] * 2


def test_text_is_compared_in_one_form_and_the_lines_that_it_changed_are_counted():
    nfd = [unicodedata.normalize("NFD", line) for line in REFERENCES]
    assert sum(map(str.__ne__, nfd, REFERENCES)) == 3
    _, report = make_report(references=nfd)
    titles = list(report["systems"])
    for title, right in zip(titles, (1, 5, 3), strict=True):
        bleu = report["systems"][title]["scores"]["bleu"]["score"]
        assert bleu == pytest.approx(expected_bleu(right))
    assert report["text"]["changed"] == {"references": 3, **dict.fromkeys(titles, 0)}
    text = report_text(report)
    assert re.search("compared as +Unicode NFC", text)
    assert re.search("lines changed +3 of references, 0 of translations\n", text)

    def spaced(texts):
        return [f"{line}\u200b" for line in REFERENCES[:5]] + REFERENCES[5:]

    report = evaluation_report(
        {"spaced": System(lambda: None)}, spaced, Sentences(SOURCES, REFERENCES)
    )
    assert list(report["text"]["changed"].values()) == [0, 5]


def test_the_average_is_the_first_column():
    _, report = make_report()
    lines = report_text(report).split("Scores\n------\n")[1].splitlines()
    titles = ["average of 3", "last checkpoint (update-5)", "first averaged (update-1)"]
    assert re.split(r"  +", lines[0].strip()) == titles
    bleu = [float(score) for score in re.findall(r"\d+\.\d\d", lines[1])]
    assert bleu == pytest.approx([expected_bleu(right) for right in (3, 5, 1)], abs=0.006)


def test_one_checkpoint_has_no_average():
    model, report = make_report(["run/update-2"], measure_perplexity=None)
    assert list(report["systems"]) == ["last checkpoint (update-2)"]
    assert report["averaging"] is None and report["significance"] == []
    text = report_text(report)
    assert "nothing was averaged" in text and "nothing was compared" in text
    assert "perplexity" not in text


def test_text_shows_every_number():
    _, report = make_report()
    text = report_text(report, title="toy-run")
    assert text.startswith("Evaluation of toy-run\n")
    for system in report["systems"].values():
        for score in system["scores"].values():
            assert f"{score['score']:.2f}" in text
            assert score["metric"] in text and score["signature"] in text
        assert f"{system['perplexity']:.3f}" in text
    for difference in report["significance"]:
        for kind in ("p_value", "randomization_p_value"):
            assert f"{difference[kind]:.4f}" in text
        assert difference["signature"] in text
        assert f"± {difference['interval']:.2f}" in text
    for part in ("1,234", "2.468e+12", "9.2e+10", "12.5%", "44.9%", "beam_size 4", "6 sentences"):
        assert part in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_written_into_the_folder_beside_what_is_there(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "report.json").write_text(json.dumps({"corpus": "toy", "config": CONFIG}))
    _, report = make_report()
    text_file, json_file = write_report(report, tmp_path, CONFIG)
    written = json.loads(json_file.read_text("utf-8"))
    assert written["corpus"] == "toy"
    entry = written["evaluation"]
    assert len(report.pop("translations")) == report["sentences"]  # They have a file of their own.
    assert "translations" not in entry
    assert {key: entry[key] for key in report} == json.loads(json.dumps(report))
    assert text_file.read_text("utf-8") == report_text(report, title=tmp_path.name)
    write_report({**report, "sentences": 7}, tmp_path)  # its own evaluation is replaced
    assert json.loads(json_file.read_text("utf-8"))["evaluation"]["sentences"] == 7
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "config.json",
        "report.json",
        "report.txt",
    ]


@pytest.mark.skipif(os.name == "nt", reason="names of files are text there")
def test_a_name_that_is_no_utf_8_is_no_reason_to_lose_a_report(tmp_path):
    odd = os.fsdecode(b"f\xfcr")
    folder, config = tmp_path / odd, {**CONFIG, "corpus": odd}
    folder.mkdir()
    write_json(folder / "config.json", config)
    text_file, json_file = write_report(make_report()[1], folder, config)
    assert text_file.read_text("utf-8").startswith("Evaluation of f\\udcfcr\n")
    assert read_json(json_file)["config"] == json.loads(json.dumps(config))


@pytest.mark.parametrize(
    ("files", "config", "message"),
    [
        ([], None, "is not the folder of a run"),
        (["[1]"], None, "is not the folder of a run"),
        ([json.dumps(CONFIG)], {**CONFIG, "preset": "big"}, "differs in preset"),
        ([json.dumps(CONFIG), '{"config": {"preset": "a"}}'], CONFIG, "report of another run"),
        ([json.dumps(CONFIG), '{"evaluation": {}}'], None, "report of another run"),
        ([json.dumps(CONFIG), "{"], None, "cannot be read"),
    ],
)
def test_nothing_of_another_run_is_overwritten(tmp_path, files, config, message):
    files = dict(zip(("config.json", "report.json"), files, strict=False))
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    _, report = make_report(["run/update-2"])
    with pytest.raises(ValueError, match=message):
        write_report(report, tmp_path, config)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == files
