"""The rule of an argument stands in its annotation, `Annotated[int, Ge(1)]`; its check is made from it.

An annotation holds the bounds of `annotated_types`, or a check of its own: a function of name and value that
returns the value.
"""

from __future__ import annotations

import builtins
import collections.abc
import dataclasses
import functools
import inspect
import operator
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from annotated_types import Ge, Gt, Le, Lt

from keras_attention.utils import checks

Count = Annotated[int, Ge(1)]
FromZero = Annotated[int, Ge(0)]
LeastLength = Annotated[int, Ge(0), Le(10**6)]
Rate = Annotated[float, Ge(0), Lt(1)]
Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
LARGEST_BEAM = 1000  # The buffers of a search grow with its square.
BeamSize = Annotated[int, Ge(1), Le(LARGEST_BEAM)]
LengthPenalty = Annotated[float, Ge(0), Le(10)]
Depths = Annotated[int | Sequence[int], checks.check_depths]


def kind_of_name(name: str) -> Any:
    """Return Keras' module for what an argument names; None for a plain value."""
    if "initializer" not in name and name != "activation":
        return None
    import keras

    return keras.activations if name == "activation" else keras.initializers


def _check_named(name: str, value: Any) -> Any:
    """Raise a ValueError unless Keras knows what is named, or it is a function."""
    kind = kind_of_name(name)
    try:
        kind.get(value)
    except Exception as error:
        module = kind.__name__.rpartition(".")[-1]
        raise ValueError(
            f"`{name}` must be a name in `keras.{module}`, or one of them, or a function. "
            f"Received: {name}={checks.shown(value)}"
        ) from error
    return value


# An activation or an initializer.
Named = Annotated[Any, _check_named]

BOUNDS = {Ge: "least", Gt: "above", Le: "most", Lt: "below"}
SIMPLE = {
    bool: checks.check_boolean,
    str: checks.check_text,
    Path: checks.check_path,
    os.PathLike: checks.check_path,
}
SERIES = (list, collections.abc.Collection, collections.abc.Sequence, collections.abc.Iterable)
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def check(name: str, value: Any, rule: Any) -> Any:
    """Return a value as its annotation says, such as a tuple of a list; raise a ValueError if it is wrong.

    What an annotation does not say, as that of a model, is not checked.

    >>> check("steps", 3, Count | None), check("head", [4, 0], tuple[FromZero, FromZero])
    (3, (4, 0))
    >>> check("side", "top", Literal["source", "target"] | None)
    Traceback (most recent call last):
    ValueError: `side` must be one of 'source', 'target'. Received: side='top'
    """
    kinds = kinds_of(rule)
    if value is None and types.NoneType in kinds:
        return None
    kinds = tuple(kind for kind in kinds if kind is not types.NoneType)
    if str in kinds and len(kinds) == 2 and typing.get_origin(kinds[1]) is os.PathLike:
        checks.check_path(name, value)
        return value  # A handle, such as hf://owner/name, would not be the same as a path.
    if len(kinds) != 1:
        return value
    kind: Any = kinds[0]
    more: list[Any] = []
    if typing.get_origin(kind) is Annotated:
        kind, *more = typing.get_args(kind)
    for own in filter(callable, more):
        return own(name, value)
    bounds = {BOUNDS[type(one)]: dataclasses.astuple(one)[0] for one in more}
    return _checked(name, value, kind, bounds)


def _checked(name: str, value: Any, kind: Any, bounds: Mapping[str, Any]) -> Any:
    origin, parts = typing.get_origin(kind) or kind, typing.get_args(kind)
    if kind is int:
        return checks.check_integer(name, value, **bounds)
    if kind is float:
        return checks.check_number(name, value, **bounds)
    if origin in SIMPLE:
        return SIMPLE[origin](name, value)
    if origin is Literal:
        return checks.check_choice(name, value, parts)
    if origin in (dict, collections.abc.Mapping):
        return _checked_items(name, value, parts[-1] if parts else Any)
    if origin is collections.abc.Callable:
        return checks.check_callable(name, value)
    if origin in SERIES and parts == (str,):
        texts = checks.check_texts(name, value)
        return value if isinstance(value, list | tuple | collections.abc.Set) else texts
    if origin in SERIES:
        checks.check_iterable(name, value)
        is_lazy = origin is collections.abc.Iterable and not isinstance(value, list | tuple)
        rule = Any if is_lazy or not parts else parts[0]
        if rule is Any:
            return value
        return [check(f"{name}[{index}]", each, rule) for index, each in enumerate(value)]
    if origin is tuple and parts == (str, ...):
        return tuple(checks.check_texts(name, value))
    if origin is tuple and Ellipsis not in parts:
        if not isinstance(value, list | tuple) or len(value) != len(parts):
            raise ValueError(
                f"`{name}` must be a list or tuple of {len(parts)} values. "
                f"Received: {name}={checks.shown(value)}"
            )
        return tuple(map(check, [name] * len(parts), value, parts))
    is_ours = dataclasses.is_dataclass(kind)
    if is_ours and not isinstance(value, origin):
        raise ValueError(
            f"`{name}` must be `{origin.__name__}`. Received: {name}={checks.shown(value)}"
        )
    return value


