"""Intervals of means, against points of Student's t as tables print them."""

import math

import pytest

from keras_attention.experiments.fits import half_width

pytestmark = pytest.mark.backends("tensorflow")


@pytest.mark.parametrize(
    "freedom, point", [(1, 12.706), (2, 4.303), (10, 2.228), (11, 2.201), (30, 2.042), (99, 1.984)]
)
def test_half_the_interval_of_a_mean(freedom, point):
    number = freedom + 1
    values = [7.0 if index % 2 else 3.0 for index in range(number)]
    mean = sum(values) / number
    variance = sum((value - mean) ** 2 for value in values) / freedom
    assert half_width(values) == pytest.approx(point * math.sqrt(variance / number), rel=5e-4)


@pytest.mark.parametrize("values", [[], [2.5]])
def test_less_than_two_values_have_no_interval(values):
    assert half_width(values) == math.inf
