"""The commands of docs/scale.md: each is taken, and asks for what the page says. No cluster starts here.

What they do to a corpus is in ../recipes/test_bulk_ray.py.
"""

import re
import shlex
from pathlib import Path

import pytest

from keras_attention.cli.main import main
from keras_attention.data import token_store
from keras_attention.recipes import bulk
from keras_attention.recipes import order as recipe
from keras_attention.utils.run_folder import RunFolder
from tests.helpers import ROOT, contents
from tests.recipes.small_runs import write_files

pytestmark = pytest.mark.backends("torch")

TEXT = (ROOT / "docs" / "scale.md").read_text("utf-8")
COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
]


def arguments_of(line):
    """What the package's own command gets; what starts it comes before."""
    words = shlex.split(line)
    program = next(name for name in ("keras-attention", "keras_attention_light") if name in words)
    return words[: words.index(program)], words[words.index(program) + 1 :]


TRAINING = [line for line in COMMANDS if " train " in line and "--prepare-only" not in line]


@pytest.mark.parametrize("line", TRAINING)
def test_commands_that_train(line, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, "train", 0, 9)
    asked = []

    def record(corpus, config, output_dir, finish=False):
        asked.append((config, output_dir))
        return {"bleu": 1.5}

    monkeypatch.setattr(recipe, "train_translation", record)
    before, arguments = arguments_of(line)
    main(arguments)
    ((config, output_dir),) = asked
    strategies = {"torchrun": "data_parallel", "KERAS_BACKEND=jax": "data_parallel"}
    strategies |= {"KERAS_BACKEND=tensorflow": "mirrored"}
    wanted = [strategies[word] for word in before if word in strategies]
    assert config.strategy == (wanted[0] if wanted else None)
    assert config.row_multiple == 24 and output_dir == Path("runs/de-en")
    if "torchrun" in before:
        pytest.importorskip("torch")
        from torch.distributed.run import parse_args

        starter = parse_args([*before[before.index("torchrun") + 1 :], "keras_attention_light"])
        assert starter.module and starter.max_restarts == 3


TRANSLATING = [line for line in COMMANDS if " translate " in line]
ASKED = [{}, {"ray": "auto"}]


@pytest.mark.parametrize("line, expected", list(zip(TRANSLATING, ASKED, strict=True)))
def test_commands_that_translate(line, expected, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    run = RunFolder("runs/de-en")
    run.claim({"train_fingerprint": "ab", "beam_size": 4, "length_penalty": 0.6})
    run.model.write_bytes(b"")
    for name in ("b.gz", "a.gz"):
        (tmp_path / "corpus" / name).write_bytes(b"")
    asked = []

    def record(*given, **more):
        asked.append((given, more))
        return []

    monkeypatch.setattr(bulk, "translate_corpus", record)
    main(arguments_of(line)[1])
    ((given, more),) = asked
    assert given == ("runs/de-en", ["corpus/a.gz", "corpus/b.gz"], "translated")
    unset = dict.fromkeys(("unique", "aligned", "alignment_head"))
    assert more == {"n_best": 1, "as_json": False, **unset, **expected}


def test_the_command_that_prepares(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, "train", 0, 60)
    (line,) = (line for line in COMMANDS if "--prepare-only" in line)
    small = "--vocabulary-size 320 --preset tiny --steps 2 --batch-tokens 1920".split()
    main([*arguments_of(line)[1], *small])
    made = contents("runs/de-en")
    stores = {name.rpartition("/")[0] for name in made if name.startswith("store/")}
    assert len(stores) == 2 and "tokenizer/tokenizer.model" in made  # training and validation
    # A later start finds it all.
    monkeypatch.setattr(token_store, "_write_store", lambda *given: pytest.fail("encoded again"))
    main([*arguments_of(line)[1], *small])
    assert contents("runs/de-en") == made


def test_every_command_is_one_of_these():
    assert len(COMMANDS) == 11
    assert all(re.search(" (train|translate|score) ", line) for line in COMMANDS)
