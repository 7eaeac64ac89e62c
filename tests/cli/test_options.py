"""Settings in files: of which types they are, and that they are those of the model."""

from pathlib import Path

import pytest

from keras_attention import PRESETS
from keras_attention.cli import train_settings
from keras_attention.cli.options import read_toml
from keras_attention.recipes.config import NOT_OF_A_RUN, model_rules
from keras_attention.spec import TransformerOptions
from keras_attention.utils.arguments import Depths, FromZero, bare, kinds_of, rules

pytestmark = pytest.mark.backends("torch")

# What a TOML file may hold, and the types of settings that it is right for.
TOML = {
    "9": (int,),
    "0.25": (float,),
    "true": (bool,),
    "'some text'": (str, Path),
    "''": (),
    "[1]": (),
    "[6, 2]": (tuple[int, int],),
    "[6, 2.5]": (),
    "['a', 'b']": (tuple[Path, Path], tuple[str, ...]),
    "['a', 1]": (),
    "['a', 'b', 'c']": (tuple[str, ...],),
    "{a = 1}": (),
    "2020-01-01": (),
}


def settings():
    """A setting of each annotation."""
    found = {}
    for outer, known in (
        ("%s", train_settings.settings()),
        ("model_arguments = {%s}", model_rules()),
    ):
        for name, rule in known.items():
            found.setdefault((outer, str(rule)), (outer, name, rule))
    return found.values()


def test_a_setting_of_another_type_is_refused(tmp_path):
    file = tmp_path / "run.toml"
    for outer, name, rule in settings():
        kinds = {*map(bare, kinds_of(rule))}
        if rule == Depths:
            kinds = {int, tuple[int, int]}
        elif tuple[FromZero, FromZero] in kinds:
            kinds = {tuple[int, int]}
        for text, right_for in TOML.items():
            file.write_text(outer % f"{name} = {text}")
            if {*right_for} & kinds:
                read_toml(file, train_settings.settings(), model_rules())
                continue
            if text == "9" and float in kinds:  # Some end below.
                continue
            with pytest.raises(ValueError, match=f"run.toml'.*({name}` must|unknown)") as error:
                read_toml(file, train_settings.settings(), model_rules())
                pytest.fail(f"{name} = {text} was accepted")
            told = str(error.value)
            assert f"Received: {name}" in told or "unknown" in told


def test_presets_set_what_a_run_may_set():
    of_presets = {name for preset in PRESETS.values() for name in preset}
    assert of_presets <= model_rules().keys() < rules(TransformerOptions).keys()
    assert {*NOT_OF_A_RUN} <= rules(TransformerOptions).keys()
