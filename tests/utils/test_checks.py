import math
import os
from pathlib import Path

import numpy as np
import pytest

from keras_attention.utils import checks

pytestmark = pytest.mark.backends("tensorflow")

NO_NUMBERS = [None, "3", [3], float("nan"), float("inf"), True, np.array([3]), 3j, object()]


@pytest.mark.parametrize("value", [*NO_NUMBERS, 3.0, 2.5, 0, 10])
def test_no_such_integer(value):
    with pytest.raises(ValueError, match="`size` must be an int from 1 to 9. Received: size="):
        checks.check_integer("size", value, 1, 9)


def test_integers():
    assert checks.check_integer("size", np.int32(3), least=3) == 3
    assert type(checks.check_integer("size", np.int32(3))) is int
    with pytest.raises(ValueError, match="an int of at least 4. Received: size=3"):
        checks.check_integer("size", 3, least=4)
    with pytest.raises(ValueError, match="an int of at most 2. Received: size=3"):
        checks.check_integer("size", 3, most=2)
    with pytest.raises(ValueError, match="an int. Received: size='a'"):
        checks.check_integer("size", "a")


@pytest.mark.parametrize("value", [*NO_NUMBERS, -0.1, 1, 1.5])
def test_no_such_number(value):
    message = "`rate` must be a finite number at least 0 and below 1. Received: rate="
    with pytest.raises(ValueError, match=message):
        checks.check_number("rate", value, least=0, below=1)


def test_numbers():
    assert checks.check_number("rate", 0, least=0, below=1) == 0.0
    assert checks.check_number("rate", np.float32(0.5), above=0) == 0.5
    assert checks.check_number("rate", math.pi, most=4) == math.pi
    with pytest.raises(ValueError, match="above 0. Received: rate=0"):
        checks.check_number("rate", 0, above=0)
    with pytest.raises(ValueError, match="a finite number. Received: rate='a'"):
        checks.check_number("rate", "a")


@pytest.mark.parametrize("value", [None, "yes", 1, 0.0, [], np.True_])
def test_no_truth_value(value):
    with pytest.raises(ValueError, match="`shuffle` must be True or False. Received: shuffle="):
        checks.check_boolean("shuffle", value)
    assert checks.check_boolean("shuffle", False) is False


@pytest.mark.parametrize("value", [None, "c", ["a"], {}, 3])
def test_no_such_choice(value):
    with pytest.raises(ValueError, match="`kind` must be one of 'a', 'b'. Received: kind="):
        checks.check_choice("kind", value, ("a", "b"))
    assert checks.check_choice("kind", "a", {"a": 1}) == "a"


@pytest.mark.parametrize("value", [None, "", 3, float("nan"), ["a"], b"a", "a\0b"])
def test_no_path(value):
    with pytest.raises(ValueError, match="`folder` must be a path.*Received: "):
        checks.check_path("folder", value)
    assert checks.check_path("folder", "a/b") == checks.check_path("folder", Path("a/b"))


@pytest.mark.parametrize("value", ["\ud800", "a/b\udfff/c", Path("\ud83d")])
def test_half_a_character_is_in_no_path(value):
    with pytest.raises(ValueError, match="`folder` holds half of a surrogate pair"):
        checks.check_path("folder", value)
    undecodable = os.fsdecode(b"a\xff")  # Python's name for a file whose name is no UTF-8
    assert checks.check_path("folder", undecodable) == Path(undecodable)


@pytest.mark.parametrize("check", [checks.check_texts, checks.check_iterable])
def test_arrays_without_axes_hold_nothing(check):
    with pytest.raises(ValueError, match=r"`given` must be a list .*Received: given=array\(3\)"):
        check("given", np.array(3))


def test_what_only_looks_like_a_list_holds_nothing():
    for value in (list, {"a": 1}, "ab"):
        with pytest.raises(ValueError, match="another iterable"):
            checks.check_iterable("pairs", value)
