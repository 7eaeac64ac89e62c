"""What is refused before tokenizer and token store are made, which takes an hour with a large text."""

import dataclasses

import pytest

from keras_attention.data import ParallelText, Tokenizer
from keras_attention.recipes import train_translation
from keras_attention.recipes.catalog import BY_SIZE
from keras_attention.recipes.plan import plan_training
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
