"""Arguments checked at the public doors: each error names the parameter, what was expected and what came.

Every check returns the value, so that it can be used where it is assigned.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any


def check_integer(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Raise ValueError unless a value is an integer in a range; truth values are none.

    >>> check_integer("num_heads", 8, least=1)
    8
    """
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if is_integer and (least is None or value >= least) and (most is None or value <= most):
        return int(value)
    if least is None or most is None:
        bounds = "" if least is None else f" of at least {least:,}"
        bounds = bounds if most is None else f" of at most {most:,}"
    else:
        bounds = f" from {least:,} to {most:,}"
    raise ValueError(f"`{name}` must be an int{bounds}. Received: {name}={value!r}")


def check_number(
    name: str,
    value: Any,
    least: float | None = None,
    most: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
) -> float:
    """Raise ValueError unless a value is a finite number in a range.

    Args:
        name: The parameter's name.
        value: What came for it.
        least, most: Bounds that are allowed themselves.
        above, below: Bounds that are not.

    >>> check_number("dropout", 0.1, least=0, below=1)
    0.1
    """
    bounds = {"at least": least, "above": above, "at most": most, "below": below}
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value):
        number = float(value)
        if (
            (least is None or number >= least)
            and (above is None or number > above)
            and (most is None or number <= most)
            and (below is None or number < below)
        ):
            return number
    wanted = " and ".join(
        f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None
    )
    raise ValueError(
        f"`{name}` must be a finite number{wanted and ' '}{wanted}. Received: {name}={value!r}"
    )


def check_boolean(name: str, value: Any) -> bool:
    """Raise ValueError unless a value is True or False.

    >>> check_boolean("shuffle", True)
    True
    """
    if isinstance(value, bool):
        return value
    raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}")


def check_choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Raise ValueError unless a value is one of a few words.

    >>> check_choice("algorithm", "bpe", ("bpe", "wordpiece"))
    'bpe'
    """
    if isinstance(value, str) and value in choices:
        return value
    listed = ", ".join(map(repr, choices))
    raise ValueError(f"`{name}` must be one of {listed}. Received: {name}={value!r}")


def check_path(name: str, value: Any) -> Path:
    """Raise ValueError unless a value is text or a path that can name a file.

    >>> check_path("folder", "run").name
    'run'
    """
    if isinstance(value, str | os.PathLike):
        text = os.fspath(value)
        if isinstance(text, str) and text and "\0" not in text:
            return Path(text)
    raise ValueError(f"`{name}` must be a path, as text or `pathlib.Path`. Received: {value!r}")
