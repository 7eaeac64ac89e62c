"""The commands and the code of docs/recipes.md, one after the other, with few updates and a small student."""

import contextlib
import io
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from keras_attention import corpus_from_files
from keras_attention.cli import train
from keras_attention.cli.main import main
from keras_attention.utils.files import read_json, write_json
from tests.helpers import ROOT
from tests.recipes.small_runs import write_files

pytestmark = pytest.mark.backends("torch")

TEXT = (ROOT / "docs" / "recipes.md").read_text("utf-8")
SMALL = (
    "--batch-tokens 1500 --max-shapes 2 --steps 2 --no-attention-log --preset tiny --hidden-dim 16"
)
SMALL = [*SMALL.split(), "--intermediate-dim", "24", "--num-heads", "2"]


def blocks(section):
    """Kind and text of each block of code of a section."""
    (text,) = (part for part in re.split("^## ", TEXT, flags=re.M) if part.startswith(section))
    return re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def place(made_run, tmp_path, monkeypatch):
    """A folder with a text, and with models that babble where the page trains them."""
    monkeypatch.chdir(tmp_path)
    for name, first in {"train": 0, "more": 20, "web": 30}.items():
        write_files(tmp_path, name, first, 20)
    (tmp_path / "more.en").unlink()
    corpus = corpus_from_files(("train.en", "train.de"), name="train")
    for name in ("TEACHER", "BACK"):
        folder = shutil.copytree(made_run, tmp_path / name)
        settings = read_json(folder / "config.json")
        texts = {f"{part}_fingerprint": text.fingerprint() for part, text in corpus.splits.items()}
        write_json(folder / "config.json", {**settings, **texts, "vocabulary_size": 320})
        for file in ("translations.txt", "references.txt"):
            lines = list(corpus.test.targets())
            (folder / file).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return tmp_path


def follow(section, skipped=()):
    """Run the blocks of a section; models that are there are not trained again."""
    namespace = {"corpus": corpus_from_files(("train.en", "train.de"), name="train")}
    for kind, text in blocks(section):
        if kind == "python":
            exec(text, namespace)
            continue
        for line in text.splitlines():
            line, _, output = line.partition(" > ")
            program, *words = shlex.split(line)
            if program == "sed":
                found = subprocess.run([program, *words], capture_output=True, check=True)
                Path(output).write_bytes(found.stdout)
                continue
            assert program == "keras-attention"
            named = words[words.index("--output-dir") + 1 :] if "--output-dir" in words else []
            if named and Path(named[0]).exists():
                train._parser(None, "train", {}, {}).parse_args(words[1:])
                continue
            if words[0] == "train":
                words += [*SMALL, "--vocabulary-size", "330"]
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                main(words)
            if output:
                Path(output).write_text(shown.getvalue(), "utf-8")


def test_back_translation(place):
    follow("Back-translation")
    tagged = (place / "tagged.en").read_text("utf-8").splitlines()
    back = (place / "more.en").read_text("utf-8").splitlines()
    assert tagged == [f"<bt> {line}" for line in back] and len(back) == 20
    assert read_json(place / "RUN" / "report.json")["config"]["symbols"] == ["<bt>"]
    assert read_json(place / "RUN" / "config.json")["mixture"] == ["clean:1", "back:1"]


def test_filtering(place):
    follow("Filtering")
    scores = [float(line) for line in (place / "scores.txt").read_text("utf-8").splitlines()]
    web = [(place / f"web.{side}").read_text("utf-8").splitlines() for side in ("en", "de")]
    rated = [s / (len(t.split()) + 1) for s, t in zip(scores, web[1], strict=True)]
    worst = sorted(range(20), key=rated.__getitem__)[:4]
    for side, lines in zip(("en", "de"), web, strict=True):
        kept = (place / f"kept.{side}").read_text("utf-8").splitlines()
        assert kept == [line for i, line in enumerate(lines) if i not in worst]
    assert (place / "FILTERED" / "model.keras").is_file()
