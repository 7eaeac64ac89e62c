"""Checks of public arguments. Each error names the parameter, what is expected and what was received.

Every check returns the value, so it can be used in an assignment.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import math
import numbers
import os
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

Checked = TypeVar("Checked")


def shown(value: Any) -> str:
    """Return a value as a message shows it, cut where it is long.

    >>> shown("ab"), shown([7] * 1000)[-9:]
    ("'ab'", ' 7, 7,...')
    """
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."


def check_integer(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Raise a ValueError unless a value is an integer (not a bool) in a range."""
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if is_integer and (least is None or value >= least) and (most is None or value <= most):
        return int(value)
    if least is None or most is None:
        bounds = "" if least is None else f" of at least {least:,}"
        bounds = bounds if most is None else f" of at most {most:,}"
    else:
        bounds = f" from {least:,} to {most:,}"
    raise ValueError(f"`{name}` must be an int{bounds}. Received: {name}={shown(value)}")


def check_depths(name: str, value: Any, most: int | None = None) -> int | tuple[int, int]:
    """Raise a ValueError unless a value is an integer of at least 1, or a pair of them.

    >>> check_depths("num_layers", 6), check_depths("num_layers", [6, 2])
    (6, (6, 2))
    """
    is_pair = isinstance(value, list | tuple) and len(value) == 2
    try:
        pair = [check_integer(name, depth, 1, most) for depth in (value if is_pair else [value])]
    except ValueError:
        at_most = "" if most is None else f" and at most {most:,}"
        raise ValueError(
            f"`{name}` must be an int of at least 1{at_most}, or a pair of them, for encoder and decoder. "
            f"Received: {name}={shown(value)}"
        ) from None
    return pair[0] if len({*pair}) == 1 else (pair[0], pair[1])


def depths_of(num_layers: int | Sequence[int]) -> tuple[int, int]:
    """Return the numbers of layers of encoder and decoder, of one number or a pair.

    >>> depths_of(6), depths_of((6, 2))
    ((6, 6), (6, 2))
    """
    if isinstance(num_layers, Sequence):
        encoder, decoder = num_layers
        return encoder, decoder
    return num_layers, num_layers


def check_number(
    name: str,
    value: Any,
    least: float | None = None,
    most: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
) -> float:
    """Raise a ValueError unless a value is a finite number in a range."""
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
        f"`{name}` must be a finite number{wanted and ' '}{wanted}. Received: {name}={shown(value)}"
    )


def check_boolean(name: str, value: Any) -> bool:
    """Raise ValueError unless a value is True or False."""
    if isinstance(value, bool):
        return value
    raise ValueError(f"`{name}` must be True or False. Received: {name}={shown(value)}")


def check_choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Raise a ValueError unless a value is one of the choices."""
    if isinstance(value, str) and value in choices:
        return value
    listed = ", ".join(map(repr, choices))
    raise ValueError(f"`{name}` must be one of {listed}. Received: {name}={shown(value)}")


def did_you_mean(word: Any, known: Iterable[str]) -> str:
    """Return a sentence, after a space, that suggests the most similar known word; or "".

    >>> did_you_mean("n_layers", ["num_heads", "num_layers"])
    " Did you mean 'num_layers'?"
    >>> did_you_mean("colour", ["num_heads", "num_layers"])
    ''
    """
    names = {name.lower(): name for name in known}
    similar = difflib.get_close_matches(str(word).lower(), names, 1)
    return f" Did you mean {names[similar[0]]!r}?" if similar else ""


def check_path(name: str, value: Any) -> Path:
    """Raise ValueError unless a value is text or a path that can name a file."""
    if isinstance(value, str | os.PathLike):
        text = os.fspath(value)
        if isinstance(text, str) and text and "\0" not in text:
            try:
                os.lstat(text)
            except UnicodeEncodeError:
                raise ValueError(
                    f"`{name}` holds half of a surrogate pair, which no name of a file has. "
                    f"Received: {name}={shown(value)}"
                ) from None
            except OSError as error:  # Whether anything is there is asked elsewhere.
                if error.errno == errno.ENAMETOOLONG:
                    raise ValueError(
                        f"`{name}` is too long for its file system: its name has "
                        f"{len(os.fsencode(os.path.basename(text)))} bytes, the whole path "
                        f"{len(os.fsencode(text))}. Choose a shorter one. Received: {name}='{text[:60]}...'"
                    ) from None
            return Path(text)
    raise ValueError(
        f"`{name}` must be a path, a str or `pathlib.Path`. Received: {name}={shown(value)}"
    )


def check_text(name: str, value: Any) -> str:
    """Raise ValueError unless a value is a str."""
    if isinstance(value, str):
        return value
    raise ValueError(f"`{name}` must be a str. Received: {name}={shown(value)}")


def has_surrogate(text: str) -> bool:
    """Whether a text holds half of a surrogate pair, which is no character."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def check_texts(name: str, values: Any) -> list[str]:
    """Raise a ValueError unless a value is a list, or another iterable with an order, of str."""
    if can_iterate(values) and not isinstance(values, str | bytes | Mapping | set | frozenset):
        texts = list(values)
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise ValueError(
                    f"`{name}` must be a list of str. Received: {name}[{index}]={shown(text)}"
                )
        return texts
    raise ValueError(f"`{name}` must be a list of str. Received: {name}={shown(values)}")


def check_callable(name: str, value: Any) -> Callable[..., Any]:
    """Raise ValueError unless a value can be called."""
    if callable(value):
        return value
    raise ValueError(f"`{name}` must be a function. Received: {name}={shown(value)}")


