import os
from pathlib import Path

import numpy as np
import pytest

from keras_attention.utils import checks

pytestmark = pytest.mark.backends("tensorflow")


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


def test_a_message_shows_the_beginning_of_a_long_value():
    with pytest.raises(ValueError, match=r"^`text` must be pieces, with encode\.") as refused:
        checks.check_has("text", ["a", "b"] * 10**5, "pieces", "encode")
    assert str(refused.value).endswith("'b',...") and len(str(refused.value)) < 400
