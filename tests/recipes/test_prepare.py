"""What is refused before tokenizer and token store are made, which takes an hour with a large text."""

import dataclasses
import sys

import pytest

from keras_attention.data import ParallelText, Tokenizer
from keras_attention.recipes import TranslationConfig, plan_training, train_translation
from keras_attention.recipes.catalog import BY_SIZE
from keras_attention.recipes.prepare import Resolved
from tests.recipes.small_runs import SMALL, small_corpus

pytestmark = pytest.mark.backends("tensorflow")

# Of a batch's 32,768 positions each of 1,000 rows gets 32.
MANY_PARTS = dataclasses.replace(SMALL, batch_tokens=32_768, accumulation_steps=1000)


def text(words):
    pairs = [("a small house", "ein kleines Haus"), (" ".join(words), "das ist kurz")]
    return ParallelText("mine", pairs)


@pytest.mark.parametrize("start", [train_translation, plan_training])
def test_rows_that_cannot_fit_are_refused_before_anything_is_made(start, tmp_path):
    corpus = dataclasses.replace(small_corpus(tmp_path), train=text(["word"] * 40))
    message = (
        r"`batch_tokens` \(32768\) is too small: the number of sentences in a batch is a multiple of 1000 .* "
        r"each may have at most 32 tokens, but pair 2 of 'mine' has a side of 40 words"
    )
    with pytest.raises(ValueError, match=message):
        start(corpus, MANY_PARTS, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_batches_too_small_for_any_row():
    with pytest.raises(ValueError, match=r"`batch_tokens` \(15\) is too small: .* multiple of 8 "):
        Resolved(dataclasses.replace(SMALL, batch_tokens=15)).check_model()
    Resolved(dataclasses.replace(SMALL, batch_tokens=16)).check_model()


PRETRAINED, GUIDED = {"start_from": "demo_en_de"}, {"guided_alignment": "gold"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": None}, "needs an end"),
        ({"checkpoint_minutes": 1.5, "checkpoint_updates": 7}, "=7, .*=1.5"),
        ({"bpe_dropout": 0.1, "tokenizer_algorithm": "wordpiece"}, "needs.* 'bpe'"),
        ({"final_model": "best"}, "'best' needs `best_by`"),
        ({"freeze": "encoder"}, "`freeze` .'encoder'.* is for a pretrained model"),
        ({"start_share": 0.3}, "`start_share` .0.3.* is for a pretrained model"),
        ({"lora": 3}, "`lora` .3. is for a pretrained model"),
        *(
            ({**PRETRAINED, "model_arguments": {name: 16}}, f"{name}', which the model of `start_from`")
            for name in ("num_layers", "hidden_dim")
        ),
        ({**PRETRAINED, "symbols": ("<x>",)}, "`symbols`.*`start_from`"),
        *(
            ({**PRETRAINED, "lora": 3, **more}, "`lora` .3. cannot be combined with `freeze`.*`ema`")
            for more in ({"freeze": "encoder"}, {"ema": 0.9})
        ),
        ({**GUIDED, "mixture": ("a:1",)}, "combined with `mixture`"),
        ({**GUIDED, **PRETRAINED, "freeze": "decoder"}, "head of the decoder"),
        ({"guided_alignment_head": (1, 0)}, "`guided_alignment_head` needs `guided_alignment`"),
        ({"guided_alignment_weight": 0.5}, "`guided_alignment_weight` needs `guided_alignment`"),
        ({**GUIDED, "guided_alignment_head": (-1, 0)}, "guided_alignment_head"),
        ({"guided_alignment": ""}, "guided_alignment"),
        ({"guided_alignment": "links", "tokenizer_algorithm": "wordpiece"}, "'bpe': word-pieces"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ValueError, match=message):
        TranslationConfig(**{"steps": 5, **settings})


def with_arguments(**arguments):
    both = {**SMALL.model_arguments, **arguments}
    return Resolved(dataclasses.replace(SMALL, model_arguments=both))


@pytest.mark.parametrize("depths", [(2, 1), [2, 1]])
def test_a_model_of_unequal_depths(depths):
    """As a tuple, and as the settings of a run are read back."""
    resolved = with_arguments(num_layers=depths, decoder_cell="ssru")
    resolved.check_model()
    model = resolved.untrained_model(300)
    assert (len(model.encoder_blocks), len(model.decoder_blocks)) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            {"num_layers": (2, 1001)},
            "`num_layers` must be an int of at least 1 and at most 1,000, or a",
        ),
        ({"num_layers": [2]}, "`num_layers` must be an int of at least 1"),
        ({"start_token_id": 3}, "has 'start_token_id', which a run takes from its tokenizer"),
        ({"target_vocabulary_size": 99}, "has 'target_vocabulary_size', which a run takes from"),
        ({"decoder_cel": "ssru"}, "Did you mean 'decoder_cell'"),
        ({"decoder_cell": "gru"}, "`decoder_cell` must be one of"),
    ],
)
def test_other_model_arguments_are_refused_before_any_work(arguments, problem):
    with pytest.raises(ValueError, match=problem):
        with_arguments(**arguments).check_model()


@pytest.mark.parametrize(
    "words",
    [
        ["word"] * 31,  # and the end token
        ["extraordinary"] * 40,  # may have more than `max_length` tokens: then it is left out
        ["-"] * 40,  # a word-piece may hold them all
    ],
)
def test_what_may_fit_is_not_refused(words):
    Resolved.of(MANY_PARTS).check(text(words))


def test_a_pair_with_an_empty_side_is_in_no_batch():
    Resolved.of(MANY_PARTS).check(ParallelText("mine", [("word " * 40, " ")]))


@pytest.mark.parametrize("config", [config for _, config in BY_SIZE], ids=lambda c: c.preset)
def test_the_settings_for_text_of_ones_own_take_pairs_of_any_length(config, tmp_path, capsys):
    lengths = [*range(1, 300, 3), 400, 5000, 40_000]  # tokens: words of one letter
    pairs = [(" ".join("x" * n), " ".join("y" * n)) for n in lengths]
    tokenizer = Tokenizer.train(["x y x y", "x x y y"], vocabulary_size=300)
    corpus = dataclasses.replace(
        small_corpus(tmp_path), train=ParallelText("t", pairs), validation=ParallelText("v", pairs)
    )
    train, validation = Resolved(config).batches(corpus, tokenizer, tmp_path / "store")
    assert train.longest <= config.max_length
    assert validation.longest > 390 and 1 <= validation.dropped_long <= 2
    assert "The perplexity of the validation part leaves out" in capsys.readouterr().err


def test_a_package_of_the_report_is_asked_for_before_the_training(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(ImportError, match="pip install sacremoses"):
        train_translation(small_corpus(tmp_path), SMALL, tmp_path / "run")
    assert not (tmp_path / "run").exists()