def check_optional(
    check: Callable[..., Checked], name: str, value: Any, *arguments: Any, **bounds: Any
) -> Checked | None:
    """Call a check of this module, unless the value is None."""
    return None if value is None else check(name, value, *arguments, **bounds)


def check_intervals(minutes: float | None, updates: int | None, prefix: str = "") -> None:
    """Refuse `minutes` and `updates` together; `prefix` is put before their names."""
    if updates is not None and minutes is not None:
        raise ValueError(
            f"`{prefix}updates` and `{prefix}minutes` must not both be given. "
            f"Received: {prefix}updates={updates}, {prefix}minutes={minutes}"
        )


def check_has(name: str, value: Any, what: str, *attributes: str) -> Any:
    """Raise a ValueError unless a value has the attributes of what it should be, such as "a Tokenizer"."""
    missing = [attribute for attribute in attributes if not hasattr(value, attribute)]
    if missing:
        raise ValueError(
            f"`{name}` must be {what}, with {', '.join(missing)}. Received: {name}={shown(value)}"
        )
    return value


def check_iterable(name: str, values: Any) -> Any:
    """Raise a ValueError unless a value can be iterated and is not a str."""
    has_items = isinstance(values, Iterable) or hasattr(values, "__getitem__")
    is_other = isinstance(
        values, str | bytes | Mapping | type
    )  # `list` itself has `__getitem__`, too.
    if has_items and getattr(values, "ndim", 1) != 0 and not is_other:
        return values
    raise ValueError(
        f"`{name}` must be a list or another iterable. Received: {name}={shown(values)}"
    )


def can_iterate(value: Any) -> bool:
    """Whether a value can be iterated; an array without axes, which has the method, cannot."""
    return isinstance(value, Iterable) and getattr(value, "ndim", 1) != 0


def counted(number: int, thing: str) -> str:
    """Return a number and what it counts, for messages.

    >>> counted(1, "checkpoint"), counted(2000, "line")
    ('1 checkpoint', '2,000 lines')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def divisors(number: int) -> str:
    """Return the divisors of a number, for error messages."""
    return ", ".join(str(n) for n in range(1, number + 1) if number % n == 0)


def check_numbers(name: str, value: Any, axes: str | None = None, **sizes: int | None) -> Any:
    """Return an array or a tensor of numbers; raise a ValueError for anything else. Lists become arrays.

    Values are not looked at: in a compiled graph a tensor has none. `axes` has a letter for each axis, as
    `"BTD"`, after "..." if there may be others before them, or is None for any; `sizes` are those of
    letters, where they are known.

    >>> check_numbers("mask", [[True, False]], "BS", S=2).shape
    (1, 2)
    >>> check_numbers("mask", [[True, False]], "BS", S=3)
    Traceback (most recent call last):
    ValueError: `mask` must have the shape (B, S), with S=3. Received: shape (1, 2)
    """
    array = value
    if isinstance(value, list | tuple):
        import numpy as np  # Only here: the help of a command does without.

        with contextlib.suppress(ValueError):  # of rows that differ in length
            array = np.asarray(value)
    check_byte_order(name, array)
    dtype = str(getattr(array, "dtype", ""))
    if not hasattr(array, "shape") or not any(kind in dtype for kind in ("float", "int", "bool")):
        wanted = "" if axes is None else f" ({', '.join(axes)})"
        kind = f"dtype {dtype}" if dtype else f"{type(value).__name__} {reprlib.repr(value)}"
        raise ValueError(
            f"`{name}` must be an array or a tensor of numbers{wanted}, whose rows have the same length. "
            f"Received: {kind}"
        )
    shape = static_shape(array)
    if axes is None or shape is None:
        return array
    known = {letter: size for letter, size in sizes.items() if size is not None}
    letters = axes.removeprefix("...")
    tail = shape[max(0, len(shape) - len(letters)) :] if letters != axes else shape
    if len(tail) != len(letters) or any(
        size is not None and size != known.get(letter, size)
        for letter, size in zip(letters, tail, strict=True)
    ):
        axes = axes.replace("...", "*")
        listed = ", ".join(f"{x}={known[x]}" for x in dict.fromkeys(axes) if x in known)
        raise ValueError(
            f"`{name}` must have the shape ({', '.join(axes)}){listed and ', with '}{listed}. "
            f"Received: shape {shape}"
        )
    return array


def check_byte_order(name: str, array: Any) -> None:
    """Raise a ValueError for a NumPy array whose numbers have another byte order than this machine's.

    >>> import numpy as np
    >>> check_byte_order("x", np.zeros(3, np.dtype("int32").newbyteorder()))
    Traceback (most recent call last):
    ValueError: `x` must hold numbers in this machine's byte order. Received: ... Pass x.astype('int32').
    """
    dtype: Any = getattr(array, "dtype", None)
    if getattr(dtype, "isnative", True):
        return
    raise ValueError(
        f"`{name}` must hold numbers in this machine's byte order. Received: dtype {dtype.str}, an array of "
        f"another machine or file format. Pass {name}.astype({dtype.name!r})."
    )


def static_shape(tensor: Any) -> tuple[int | None, ...] | None:
    """Return a shape, with None for sizes that are not known yet; None if not even their number is."""
    shape = tensor.shape
    if getattr(shape, "rank", 0) is None:  # TensorFlow's
        return None
    return tuple(size if isinstance(size, int) else None for size in shape)
