"""One forecast for a plan, a start and a continued run: updates, epochs, minutes."""

import dataclasses
import types

import pytest

from keras_attention import TranslationConfig, corpus_from_files
from keras_attention.data import load_corpus
from keras_attention.recipes.catalog import forecast_for, recipe_for
from keras_attention.recipes.loop import WorkBeside
from keras_attention.utils.forecast import Forecast
from tests.recipes.small_runs import write_files

pytestmark = pytest.mark.backends("tensorflow")

NEW = Forecast(steps=900, minutes=None, batches=40, advised=1000)
MEASURED = {"seconds": 0.8, "source": "as an update that was tried"}


@pytest.mark.parametrize(
    "known, expected",
    [
        ({}, "Budget: 900 updates, 22.5 epochs. How long an update takes is known after the first"),
        (MEASURED, "Budget: 900 updates, 22.5 epochs, about 12 minutes, at 0.80 s an update (as an update"),
        # 300 s are left, which make 375 updates; a run's budget is what is left of it.
        ({**MEASURED, "updates": 525, "spent": 450.0},
         "Budget: 375 of 900 updates left, 9.4 epochs, about 5 minut"),
        ({"steps": None, "minutes": 10},
         "Budget: 10 minutes of training. How long an update takes is known after the first of them. "
         "Compiling, validation and scores come on top."),
        ({"steps": None, "minutes": 10, **MEASURED},
         "10 minutes of training, about 750 updates, 18.8 epochs, at"),
        ({"steps": None, "minutes": 10, **MEASURED, "updates": 300, "spent": 240.0},
         "Budget: 6.0 of 10 minutes of training left, about 450 updates, 11.2 epochs, at"),
        ({"minutes": 8, **MEASURED}, "about 12 minutes; at most 8 minutes of training, about 600 updates"),
        ({"early": True}, "22.5 epochs, fewer if the validation perplexity stops improving. How"),
    ],
)  # fmt: skip
def test_it_says_what_is_known(known, expected):
    assert expected in str(dataclasses.replace(NEW, **known))


def test_validation_and_the_end_are_part_of_what_is_left():
    perplexity = types.SimpleNamespace(seconds=None)
    scores = types.SimpleNamespace(seconds=None, sources=["a"] * 10, every_epochs=3)
    beside = WorkBeside(perplexity, scores, batches=40, sentences=30, systems=4)
    forecast = dataclasses.replace(NEW, steps=200, updates=61)
    assert beside(forecast) == 0.0 and beside.ending is None
    perplexity.seconds = 2.0
    assert beside(forecast) == 4 * 2.0  # the ends of four more epochs
    scores.seconds = 5.0
    # One of the four translates; then four systems translate thrice as much.
    assert beside(forecast) == 4 * 2.0 + 5.0 + 4 * (2.0 + 15.0)
    assert beside.ending == beside(dataclasses.replace(forecast, updates=200)) == 68.0


@pytest.mark.parametrize(
    "known, expected",
    [
        ({"steps": 500}, ""),
        ({"steps": 120}, "This budget is 3.0 of the 25.0 epochs that the recipe advises"),
        # 2 minutes are 150 updates; after 400 that are done, they are 550.
        ({"steps": None, "minutes": 2, **MEASURED}, "3.8 of the 25.0 epochs"),
        ({"steps": None, "minutes": 2}, ""),
        ({"steps": None, "minutes": 7, **MEASURED, "updates": 400, "spent": 300.0}, ""),
    ],
)
def test_a_fraction_of_what_the_recipe_advises_is_told(known, expected):
    advice = dataclasses.replace(NEW, **known).advice
    assert expected in advice and bool(advice) == bool(expected)
    if advice:
        assert "expect poor translations. The whole is --steps 1000" in advice
        assert ("about 13 minutes" in advice) == ("seconds" in known)


@pytest.mark.parametrize(
    "known, expected",
    [
        ({}, None),
        (MEASURED, 720.0),
        ({**MEASURED, "updates": 525, "spent": 450.0}, 300.0),
        ({**MEASURED, "minutes": 8, "spent": 30.0}, 450.0),
        ({"steps": None, "minutes": 8, "spent": 30.0}, 450.0),
        ({"steps": None, "minutes": 8, "spent": 500.0}, 0.0),
    ],
)
def test_the_seconds_that_are_left(known, expected):
    assert dataclasses.replace(NEW, **known).seconds_left == pytest.approx(expected)


def test_fine_tuning_with_a_small_budget_gains_little():
    tuned = dataclasses.replace(NEW, steps=120, is_fine_tuned=True).advice
    assert "for this much text: expect a small gain. The whole is" in tuned


def test_the_advice_is_the_recipes_for_this_text(tmp_path):
    """In batches of another size, it is as many tokens."""
    config = TranslationConfig(steps=100, batch_tokens=512)
    recipe = recipe_for(60)
    corpus = corpus_from_files(
        write_files(tmp_path, "demo", 0, 60), name="demo"
    )  # a name of a corpus
    assert forecast_for(config, corpus, 7).advised == recipe.steps * recipe.batch_tokens / 512
    assert forecast_for(config, load_corpus("demo"), 7).advised == 1350 * 1536 / 512
