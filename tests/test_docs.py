"""What the docs say of rooms and files is so."""

import importlib
import re
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

import keras_attention
from keras_attention.cli.main import main
from keras_attention.recipes.config import RESUMABLE_FIELDS
from tests.helpers import ROOT
from tests.test_architecture import ALLOWED, TOP

pytestmark = pytest.mark.backends("tensorflow")

PACKAGE = ROOT / "keras_attention"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_the_table_of_rooms_is_the_one_that_is_tested():
    rows = re.findall(r"^\| `(\w+)/` \|.*\|([^|]*)\|$", ARCHITECTURE, re.MULTILINE)
    rooms = {room: text.strip() for room, text in rows if (PACKAGE / room).is_dir()}
    assert rooms.keys() == ALLOWED.keys() | TOP
    for room, allowed in ALLOWED.items():
        assert set(re.findall(r"`(\w+)`", rooms[room])) == allowed, room
    assert {rooms[room] for room in TOP} == {"all of the above"}


def test_the_files_that_the_architecture_names_exist():
    names = set(re.findall(r"`([\w/]+/[\w.]+\.(?:py|js|md))`", ARCHITECTURE))
    assert len(names) > 10
    missing = [name for name in names if not any((at / name).exists() for at in (PACKAGE, ROOT))]
    assert not missing


@pytest.mark.parametrize(
    "path",
    [*(ROOT / "docs").glob("*.md"), *(ROOT / "dev").glob("*.md"), *ROOT.glob("*.md")],
    ids=lambda path: path.name,
)
def test_links_lead_somewhere(path):
    for target, anchor in re.findall(
        r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", path.read_text("utf-8")
    ):
        linked = path.parent / target if target else path
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text("utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in headings}
            assert anchor in anchors, (target, anchor)


def test_padding_does_not_matter_to_the_model_of_the_guide():
    guide = (ROOT / "docs" / "guides" / "own-model.md").read_text("utf-8")
    code = re.search(r"^inputs = .*?^outputs = .*?$", guide, re.MULTILINE | re.DOTALL)[0]
    names = {"keras": keras, "ka": keras_attention, "tokenizer": SimpleNamespace(vocabulary_size=9)}
    exec(code, names)
    model = keras.Model(names["inputs"], names["outputs"])
    ids = np.array([[5, 2, 7], [4, 8, 0]])
    padded = model.predict(np.pad(ids, ((0, 0), (0, 4))), verbose=0)
    np.testing.assert_allclose(padded, model.predict(ids, verbose=0), atol=1e-6)


def test_what_may_change_between_two_starts_is_what_a_run_lets_change():
    text = (ROOT / "docs" / "training.md").read_text("utf-8")
    sentence = re.search(r"([^.]*) may change between two starts\.", text)[1]
    options = re.findall(r"`--([\w-]+)`", sentence)
    assert {name.replace("-", "_") for name in options} == set(RESUMABLE_FIELDS)


def test_a_file_of_alignments_fits_the_text_of_the_docs_command(tmp_path, monkeypatch, capsys):
    text = (ROOT / "docs" / "training.md").read_text("utf-8").replace("\\\n", " ")
    command = re.search(r"keras-attention train( .*) --guided-alignment train.align", text)[1]
    monkeypatch.chdir(tmp_path)
    for name in re.findall(r"\w+\.(?:en|de)\b", command):
        Path(name).write_text("".join(f"ein {name} {i}\n" for i in range(60)), "utf-8")
    Path("train.align").write_text("0-0 1-1\n" * 60, "utf-8")
    sizes = ["--vocabulary-size", "300", "--plan-no-try"]
    main(["plan", *command.split(), "--guided-alignment", "train.align", *sizes])
    assert "Pairs: 60 an epoch" in capsys.readouterr().out


def test_the_options_of_all_commands_exist(capsys):
    """In README and docs: each option is one that the command's help shows, and each script is there."""
    known, scripts = {}, set()
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        text = path.read_text("utf-8")
        assert all(
            (ROOT / name).exists() for name in re.findall(r"(?<![\w/])examples/[\w/]+\.py", text)
        )
        blocks = re.findall(r"```(?:sh|bash)\n(.*?)```", text, re.DOTALL)
        for line in "".join(blocks).replace("\\\n", " ").splitlines():
            words = line.partition(" # ")[0].split()
            assert all((ROOT / word).exists() for word in words if re.match(r"[\w/]+\.py$", word))
            for script in re.findall(r"examples/paper/(\w+)\.py", line):
                shown = importlib.import_module(script).parser().format_help()
                options = set(re.findall(r" (--[\w-]+)", line))
                assert options <= set(re.findall(r"--[\w-]+", shown)), (path.name, line)
                scripts.add(script)
            for program in {"keras-attention", "keras_attention_light"}.intersection(words):
                command, *rest = words[words.index(program) + 1 :]
                if command not in known and command != "--help":
                    with pytest.raises(SystemExit):
                        main([command, "--help"])
                    known[command] = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
                options = {word.partition("=")[0] for word in rest if word.startswith("--")}
                assert options <= known[command], (path.name, line)
    assert {"train", "plan", "translate", "attention", "evaluate", "score"} <= known.keys()
    assert len(scripts) > 2
