"""The Python code of the README and of the docs runs as it stands there."""

import ast
import doctest
import re
from pathlib import Path

import pytest

from tests.recipes.small_runs import untrained_run

pytestmark = pytest.mark.backends("tensorflow")

README = Path(__file__).resolve().parent.parent / "README.md"
PARSING = README.parent / "docs" / "parsing.md"
TUNING = PARSING.with_name("fine-tuning.md")
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def python_blocks(text):
    """(line number, code) of each block that is fenced as Python."""
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield text.count("\n", 0, match.start(1)), match.group(1)


def run(blocks, name):
    """Runs blocks, one after the other in one namespace; `>>>` must print what it shows."""
    namespace = {"__name__": "__main__"}
    for line, code in blocks:
        if ">>> " in code:
            examples = doctest.DocTestParser().get_doctest(code, {}, name, name, line)
            examples.globs = namespace
            runner = doctest.DocTestRunner(optionflags=OPTIONS)
            runner.run(examples, clear_globs=False)
            assert runner.summarize(verbose=False).failed == 0, f"see above: {name}, line {line}"
        else:
            exec(compile("\n" * line + code, name, "exec"), namespace)


def test_readme(tmp_path, monkeypatch):
    """In an empty folder, with the text files that a user would have: `train.en`, `train.de`."""
    from keras_attention.data import load_corpus

    monkeypatch.chdir(tmp_path)
    pairs = [pair for pair, _ in zip(load_corpus("demo").train, range(120), strict=False)]
    for index, language in enumerate(("en", "de")):
        lines = "".join(f"{pair[index]}\n" for pair in pairs)
        Path(f"train.{language}").write_text(lines, encoding="utf-8")
    blocks = list(python_blocks(README.read_text(encoding="utf-8")))
    assert blocks, "the README shows no Python code"
    run(blocks, str(README))


def test_a_constraint_of_the_docs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "RUN").mkdir()
    untrained_run(Path("RUN"))
    run(python_blocks(PARSING.read_text(encoding="utf-8")), str(PARSING))
    forced, free = ast.literal_eval(capsys.readouterr().out.splitlines()[-1])
    assert forced.startswith("Der Hund") and not free.startswith("Der Hund")


def test_lora_of_the_docs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = list(python_blocks(TUNING.read_text(encoding="utf-8")))
    assert any("save_lora_weights" in code for _, code in blocks)
    run(blocks, str(TUNING))


def test_wrong_code_is_noticed():
    good = "text\n```python\nx = 3\n```\n\n```python\n>>> x + 1\n4\n```\n"
    run(python_blocks(good), "good")
    with pytest.raises(AssertionError, match="see above: bad"):
        run(python_blocks(good.replace("4", "5")), "bad")
    with pytest.raises(NameError):
        run(python_blocks(good.replace("x = 3", "x = y")), "bad")
