"""What `keras-attention translate` takes, and what it leaves alone, with a model of the package."""

import io
import sys
import types

import pytest

from keras_attention.cli.translate import main

pytestmark = pytest.mark.backends("tensorflow")
MODEL = ["demo_en_de", "--engine", "numpy"]


def typed(monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(text)))


def test_a_dash_is_the_standard_input(monkeypatch, capsys):
    typed(monkeypatch, b"The dog sleeps.\n")
    main([*MODEL, "--input", "-"], "translate")
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.parametrize(
    "text, message",
    [
        (b"a\n" + b"b" * 301, "Line 2 has 301 characters; at most 300"),
        (b"a" * 20_001, "Line 1 has 20,001 characters; at most 20,000"),
    ],
)
def test_a_line_that_is_too_long_is_named(monkeypatch, text, message):
    typed(monkeypatch, text)
    longest = ["--max-line", "300"] if b"b" in text else []
    with pytest.raises(ValueError, match=message):
        main([*MODEL, *longest], "translate")


def test_a_result_that_came_meanwhile_is_not_replaced(monkeypatch, tmp_path):
    output = tmp_path / "out"

    class Meanwhile(io.BytesIO):
        def readinto1(self, buffer):
            output.write_text("theirs")
            return super().readinto1(buffer)

    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=Meanwhile(b"a\n")))
    with pytest.raises(FileExistsError, match="was left as it is"):
        main([*MODEL, "--output", str(output)], "translate")
    assert output.read_text() == "theirs"