def _checked_items(name: str, values: Any, rule: Any) -> Any:
    checks.check_has(name, values, "a dict", "items")
    if rule is Any:
        return values
    return {key: check(f"{name}[{key!r}]", value, rule) for key, value in values.items()}


class Has:
    """A check for what is known by its attributes, such as a Tokenizer of any kind.

    >>> check("tokenizer", 3, Annotated[Any, Has("a Tokenizer", "encode")])
    Traceback (most recent call last):
    ValueError: `tokenizer` must be a Tokenizer, with encode. Received: tokenizer=3
    """

    def __init__(self, what: str, *attributes: str):
        self.what, self.attributes = what, attributes

    def __call__(self, name: str, value: Any) -> Any:
        return checks.check_has(name, value, self.what, *self.attributes)


def kinds_of(rule: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the one type."""
    is_union = typing.get_origin(rule) in (typing.Union, types.UnionType)
    return typing.get_args(rule) if is_union else (rule,)


def bare(rule: Any) -> Any:
    """Return a type without what is annotated."""
    return typing.get_args(rule)[0] if typing.get_origin(rule) is Annotated else rule


def shown_type(rule: Any) -> Any:
    """Return an annotation as a signature shows it to people: its types alone.

    >>> shown_type(Count | None)
    int | None
    """
    return functools.reduce(operator.or_, map(bare, kinds_of(rule)))


@functools.cache
def rules(owner: Any) -> dict[str, Any]:
    """Return the annotations of a function's arguments, or of the fields of a class and its bases, by name.

    What is imported for type checkers alone is `Any`: no plain value is meant.
    """
    return {
        name: _evaluated(hint, one.__module__) if isinstance(hint, str) else hint
        for one in (reversed(owner.__mro__) if isinstance(owner, type) else [owner])
        for name, hint in inspect.get_annotations(one).items()
        if name != "return"
    }


class _Names(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, Any)


def _evaluated(hint: str, module: str) -> Any:
    holder, names = (
        types.SimpleNamespace(__annotations__={"hint": hint}),
        _Names(vars(sys.modules[module])),
    )
    return typing.get_type_hints(holder, {}, names, include_extras=True)["hint"]


def check_fields(made: Any) -> None:
    """Raise a ValueError if a field of a dataclass is not as annotated; a frozen one may be given.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Lengths:
    ...     longest: Count | None = None
    ...     __post_init__ = check_fields
    >>> Lengths(0)
    Traceback (most recent call last):
    ValueError: `longest` must be an int of at least 1. Received: longest=0
    """
    known = rules(made.__class__)
    for name in (field.name for field in dataclasses.fields(made)):
        object.__setattr__(made, name, check(name, getattr(made, name), known.get(name, Any)))


def checked(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function, so that its arguments are checked by their annotations before it is called.

    >>> @checked
    ... def best(scores: Sequence[str], number: Count = 1):
    ...     return scores[:number]
    >>> best(("a", "b"), number=0)
    Traceback (most recent call last):
    ValueError: `number` must be an int of at least 1. Received: number=0
    """
    signature = inspect.signature(function)
    series = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [name for name, one in signature.parameters.items() if one.kind not in series]

    @functools.wraps(function)
    def checking(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        given, known = signature.bind(*args, **kwargs), rules(function)
        for name in names:
            if name in known and name in given.arguments:
                given.arguments[name] = check(name, given.arguments[name], known[name])
        return function(*given.args, **given.kwargs)

    return checking


def meanings(cls: type) -> dict[str, str]:
    """Return what the docstrings of a class and its bases say under "Attributes:"; `python -OO` has none.

    >>> from keras_attention.spec.options import StackOptions
    >>> meanings(StackOptions)["num_heads"], meanings(StackOptions)["num_layers"]
    ("Number of heads N, the paper's h.", "Number of blocks, the paper's N.")
    """
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        section = (one.__doc__ or "").partition("Attributes:")[2]
        entries = re.split(r"\n {8}(?=\w+: )", section)
        pairs = (entry.partition(": ") for entry in entries[1:])
        found |= {name: " ".join(text.split()) for name, _, text in pairs}
    return found
