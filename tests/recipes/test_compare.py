"""Decoding in several precisions, compared."""

import pytest

from keras_attention.recipes.compare import compare_precisions
from tests.decoding.letters import LetterTokenizer, random_texts, small_model

pytestmark = pytest.mark.backends("torch")  # with int8 once, where nothing is traced


def test_comparison():
    model, texts = small_model(), random_texts(5, longest=9)
    options = {"beam_size": 2, "max_extra_length": 1}
    names = ["plain", "float32", "int8"]
    results = compare_precisions(model, LetterTokenizer(), texts, texts, names, **options)
    assert list(results) == names
    assert results["plain"]["differs"] == results["float32"]["differs"] == 0
    assert results["plain"]["bleu"] == results["float32"]["bleu"]
    assert all(row["seconds"] > 0.0 for row in results.values())


def test_the_plain_search_is_in_float32_whatever_the_model_was_trained_in():
    model, texts = small_model(dtype="mixed_bfloat16"), random_texts(40, longest=9)
    options = {"beam_size": 2, "max_extra_length": 9}
    results = compare_precisions(
        model, LetterTokenizer(), texts, texts, ["plain", "float32", "bfloat16"], **options
    )
    assert results["float32"]["differs"] == 0
    assert results["bfloat16"]["differs"] > 0


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="`precision` must be one of"):
        compare_precisions(small_model(), LetterTokenizer(), ["bed"], ["bed"], ["float9"])
